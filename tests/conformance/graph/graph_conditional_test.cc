// SPDX-License-Identifier: Apache-2.0
// Conditional graph nodes: a value that launches or kernels set decides which body runs.
#include "conditional.ptx.gen.h"
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

constexpr char kNoDeviceRuntime[] = "the driver does not link the device runtime";

class GraphConditionalTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    int version = 0;
    ASSERT_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
    if (version < 12080) GTEST_SKIP() << "the driver's conditional nodes are older than CUDA 12.8";
    ASSERT_EQ(cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (exec_) cuGraphExecDestroy(exec_);
    if (graph_) cuGraphDestroy(graph_);
    if (module_) cuModuleUnload(module_);
    CudaTest::TearDown();
  }
  bool load() { return cuModuleLoadData(&module_, kConditionalPtx) == CUDA_SUCCESS; }
  CUfunction function(const char* name) {
    CUfunction found = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&found, module_, name), CUDA_SUCCESS);
    return found;
  }
  CUgraphConditionalHandle condition(unsigned value,
                                     unsigned flags = CU_GRAPH_COND_ASSIGN_DEFAULT) {
    CUgraphConditionalHandle handle = 0;
    EXPECT_EQ(cuGraphConditionalHandleCreate(&handle, graph_, context_, value, flags),
              CUDA_SUCCESS);
    return handle;
  }
  // The bodies of a new node that depends on `after`.
  std::vector<CUgraph> add(CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                           unsigned size, std::vector<CUgraphNode> after = {}) {
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = context_;
    EXPECT_EQ(cuGraphAddNode_v2(&node_, graph_, after.data(), nullptr, after.size(), &params),
              CUDA_SUCCESS);
    if (params.conditional.phGraph_out == nullptr) return {};
    return {params.conditional.phGraph_out, params.conditional.phGraph_out + size};
  }
  void add_memset(CUgraph graph, CUdeviceptr at, uint32_t value) {
    CUDA_MEMSET_NODE_PARAMS params = {at, 0, value, 4, 1, 1};
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &params, context_), CUDA_SUCCESS);
  }
  CUgraphNode add_kernel(CUgraph graph, CUfunction function, void** arguments) {
    CUDA_KERNEL_NODE_PARAMS params = {};
    params.func = function;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments;
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params), CUDA_SUCCESS);
    return node;
  }
  void run() {
    if (exec_ == nullptr) {
      ASSERT_EQ(cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_SUCCESS);
    }
    ASSERT_EQ(cuGraphLaunch(exec_, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  }
  uint32_t word(CUdeviceptr at) { return read_words(at, 1)[0]; }

  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUgraphNode node_ = nullptr;
  CUmodule module_ = nullptr;
};

TEST_F(GraphConditionalTest, IfByDefaultValue) {
  for (unsigned value : {0u, 1u, 5u}) {
    Buffer data(4);
    OK(cuMemsetD32_v2(data, 7, 1));
    std::vector<CUgraph> bodies = add(condition(value), CU_GRAPH_COND_TYPE_IF, 1);
    ASSERT_EQ(bodies.size(), 1u);
    add_memset(bodies[0], data, 9);
    run();
    EXPECT_EQ(word(data), value != 0 ? 9u : 7u) << value;
    OK(cuGraphExecDestroy(exec_));
    OK(cuGraphDestroy(graph_));
    exec_ = nullptr;
    OK(cuGraphCreate(&graph_, 0));
  }
}

TEST_F(GraphConditionalTest, IfElse) {
  Buffer data(8);
  OK(cuMemsetD32_v2(data, 0, 2));
  std::vector<CUgraph> bodies = add(condition(0), CU_GRAPH_COND_TYPE_IF, 2);
  ASSERT_EQ(bodies.size(), 2u);
  EXPECT_NE(bodies[0], bodies[1]);
  add_memset(bodies[0], data, 1);
  add_memset(bodies[1], data + 4, 2);
  run();
  EXPECT_EQ(read_words(data, 2), (std::vector<uint32_t>{0, 2}));
}

TEST_F(GraphConditionalTest, SwitchTakesTheBodyOfItsValue) {
  Buffer data(12);
  OK(cuMemsetD32_v2(data, 0, 3));
  std::vector<CUgraph> bodies = add(condition(1), CU_GRAPH_COND_TYPE_SWITCH, 3);
  ASSERT_EQ(bodies.size(), 3u);
  for (uint32_t i = 0; i < 3; i++) add_memset(bodies[i], data + 4 * i, 10 + i);
  run();
  EXPECT_EQ(read_words(data, 3), (std::vector<uint32_t>{0, 11, 0}));
}

TEST_F(GraphConditionalTest, SwitchBeyondItsBodiesDoesNothing) {
  Buffer data(4);
  OK(cuMemsetD32_v2(data, 3, 1));
  std::vector<CUgraph> bodies = add(condition(1), CU_GRAPH_COND_TYPE_SWITCH, 1);
  ASSERT_EQ(bodies.size(), 1u);
  add_memset(bodies[0], data, 4);
  run();
  EXPECT_EQ(word(data), 3u);
}

TEST_F(GraphConditionalTest, BodyByCapture) {
  Buffer data(4);
  OK(cuMemsetD32_v2(data, 3, 1));
  std::vector<CUgraph> bodies = add(condition(1), CU_GRAPH_COND_TYPE_IF, 1);
  ASSERT_EQ(bodies.size(), 1u);
  Stream stream;
  MUST(cuStreamBeginCaptureToGraph(stream, bodies[0], nullptr, nullptr, 0,
                                   CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(launch(basic("affine"), {}, {}, 0, stream, CUdeviceptr{data}, 5u, 2u, 1u));
  OK(cuStreamEndCapture(stream, nullptr));  // the graph is known
  run();
  EXPECT_EQ(word(data), 17u);
}

TEST_F(GraphConditionalTest, TypeAndNodes) {
  std::vector<CUgraph> bodies = add(condition(1), CU_GRAPH_COND_TYPE_WHILE, 1);
  ASSERT_EQ(bodies.size(), 1u);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  OK(cuGraphNodeGetType(node_, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_CONDITIONAL);
  size_t count = 9;
  OK(cuGraphGetNodes(bodies[0], nullptr, &count));
  EXPECT_EQ(count, 0u);
}

TEST_F(GraphConditionalTest, Errors) {
  CUgraphConditionalHandle handle = 0;
  INVALID(cuGraphConditionalHandleCreate(nullptr, graph_, context_, 0, 0));
  INVALID(cuGraphConditionalHandleCreate(&handle, nullptr, context_, 0, 0));
  CUgraphNodeParams params = {};
  CUgraphNode node = nullptr;
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = condition(0);
  params.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
  params.conditional.ctx = context_;
  INVALID(cuGraphAddNode_v2(&node, graph_, nullptr, nullptr, 0, &params));  // no body
}

TEST_F(GraphConditionalTest, UnusedHandleCannotBeInstantiated) {
  condition(1);
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
  EXPECT_NE(cuGraphInstantiateWithParams(&exec_, graph_, &params), CUDA_SUCCESS);
  EXPECT_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
  exec_ = nullptr;
}

// The new graph's condition starts the launches from then on, and its bodies run.
TEST_F(GraphConditionalTest, UpdateTakesConditionAndBodies) {
  Buffer data(12);
  OK(cuMemsetD32_v2(data, 0, 3));
  for (uint32_t chosen = 0; chosen < 3; chosen++) {
    std::vector<CUgraph> bodies = add(condition(chosen), CU_GRAPH_COND_TYPE_SWITCH, 3);
    ASSERT_EQ(bodies.size(), 3u);
    for (uint32_t i = 0; i < 3; i++) add_memset(bodies[i], data + 4 * i, 10 * (chosen + 1) + i);
    CUgraphExecUpdateResultInfo info = {};
    if (exec_ != nullptr) {
      OK(cuGraphExecUpdate_v2(exec_, graph_, &info));
    }
    run();
    EXPECT_EQ(word(data + 4 * chosen), 10 * (chosen + 1) + chosen);
    OK(cuGraphDestroy(graph_));
    OK(cuGraphCreate(&graph_, 0));
  }
  EXPECT_EQ(read_words(data, 3), (std::vector<uint32_t>{10, 21, 32}));
}

TEST_F(GraphConditionalTest, WhileCountsDown) {
  if (!load()) GTEST_SKIP() << kNoDeviceRuntime;
  Buffer data(8);
  CUgraphConditionalHandle handle = condition(1);
  std::vector<CUgraph> bodies = add(handle, CU_GRAPH_COND_TYPE_WHILE, 1);
  ASSERT_EQ(bodies.size(), 1u);
  CUdeviceptr counter = data, rounds = data + 4;
  void* arguments[] = {&counter, &rounds, &handle};
  add_kernel(bodies[0], function("count_down"), arguments);
  for (uint32_t n : {6u, 1u}) {  // the default value starts every launch
    OK(cuMemsetD32_v2(counter, n, 1));
    OK(cuMemsetD32_v2(rounds, 0, 1));
    run();
    EXPECT_EQ(read_words(data, 2), (std::vector<uint32_t>{0, n}));
  }
}

TEST_F(GraphConditionalTest, KernelBeforeTheNodeChooses) {
  if (!load()) GTEST_SKIP() << kNoDeviceRuntime;
  Buffer data(16);
  CUgraphConditionalHandle handle = condition(0, 0);
  CUdeviceptr value = data + 12;
  void* arguments[] = {&value, &handle};
  CUgraphNode first = add_kernel(graph_, function("choose"), arguments);
  std::vector<CUgraph> bodies = add(handle, CU_GRAPH_COND_TYPE_SWITCH, 3, {first});
  ASSERT_EQ(bodies.size(), 3u);
  for (uint32_t i = 0; i < 3; i++) add_memset(bodies[i], data + 4 * i, 1);
  for (uint32_t chosen = 0; chosen < 4; chosen++) {
    OK(cuMemsetD32_v2(data, 0, 3));
    OK(cuMemsetD32_v2(value, chosen, 1));
    run();
    std::vector<uint32_t> expected(3, 0);
    if (chosen < 3) expected[chosen] = 1;
    EXPECT_EQ(read_words(data, 3), expected) << chosen;
  }
}

}  // namespace
}  // namespace tendril::conformance
