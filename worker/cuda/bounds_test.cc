// SPDX-License-Identifier: Apache-2.0
// Few bytes of a client must not make its worker large: the experiments of the audit with ids that
// the client chooses, and with waits that never end.
#include <dirent.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "worker/cuda/testing/driver.h"
#include "worker/cuda/testing/random_calls.h"
#include "worker/cuda/testing/session.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kMemory = 0x10'0000'0000;

uint64_t resident_bytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * 4096;
}

unsigned thread_count() {
  unsigned count = 0;
  DIR* const tasks = opendir("/proc/self/task");
  while (readdir(tasks) != nullptr) ++count;
  closedir(tasks);
  return count - 2;  // . and ..
}

std::unique_ptr<gpu::Driver> driver() {
  setenv("TENDRIL_SOFTGPU_STEPS", "100000", 1);  // an endless wait ends after a while
  setenv("TENDRIL_WAIT_SPIN_US", "0", 1);        // waits go to threads at once
  return open_test_driver();
}

std::vector<uint8_t> lane_with_context() {
  std::vector<uint8_t> lane;
  wire::cuda::primary_retain_request retain;
  retain.context = api::make_id(Kind::kContext, 0, 1, 1);
  append_call(&lane, retain, 0, 1);
  return lane;
}

TEST(Bounds, IdsThatAClientChoosesTakeNoMemory) {
  const auto gpu = driver();
  ASSERT_NE(gpu, nullptr);
  const std::vector<uint8_t> first = lane_with_context();
  run_lane(gpu.get(), first.data(), first.size());
  std::vector<uint8_t> lane = lane_with_context();
  wire::cuda::cuGraphCreate_request graph;
  wire::cuda::event_create_request event;
  wire::cuda::stream_create_request stream;
  for (uint32_t index = api::kIndexMax - 1; index > api::kIndexMax / 2; index -= 1u << 20) {
    graph.phGraph = api::make_id(Kind::kGraph, 0, 1, index);
    event.event = api::make_id(Kind::kEvent, 0, 1, index);
    stream.stream = api::make_id(Kind::kStream, 0, 1, index);
    append_call(&lane, graph, 1, 1);
    append_call(&lane, event, 1, 0);
    append_call(&lane, stream, 1, 0);
  }
  const uint64_t before = resident_bytes();
  run_lane(gpu.get(), lane.data(), lane.size());
  const uint64_t after = resident_bytes();
  EXPECT_LT(after, before + (64u << 20)) << lane.size() << " bytes";
}

TEST(Bounds, WaitsTakeAFixedNumberOfThreads) {
  const auto gpu = driver();
  ASSERT_NE(gpu, nullptr);
  std::vector<uint8_t> lane = lane_with_context();
  wire::cuda::mirror_create_request mirror;
  mirror.address = kMemory;
  mirror.bytes = 4096;
  append_call(&lane, mirror, 1, 1);
  wire::cuda::stream_create_request stream;
  stream.stream = api::make_id(Kind::kStream, 0, 1, 1);
  stream.flags = CU_STREAM_NON_BLOCKING;
  append_call(&lane, stream, 1, 0);
  wire::cuda::cuStreamWaitValue32_v2_request never;
  never.stream = stream.stream;
  never.addr = kMemory;
  never.value = 1;
  append_call(&lane, never, 1, 0);
  wire::cuda::stream_synchronize_request wait;
  wait.stream = stream.stream;
  for (uint32_t i = 0; i < 2500; ++i) append_call(&lane, wait, 1, 2 + i);
  std::atomic<bool> over{false};
  unsigned most = 0;
  const unsigned before = thread_count();
  std::thread sampler([&] {
    while (!over) most = std::max(most, thread_count());
  });
  run_lane(gpu.get(), lane.data(), lane.size());
  over = true;
  sampler.join();
  EXPECT_LT(most, before + 80) << "the software GPU has threads of its own, too";
}

// A driver that counts what reaches it, and a session that may have 1,000 objects.
uint32_t calls_made = 0;
uint64_t nodes_made = 0;

class GraphBounds : public ::testing::Test {
 protected:
  void SetUp() override {
    gpu_ = driver();
    ASSERT_NE(gpu_, nullptr);
    setenv("TENDRIL_WORKER_OBJECTS", "1000", 1);
    calls_made = 0;
    nodes_made = 0;
    lane_ = lane_with_context();
  }
  void TearDown() override { unsetenv("TENDRIL_WORKER_OBJECTS"); }

