// SPDX-License-Identifier: Apache-2.0
// Memory of graphs: allocation and free nodes, by hand and by capture, and what outlives a launch.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

constexpr size_t kBytes = 4u << 20;

class GraphMemoryTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    REQUIRE_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
    ASSERT_EQ(cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream_, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  }
  void TearDown() override {
    for (CUgraphExec exec : execs_) cuGraphExecDestroy(exec);
    if (graph_) cuGraphDestroy(graph_);
    if (stream_) cuStreamDestroy_v2(stream_);
    cuDeviceGraphMemTrim(device());
    CudaTest::TearDown();
  }
  CUdeviceptr add_alloc(CUgraphNode* node, size_t bytes = kBytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device()};
    params.bytesize = bytes;
    EXPECT_EQ(cuGraphAddMemAllocNode(node, graph_, nullptr, 0, &params), CUDA_SUCCESS);
    EXPECT_NE(params.dptr, 0u);
    return params.dptr;
  }
  CUgraphNode add_memset(CUdeviceptr at, uint32_t value, CUgraphNode after) {
    CUDA_MEMSET_NODE_PARAMS params = {at, 0, value, 4, 256, 1};
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddMemsetNode(&node, graph_, &after, 1, &params, context_), CUDA_SUCCESS);
    return node;
  }
  CUgraphExec instantiate(CUgraph graph, unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, flags), CUDA_SUCCESS);
    execs_.push_back(exec);
    return exec;
  }
  uint64_t reserved() {
    cuuint64_t value = ~0ull;
    EXPECT_EQ(
        cuDeviceGetGraphMemAttribute(device(), CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value),
        CUDA_SUCCESS);
    return value;
  }
  void expect_words(CUdeviceptr at, uint32_t value) {
    EXPECT_EQ(read_words(at, 256), std::vector<uint32_t>(256, value));
  }

  CUgraph graph_ = nullptr;
  CUstream stream_ = nullptr;
  std::vector<CUgraphExec> execs_;
};

TEST_F(GraphMemoryTest, AllocateUseFree) {
  Buffer out(1024);
  CUgraphNode alloc = nullptr, copy = nullptr, free = nullptr;
  CUdeviceptr memory = add_alloc(&alloc);
  CUgraphNode set = add_memset(memory, 77, alloc);
  CUDA_MEMCPY3D shape = {};
  shape.srcMemoryType = shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  shape.srcDevice = memory;
  shape.dstDevice = out;
  shape.WidthInBytes = 1024;
  shape.Height = shape.Depth = 1;
  OK(cuGraphAddMemcpyNode(&copy, graph_, &set, 1, &shape, context_));
  OK(cuGraphAddMemFreeNode(&free, graph_, &copy, 1, memory));
  CUdeviceptr freed = 0;
  OK(cuGraphMemFreeNodeGetParams(free, &freed));
  EXPECT_EQ(freed, memory);
  CUgraphExec exec = instantiate(graph_);
  for (int i = 0; i < 3; i++) {
    OK(cuMemsetD32_v2(out, 0, 256));
    OK(cuGraphLaunch(exec, stream_));
    OK(cuStreamSynchronize(stream_));
    expect_words(out, 77);
  }
}

TEST_F(GraphMemoryTest, FreedOutsideOfTheGraph) {
  CUgraphNode alloc = nullptr;
  CUdeviceptr memory = add_alloc(&alloc);
  add_memset(memory, 5, alloc);
  CUgraphExec exec = instantiate(graph_);
  OK(cuGraphLaunch(exec, stream_));
  OK(cuStreamSynchronize(stream_));
  expect_words(memory, 5);
  OK(cuMemFree_v2(memory));
  OK(cuGraphLaunch(exec, stream_));  // allocates it again
  OK(cuMemsetD32Async(memory, 6, 256, stream_));
  OK(cuStreamSynchronize(stream_));
  expect_words(memory, 6);
  OK(cuMemFreeAsync(memory, stream_));
  OK(cuStreamSynchronize(stream_));
  INVALID(cuMemFree_v2(memory));
}

TEST_F(GraphMemoryTest, FreedInAnotherGraph) {
  CUgraphNode alloc = nullptr, node = nullptr;
  CUdeviceptr memory = add_alloc(&alloc);
  CUgraphExec exec = instantiate(graph_);
  CUgraph other = nullptr;
  MUST(cuGraphCreate(&other, 0));
  OK(cuGraphAddMemFreeNode(&node, other, nullptr, 0, memory));
  CUgraphExec frees = instantiate(other);
  for (int i = 0; i < 2; i++) {
    OK(cuGraphLaunch(exec, stream_));
    OK(cuGraphLaunch(frees, stream_));
  }
  OK(cuStreamSynchronize(stream_));
  OK(cuGraphDestroy(other));
}

TEST_F(GraphMemoryTest, CannotBeLaunchedWhileItsMemoryIsAllocated) {
  CUgraphNode alloc = nullptr;
  CUdeviceptr memory = add_alloc(&alloc);
  CUgraphExec exec = instantiate(graph_);
  OK(cuGraphLaunch(exec, stream_));
  INVALID(cuGraphLaunch(exec, stream_));
  OK(cuMemFreeAsync(memory, stream_));
  OK(cuGraphLaunch(exec, stream_));
  OK(cuMemFreeAsync(memory, stream_));
  OK(cuStreamSynchronize(stream_));
}

