// SPDX-License-Identifier: Apache-2.0
// Conformance of streams: creation, properties, order within and between streams, query, memory
// operations.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class StreamTest : public CudaTest {};

TEST_F(StreamTest, CreateAndDestroy) {
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  ASSERT_NE(stream, nullptr);
  OK(cuStreamSynchronize(stream));
  OK(cuStreamDestroy_v2(stream));
}

TEST_F(StreamTest, CreateErrors) {
  CUstream stream = nullptr;
  INVALID(cuStreamCreate(nullptr, 0));
  INVALID(cuStreamCreate(&stream, 0x80));
  INVALID(cuStreamCreateWithPriority(nullptr, 0, 0));
}

TEST_F(StreamTest, DestroyOfDefaultStreamIsRefused) {
  BAD_HANDLE(cuStreamDestroy_v2(nullptr));
  BAD_HANDLE(cuStreamDestroy_v2(CU_STREAM_LEGACY));
  BAD_HANDLE(cuStreamDestroy_v2(CU_STREAM_PER_THREAD));
}

TEST_F(StreamTest, Flags) {
  Stream blocking(CU_STREAM_DEFAULT), free_running(CU_STREAM_NON_BLOCKING);
  unsigned flags = 99;
  OK(cuStreamGetFlags(blocking, &flags));
  EXPECT_EQ(flags, unsigned{CU_STREAM_DEFAULT});
  OK(cuStreamGetFlags(free_running, &flags));
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  OK(cuStreamGetFlags(nullptr, &flags));
  EXPECT_EQ(flags, unsigned{CU_STREAM_DEFAULT});
  INVALID(cuStreamGetFlags(blocking, nullptr));
}

TEST_F(StreamTest, PriorityIsClamped) {
  int least = 0, greatest = 0, priority = 77;
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  CUstream stream = nullptr;
  OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
  OK(cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, greatest);
  OK(cuStreamDestroy_v2(stream));
  OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1000));
  OK(cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, greatest);
  OK(cuStreamDestroy_v2(stream));
  OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 1000));
  OK(cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, least);
  OK(cuStreamDestroy_v2(stream));
}

TEST_F(StreamTest, ContextOfStream) {
  Stream stream;
  CUcontext found = nullptr;
  OK(cuStreamGetCtx(stream, &found));
  EXPECT_EQ(found, context_);
  OK(cuStreamGetCtx(nullptr, &found));
  EXPECT_EQ(found, context_);
  INVALID(cuStreamGetCtx(stream, nullptr));
}

TEST_F(StreamTest, DeviceOfStream) {
  Stream stream;
  CUdevice found = -1;
  OK(cuStreamGetDevice(stream, &found));
  EXPECT_EQ(found, device());
}

TEST_F(StreamTest, IdsAreUnique) {
  Stream a, b;
  unsigned long long first = 0, second = 0, again = 0;
  OK(cuStreamGetId(a, &first));
  OK(cuStreamGetId(b, &second));
  OK(cuStreamGetId(a, &again));
  EXPECT_NE(first, second);
  EXPECT_EQ(first, again);
  INVALID(cuStreamGetId(a, nullptr));
}

TEST_F(StreamTest, IdleStreamIsReady) {
  Stream stream;
  OK(cuStreamQuery(stream));
  OK(cuStreamQuery(nullptr));
  OK(cuStreamSynchronize(stream));
  OK(cuStreamSynchronize(nullptr));
  OK(cuStreamSynchronize(CU_STREAM_LEGACY));
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

TEST_F(StreamTest, BusyStreamIsNotReady) {
  Stream stream;
  Gate gate;
  gate.block(stream);
  EXPECT_CU(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuStreamSynchronize(stream));
  OK(cuStreamQuery(stream));
}

TEST_F(StreamTest, WorkRunsInOrder) {
  Stream stream;
  Buffer data(4096);
  OK(cuMemsetD32Async(data, 1, 1024, stream));
  uint32_t expected = 1;
  for (uint32_t step = 1; step <= 60; step++) {
    ASSERT_EQ(launch(basic("affine"), {4}, {256}, 0, stream, CUdeviceptr{data}, 3u, step, 1024u),
              CUDA_SUCCESS);
    expected = expected * 3 + step;
  }
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 1024), std::vector<uint32_t>(1024, expected));
}