  static uint64_t graph(uint32_t index) { return api::make_id(Kind::kGraph, 0, 1, index); }
  static uint64_t exec(uint32_t index) { return api::make_id(Kind::kExec, 0, 1, index); }
  // Each node comes after the one before, or all beside each other.
  void make_graph(uint32_t index, uint32_t nodes, bool beside = false) {
    wire::cuda::cuGraphCreate_request create;
    create.phGraph = graph(index);
    append_call(&lane_, create, 1, 1);
    wire::cuda::cuGraphAddEmptyNode_request node;
    node.hGraph = graph(index);
    for (uint32_t i = 0; i < nodes; ++i) {
      const uint64_t before = api::make_id(Kind::kNode, 0, 1, nodes_);
      node.phGraphNode = api::make_id(Kind::kNode, 0, 1, ++nodes_);
      node.numDependencies = i == 0 || beside ? 0 : 1;
      node.dependencies = {&before, node.numDependencies};
      append_call(&lane_, node, 1, 1);
    }
  }
  void instantiate(uint32_t from, uint32_t index) {
    wire::cuda::graph_instantiate_request request;
    request.graph = graph(from);
    request.exec = exec(index);
    append_call(&lane_, request, 1, 1);
  }
  void run() { run_lane(gpu_.get(), lane_.data(), lane_.size()); }

  std::unique_ptr<gpu::Driver> gpu_;
  std::vector<uint8_t> lane_;
  uint32_t nodes_ = 0;
};

TEST_F(GraphBounds, GraphsInGraphsDoNotDoubleForEver) {
  static cuGraphAddChildGraphNode_t* add = nullptr;
  add = gpu_->cuGraphAddChildGraphNode;
  gpu_->cuGraphAddChildGraphNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* from,
                                      size_t count, CUgraph child) {
    static std::map<CUgraph, uint64_t> sizes;
    const uint64_t more = 1 + sizes[child];
    sizes[graph] += more;
    nodes_made += more;
    ++calls_made;
    return add(node, graph, from, count, child);
  };
  make_graph(1, 1);
  for (uint32_t level = 2; level < 22; ++level) {
    make_graph(level, 0);
    wire::cuda::cuGraphAddChildGraphNode_request child;
    child.hGraph = graph(level);
    child.childGraph = graph(level - 1);
    for (int twice = 0; twice < 2; ++twice) {
      child.phGraphNode = api::make_id(Kind::kNode, 0, 1, ++nodes_);
      append_call(&lane_, child, 1, 1);
    }
  }
  run();
  EXPECT_GE(calls_made, 10u);
  EXPECT_LE(nodes_made, 1000u) << "each level takes twice as many nodes as the one before";
}

TEST_F(GraphBounds, ClonesCountWithTheirNodes) {
  static cuGraphClone_t* clone = nullptr;
  clone = gpu_->cuGraphClone;
  gpu_->cuGraphClone = [](CUgraph* out, CUgraph graph) {
    ++calls_made;
    return clone(out, graph);
  };
  make_graph(1, 100);
  wire::cuda::cuGraphClone_request request;
  request.originalGraph = graph(1);
  wire::cuda::cuGraphDestroy_request destroy;
  for (uint32_t round = 0; round < 2; ++round) {
    for (uint32_t i = 2; i < 50; ++i) {
      request.phGraphClone = graph(i);
      append_call(&lane_, request, 1, 1);
    }
    for (uint32_t i = 2; i < 50; ++i) {
      destroy.hGraph = graph(i);
      append_call(&lane_, destroy, 1, 1);
    }
  }
  run();
  EXPECT_EQ(calls_made, 2 * 8u) << "what is destroyed counts no longer";
}

TEST_F(GraphBounds, InstancesCountWithTheirNodes) {
  static cuGraphInstantiateWithFlags_t* make = nullptr;
  make = gpu_->cuGraphInstantiateWithFlags;
  gpu_->cuGraphInstantiateWithFlags = [](CUgraphExec* out, CUgraph graph,
                                         unsigned long long flags) {
    ++calls_made;
    return make(out, graph, flags);
  };
  make_graph(1, 100);
  wire::cuda::cuGraphExecDestroy_request destroy;
  for (uint32_t round = 0; round < 2; ++round) {
    for (uint32_t i = 1; i < 50; ++i) instantiate(1, i);
    for (uint32_t i = 1; i < 50; ++i) {
      destroy.hGraphExec = exec(i);
      append_call(&lane_, destroy, 1, 1);
    }
  }
  run();
  EXPECT_EQ(calls_made, 2 * 8u);
}

TEST_F(GraphBounds, InstancesTakeMemoryOfTheSlice) {
  static cuGraphInstantiateWithFlags_t* make = nullptr;
  make = gpu_->cuGraphInstantiateWithFlags;
  gpu_->cuGraphInstantiateWithFlags = [](CUgraphExec* out, CUgraph graph,
                                         unsigned long long flags) {
    ++calls_made;
    return make(out, graph, flags);
  };
  make_graph(1, 100, true);  // 11 MiB for its branches, of 64 for the slice and 8 in the reserve
  wire::cuda::cuGraphExecDestroy_request destroy;
  for (uint32_t round = 0; round < 2; ++round) {
    for (uint32_t i = 1; i < 9; ++i) instantiate(1, i);
    for (uint32_t i = 1; i < 9; ++i) {
      destroy.hGraphExec = exec(i);
      append_call(&lane_, destroy, 1, 1);
    }
  }
  run();
  EXPECT_EQ(calls_made, 2 * 6u);
}

