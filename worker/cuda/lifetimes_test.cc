// SPDX-License-Identifier: Apache-2.0
// Random calls that make, use and end objects in any order, in front of a driver that ends the
// process when it gets a stale handle. lifetimes_fuzz.cc does the same for as long as it is let.
// TENDRIL_LIFETIMES_SEED repeats one session, TENDRIL_LIFETIMES_SESSIONS says how many there are.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>

#include "base/text.h"
#include "worker/cuda/testing/driver.h"
#include "worker/cuda/testing/random_calls.h"
#include "worker/cuda/testing/session.h"

namespace tendril::worker::cuda {
namespace {

std::unique_ptr<gpu::Driver> checked_driver(const char* handles) {
  setenv("TENDRIL_SOFTGPU_HANDLES", handles, 1);
  setenv("TENDRIL_SOFTGPU_MEMORY_MB", "128", 1);
  setenv("TENDRIL_SOFTGPU_STEPS", "20000", 1);  // an endless wait ends
  setenv("TENDRIL_SOFTGPU_THREADS", "1", 1);
  setenv("TENDRIL_WAIT_SPIN_US", "0", 1);  // waits go to threads at once
  return open_test_driver();
}

uint32_t g_seed = 0;
int g_error = -1;

// The driver has aborted, or we have crashed.
void tell_seed(int signal) {
  dprintf(g_error, "in the session of TENDRIL_LIFETIMES_SEED=%u\n", g_seed);
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void run_sessions(const char* handles) {
  const std::unique_ptr<gpu::Driver> driver = checked_driver(handles);
  ASSERT_NE(driver, nullptr);
  leave_objects_untold(driver.get());
  const uint32_t only = base::env_u32("TENDRIL_LIFETIMES_SEED", 0);
  const uint32_t sessions = base::env_u32("TENDRIL_LIFETIMES_SESSIONS", 300);
  const uint32_t first = only != 0 ? only : 1, last = only != 0 ? only : sessions;
  g_error = dup(STDERR_FILENO);
  signal(SIGABRT, tell_seed);
  signal(SIGSEGV, tell_seed);
  for (uint32_t seed = first; seed <= last; ++seed) {
    g_seed = seed;
    Choices choices(nullptr, 0, seed);
    RandomCalls calls(&choices);
    while (calls.lane().size() < 40'000) calls.add_one();
    run_lane(driver.get(), calls.lane().data(), calls.lane().size());
  }
}

TEST(Lifetimes, RandomCallsGiveNoStaleHandleToTheDriver) { run_sessions("checked"); }
TEST(Lifetimes, NorWhenTheDriverUsesHandlesAgain) { run_sessions("reused"); }

template <typename Request>
void add(std::vector<uint8_t>* lane, const Request& request) {
  append_call(lane, request, 1, static_cast<uint32_t>(lane->size()) + 2);
}

const std::string kEntry = "add";  // in the code of RandomCalls

// Returns the id of the module or library.
uint64_t load_code(std::vector<uint8_t>* lane, wire::cuda::LoadKind kind) {
  wire::cuda::image_upload_request upload;
  upload.hash = RandomCalls::bytes_of(RandomCalls::hash());
  upload.size = RandomCalls::code().size();
  upload.data = RandomCalls::bytes_of(RandomCalls::code());
  add(lane, upload);
  wire::cuda::module_load_request load;
  const bool is_module = kind == wire::cuda::LoadKind::kModule;
  load.handle = api::make_id(is_module ? Kind::kModule : Kind::kLibrary, 0, 1, 1);
  load.kind = kind;
  load.hash = upload.hash;
  load.size = upload.size;
  add(lane, load);
  return load.handle;
}

// A graph that belongs to a node ends with the node, also while a stream captures into it.
void capture_into_what_ends(bool with_its_node) {
  const std::unique_ptr<gpu::Driver> driver = checked_driver("checked");
  ASSERT_NE(driver, nullptr);
  const auto graph = [](uint32_t index) { return api::make_id(Kind::kGraph, 0, 1, index); };
  std::vector<uint8_t> lane;
  wire::cuda::primary_retain_request retain;
  retain.context = api::make_id(Kind::kContext, 0, 1, 1);
  append_call(&lane, retain, 0, 1);
  wire::cuda::cuGraphCreate_request made;
  for (uint32_t index = 1; index <= 2; ++index) {
    made.phGraph = graph(index);
    add(&lane, made);
  }
  wire::cuda::graph_moved_child_node_request move;
  move.graph = graph(1);
  move.child = graph(2);
  move.node = api::make_id(Kind::kNode, 0, 1, 1);
  add(&lane, move);
  wire::cuda::stream_create_request stream;
  stream.stream = api::make_id(Kind::kStream, 0, 1, 1);
  stream.flags = CU_STREAM_NON_BLOCKING;
  add(&lane, stream);
  wire::cuda::capture_begin_to_graph_request begin;
  begin.stream = stream.stream;
  begin.graph = graph(2);
  add(&lane, begin);
  wire::cuda::cuGraphDestroy_request destroy;
  wire::cuda::cuGraphDestroyNode_request destroy_node;
  destroy.hGraph = graph(1);
  destroy_node.hNode = move.node;
  if (with_its_node)
    add(&lane, destroy_node);
  else
    add(&lane, destroy);
  wire::cuda::capture_end_request end;
  end.stream = stream.stream;
  end.graph = graph(3);
  add(&lane, end);
  for (uint32_t index = 3; index >= 1; --index) {
    destroy.hGraph = graph(index);
    add(&lane, destroy);
  }
  run_lane(driver.get(), lane.data(), lane.size());
}

// A client may use the index of a stream again before the stream has ended. The stream then has no
// id, and ends with its context, also if it captures.
TEST(Lifetimes, AStreamWithoutAnIdThatCapturesEndsWithItsContext) {
  const std::unique_ptr<gpu::Driver> driver = checked_driver("checked");
  ASSERT_NE(driver, nullptr);
  std::vector<uint8_t> lane;
  wire::cuda::primary_retain_request retain;
  retain.context = api::make_id(Kind::kContext, 0, 1, 1);
  append_call(&lane, retain, 0, 1);
  wire::cuda::stream_create_request stream;
  wire::cuda::capture_begin_request begin;
  for (const uint32_t generation : {1, 2}) {
    stream.stream = api::make_id(Kind::kStream, 0, generation, 1);
    stream.flags = CU_STREAM_NON_BLOCKING;
    add(&lane, stream);
    begin.stream = stream.stream;
    if (generation == 1) add(&lane, begin);
  }
  add(&lane, wire::cuda::primary_reset_request());
  append_call(&lane, retain, 0, static_cast<uint32_t>(lane.size()) + 2);
  add(&lane, stream);
  add(&lane, begin);
  wire::cuda::capture_end_request end;
  end.stream = stream.stream;
  end.graph = api::make_id(Kind::kGraph, 0, 1, 1);
  add(&lane, end);
  run_lane(driver.get(), lane.data(), lane.size());
}

// Copies to the client that nobody waits for are sent by a thread of their own. It may look for one
// when the session is over.
TEST(Lifetimes, NoCopyIsAskedForAfterItsContext) {
  const std::unique_ptr<gpu::Driver> driver = checked_driver("checked");
  ASSERT_NE(driver, nullptr);
  static std::atomic<bool> over, asked;
  static pthread_t own;
  static cuDevicePrimaryCtxReset_v2_t* reset;
  static cuEventQuery_t* query;
  over = asked = false;
  own = pthread_self();
  reset = driver->cuDevicePrimaryCtxReset_v2;
  query = driver->cuEventQuery;
  driver->cuDevicePrimaryCtxReset_v2 = [](CUdevice device) {
    over = true;
    return reset(device);
  };
  driver->cuEventQuery = [](CUevent event) {
    if (pthread_equal(pthread_self(), own)) return query(event);
    for (int i = 0; i < 100 && !over; ++i) usleep(1000);
    if (over) asked = true;
    return CUDA_ERROR_NOT_READY;
  };
  std::vector<uint8_t> lane;
  wire::cuda::primary_retain_request retain;
  retain.context = api::make_id(Kind::kContext, 0, 1, 1);
  append_call(&lane, retain, 0, 1);
  wire::cuda::mirror_create_request memory;
  memory.address = 0x10'0000'0000;
  memory.bytes = 4096;
  add(&lane, memory);
  wire::cuda::copy_from_device_async_request copy;
  copy.source = memory.address;
  copy.bytes = 64;
  copy.transfer = 1;
  copy.stream = api::cuda::kLegacyStream;
  append_call(&lane, copy, 1, 0);
  run_lane(driver.get(), lane.data(), lane.size());
  EXPECT_FALSE(asked);
}

// A node does not keep its function. What the function takes is asked for when the graph is
// instantiated.
TEST(Lifetimes, AGraphMayOutliveItsCode) {
  const std::unique_ptr<gpu::Driver> driver = checked_driver("checked");
  ASSERT_NE(driver, nullptr);
  std::vector<uint8_t> lane;
  wire::cuda::primary_retain_request retain;
  retain.context = api::make_id(Kind::kContext, 0, 1, 1);
  append_call(&lane, retain, 0, 1);
  const uint64_t module = load_code(&lane, wire::cuda::LoadKind::kModule);
  wire::cuda::module_function_request function;
  function.module = module;
  function.function = api::make_id(Kind::kFunction, 0, 1, 1);
  function.name = RandomCalls::bytes_of(kEntry);
  add(&lane, function);
  wire::cuda::cuGraphCreate_request graph;
  graph.phGraph = api::make_id(Kind::kGraph, 0, 1, 1);
  add(&lane, graph);
  const uint64_t parameter = 0;
  wire::cuda::graph_kernel_node_request node;
  node.graph = graph.phGraph;
  node.node = api::make_id(Kind::kNode, 0, 1, 1);
  node.function = function.function;
  node.shape = {{1, 1, 1}, {1, 1, 1}, 0, 0};
  node.params = {reinterpret_cast<const uint8_t*>(&parameter), sizeof parameter};
  add(&lane, node);
  wire::cuda::module_unload_request unload;
  unload.handle = module;
  unload.kind = wire::cuda::LoadKind::kModule;
  add(&lane, unload);
  wire::cuda::graph_instantiate_request instantiate;
  instantiate.graph = graph.phGraph;
  instantiate.exec = api::make_id(Kind::kExec, 0, 1, 1);
  add(&lane, instantiate);
  run_lane(driver.get(), lane.data(), lane.size());
}

// A library's module is in the context of the call that asked for it. So are the module's
// functions, whoever asks for them.
TEST(Lifetimes, AFunctionEndsWithTheContextOfItsModule) {
  const std::unique_ptr<gpu::Driver> driver = checked_driver("checked");
  ASSERT_NE(driver, nullptr);
  std::vector<uint8_t> lane;
  wire::cuda::primary_retain_request retain;
  retain.context = api::make_id(Kind::kContext, 0, 1, 1);
  append_call(&lane, retain, 0, 1);
  wire::cuda::context_create_request other;
  other.context = api::make_id(Kind::kContext, 0, 1, 2);
  append_call(&lane, other, 0, 2);
  wire::cuda::library_module_request module;
  module.library = load_code(&lane, wire::cuda::LoadKind::kLibrary);
  module.module = api::make_id(Kind::kModule, 0, 1, 1);
  add(&lane, module);
  wire::cuda::module_function_request function;
  function.module = module.module;
  function.function = api::make_id(Kind::kFunction, 0, 1, 1);
  function.name = RandomCalls::bytes_of(kEntry);
  append_call(&lane, function, 2, 3);
  add(&lane, wire::cuda::primary_reset_request());
  wire::cuda::function_info_request info;
  info.function = function.function;
  append_call(&lane, info, 2, 4);
  run_lane(driver.get(), lane.data(), lane.size());
}

TEST(Lifetimes, AGraphIsNotEndedWhileAStreamCapturesInside) { capture_into_what_ends(false); }
TEST(Lifetimes, NorIsTheNodeThatHasIt) { capture_into_what_ends(true); }

}  // namespace
}  // namespace tendril::worker::cuda
