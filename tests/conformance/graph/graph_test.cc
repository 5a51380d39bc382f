// SPDX-License-Identifier: Apache-2.0
// Graphs built by hand: nodes, edges, instantiation, launch, update. Graphs from streams:
// capture_test.cc.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

// Kernel node parameters that own their argument values.
struct AffineNode {
  AffineNode(CUdeviceptr data, uint32_t factor, uint32_t addend, uint32_t n)
      : data_(data), factor_(factor), addend_(addend), n_(n) {
    params.func = basic("affine");
    params.gridDimX = (n + 255) / 256;
    params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.blockDimX = 256;
    params.kernelParams = pointers_;
  }
  AffineNode(const AffineNode&) = delete;
  CUDA_KERNEL_NODE_PARAMS params = {};

 private:
  CUdeviceptr data_;
  uint32_t factor_, addend_, n_;
  void* pointers_[4] = {&data_, &factor_, &addend_, &n_};
};

class GraphTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    ASSERT_EQ(cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (exec_) cuGraphExecDestroy(exec_);
    if (graph_) cuGraphDestroy(graph_);
    CudaTest::TearDown();
  }
  CUgraphNode add_affine(CUdeviceptr data, uint32_t factor, uint32_t addend,
                         std::vector<CUgraphNode> after = {}) {
    AffineNode kernel(data, factor, addend, 256);
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddKernelNode_v2(&node, graph_, after.data(), after.size(), &kernel.params),
              CUDA_SUCCESS);
    return node;
  }
  CUgraphNode add_memset(CUdeviceptr data, uint32_t value, std::vector<CUgraphNode> after = {}) {
    CUDA_MEMSET_NODE_PARAMS params = {data, 0, value, 4, 256, 1};
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddMemsetNode(&node, graph_, after.data(), after.size(), &params, context_),
              CUDA_SUCCESS);
    return node;
  }
  CUgraphNode add_empty(std::vector<CUgraphNode> after = {}) {
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddEmptyNode(&node, graph_, after.data(), after.size()), CUDA_SUCCESS);
    return node;
  }
  void instantiate() { ASSERT_EQ(cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_SUCCESS); }
  void run() {
    ASSERT_EQ(cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUstream stream_ = CU_STREAM_PER_THREAD;
};

TEST_F(GraphTest, CreateErrors) {
  CUgraph graph = nullptr;
  INVALID(cuGraphCreate(nullptr, 0));
  INVALID(cuGraphCreate(&graph, 1));
  INVALID(cuGraphDestroy(nullptr));
}

TEST_F(GraphTest, EmptyGraphRuns) {
  instantiate();
  run();
}

TEST_F(GraphTest, KernelNode) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 5, 256));
  add_affine(data, 3, 1);
  instantiate();
  run();
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 16));
}

TEST_F(GraphTest, ChainKeepsOrder) {
  Buffer data(1024);
  CUgraphNode node = add_memset(data, 1);
  uint32_t expected = 1;
  for (uint32_t i = 1; i <= 10; i++) {
    node = add_affine(data, 3, i, {node});
    expected = expected * 3 + i;
  }
  instantiate();
  for (int repeat = 0; repeat < 3; repeat++) {
    run();
    EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, expected));
  }
}

TEST_F(GraphTest, DiamondJoins) {
  Buffer a(1024), b(1024), c(2048);
  CUgraphNode root = add_memset(a, 2);
  CUgraphNode left = add_affine(a, 5, 0, {root});
  CUgraphNode right = add_memset(b, 7, {root});
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = a;
  copy.dstDevice = c;
  copy.WidthInBytes = copy.srcPitch = copy.dstPitch = 1024;
  copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
  CUgraphNode first = nullptr, second = nullptr;
  const CUgraphNode both[] = {left, right};
  OK(cuGraphAddMemcpyNode(&first, graph_, both, 2, &copy, context_));
  copy.srcDevice = b;
  copy.dstDevice = c + 1024;
  OK(cuGraphAddMemcpyNode(&second, graph_, both, 2, &copy, context_));
  instantiate();
  run();
  const std::vector<uint32_t> words = read_words(c, 512);
  EXPECT_EQ(words[0], 10u);
  EXPECT_EQ(words[256], 7u);
}