// A kernel of an instance may be replaced by one with more parameters, for which the driver needs
// memory. Ten thousand kernels, and few bytes.
class ChangedInstances : public GraphBounds {
 protected:
  static constexpr uint32_t kSmall = 1, kLarge = 2, kChildren = 100;

  void SetUp() override {
    GraphBounds::SetUp();
    setenv("TENDRIL_WORKER_OBJECTS", "100000", 1);
    load();
    make_graph(1, 0);
    for (uint32_t i = 0; i < 100; ++i) add_kernel(1, kSmall, i != 0);
    make_graph(2, 0);
    wire::cuda::cuGraphAddChildGraphNode_request child;
    child.hGraph = graph(2);
    child.childGraph = graph(1);
    for (uint32_t i = 0; i < kChildren; ++i) {
      const uint64_t before = api::make_id(Kind::kNode, 0, 1, nodes_);
      child.numDependencies = i == 0 ? 0 : 1;
      child.dependencies = {&before, child.numDependencies};
      child.phGraphNode = api::make_id(Kind::kNode, 0, 1, ++nodes_);
      append_call(&lane_, child, 1, 1);
    }
    add_kernel(2, kSmall, true);
    instantiate(2, 1);  // 24 MiB, of 64 for the slice and 8 in the reserve
  }

  void load() {
    std::string text =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".visible .entry small(.param .u64 a)\n{\n  ret;\n}\n"
        ".visible .entry large(.param .align 8 .b8 a[4000])\n{\n  ret;\n}\n";
    text += '\0';
    const std::string hash = base::content_hash(text.data(), text.size());
    wire::cuda::image_upload_request upload;
    upload.hash = RandomCalls::bytes_of(hash);
    upload.size = text.size();
    upload.data = RandomCalls::bytes_of(text);
    append_call(&lane_, upload, 1, 1);
    wire::cuda::module_load_request load;
    load.handle = api::make_id(Kind::kModule, 0, 1, 1);
    load.kind = wire::cuda::LoadKind::kModule;
    load.hash = RandomCalls::bytes_of(hash);
    load.size = text.size();
    append_call(&lane_, load, 1, 1);
    wire::cuda::module_function_request function;
    function.module = load.handle;
    for (const std::string& name : {std::string("small"), std::string("large")}) {
      function.function = api::make_id(Kind::kFunction, 0, 1, name == "small" ? kSmall : kLarge);
      function.name = RandomCalls::bytes_of(name);
      append_call(&lane_, function, 1, 1);
    }
  }
  void add_kernel(uint32_t into, uint32_t function, bool after_the_last) {
    const uint64_t before = api::make_id(Kind::kNode, 0, 1, nodes_);
    wire::cuda::graph_kernel_node_request node;
    if (after_the_last) node.dependencies = {&before, 1};
    node.graph = graph(into);
    node.node = api::make_id(Kind::kNode, 0, 1, ++nodes_);
    fill(&node, function);
  }
  // The kernel of the second graph that lies in no other.
  void change(uint32_t function) {
    wire::cuda::graph_kernel_node_request node;
    node.change = wire::cuda::NodeChange::kSetInExec;
    node.exec = exec(1);
    node.node = api::make_id(Kind::kNode, 0, 1, 100 + kChildren + 1);
    fill(&node, function);
  }
  void fill(wire::cuda::graph_kernel_node_request* node, uint32_t function) {
    static const std::string& zeros = *new std::string(4000, '\0');
    node->function = api::make_id(Kind::kFunction, 0, 1, function);
    node->shape = {{1, 1, 1}, {1, 1, 1}, 0, 0};
    node->params = {reinterpret_cast<const uint8_t*>(zeros.data()),
                    function == kSmall ? sizeof(uint64_t) : zeros.size()};
    append_call(&lane_, *node, 1, 1);
  }
};

TEST_F(ChangedInstances, PayAsIfAllKernelsHadTheLargestParameters) {
  static cuGraphExecKernelNodeSetParams_v2_t* set = nullptr;
  set = gpu_->cuGraphExecKernelNodeSetParams_v2;
  gpu_->cuGraphExecKernelNodeSetParams_v2 = [](CUgraphExec in, CUgraphNode node,
                                               const CUDA_KERNEL_NODE_PARAMS* to) {
    ++calls_made;
    const CUresult result = set(in, node, to);
    EXPECT_EQ(result, CUDA_SUCCESS);
    return result;
  };
  change(kSmall);
  change(kLarge);
  change(kSmall);
  run();
  EXPECT_EQ(calls_made, 2u) << "the slice has no 60 MiB for the large parameters";
}

