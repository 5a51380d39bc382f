// SPDX-License-Identifier: Apache-2.0
// What a driver tells about itself: its error log, and the first version of the stream's memory
// operations, which most drivers keep switched off.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class DiagnosticsTest : public CudaTest {};

TEST_F(DiagnosticsTest, Logs) {
  int version = 0;
  OK(cuDriverGetVersion(&version));
  if (version < 12090) GTEST_SKIP() << "the driver's log is newer";
  CUlogIterator at = 0;
  char text[25600] = "?";
  size_t size = sizeof text;
  OK(cuLogsCurrent(&at, 0));
  OK(cuLogsDumpToMemory(&at, text, &size, 0));
  EXPECT_LT(size, sizeof text);
  INVALID(cuLogsCurrent(nullptr, 0));
}

TEST_F(DiagnosticsTest, FirstVersionOfMemoryOperations) {
  Buffer data(4);
  Stream stream(CU_STREAM_DEFAULT);
  OK(cuMemsetD32_v2(data, 1, 1));
  const bool on = attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1) != 0;
  EXPECT_CU(cuStreamWriteValue32(stream, data, 8, 0), on ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 1)[0], on ? 8u : 1u);
}

}  // namespace
}  // namespace tendril::conformance