TEST_F(GraphTest, MemcpyNodesReadHostMemoryAtEachLaunch) {
  Pinned host(1024), back(1024);
  Buffer data(1024);
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host.data();
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = data;
  copy.WidthInBytes = copy.srcPitch = copy.dstPitch = 1024;
  copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
  CUgraphNode up = nullptr, down = nullptr;
  OK(cuGraphAddMemcpyNode(&up, graph_, nullptr, 0, &copy, context_));
  CUgraphNode kernel = add_affine(data, 2, 1, {up});
  copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = data;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = back.data();
  copy.WidthInBytes = copy.srcPitch = copy.dstPitch = 1024;
  copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
  OK(cuGraphAddMemcpyNode(&down, graph_, &kernel, 1, &copy, context_));
  instantiate();
  for (uint32_t round = 1; round <= 3; round++) {
    for (uint32_t i = 0; i < 256; i++) host.words()[i] = i * round;
    run();
    EXPECT_EQ(back.words()[255], 255 * round * 2 + 1);
  }
}

// Nodes that name parts of one pageable buffer see each other's writes.
TEST_F(GraphTest, MemcpyNodesOfPageableMemory) {
  std::vector<uint32_t> host(512, 0);
  Buffer data(1024), copy(1024);
  CUDA_MEMCPY3D shape = {};
  shape.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcDevice = data;
  shape.dstMemoryType = CU_MEMORYTYPE_HOST;
  shape.dstHost = host.data() + 128;
  shape.WidthInBytes = 1024;
  shape.Height = shape.Depth = 1;
  CUgraphNode out = nullptr, in = nullptr;
  OK(cuGraphAddMemcpyNode(&out, graph_, nullptr, 0, &shape, context_));
  CUDA_MEMCPY3D got = {};
  OK(cuGraphMemcpyNodeGetParams(out, &got));
  EXPECT_EQ(got.dstHost, host.data() + 128);
  shape = {};
  shape.srcMemoryType = CU_MEMORYTYPE_HOST;
  shape.srcHost = host.data();
  shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.dstDevice = copy;
  shape.WidthInBytes = 1024;
  shape.Height = shape.Depth = 1;
  OK(cuGraphAddMemcpyNode(&in, graph_, &out, 1, &shape, context_));
  instantiate();
  for (uint32_t round = 1; round <= 2; round++) {
    host.assign(512, 7 * round);
    OK(cuMemsetD32_v2(data, 40 + round, 256));
    run();
    std::vector<uint32_t> expected(512, 7 * round);
    std::fill(expected.begin() + 128, expected.begin() + 384, 40 + round);
    EXPECT_EQ(host, expected);
    EXPECT_EQ(read_words(copy, 256),
              std::vector<uint32_t>(expected.begin(), expected.begin() + 256));
  }
}

// While it does not launch the graph, a program may unmap memory that a node names.
TEST_F(GraphTest, PageableMemoryOfAGraphMayGoAway) {
  constexpr size_t kBytes = 64 << 10;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Buffer data(kBytes);
  CUDA_MEMCPY3D shape = {};
  shape.srcMemoryType = CU_MEMORYTYPE_HOST;
  shape.srcHost = memory;
  shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.dstDevice = data;
  shape.WidthInBytes = kBytes;
  shape.Height = shape.Depth = 1;
  CUgraphNode node = nullptr;
  OK(cuGraphAddMemcpyNode(&node, graph_, nullptr, 0, &shape, context_));
  ASSERT_EQ(munmap(memory, kBytes), 0);
  CUgraph other = nullptr;
  MUST(cuGraphCreate(&other, 0));
  uint32_t word = 12;
  shape.srcHost = &word;
  shape.WidthInBytes = 4;
  OK(cuGraphAddMemcpyNode(&node, other, nullptr, 0, &shape, context_));
  OK(cuGraphInstantiateWithFlags(&exec_, other, 0));
  run();
  EXPECT_EQ(read_words(data, 1)[0], 12u);
  OK(cuGraphDestroy(other));
}

