// SPDX-License-Identifier: Apache-2.0
// Stream capture: what is recorded, what is forbidden meanwhile, forks and joins, and the state
// queries.
#include <thread>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class CaptureTest : public CudaTest {
 protected:
  static CUstreamCaptureStatus status(CUstream stream) {
    auto value = static_cast<CUstreamCaptureStatus>(77);
    EXPECT_EQ(cuStreamIsCapturing(stream, &value), CUDA_SUCCESS);
    return value;
  }
  static void begin(CUstream stream,
                    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
    EXPECT_EQ(cuStreamBeginCapture_v2(stream, mode), CUDA_SUCCESS);
  }
  static CUresult affine(CUstream stream, CUdeviceptr data, uint32_t factor, uint32_t addend) {
    return launch(basic("affine"), {1}, {256}, 0, stream, data, factor, addend, 256u);
  }
  // Ends, instantiates, launches once, and destroys.
  static void end_and_run(CUstream stream) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  // Ends a capture that an error has spoilt.
  static void end_invalidated(CUstream stream) {
    CUgraph graph = reinterpret_cast<CUgraph>(1);
    EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  }
};

TEST_F(CaptureTest, WorkIsRecordedNotRun) {
  Stream stream;
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  OK(cuCtxSynchronize());
  begin(stream);
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(affine(stream, data, 5, 2));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(read_words(data, 256)[0], 1u);
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, stream));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 37));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

