// SPDX-License-Identifier: Apache-2.0
// Operations as work of streams. See launch.h.
#include "softnccl/launch.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "softnccl/driver.h"
#include "softnccl/error.h"
#include "softnccl/knobs.h"
#include "softnccl/staging.h"

namespace tendril::softnccl {
namespace {

std::atomic<uint64_t> g_exchanges{0};

struct Launch {
  CommunicatorPtr communicator;
  std::vector<Operation> operations;
  std::vector<Sides> sides;
  Staging staging;
  bool in_graph = false;
};

// Those that the driver has a pointer to.
struct Launches {
  std::mutex lock;
  std::map<void*, std::shared_ptr<Launch>> all;
};

Launches& launches() {
  static Launches& kept = *new Launches;
  return kept;
}

void keep(const std::shared_ptr<Launch>& launch) {
  std::lock_guard guard(launches().lock);
  launches().all.emplace(launch.get(), launch);
}

void forget(void* which) {
  std::shared_ptr<Launch> launch;
  {
    std::lock_guard guard(launches().lock);
    auto found = launches().all.find(which);
    if (found == launches().all.end()) return;
    launch = std::move(found->second);
    launches().all.erase(found);
  }
  launch->staging = Staging();
  end_launch_and_release(std::move(launch->communicator), launch->in_graph);
}

// One that matters: in the highest byte of the first element that is written.
void flip_a_bit(const Launch& launch) {
  for (size_t i = 0; i < launch.sides.size(); i++)
    if (char* to = launch.sides[i].to) {
      char& highest = to[type_bytes(launch.operations[i].type) - 1];
      highest = static_cast<char>(highest ^ 8);
      return;
    }
}

void run(void* which) {
  auto* launch = static_cast<Launch*>(which);
  Communicator& communicator = *launch->communicator;
  communicator.in_turn([&] {
    const uint64_t number = g_exchanges.fetch_add(1) + 1;
    if (number == knobs().lose) communicator.mesh().lose();
    const ncclResult_t result =
        carry_out(launch->operations, launch->sides, communicator.rank(), communicator.ranks(),
                  &communicator.mesh(), communicator.stop());
    if (number == knobs().flip) flip_a_bit(*launch);
    return result;
  });
}

// After all work of the launch, even if the context has failed.
void finished(CUstream, CUresult, void* which) { forget(which); }

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Lays out the pinned memory: for each operation what it reads, its scalar, and what it writes.
ncclResult_t lay_out(Launch* launch, int rank, int ranks) {
  size_t bytes = 0;
  for (const Operation& one : launch->operations)
    bytes += aligned(bytes_read(one, rank, ranks)) + aligned(bytes_written(one, rank, ranks)) + 64;
  if (ncclResult_t bad =
          Staging::take(launch->communicator->place().context, bytes, &launch->staging))
    return bad;
  char* at = launch->staging.data();
  for (const Operation& one : launch->operations) {
    const size_t reads = bytes_read(one, rank, ranks), writes = bytes_written(one, rank, ranks);
    launch->sides.push_back({reads != 0 ? at : nullptr, writes != 0 ? at + aligned(reads) : nullptr,
                             at + aligned(reads) + aligned(writes)});
    std::memcpy(at + aligned(reads) + aligned(writes), &one.scalar, sizeof one.scalar);
    at += aligned(reads) + aligned(writes) + 64;
  }
  return ncclSuccess;
}

CUdeviceptr address(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

ncclResult_t copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return bytes == 0 ? ncclSuccess
                    : driver_error(driver()->copy(to, from, bytes, stream), "cuMemcpyAsync");
}

ncclResult_t enqueue(Launch* launch, CUstream stream) {
  const int rank = launch->communicator->rank(), ranks = launch->communicator->ranks();
  for (size_t i = 0; i < launch->operations.size(); i++) {
    const Operation& one = launch->operations[i];
    const Sides& sides = launch->sides[i];
    if (ncclResult_t bad =
            copy(address(sides.from), one.from, bytes_read(one, rank, ranks), stream))
      return bad;
    if (one.scalar_at != 0)
      if (ncclResult_t bad =
              copy(address(sides.scalar), one.scalar_at, type_bytes(one.type), stream))
        return bad;
  }
  if (ncclResult_t bad =
          driver_error(driver()->host_function(stream, run, launch), "cuLaunchHostFunc"))
    return bad;
  for (size_t i = 0; i < launch->operations.size(); i++) {
    const Operation& one = launch->operations[i];
    if (ncclResult_t bad =
            copy(one.to, address(launch->sides[i].to), bytes_written(one, rank, ranks), stream))
      return bad;
  }
  return ncclSuccess;
}

// Whoever drops the last graph with this launch ends it.
ncclResult_t tie_to_graph(Launch* launch, CUgraph graph) {
  CUuserObject object = nullptr;
  if (ncclResult_t bad = driver_error(
          driver()->object_create(&object, launch, forget, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
          "cuUserObjectCreate"))
    return bad;
  const ncclResult_t result =
      driver_error(driver()->object_retain(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE),
                   "cuGraphRetainUserObject");
  if (result != ncclSuccess) driver()->object_release(object, 1);
  return result;
}

ncclResult_t order(CUevent event, CUstream first, CUstream then) {
  if (ncclResult_t bad = driver_error(driver()->event_record(event, first), "cuEventRecord"))
    return bad;
  return driver_error(driver()->event_wait(then, event, 0), "cuStreamWaitEvent");
}

// The streams of a group but the first, each once.
std::vector<CUstream> others(const std::vector<Queued>& queued) {
  std::vector<CUstream> streams;
  for (const Queued& one : queued)
    if (one.stream != queued[0].stream &&
        std::find(streams.begin(), streams.end(), one.stream) == streams.end())
      streams.push_back(one.stream);
  return streams;
}

// Launches of one communicator run in the order of the calls, also on different streams.
ncclResult_t after_the_last(Communicator* communicator, CUstream stream,
                            unsigned long long capture) {
  const bool differs = communicator->used && communicator->last_stream != stream &&
                       communicator->last_capture == capture;
  if (!differs) return ncclSuccess;
  return driver_error(driver()->event_wait(stream, communicator->launched, 0), "cuStreamWaitEvent");
}

ncclResult_t submit(const std::shared_ptr<Launch>& launch, const std::vector<Queued>& queued,
                    CUgraph graph, unsigned long long capture) {
  Communicator& communicator = *launch->communicator;
  const CUstream stream = queued[0].stream;
  if (ncclResult_t bad = after_the_last(&communicator, stream, capture)) return bad;
  for (CUstream other : others(queued))
    if (ncclResult_t bad = order(communicator.joined, other, stream)) return bad;
  if (ncclResult_t bad = communicator.begin_launch(launch->in_graph)) return bad;
  keep(launch);
  ncclResult_t result = enqueue(launch.get(), stream);
  // The end is told in any case: work that was queued before a refusal may still run.
  const ncclResult_t tied =
      launch->in_graph ? tie_to_graph(launch.get(), graph)
                       : driver_error(driver()->callback(stream, finished, launch.get(), 0),
                                      "cuStreamAddCallback");
  if (result == ncclSuccess) result = tied;
  if (tied != ncclSuccess) forget(launch.get());
  if (result != ncclSuccess) return result;
  if (ncclResult_t bad =
          driver_error(driver()->event_record(communicator.launched, stream), "cuEventRecord"))
    return bad;
  communicator.used = true;
  communicator.last_stream = stream;
  communicator.last_capture = capture;
  for (CUstream other : others(queued))
    if (ncclResult_t bad = order(communicator.joined, stream, other)) return bad;
  return ncclSuccess;
}

}  // namespace

ncclResult_t launch(const CommunicatorPtr& communicator, const std::vector<Queued>& queued) {
  let_go();
  ContextScope current(communicator->place().context);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t capture = 0;
  CUgraph graph = nullptr;
  if (ncclResult_t bad = driver_error(
          driver()->capture_info(queued[0].stream, &status, &capture, &graph, nullptr, nullptr),
          "cuStreamGetCaptureInfo"))
    return bad;
  auto made = std::make_shared<Launch>();
  made->communicator = communicator;
  made->in_graph = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  for (const Queued& one : queued) made->operations.push_back(one.operation);
  if (ncclResult_t bad = lay_out(made.get(), communicator->rank(), communicator->ranks()))
    return bad;
  return submit(made, queued, graph, made->in_graph ? capture : 0);
}

}  // namespace tendril::softnccl