TEST_F(GraphTest, BatchMemOpNode) {
  Buffer data(8);
  OK(cuMemsetD32_v2(data, 0, 2));
  CUstreamBatchMemOpParams operations[2] = {};
  for (int i = 0; i < 2; i++) {
    operations[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operations[i].writeValue.address = data + 4 * static_cast<unsigned>(i);
    operations[i].writeValue.value = 50 + static_cast<unsigned>(i);
  }
  CUDA_BATCH_MEM_OP_NODE_PARAMS params = {context_, 2, operations, 0}, got = {};
  CUgraphNode node = nullptr;
  MUST(cuGraphAddBatchMemOpNode(&node, graph_, nullptr, 0, &params));
  OK(cuGraphBatchMemOpNodeGetParams(node, &got));
  ASSERT_EQ(got.count, 2u);
  EXPECT_EQ(got.paramArray[1].writeValue.value, 51u);
  instantiate();
  run();
  EXPECT_EQ(read_words(data, 2), (std::vector<uint32_t>{50, 51}));
  operations[0].writeValue.value = 60;
  OK(cuGraphExecBatchMemOpNodeSetParams(exec_, node, &params));
  run();
  EXPECT_EQ(read_words(data, 2), (std::vector<uint32_t>{60, 51}));
  params.count = 1;
  OK(cuGraphBatchMemOpNodeSetParams(node, &params));
  OK(cuGraphBatchMemOpNodeGetParams(node, &got));
  EXPECT_EQ(got.count, 1u);
  INVALID(cuGraphAddBatchMemOpNode(&node, graph_, nullptr, 0, nullptr));
}

// CUDA's runtime names the kernels of a program by CUkernel.
TEST_F(GraphTest, ExecKernelNodeSetParamsByKernel) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  MUST(cuLibraryLoadData(&library, basic_ptx(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  MUST(cuLibraryGetKernel(&kernel, library, "affine"));
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  AffineNode first(data, 2, 0, 256), second(data, 3, 0, 256);
  CUgraphNode node = nullptr;
  for (AffineNode* one : {&first, &second}) {
    one->params.func = nullptr;
    one->params.kern = kernel;
    one->params.ctx = context_;
  }
  OK(cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &first.params));
  instantiate();
  run();
  OK(cuGraphExecKernelNodeSetParams_v2(exec_, node, &second.params));
  run();
  EXPECT_EQ(read_words(data, 1)[0], 6u);
  OK(cuLibraryUnload(library));
}

TEST_F(GraphTest, HostNode) {
  int runs = 0;
  CUDA_HOST_NODE_PARAMS params = {[](void* count) { ++*static_cast<int*>(count); }, &runs};
  CUgraphNode node = nullptr;
  OK(cuGraphAddHostNode(&node, graph_, nullptr, 0, &params));
  instantiate();
  run();
  run();
  EXPECT_EQ(runs, 2);
}

TEST_F(GraphTest, ChildGraph) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  CUgraph child = nullptr;
  OK(cuGraphCreate(&child, 0));
  AffineNode kernel(data, 4, 2, 256);
  CUgraphNode inner = nullptr, outer = nullptr;
  OK(cuGraphAddKernelNode_v2(&inner, child, nullptr, 0, &kernel.params));
  OK(cuGraphAddChildGraphNode(&outer, graph_, nullptr, 0, child));
  OK(cuGraphDestroy(child));
  add_affine(data, 10, 0, {outer});
  CUgraph embedded = nullptr;
  OK(cuGraphChildGraphNodeGetGraph(outer, &embedded));
  EXPECT_NE(embedded, nullptr);
  instantiate();
  run();
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 60));
}

// The parent takes the graph itself. What its handle and its nodes name stays, and instances are
// changed through them. XLA does so.
TEST_F(GraphTest, MovedChildGraph) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  CUgraph child = nullptr, embedded = nullptr;
  OK(cuGraphCreate(&child, 0));
  AffineNode kernel(data, 4, 2, 256), later(data, 5, 3, 256);
  CUgraphNode first = add_affine(data, 1, 1), inner = nullptr, outer = nullptr;
  OK(cuGraphAddKernelNode_v2(&inner, child, nullptr, 0, &kernel.params));
  CUgraphNodeParams params;
  memset(&params, 0, sizeof params);
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = child;
  params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  const CUresult added = cuGraphAddNode_v2(&outer, graph_, &first, nullptr, 1, &params);
  if (added == CUDA_ERROR_INVALID_VALUE || added == CUDA_ERROR_NOT_SUPPORTED) {
    OK(cuGraphDestroy(child));
    GTEST_SKIP() << "the driver is older than graphs that move";
  }
  OK(added);
  OK(cuGraphChildGraphNodeGetGraph(outer, &embedded));
  EXPECT_EQ(embedded, child);
  EXPECT_NE(cuGraphDestroy(child), CUDA_SUCCESS);
  add_affine(data, 10, 0, {outer});
  instantiate();
  run();
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 100));
  OK(cuGraphExecKernelNodeSetParams_v2(exec_, inner, &later.params));
  run();
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 5080));
}