TEST_F(StreamTest, WaitEventOrdersTwoStreams) {
  Stream first, second;
  Event event;
  Buffer data(1024);
  Gate gate;
  gate.block(first);
  OK(cuMemsetD32Async(data, 5, 256, first));
  OK(cuEventRecord(event, first));
  OK(cuStreamWaitEvent(second, event, 0));
  OK(launch(basic("affine"), {1}, {256}, 0, second, CUdeviceptr{data}, 10u, 1u, 256u));
  EXPECT_CU(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuStreamSynchronize(second));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 51));
}

TEST_F(StreamTest, WaitEventTakesTheRecordAtCallTime) {
  // A wait refers to the record made before it, not to later ones.
  Stream first, second, third;
  Event event;
  Gate late;
  OK(cuEventRecord(event, first));
  OK(cuStreamWaitEvent(second, event, 0));
  late.block(third);
  OK(cuEventRecord(event, third));
  OK(cuStreamSynchronize(second));
  EXPECT_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  late.open();
  OK(cuEventSynchronize(event));
}

TEST_F(StreamTest, WaitEventErrors) {
  Stream stream;
  Event event;
  BAD_HANDLE(cuStreamWaitEvent(stream, nullptr, 0));
  INVALID(cuStreamWaitEvent(stream, event, 0x80));
}

TEST_F(StreamTest, WaitOnUnrecordedEventIsNoWait) {
  Stream stream;
  Event event;
  OK(cuStreamWaitEvent(stream, event, 0));
  OK(cuStreamSynchronize(stream));
}

TEST_F(StreamTest, IndependentStreamsDoNotWait) {
  Stream held, running;
  Buffer data(1024);
  Gate gate;
  gate.block(held);
  OK(cuMemsetD32Async(data, 3, 256, running));
  OK(launch(basic("affine"), {1}, {256}, 0, running, CUdeviceptr{data}, 2u, 0u, 256u));
  OK(cuStreamSynchronize(running));
  EXPECT_CU(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuStreamSynchronize(held));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 6));
}

TEST_F(StreamTest, LegacyStreamWaitsForBlockingStreams) {
  Stream blocking(CU_STREAM_DEFAULT);
  Gate gate;
  Buffer data(1024);
  gate.block(blocking);
  OK(cuMemsetD32Async(data, 4, 256, blocking));
  OK(launch(basic("affine"), {1}, {256}, 0, nullptr, CUdeviceptr{data}, 10u, 2u, 256u));
  EXPECT_CU(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 42));
}

TEST_F(StreamTest, BlockingStreamsWaitForTheLegacyStream) {
  Stream blocking(CU_STREAM_DEFAULT);
  Gate gate;
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  gate.block(nullptr);
  OK(launch(basic("affine"), {1}, {256}, 0, nullptr, CUdeviceptr{data}, 10u, 2u, 256u));
  OK(launch(basic("affine"), {1}, {256}, 0, blocking, CUdeviceptr{data}, 10u, 3u, 256u));
  EXPECT_CU(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuStreamSynchronize(blocking));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 123));
}

TEST_F(StreamTest, NonBlockingStreamIgnoresTheLegacyStream) {
  Stream free_running(CU_STREAM_NON_BLOCKING);
  Gate gate;
  Buffer data(1024);
  gate.block(nullptr);
  OK(cuMemsetD32Async(data, 9, 256, free_running));
  OK(cuStreamSynchronize(free_running));
  EXPECT_CU(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuStreamSynchronize(nullptr));
}

TEST_F(StreamTest, DestroyLetsQueuedWorkFinish) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 0, 256));
  OK(cuCtxSynchronize());  // a memset is asynchronous, and the stream does not wait for it
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 10; i++)
    OK(launch(basic("affine"), {1}, {256}, 0, stream, CUdeviceptr{data}, 1u, 2u, 256u));
  OK(cuStreamDestroy_v2(stream));
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 20));
}

TEST_F(StreamTest, ContextSynchronizeWaitsForEveryStream) {
  Stream a, b;
  Pinned host(8);
  host.words()[0] = host.words()[1] = 0;
  Buffer data(8);
  OK(cuMemsetD32Async(data, 11, 1, a));
  OK(cuMemcpyDtoHAsync_v2(host.words(), data, 4, a));
  OK(cuMemsetD32Async(data + 4, 12, 1, b));
  OK(cuMemcpyDtoHAsync_v2(host.words() + 1, data + 4, 4, b));
  OK(cuCtxSynchronize());
  EXPECT_EQ(host.words()[0], 11u);
  EXPECT_EQ(host.words()[1], 12u);
}