// cuDNN records its plans like this to learn their nodes. It sets their addresses later.
TEST_F(CaptureTest, AddressesOfMemsetsAreNotLookedAt) {
  constexpr CUdeviceptr kNowhere = 0x80;
  Stream stream;
  Buffer data(1024);
  EXPECT_CU(cuMemsetD8Async(kNowhere, 0, 1024, stream), CUDA_ERROR_INVALID_VALUE);
  begin(stream);
  OK(cuMemsetD8Async(kNowhere, 7, 1024, stream));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  CUgraphNode node = nullptr;
  size_t count = 1;
  OK(cuGraphGetNodes(graph, &node, &count));
  ASSERT_EQ(count, 1u);
  CUDA_MEMSET_NODE_PARAMS params = {};
  OK(cuGraphMemsetNodeGetParams(node, &params));
  EXPECT_EQ(params.dst, kNowhere);
  EXPECT_EQ(params.width * params.elementSize, 1024u);
  params.dst = data;
  OK(cuGraphMemsetNodeSetParams(node, &params));
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 256)[255], 0x07070707u);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, NotCapturingAtFirst) {
  Stream stream;
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(status(nullptr), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(CaptureTest, NodesFollowTheStream) {
  Stream stream;
  Pinned host(1024);
  Buffer data(1024);
  begin(stream);
  OK(cuMemcpyHtoDAsync_v2(data, host.data(), 1024, stream));
  OK(affine(stream, data, 1, 1));
  OK(cuMemsetD32Async(data, 0, 256, stream));
  OK(cuLaunchHostFunc(
      stream, [](void*) {}, nullptr));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  size_t nodes = 0, edges = 0;
  OK(cuGraphGetNodes(graph, nullptr, &nodes));
  OK(cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &edges));
  EXPECT_EQ(nodes, 4u);
  EXPECT_EQ(edges, 3u);
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, CopiesReadPinnedMemoryAtLaunch) {
  Stream stream;
  Pinned host(1024), back(1024);
  Buffer data(1024);
  for (uint32_t i = 0; i < 256; i++) host.words()[i] = 1;
  begin(stream);
  OK(cuMemcpyHtoDAsync_v2(data, host.data(), 1024, stream));
  OK(affine(stream, data, 2, 0));
  OK(cuMemcpyDtoHAsync_v2(back.data(), data, 1024, stream));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (uint32_t round = 1; round <= 3; round++) {
    for (uint32_t i = 0; i < 256; i++) host.words()[i] = round * 100;
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT_EQ(back.words()[255], round * 200);
  }
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

// Pageable memory is read and written when the graph runs, whether it lies on the heap or on a
// stack.
TEST_F(CaptureTest, CopiesOfPageableMemoryRunAtLaunch) {
  Stream stream;
  constexpr size_t kWords = 50000;
  std::vector<uint32_t> host(kWords, 1), back(kWords, 0);
  uint32_t last = 0;
  Buffer data(kWords * 4);
  begin(stream);
  OK(cuMemcpyHtoDAsync_v2(data, host.data(), kWords * 4, stream));
  OK(launch(basic("affine"), {kWords / 256 + 1}, {256}, 0, stream, CUdeviceptr{data}, 2u, 0u,
            static_cast<uint32_t>(kWords)));
  OK(cuMemcpyDtoHAsync_v2(back.data(), data, kWords * 4, stream));
  OK(cuMemcpyDtoHAsync_v2(&last, data + (kWords - 1) * 4, 4, stream));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (uint32_t round = 1; round <= 3; round++) {
    host.assign(kWords, round * 100);
    back.assign(kWords, 0);
    last = 0;
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT_EQ(back, std::vector<uint32_t>(kWords, round * 200));
    EXPECT_EQ(last, round * 200);
  }
  // The same result again must arrive too.
  back.assign(kWords, 0);
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(back, std::vector<uint32_t>(kWords, 600));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, ForkAndJoin) {
  Stream main_stream, side;
  Event fork, join;
  Buffer a(1024), b(1024);
  begin(main_stream);
  OK(cuMemsetD32Async(a, 3, 256, main_stream));
  OK(cuEventRecord(fork, main_stream));
  OK(cuStreamWaitEvent(side, fork, 0));
  EXPECT_EQ(status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(cuMemcpyDtoDAsync_v2(b, a, 1024, side));
  OK(affine(side, b, 10, 1));
  OK(cuEventRecord(join, side));
  OK(cuStreamWaitEvent(main_stream, join, 0));
  OK(affine(main_stream, b, 2, 0));
  end_and_run(main_stream);
  EXPECT_EQ(status(side), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(read_words(b, 256), std::vector<uint32_t>(256, 62));
}

TEST_F(CaptureTest, JoinedStreamMayBeDestroyed) {
  Stream main_stream;
  Event fork, join;
  Buffer data(1024);
  CUstream side = nullptr;
  MUST(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  begin(main_stream);
  OK(cuEventRecord(fork, main_stream));
  OK(cuStreamWaitEvent(side, fork, 0));
  OK(cuMemsetD32Async(data, 4, 256, side));
  OK(cuEventRecord(join, side));
  OK(cuStreamWaitEvent(main_stream, join, 0));
  OK(cuStreamDestroy_v2(side));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(main_stream, &graph));
  size_t nodes = 0;
  OK(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 1u);
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, UnjoinedForkIsAnError) {
  Stream main_stream, side;
  Event fork;
  Buffer data(1024);
  begin(main_stream);
  OK(cuEventRecord(fork, main_stream));
  OK(cuStreamWaitEvent(side, fork, 0));
  OK(affine(side, data, 1, 1));
  CUgraph graph = nullptr;
  EXPECT_CU(cuStreamEndCapture(main_stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(status(side), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(CaptureTest, EndOnAnotherStreamOfTheCapture) {
  Stream main_stream, side;
  Event fork, join;
  begin(main_stream);
  OK(cuEventRecord(fork, main_stream));
  OK(cuStreamWaitEvent(side, fork, 0));
  CUgraph graph = nullptr;
  EXPECT_CU(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  end_invalidated(main_stream);
}

TEST_F(CaptureTest, TwoCapturesCannotMerge) {
  Stream first, second;
  Event event;
  begin(first);
  begin(second);
  OK(cuEventRecord(event, first));
  EXPECT_CU(cuStreamWaitEvent(second, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  end_invalidated(first);
  end_invalidated(second);
}

TEST_F(CaptureTest, WaitingForUncapturedWorkIsIsolated) {
  Stream captured, outside;
  Event event;
  OK(cuEventRecord(event, outside));
  begin(captured);
  EXPECT_CU(cuStreamWaitEvent(captured, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  end_invalidated(captured);
}

TEST_F(CaptureTest, SynchronizeIsForbidden) {
  Stream stream;
  begin(stream);
  EXPECT_CU(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  end_invalidated(stream);
}

TEST_F(CaptureTest, QueryIsForbidden) {
  Stream stream;
  begin(stream);
  EXPECT_CU(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(stream);
}

TEST_F(CaptureTest, WorkAfterInvalidationIsRefused) {
  Stream stream;
  Buffer data(1024);
  begin(stream);
  EXPECT_CU(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_CU(affine(stream, data, 1, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  end_invalidated(stream);
  OK(affine(stream, data, 1, 1));
  OK(cuStreamSynchronize(stream));
}

TEST_F(CaptureTest, CapturedEventCannotBeQueried) {
  Stream stream;
  Event event;
  begin(stream);
  OK(cuEventRecord(event, stream));
  EXPECT_CU(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
  // The query has invalidated the capture; an H200 (580.159.04) then answers invalid value here.
  INVALID(cuEventSynchronize(event));
  end_invalidated(stream);
}

TEST_F(CaptureTest, LegacyStreamUseIsImplicitDependency) {
  Stream blocking(CU_STREAM_DEFAULT);
  Buffer data(1024);
  begin(blocking);
  EXPECT_CU(affine(nullptr, data, 1, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  end_invalidated(blocking);
}

TEST_F(CaptureTest, LegacyStreamCannotBeCaptured) {
  EXPECT_CU(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuStreamBeginCapture_v2(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CaptureTest, PerThreadStreamCanBeCaptured) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 2, 256));
  begin(CU_STREAM_PER_THREAD);
  OK(affine(CU_STREAM_PER_THREAD, data, 3, 0));
  end_and_run(CU_STREAM_PER_THREAD);
  EXPECT_EQ(read_words(data, 256)[0], 6u);
}

TEST_F(CaptureTest, AllocationIsForbiddenInGlobalMode) {
  Stream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUdeviceptr pointer = 0;
  EXPECT_CU(cuMemAlloc_v2(&pointer, 1024), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(stream);
}

TEST_F(CaptureTest, AllocationIsAllowedInRelaxedMode) {
  Stream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CUdeviceptr pointer = 0;
  OK(cuMemAlloc_v2(&pointer, 1024));
  OK(cuMemsetD32Async(pointer, 12, 256, stream));
  end_and_run(stream);
  EXPECT_EQ(read_words(pointer, 256)[0], 12u);
  OK(cuMemFree_v2(pointer));
}

TEST_F(CaptureTest, ExchangedModeAllowsUnsafeCalls) {
  Stream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUdeviceptr pointer = 0;
  OK(cuMemAlloc_v2(&pointer, 1024));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphDestroy(graph));
  OK(cuMemFree_v2(pointer));
}

NULL_TEST(CaptureProcess, ExchangeModeOfNull) {
  attach();
  INVALID(cuThreadExchangeStreamCaptureMode(nullptr));
}

NULL_TEST(CaptureProcess, IsCapturingIntoNull) {
  attach();
  Stream stream;
  INVALID(cuStreamIsCapturing(stream, nullptr));
}

TEST_F(CaptureTest, ThreadLocalModeLeavesOtherThreadsAlone) {
  Stream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CUresult result = CUDA_ERROR_UNKNOWN;
  CUcontext context = context_;
  std::thread([&] {
    CUdeviceptr pointer = 0;
    cuCtxSetCurrent(context);
    result = cuMemAlloc_v2(&pointer, 1024);
    if (result == CUDA_SUCCESS) cuMemFree_v2(pointer);
  }).join();
  EXPECT_EQ(result, CUDA_SUCCESS);
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, EndFromAnotherThreadIsRefused) {
  Stream stream;
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUresult result = CUDA_ERROR_UNKNOWN;
  CUcontext context = context_;
  CUstream handle = stream;
  std::thread([&] {
    CUgraph graph = nullptr;
    cuCtxSetCurrent(context);
    result = cuStreamEndCapture(handle, &graph);
  }).join();
  EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  // The capture is over all the same.
  CUgraph graph = nullptr;
  EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  OK(cuStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(CaptureTest, BeginAndEndErrors) {
  Stream stream;
  CUgraph graph = nullptr;
  EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_INVALID_VALUE);
  INVALID(cuStreamBeginCapture_v2(stream, static_cast<CUstreamCaptureMode>(77)));
  begin(stream);
  EXPECT_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS,
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  if (graph) cuGraphDestroy(graph);
}

TEST_F(CaptureTest, CaptureInfo) {
  Stream stream;
  Buffer data(1024);
  auto state = static_cast<CUstreamCaptureStatus>(77);
  cuuint64_t id = 0, id_again = 0;
  CUgraph graph = nullptr, ended = nullptr;
  const CUgraphNode* dependencies = nullptr;
  size_t count = 99;
  OK(cuStreamGetCaptureInfo_v2(stream, &state, &id, &graph, &dependencies, &count));
  EXPECT_EQ(state, CU_STREAM_CAPTURE_STATUS_NONE);
  begin(stream);
  OK(cuStreamGetCaptureInfo_v2(stream, &state, &id, &graph, &dependencies, &count));
  EXPECT_EQ(state, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(count, 0u);
  OK(affine(stream, data, 1, 1));
  const CUgraphEdgeData* edges = nullptr;
  OK(cuStreamGetCaptureInfo_v3(stream, &state, &id_again, &graph, &dependencies, &edges, &count));
  EXPECT_EQ(id, id_again);
  ASSERT_EQ(count, 1u);
  auto type = static_cast<CUgraphNodeType>(77);
  OK(cuGraphNodeGetType(dependencies[0], &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
  OK(cuStreamGetCaptureInfo(stream, &state, &id_again));
  EXPECT_EQ(id, id_again);
  OK(cuStreamEndCapture(stream, &ended));
  EXPECT_EQ(ended, graph);
  OK(cuGraphDestroy(ended));
}

TEST_F(CaptureTest, UpdateDependencies) {
  Stream stream;
  Buffer data(1024);
  begin(stream);
  OK(affine(stream, data, 1, 1));
  OK(cuStreamUpdateCaptureDependencies_v2(stream, nullptr, nullptr, 0,
                                          CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  OK(affine(stream, data, 1, 1));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  size_t edges = 99, roots = 0;
  OK(cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &edges));
  OK(cuGraphGetRootNodes(graph, nullptr, &roots));
  EXPECT_EQ(edges, 0u);
  EXPECT_EQ(roots, 2u);
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, CaptureToGraph) {
  Stream stream;
  Buffer data(1024);
  CUgraph graph = nullptr, ended = nullptr;
  OK(cuGraphCreate(&graph, 0));
  CUgraphNode first = nullptr;
  OK(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  OK(cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1,
                                 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(affine(stream, data, 1, 1));
  OK(cuStreamEndCapture(stream, &ended));
  EXPECT_EQ(ended, graph);
  size_t nodes = 0, edges = 0;
  OK(cuGraphGetNodes(graph, nullptr, &nodes));
  OK(cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &edges));
  EXPECT_EQ(nodes, 2u);
  EXPECT_EQ(edges, 1u);
  OK(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, OtherStreamsWorkDuringCapture) {
  Stream captured, other;
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 0, 256));
  OK(cuCtxSynchronize());
  begin(captured, CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(affine(captured, data, 1, 100));
  OK(affine(other, data, 1, 1));
  OK(cuStreamSynchronize(other));
  end_and_run(captured);
  EXPECT_EQ(read_words(data, 256)[0], 101u);
}

// In the global mode no stream at all can be waited for.
TEST_F(CaptureTest, WaitingForOtherStreamsIsForbiddenInGlobalMode) {
  Stream captured, other;
  begin(captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CU(cuStreamSynchronize(other), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(captured);
  OK(cuStreamSynchronize(other));
}

// In a process of its own, because only the first such stream of a program matters. It comes after
// the copy that has returned.
PROCESS_TEST(CaptureProcess, AStreamApartIsMadeDuringACapture) {
  attach();
  Buffer data(4);
  const uint32_t word = 5;
  CUstream stream = nullptr, apart = nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  OK(cuMemcpyHtoD_v2(data, &word, sizeof word));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemsetD32Async(data, 6, 1, stream));
  // whether making a stream is safe meanwhile is another question
  auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  // the question here
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  OK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  OK(cuStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(read_words(data, 1)[0], 5u);
}

}  // namespace
}  // namespace tendril::conformance