// A change that is impossible is refused by its own call and changes nothing, however often the
// node was changed before.
TEST_F(GraphTest, AnImpossibleChangeIsToldAtOnce) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  CUgraphNode node = add_affine(data, 1, 0);
  instantiate();
  for (uint32_t addend = 1; addend <= 3; addend++) {
    AffineNode change(data, 1, addend, 256);
    OK(cuGraphExecKernelNodeSetParams_v2(exec_, node, &change.params));
    run();
  }
  AffineNode impossible(data, 1, 100, 256);
  impossible.params.blockDimX = 1u << 20;
  INVALID(cuGraphExecKernelNodeSetParams_v2(exec_, node, &impossible.params));
  run();
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 1 + 1 + 2 + 3 + 3));
}

TEST_F(GraphTest, EventNodes) {
  Event event;
  CUgraphNode record = nullptr, wait = nullptr;
  OK(cuGraphAddEventRecordNode(&record, graph_, nullptr, 0, event));
  OK(cuGraphAddEventWaitNode(&wait, graph_, &record, 1, event));
  CUevent found = nullptr;
  OK(cuGraphEventRecordNodeGetEvent(record, &found));
  EXPECT_EQ(found, CUevent{event});
  OK(cuGraphEventWaitNodeGetEvent(wait, &found));
  EXPECT_EQ(found, CUevent{event});
  instantiate();
  run();
  OK(cuEventQuery(event));
}

