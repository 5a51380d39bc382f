// SPDX-License-Identifier: Apache-2.0
// Conformance of events: creation, recording, waiting, timing.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class EventTest : public CudaTest {};

TEST_F(EventTest, CreateWithEveryFlag) {
  for (unsigned flags : {0u, 1u, 2u, 3u}) {
    CUevent event = nullptr;
    OK(cuEventCreate(&event, flags));
    OK(cuEventDestroy_v2(event));
  }
}

TEST_F(EventTest, CreateErrors) {
  CUevent event = nullptr;
  INVALID(cuEventCreate(nullptr, 0));
  INVALID(cuEventCreate(&event, 0x100));
  // Interprocess events must have timing disabled.
  INVALID(cuEventCreate(&event, CU_EVENT_INTERPROCESS));
}

TEST_F(EventTest, NullHandles) {
  float ms = 0;
  Event event;
  BAD_HANDLE(cuEventDestroy_v2(nullptr));
  BAD_HANDLE(cuEventRecord(nullptr, nullptr));
  BAD_HANDLE(cuEventQuery(nullptr));
  BAD_HANDLE(cuEventSynchronize(nullptr));
  BAD_HANDLE(cuEventElapsedTime_v2(&ms, nullptr, event));
  BAD_HANDLE(cuEventElapsedTime_v2(&ms, event, nullptr));
}

TEST_F(EventTest, UnrecordedIsComplete) {
  Event event;
  OK(cuEventQuery(event));
  OK(cuEventSynchronize(event));
}

TEST_F(EventTest, RecordQuerySynchronize) {
  Stream stream;
  Event event;
  Gate gate;
  gate.block(stream);
  OK(cuEventRecord(event, stream));
  EXPECT_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuEventSynchronize(event));
  OK(cuEventQuery(event));
}

TEST_F(EventTest, BlockingSyncWaits) {
  Stream stream;
  Event event(CU_EVENT_BLOCKING_SYNC);
  Buffer data(4096);
  Pinned host(4096);
  OK(cuMemsetD32Async(data, 77, 1024, stream));
  OK(cuMemcpyDtoHAsync_v2(host.data(), data, 4096, stream));
  OK(cuEventRecord(event, stream));
  OK(cuEventSynchronize(event));
  EXPECT_EQ(host.words()[1023], 77u);
}

TEST_F(EventTest, RecordAgainMovesTheEvent) {
  Stream stream;
  Event event;
  OK(cuEventRecord(event, stream));
  OK(cuEventSynchronize(event));
  Gate gate;
  gate.block(stream);
  OK(cuEventRecord(event, stream));
  EXPECT_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuEventSynchronize(event));
}

TEST_F(EventTest, EventCoversOnlyEarlierWork) {
  Stream stream;
  Event event;
  Gate gate;
  OK(cuEventRecord(event, stream));
  gate.block(stream);
  OK(cuEventSynchronize(event));
  EXPECT_CU(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuStreamSynchronize(stream));
}

TEST_F(EventTest, ElapsedTimeIsOrdered) {
  Stream stream;
  Event start, middle, end;
  Buffer data(1 << 20);
  OK(cuEventRecord(start, stream));
  OK(launch(basic("fill"), {64}, {256}, 0, stream, CUdeviceptr{data}, 1u, 16384u));
  OK(cuEventRecord(middle, stream));
  OK(launch(basic("fill"), {64}, {256}, 0, stream, CUdeviceptr{data}, 2u, 16384u));
  OK(cuEventRecord(end, stream));
  OK(cuEventSynchronize(end));
  float first = -1, second = -1, whole = -1, none = -1;
  OK(cuEventElapsedTime_v2(&first, start, middle));
  OK(cuEventElapsedTime_v2(&second, middle, end));
  OK(cuEventElapsedTime_v2(&whole, start, end));
  OK(cuEventElapsedTime_v2(&none, start, start));
  EXPECT_GE(first, 0.0f);
  EXPECT_GE(second, 0.0f);
  EXPECT_EQ(none, 0.0f);
  EXPECT_NEAR(whole, first + second, 0.01f + 0.001f * whole);
  EXPECT_LT(whole, 10000.0f);
}

TEST_F(EventTest, ElapsedTimeOldEntryPoint) {
  Event start, end;
  OK(cuEventRecord(start, nullptr));
  OK(cuEventRecord(end, nullptr));
  OK(cuEventSynchronize(end));
  float ms = -1;
  OK(cuEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 0.0f);
}

TEST_F(EventTest, ElapsedTimeErrors) {
  Event timed, untimed(CU_EVENT_DISABLE_TIMING), never;
  float ms = 0;
  OK(cuEventRecord(timed, nullptr));
  OK(cuEventRecord(untimed, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_CU(cuEventElapsedTime_v2(&ms, timed, never), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CU(cuEventElapsedTime_v2(&ms, timed, untimed), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CU(cuEventElapsedTime_v2(nullptr, timed, timed), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(EventTest, ElapsedTimeOfPendingEventIsNotReady) {
  Stream stream;
  Event start, end;
  Gate gate;
  OK(cuEventRecord(start, stream));
  gate.block(stream);
  OK(cuEventRecord(end, stream));
  float ms = 0;
  EXPECT_CU(cuEventElapsedTime_v2(&ms, start, end), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuEventSynchronize(end));
  OK(cuEventElapsedTime_v2(&ms, start, end));
}

TEST_F(EventTest, DestroyWhilePendingIsAllowed) {
  Stream stream;
  Gate gate;
  CUevent event = nullptr;
  OK(cuEventCreate(&event, 0));
  gate.block(stream);
  OK(cuEventRecord(event, stream));
  OK(cuEventDestroy_v2(event));
  gate.open();
  OK(cuStreamSynchronize(stream));
}

TEST_F(EventTest, StreamAndEventOfDifferentContexts) {
  Event here;
  CUcontext other = nullptr;
  MUST(cuCtxCreate_v2(&other, 0, device()));
  {
    Stream there;
    EXPECT_CU(cuEventRecord(here, there), CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_CONTEXT);
    OK(cuStreamWaitEvent(there, here, 0));  // waiting across contexts is allowed
    OK(cuStreamSynchronize(there));
  }
  OK(cuCtxDestroy_v2(other));
}

TEST_F(EventTest, RecordWithFlags) {
  Stream stream;
  Event event;
  OK(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT));
  OK(cuEventSynchronize(event));
  INVALID(cuEventRecordWithFlags(event, stream, 0x80));
}

TEST_F(EventTest, DefaultStreamVariants) {
  Event event;
  for (CUstream stream : {static_cast<CUstream>(nullptr), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    OK(cuEventRecord(event, stream));
    OK(cuEventSynchronize(event));
  }
}

TEST_F(EventTest, ManyEvents) {
  Stream stream;
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < 200; i++) {
    events.push_back(std::make_unique<Event>(CU_EVENT_DISABLE_TIMING));
    ASSERT_EQ(cuEventRecord(*events.back(), stream), CUDA_SUCCESS);
  }
  OK(cuEventSynchronize(*events.back()));
  for (auto& event : events) EXPECT_EQ(cuEventQuery(*event), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tendril::conformance
