// SPDX-License-Identifier: Apache-2.0
// The launch calls of CUDA 3: block shape, shared memory and parameters are state of the function.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class LegacyLaunchTest : public CudaTest {};

TEST_F(LegacyLaunchTest, ParametersThenLaunch) {
  Buffer data(1024);
  Module module(basic_ptx());
  CUfunction affine = module.function("affine");
  CUdeviceptr address = data;
  OK(cuMemsetD32_v2(data, 4, 256));
  OK(cuFuncSetBlockShape(affine, 128, 1, 1));
  OK(cuFuncSetSharedSize(affine, 0));
  OK(cuParamSetv(affine, 0, &address, 8));
  OK(cuParamSeti(affine, 8, 3));
  OK(cuParamSeti(affine, 12, 1));
  OK(cuParamSeti(affine, 16, 256));
  OK(cuParamSetSize(affine, 20));
  OK(cuLaunchGrid(affine, 2, 1));
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 13));
  Stream stream;
  OK(cuLaunchGridAsync(affine, 1, 1, stream));  // the state stays
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 256)[0], 40u);
  EXPECT_EQ(read_words(data, 256)[128], 13u);
}

TEST_F(LegacyLaunchTest, Errors) {
  Module module(basic_ptx());
  CUfunction affine = module.function("affine");
  INVALID(cuFuncSetBlockShape(affine, 0, 1, 1));
  INVALID(cuParamSetSize(affine, 1u << 30));
}

// A driver may copy before it looks.
NULL_TEST(LegacyLaunchProcess, ParameterBeforeTheFirst) {
  attach();
  Module module(basic_ptx());
  CUfunction affine = module.function("affine");
  INVALID(cuParamSetv(affine, -1, &affine, 4));
}
NULL_TEST(LegacyLaunchProcess, ParameterFromNull) {
  attach();
  Module module(basic_ptx());
  INVALID(cuParamSetv(module.function("affine"), 0, nullptr, 4));
}

}  // namespace
}  // namespace tendril::conformance