TEST_F(GraphTest, NodesEdgesAndTypes) {
  Buffer data(1024);
  CUgraphNode a = add_empty(), b = add_memset(data, 1, {a}), c = add_affine(data, 1, 1, {b}),
              d = add_empty({b, c});
  size_t count = 0;
  OK(cuGraphGetNodes(graph_, nullptr, &count));
  EXPECT_EQ(count, 4u);
  OK(cuGraphGetEdges_v2(graph_, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(count, 4u);
  OK(cuGraphGetRootNodes(graph_, nullptr, &count));
  EXPECT_EQ(count, 1u);
  CUgraphNode root = nullptr;
  OK(cuGraphGetRootNodes(graph_, &root, &count));
  EXPECT_EQ(root, a);
  OK(cuGraphNodeGetDependencies_v2(d, nullptr, nullptr, &count));
  EXPECT_EQ(count, 2u);
  OK(cuGraphNodeGetDependentNodes_v2(b, nullptr, nullptr, &count));
  EXPECT_EQ(count, 2u);
  auto type = static_cast<CUgraphNodeType>(77);
  OK(cuGraphNodeGetType(a, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_EMPTY);
  OK(cuGraphNodeGetType(b, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEMSET);
  OK(cuGraphNodeGetType(c, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
}

TEST_F(GraphTest, OldEdgeCalls) {
  CUgraphNode a = add_empty(), b = add_empty();
  OK(cuGraphAddDependencies(graph_, &a, &b, 1));
  size_t count = 0;
  OK(cuGraphGetEdges(graph_, nullptr, nullptr, &count));
  ASSERT_EQ(count, 1u);
  CUgraphNode from = nullptr, to = nullptr;
  OK(cuGraphGetEdges(graph_, &from, &to, &count));
  EXPECT_EQ(from, a);
  EXPECT_EQ(to, b);
  OK(cuGraphRemoveDependencies(graph_, &a, &b, 1));
  OK(cuGraphGetEdges(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
}

TEST_F(GraphTest, DependencyErrors) {
  CUgraphNode a = add_empty(), b = add_empty();
  OK(cuGraphAddDependencies_v2(graph_, &a, &b, nullptr, 1));
  INVALID(cuGraphAddDependencies_v2(graph_, &a, &b, nullptr, 1));  // already there
  OK(cuGraphAddDependencies_v2(graph_, nullptr, nullptr, nullptr, 0));
  OK(cuGraphRemoveDependencies_v2(graph_, &a, &b, nullptr, 1));
  INVALID(cuGraphRemoveDependencies_v2(graph_, &a, &b, nullptr, 1));  // not there any more
}

TEST_F(GraphTest, CyclesCannotBeInstantiated) {
  CUgraphNode a = add_empty(), b = add_empty({a});
  // Drivers notice the cycle at the edge or at instantiation.
  const CUresult added = cuGraphAddDependencies_v2(graph_, &b, &a, nullptr, 1);
  EXPECT_TRUE(
      check("cuGraphAddDependencies(cycle)", added, {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE}));
  if (added == CUDA_SUCCESS) {
    EXPECT_NE(cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_SUCCESS);
    exec_ = nullptr;
  }
}

TEST_F(GraphTest, DestroyNode) {
  CUgraphNode a = add_empty(), b = add_empty({a});
  OK(cuGraphDestroyNode(a));
  size_t count = 0;
  OK(cuGraphGetNodes(graph_, nullptr, &count));
  EXPECT_EQ(count, 1u);
  OK(cuGraphNodeGetDependencies_v2(b, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
}

TEST_F(GraphTest, ParametersAreCopiedWhenAdded) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  { add_affine(data, 9, 0); }
  std::vector<uint8_t> stir(4096, 0xff);  // overwrites the stack and heap that the values came from
  instantiate();
  run();
  EXPECT_EQ(read_words(data, 256)[0], 9u);
  EXPECT_EQ(stir[0], 0xff);
}

TEST_F(GraphTest, KernelNodeGetAndSetParams) {
  Buffer data(1024);
  CUgraphNode node = add_affine(data, 2, 0);
  CUDA_KERNEL_NODE_PARAMS got = {};
  OK(cuGraphKernelNodeGetParams_v2(node, &got));
  EXPECT_EQ(got.blockDimX, 256u);
  EXPECT_EQ(got.gridDimX, 1u);
  ASSERT_NE(got.kernelParams, nullptr);
  EXPECT_EQ(*static_cast<uint32_t*>(got.kernelParams[1]), 2u);
  AffineNode changed(data, 7, 1, 256);
  OK(cuGraphKernelNodeSetParams_v2(node, &changed.params));
  OK(cuMemsetD32_v2(data, 1, 256));
  instantiate();
  run();
  EXPECT_EQ(read_words(data, 256)[0], 8u);
}

// The runtime adds a node with a kernel's function, and recognises the node's kernel by the handles
// that it gets back.
TEST_F(GraphTest, KernelNodeTellsTheKernel) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  Buffer data(1024);
  MUST(cuLibraryLoadData(&library, basic_ptx(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  MUST(cuLibraryGetKernel(&kernel, library, "affine"));
  MUST(cuKernelGetFunction(&function, kernel));
  for (const bool by_kernel : {false, true}) {
    AffineNode work(data, 3, 4, 256);
    work.params.func = by_kernel ? nullptr : function;
    work.params.kern = by_kernel ? kernel : nullptr;
    CUgraphNode node = nullptr;
    OK(cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &work.params));
    CUDA_KERNEL_NODE_PARAMS got = {};
    OK(cuGraphKernelNodeGetParams_v2(node, &got));
    EXPECT_EQ(got.func, function);
    EXPECT_EQ(got.kern, kernel);
    EXPECT_EQ(got.ctx, context_);
    // As it came it can be given back.
    OK(cuGraphKernelNodeSetParams_v2(node, &got));
  }
  // The same for a kernel that was captured.
  Stream stream;
  CUgraph captured = nullptr;
  CUgraphNode node = nullptr;
  size_t count = 1;
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(launch(reinterpret_cast<CUfunction>(kernel), {1}, {256}, 0, stream, CUdeviceptr{data}, 3u, 4u,
            256u));
  MUST(cuStreamEndCapture(stream, &captured));
  MUST(cuGraphGetNodes(captured, &node, &count));
  CUDA_KERNEL_NODE_PARAMS got = {};
  OK(cuGraphKernelNodeGetParams_v2(node, &got));
  EXPECT_EQ(got.func, function);
  EXPECT_EQ(*static_cast<uint32_t*>(got.kernelParams[1]), 3u);
  OK(cuGraphDestroy(captured));
  OK(cuGraphDestroy(graph_));
  graph_ = nullptr;
  OK(cuLibraryUnload(library));
}

TEST_F(GraphTest, ExecKernelNodeSetParams) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  CUgraphNode node = add_affine(data, 2, 0);
  instantiate();
  run();
  AffineNode changed(data, 10, 3, 256);
  OK(cuGraphExecKernelNodeSetParams_v2(exec_, node, &changed.params));
  run();
  EXPECT_EQ(read_words(data, 256)[0], 23u);
}

// All parameters as one buffer (`extra`), to add a node and to change an instance, as tinygrad
// does. Padding at the end does not belong to it.
TEST_F(GraphTest, KernelNodeByBuffer) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  AffineNode kernel(data, 2, 0, 256);
  const CUDA_KERNEL_NODE_PARAMS by_pointers = kernel.params;
  struct __attribute__((packed)) {
    CUdeviceptr data;
    uint32_t factor, addend, count, padding;
  } values = {data, 10, 3, 256, 0};
  size_t bytes = sizeof values;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &values, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  kernel.params.extra = extra;
  CUgraphNode node = nullptr;
  INVALID(cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &kernel.params));  // and pointers
  kernel.params.kernelParams = nullptr;
  INVALID(cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &kernel.params));
  bytes -= sizeof values.padding;
  OK(cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &kernel.params));
  instantiate();
  run();
  EXPECT_EQ(read_words(data, 256)[0], 13u);
  values.factor = 2;
  OK(cuGraphExecKernelNodeSetParams_v2(exec_, node, &kernel.params));
  run();
  EXPECT_EQ(read_words(data, 256)[0], 29u);
  OK(cuGraphExecKernelNodeSetParams_v2(exec_, node, &by_pointers));
  run();
  EXPECT_EQ(read_words(data, 256)[0], 58u);
}

TEST_F(GraphTest, MemsetNodeGetAndSetParams) {
  Buffer data(1024);
  CUgraphNode node = add_memset(data, 4);
  CUDA_MEMSET_NODE_PARAMS params = {};
  OK(cuGraphMemsetNodeGetParams(node, &params));
  EXPECT_EQ(params.dst, CUdeviceptr{data});
  EXPECT_EQ(params.value, 4u);
  EXPECT_EQ(params.width, 256u);
  params.value = 6;
  OK(cuGraphMemsetNodeSetParams(node, &params));
  instantiate();
  run();
  EXPECT_EQ(read_words(data, 1)[0], 6u);
  params.value = 8;
  OK(cuGraphExecMemsetNodeSetParams(exec_, node, &params, context_));
  run();
  EXPECT_EQ(read_words(data, 1)[0], 8u);
}

// The generic structure may leave the context out, as when the node was added: the current one is
// meant.
TEST_F(GraphTest, GenericMemsetNodeWithoutContext) {
  Buffer data(1024);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params.memset.dst = data;
  params.memset.elementSize = 4;
  params.memset.width = 256;
  params.memset.height = 1;
  params.memset.value = 3;
  CUgraphNode node = nullptr;
  OK(cuGraphAddNode_v2(&node, graph_, nullptr, nullptr, 0, &params));
  params.memset.value = 4;
  OK(cuGraphNodeSetParams(node, &params));
  instantiate();
  run();
  EXPECT_EQ(read_words(data, 1)[0], 4u);
  params.memset.value = 5;
  OK(cuGraphExecNodeSetParams(exec_, node, &params));
  run();
  EXPECT_EQ(read_words(data, 1)[0], 5u);
}

TEST_F(GraphTest, MemcpyNodeGetAndSetParams) {
  Buffer a(1024), b(1024), out(1024);
  OK(cuMemsetD32_v2(a, 1, 256));
  OK(cuMemsetD32_v2(b, 2, 256));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = a;
  copy.dstDevice = out;
  copy.WidthInBytes = copy.srcPitch = copy.dstPitch = 1024;
  copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
  CUgraphNode node = nullptr;
  OK(cuGraphAddMemcpyNode(&node, graph_, nullptr, 0, &copy, context_));
  CUDA_MEMCPY3D got = {};
  OK(cuGraphMemcpyNodeGetParams(node, &got));
  EXPECT_EQ(got.WidthInBytes, 1024u);
  instantiate();
  run();
  EXPECT_EQ(read_words(out, 1)[0], 1u);
  copy.srcDevice = b;
  OK(cuGraphExecMemcpyNodeSetParams(exec_, node, &copy, context_));
  run();
  EXPECT_EQ(read_words(out, 1)[0], 2u);
}

TEST_F(GraphTest, HostNodeGetAndSetParams) {
  int first = 0, second = 0;
  auto count = [](void* counter) { ++*static_cast<int*>(counter); };
  CUDA_HOST_NODE_PARAMS params = {count, &first}, got = {};
  CUgraphNode node = nullptr;
  OK(cuGraphAddHostNode(&node, graph_, nullptr, 0, &params));
  OK(cuGraphHostNodeGetParams(node, &got));
  EXPECT_EQ(got.userData, &first);
  instantiate();
  run();
  params.userData = &second;
  OK(cuGraphExecHostNodeSetParams(exec_, node, &params));
  run();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
}

TEST_F(GraphTest, ExecUpdate) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  add_affine(data, 2, 0);
  instantiate();
  CUgraph other = nullptr;
  OK(cuGraphCreate(&other, 0));
  AffineNode changed(data, 5, 5, 256);
  CUgraphNode node = nullptr;
  OK(cuGraphAddKernelNode_v2(&node, other, nullptr, 0, &changed.params));
  CUgraphExecUpdateResultInfo info = {};
  OK(cuGraphExecUpdate_v2(exec_, other, &info));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  run();
  EXPECT_EQ(read_words(data, 256)[0], 10u);
  CUgraphNode extra = nullptr;
  OK(cuGraphAddEmptyNode(&extra, other, &node, 1));
  EXPECT_CU(cuGraphExecUpdate_v2(exec_, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  OK(cuGraphDestroy(other));
}

TEST_F(GraphTest, DisabledNodeIsSkipped) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  CUgraphNode first = add_affine(data, 2, 0);
  add_affine(data, 10, 1, {first});
  instantiate();
  OK(cuGraphNodeSetEnabled(exec_, first, 0));
  unsigned enabled = 9;
  OK(cuGraphNodeGetEnabled(exec_, first, &enabled));
  EXPECT_EQ(enabled, 0u);
  run();
  EXPECT_EQ(read_words(data, 256)[0], 11u);
  OK(cuGraphNodeSetEnabled(exec_, first, 1));
  run();
  EXPECT_EQ(read_words(data, 256)[0], 221u);
}

TEST_F(GraphTest, CloneIsIndependent) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  CUgraphNode node = add_affine(data, 3, 0);
  CUgraph clone = nullptr;
  OK(cuGraphClone(&clone, graph_));
  CUgraphNode twin = nullptr;
  OK(cuGraphNodeFindInClone(&twin, node, clone));
  EXPECT_NE(twin, node);
  OK(cuGraphDestroyNode(node));
  OK(cuGraphInstantiateWithFlags(&exec_, clone, 0));
  OK(cuGraphDestroy(clone));
  run();
  EXPECT_EQ(read_words(data, 256)[0], 3u);
}

TEST_F(GraphTest, ExecOutlivesTheGraph) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  add_affine(data, 6, 0);
  instantiate();
  OK(cuGraphDestroy(graph_));
  graph_ = nullptr;
  run();
  EXPECT_EQ(read_words(data, 256)[0], 6u);
}

TEST_F(GraphTest, UploadThenLaunch) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  add_affine(data, 8, 0);
  instantiate();
  OK(cuGraphUpload(exec_, stream_));
  run();
  EXPECT_EQ(read_words(data, 256)[0], 8u);
}

TEST_F(GraphTest, InstantiateWithParams) {
  add_empty();
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
  OK(cuGraphInstantiateWithParams(&exec_, graph_, &params));
  EXPECT_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
  cuuint64_t flags = 99;
  OK(cuGraphExecGetFlags(exec_, &flags));
  EXPECT_EQ(flags, 0u);
}

TEST_F(GraphTest, LaunchesOfOneExecDoNotOverlap) {
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 0, 256));
  add_affine(data, 1, 1);
  instantiate();
  for (int i = 0; i < 50; i++) ASSERT_EQ(cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 50));
}