TEST_F(StreamTest, ContextSynchronizeWaitsForWhicheverStreamIsBusy) {
  Stream blocking(CU_STREAM_DEFAULT), apart(CU_STREAM_NON_BLOCKING);
  Buffer data(1024);
  const CUstream streams[] = {nullptr, blocking, apart};
  for (CUstream busy : streams) {
    for (CUstream beside : streams) {
      OK(cuCtxSynchronize());
      Gate gate;
      std::atomic<bool> opened{false};
      gate.block(busy);
      if (beside != busy) {
        OK(cuMemsetD32Async(data, 9, 256, beside));
      }
      std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        opened = true;
        gate.open();
      });
      EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
      EXPECT_TRUE(opened.load());
      opener.join();
    }
  }
}

TEST_F(StreamTest, SynchronizationPolicyAttribute) {
  Stream stream, other;
  CUstreamAttrValue value = {};
  value.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
  OK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  CUstreamAttrValue got = {};
  OK(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
  EXPECT_EQ(got.syncPolicy, CU_SYNC_POLICY_BLOCKING_SYNC);
  OK(cuStreamCopyAttributes(other, stream));
  memset(&got, 0, sizeof got);
  OK(cuStreamGetAttribute(other, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
  EXPECT_EQ(got.syncPolicy, CU_SYNC_POLICY_BLOCKING_SYNC);
}

TEST_F(StreamTest, WriteAndWaitValue) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  Stream writer, waiter;
  Buffer flag(256), data(1024);
  OK(cuMemsetD32_v2(flag, 0, 64));
  OK(cuMemsetD32_v2(data, 1, 256));
  OK(cuCtxSynchronize());
  OK(cuStreamWaitValue32_v2(waiter, flag, 7, CU_STREAM_WAIT_VALUE_EQ));
  OK(launch(basic("affine"), {1}, {256}, 0, waiter, CUdeviceptr{data}, 10u, 1u, 256u));
  OK(launch(basic("affine"), {1}, {256}, 0, writer, CUdeviceptr{data}, 3u, 0u, 256u));
  OK(cuStreamWriteValue32_v2(writer, flag, 7, 0));
  OK(cuStreamSynchronize(waiter));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 31));
  EXPECT_EQ(read_words(flag, 1)[0], 7u);
}

TEST_F(StreamTest, WriteValue64) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  Stream stream;
  Buffer flag(256);
  OK(cuStreamWriteValue64_v2(stream, flag, 0x1122334455667788, 0));
  OK(cuStreamWaitValue64_v2(stream, flag, 0x1122334455667788, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(flag, 2), (std::vector<uint32_t>{0x55667788, 0x11223344}));
}

TEST_F(StreamTest, BatchMemOp) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  Stream stream;
  Buffer flags(256);
  CUstreamBatchMemOpParams operations[3] = {};
  operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[0].writeValue.address = flags;
  operations[0].writeValue.value = 5;
  operations[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operations[1].waitValue.address = flags;
  operations[1].waitValue.value = 4;
  operations[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  operations[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[2].writeValue.address = flags + 4;
  operations[2].writeValue.value = 6;
  OK(cuStreamBatchMemOp_v2(stream, 3, operations, 0));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(flags, 2), (std::vector<uint32_t>{5, 6}));
}

TEST_F(StreamTest, ManyStreams) {
  constexpr int kStreams = 40;
  std::vector<std::unique_ptr<Stream>> streams;
  Buffer data(kStreams * 4);
  for (int i = 0; i < kStreams; i++) {
    streams.push_back(std::make_unique<Stream>());
    ASSERT_EQ(launch(basic("fill"), {1}, {1}, 0, *streams[i], CUdeviceptr{data + 4 * i},
                     static_cast<uint32_t>(i * i), 1u),
              CUDA_SUCCESS);
  }
  OK(cuCtxSynchronize());
  const std::vector<uint32_t> words = read_words(data, kStreams);
  for (int i = 0; i < kStreams; i++) EXPECT_EQ(words[i], static_cast<uint32_t>(i * i));
}

// A copy into pageable memory has waited for its stream. A wait right after it differs from a wait
// after more work.
TEST_F(StreamTest, WaitsAfterACopyThatWaited) {
  Stream stream, other;
  Buffer data(4);
  Pinned seen(4);
  for (uint32_t i = 1; i <= 20; i++) {
    uint32_t word = 0;
    ASSERT_EQ(cuMemsetD32Async(data, i, 1, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(&word, data, 4, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    ASSERT_EQ(word, i);
    Gate gate;
    gate.block(stream);
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(seen.data(), data, 4, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    gate.open();
    ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    ASSERT_EQ(seen.words()[0], i);
    ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace tendril::conformance