TEST_F(ChangedInstances, PayForUpdatesAndNewChildren) {
  gpu_->cuGraphExecUpdate_v2 = [](CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*) {
    ++calls_made;
    return CUDA_SUCCESS;
  };
  gpu_->cuGraphExecChildGraphNodeSetParams = [](CUgraphExec, CUgraphNode, CUgraph) {
    ++calls_made;
    return CUDA_SUCCESS;
  };
  make_graph(3, 0);
  add_kernel(3, kLarge, false);
  for (const uint32_t from : {1, 3}) {
    wire::cuda::graph_update_request update;
    update.exec = exec(1);
    update.graph = graph(from);
    append_call(&lane_, update, 1, 1);
    wire::cuda::cuGraphExecChildGraphNodeSetParams_request child;
    child.hGraphExec = exec(1);
    child.hNode = api::make_id(Kind::kNode, 0, 1, 101);
    child.childGraph = graph(from);
    append_call(&lane_, child, 1, 1);
  }
  run();
  EXPECT_EQ(calls_made, 2u);
}

TEST_F(GraphBounds, EdgesAreBounded) {
  setenv("TENDRIL_WORKER_OBJECTS", "200", 1);  // and 1,600 edges
  static uint64_t edges_made;
  edges_made = 0;
  static cuGraphAddDependencies_t* add = nullptr;
  add = gpu_->cuGraphAddDependencies;
  gpu_->cuGraphAddDependencies = [](CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                    size_t count) {
    edges_made += count;
    const CUresult result = add(graph, from, to, count);
    EXPECT_EQ(result, CUDA_SUCCESS);
    return result;
  };
  std::vector<uint64_t> from, to;
  for (uint32_t round = 1; round <= 2; ++round) {
    const uint32_t first = nodes_ + 1;
    make_graph(round, 100, true);
    wire::cuda::cuGraphAddDependencies_request link;
    link.hGraph = graph(round);
    for (uint32_t gap = 1; gap <= 20; ++gap) {
      from.clear();
      to.clear();
      for (uint32_t i = 0; i + gap < 100; ++i) {
        from.push_back(api::make_id(Kind::kNode, 0, 1, first + i));
        to.push_back(api::make_id(Kind::kNode, 0, 1, first + i + gap));
      }
      link.from = {from.data(), from.size()};
      link.to = {to.data(), to.size()};
      link.numDependencies = from.size();
      append_call(&lane_, link, 1, 1);
    }
    wire::cuda::cuGraphDestroy_request destroy;
    destroy.hGraph = graph(round);
    append_call(&lane_, destroy, 1, 1);
  }
  run();
  EXPECT_GT(edges_made, 2 * 600u) << "what is destroyed counts no longer";
  EXPECT_LE(edges_made, 2 * 1600u);
}

TEST_F(GraphBounds, ACaptureEnds) {
  setenv("TENDRIL_WORKER_OBJECTS", "300", 1);
  static cuMemsetD8Async_t* set = nullptr;
  set = gpu_->cuMemsetD8Async;
  gpu_->cuMemsetD8Async = [](CUdeviceptr at, unsigned char value, size_t count, CUstream stream) {
    ++calls_made;
    return set(at, value, count, stream);
  };
  wire::cuda::mirror_create_request mirror;
  mirror.address = kMemory;
  mirror.bytes = 4096;
  append_call(&lane_, mirror, 1, 1);
  wire::cuda::stream_create_request stream;
  stream.stream = api::make_id(Kind::kStream, 0, 1, 1);
  stream.flags = CU_STREAM_NON_BLOCKING;
  append_call(&lane_, stream, 1, 0);
  wire::cuda::capture_begin_request begin;
  begin.stream = stream.stream;
  wire::cuda::memory_set_request fill;
  fill.destination = kMemory;
  fill.element = 1;
  fill.width = 16;
  fill.height = 1;
  fill.stream = stream.stream;
  wire::cuda::capture_end_request end;
  end.stream = stream.stream;
  wire::cuda::cuGraphDestroy_request destroy;
  for (uint32_t round = 1; round <= 2; ++round) {
    append_call(&lane_, begin, 1, 1);
    for (int i = 0; i < 600; ++i) append_call(&lane_, fill, 1, 0);
    end.graph = destroy.hGraph = graph(round);
    append_call(&lane_, end, 1, 1);
    append_call(&lane_, destroy, 1, 1);
  }
  run();
  EXPECT_GT(calls_made, 2 * 200u);
  EXPECT_LE(calls_made, 2 * 300u);
}

}  // namespace
}  // namespace tendril::worker::cuda