TEST_F(GraphTest, LaunchIsOrderedInItsStream) {
  Stream stream;
  Buffer data(1024);
  add_affine(data, 10, 1);
  instantiate();
  OK(cuMemsetD32Async(data, 4, 256, stream));
  OK(cuGraphLaunch(exec_, stream));
  OK(launch(basic("affine"), {1}, {256}, 0, stream, CUdeviceptr{data}, 10u, 2u, 256u));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 412));
}

TEST_F(GraphTest, NullHandles) {
  CUgraphExec exec = nullptr;
  INVALID(cuGraphInstantiateWithFlags(&exec, nullptr, 0));
  INVALID(cuGraphLaunch(nullptr, nullptr));
  INVALID(cuGraphExecDestroy(nullptr));
  CUgraphNode node = nullptr;
  INVALID(cuGraphAddEmptyNode(&node, nullptr, nullptr, 0));
  INVALID(cuGraphInstantiateWithFlags(nullptr, graph_, 0));
}

TEST_F(GraphTest, MemoryNodes) {
  REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  Buffer out(1024);
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
  params.bytesize = 1024;
  CUgraphNode alloc = nullptr, copy_node = nullptr, free_node = nullptr;
  MUST(cuGraphAddMemAllocNode(&alloc, graph_, nullptr, 0, &params));
  ASSERT_NE(params.dptr, 0u);
  CUgraphNode fill = add_memset(params.dptr, 55, {alloc});
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = params.dptr;
  copy.dstDevice = out;
  copy.WidthInBytes = copy.srcPitch = copy.dstPitch = 1024;
  copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
  OK(cuGraphAddMemcpyNode(&copy_node, graph_, &fill, 1, &copy, context_));
  OK(cuGraphAddMemFreeNode(&free_node, graph_, &copy_node, 1, params.dptr));
  instantiate();
  run();
  EXPECT_EQ(read_words(out, 256), std::vector<uint32_t>(256, 55));
}