TEST_F(GraphMemoryTest, AutoFreeOnLaunch) {
  CUgraphNode alloc = nullptr;
  CUdeviceptr memory = add_alloc(&alloc);
  CUgraphExec exec = instantiate(graph_, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  OK(cuGraphLaunch(exec, stream_));
  OK(cuGraphLaunch(exec, stream_));
  OK(cuMemFreeAsync(memory, stream_));
  OK(cuStreamSynchronize(stream_));
}

TEST_F(GraphMemoryTest, OutlivesGraphAndInstance) {
  CUgraphNode alloc = nullptr;
  CUdeviceptr memory = add_alloc(&alloc);
  add_memset(memory, 8, alloc);
  CUgraphExec exec = nullptr;
  MUST(cuGraphInstantiateWithFlags(&exec, graph_, 0));
  OK(cuGraphLaunch(exec, stream_));
  OK(cuStreamSynchronize(stream_));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph_));
  graph_ = nullptr;
  expect_words(memory, 8);
  OK(cuMemFree_v2(memory));
}

TEST_F(GraphMemoryTest, Footprint) {
  OK(cuDeviceGraphMemTrim(device()));
  const uint64_t before = reserved();
  CUgraphNode alloc = nullptr;
  CUdeviceptr memory = add_alloc(&alloc, 64u << 20);
  CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(reserved(), before);  // launches take memory, nothing else does
  OK(cuGraphLaunch(exec, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_GE(reserved(), before + (64u << 20));
  OK(cuDeviceGraphMemTrim(device()));
  EXPECT_GE(reserved(), before + (64u << 20));
  OK(cuMemFree_v2(memory));
  OK(cuDeviceGraphMemTrim(device()));
  EXPECT_EQ(reserved(), before);
  cuuint64_t high = 0, zero = 0;
  OK(cuDeviceGetGraphMemAttribute(device(), CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &high));
  EXPECT_GE(high, 64u << 20);
  OK(cuDeviceSetGraphMemAttribute(device(), CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  OK(cuDeviceGetGraphMemAttribute(device(), CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &high));
  EXPECT_LT(high, 64u << 20);
}

TEST_F(GraphMemoryTest, FootprintErrors) {
  cuuint64_t value = 0;
  INVALID(cuDeviceGetGraphMemAttribute(device(), CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, nullptr));
  INVALID(cuDeviceSetGraphMemAttribute(device(), CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value));
  EXPECT_CU(cuDeviceGraphMemTrim(-1), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(GraphMemoryTest, CapturedAllocation) {
  Buffer out(1024);
  CUdeviceptr memory = 0;
  CUgraph captured = nullptr;
  MUST(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemAllocAsync(&memory, kBytes, stream_));
  OK(cuMemsetD32Async(memory, 21, 256, stream_));
  OK(cuMemcpyDtoDAsync_v2(out, memory, 1024, stream_));
  OK(cuMemFreeAsync(memory, stream_));
  MUST(cuStreamEndCapture(stream_, &captured));
  size_t count = 0;
  OK(cuGraphGetNodes(captured, nullptr, &count));
  EXPECT_EQ(count, 4u);
  std::vector<CUgraphNode> nodes(count);
  OK(cuGraphGetNodes(captured, nodes.data(), &count));
  int allocations = 0, frees = 0;
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    OK(cuGraphNodeGetType(node, &type));
    allocations += type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    frees += type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  }
  EXPECT_EQ(allocations, 1);
  EXPECT_EQ(frees, 1);
  CUgraphExec exec = instantiate(captured);
  for (int i = 0; i < 2; i++) {
    OK(cuMemsetD32_v2(out, 0, 256));
    OK(cuGraphLaunch(exec, stream_));
    OK(cuStreamSynchronize(stream_));
    expect_words(out, 21);
  }
  OK(cuGraphDestroy(captured));
}

TEST_F(GraphMemoryTest, CapturedAllocationFreedOutside) {
  CUdeviceptr memory = 0;
  CUgraph captured = nullptr;
  MUST(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemAllocAsync(&memory, kBytes, stream_));
  OK(cuMemsetD32Async(memory, 3, 256, stream_));
  MUST(cuStreamEndCapture(stream_, &captured));
  CUgraphExec exec = instantiate(captured);
  OK(cuGraphDestroy(captured));
  for (int i = 0; i < 2; i++) {
    OK(cuGraphLaunch(exec, stream_));
    OK(cuStreamSynchronize(stream_));
    expect_words(memory, 3);
    OK(cuMemFreeAsync(memory, stream_));
  }
  OK(cuStreamSynchronize(stream_));
}

TEST_F(GraphMemoryTest, OnlyMemoryOfGraphsCanBeFreedInOne) {
  Buffer data(1024);
  CUgraphNode node = nullptr;
  INVALID(cuGraphAddMemFreeNode(&node, graph_, nullptr, 0, data));
}

TEST_F(GraphMemoryTest, PointerAttributes) {
  CUgraphNode alloc = nullptr;
  CUdeviceptr memory = add_alloc(&alloc);
  CUgraphExec exec = instantiate(graph_);
  OK(cuGraphLaunch(exec, stream_));
  OK(cuStreamSynchronize(stream_));
  unsigned type = 0;
  CUdeviceptr start = 0;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 100));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 100));
  EXPECT_EQ(start, memory);
  OK(cuMemFree_v2(memory));
}

}  // namespace
}  // namespace tendril::conformance