TEST_F(GraphTest, GenericAddNode) {
  Buffer data(1024);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params.memset.dst = data;
  params.memset.value = 0x21;
  params.memset.elementSize = 1;
  params.memset.width = 1024;
  params.memset.height = 1;
  params.memset.ctx = context_;
  CUgraphNode node = nullptr;
  OK(cuGraphAddNode_v2(&node, graph_, nullptr, nullptr, 0, &params));
  instantiate();
  run();
  EXPECT_EQ(read_words(data, 1)[0], 0x21212121u);
}

struct Destroyed {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

// An object of the program that reports its destruction, which may come late. The caller has the
// only reference.
CUuserObject make_user_object(const std::shared_ptr<Destroyed>& state) {
  auto* share = new std::shared_ptr<Destroyed>(state);
  CUuserObject object = nullptr;
  EXPECT_EQ(cuUserObjectCreate(
                &object, share,
                [](void* p) {
                  std::unique_ptr<std::shared_ptr<Destroyed>> destroyed(
                      static_cast<std::shared_ptr<Destroyed>*>(p));  // outlives the lock
                  std::lock_guard<std::mutex> lock((*destroyed)->mutex);
                  (*destroyed)->done = true;
                  (*destroyed)->changed.notify_all();
                },
                1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  return object;
}

bool destroyed_within(Destroyed& state, std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(state.mutex);
  return state.changed.wait_for(lock, limit, [&] { return state.done; });
}

TEST_F(GraphTest, UserObjectIsDestroyedWithTheGraph) {
  auto state = std::make_shared<Destroyed>();
  OK(cuGraphRetainUserObject(graph_, make_user_object(state), 1, CU_GRAPH_USER_OBJECT_MOVE));
  EXPECT_FALSE(destroyed_within(*state, std::chrono::milliseconds(0)));
  OK(cuGraphDestroy(graph_));
  graph_ = nullptr;
  EXPECT_TRUE(destroyed_within(*state, std::chrono::seconds(20)));
}

// Copies of a graph hold what it holds: a clone, an instance, and the child of another graph until
// its node is removed.
TEST_F(GraphTest, UserObjectLivesWithTheCopiesOfTheGraph) {
  for (int which : {0, 1, 2}) {
    auto state = std::make_shared<Destroyed>();
    CUgraph graph = nullptr, clone = nullptr;
    CUgraphExec exec = nullptr;
    CUgraphNode node = nullptr;
    MUST(cuGraphCreate(&graph, 0));
    OK(cuGraphRetainUserObject(graph, make_user_object(state), 1, CU_GRAPH_USER_OBJECT_MOVE));
    const CUresult copied = which == 0 ? cuGraphClone(&clone, graph)
                            : which == 1
                                ? cuGraphInstantiateWithFlags(&exec, graph, 0)
                                : cuGraphAddChildGraphNode(&node, graph_, nullptr, 0, graph);
    ASSERT_EQ(copied, CUDA_SUCCESS) << which;
    OK(cuGraphDestroy(graph));
    EXPECT_FALSE(destroyed_within(*state, std::chrono::milliseconds(50))) << which;
    const CUresult gone = which == 0   ? cuGraphDestroy(clone)
                          : which == 1 ? cuGraphExecDestroy(exec)
                                       : cuGraphDestroyNode(node);
    EXPECT_EQ(gone, CUDA_SUCCESS) << which;
    EXPECT_TRUE(destroyed_within(*state, std::chrono::seconds(20))) << which;
  }
}

TEST_F(GraphTest, DebugDotPrint) {
  add_empty();
  char path[] = "/tmp/tendril-conformance-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  close(fd);
  OK(cuGraphDebugDotPrint(graph_, path, 0));
  FILE* file = fopen(path, "r");
  ASSERT_NE(file, nullptr);
  char text[256] = {};
  const size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  unlink(path);
  EXPECT_GT(length, 0u);
  EXPECT_NE(strstr(text, "digraph"), nullptr) << text;
}

}  // namespace
}  // namespace tendril::conformance
