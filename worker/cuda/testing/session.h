// SPDX-License-Identifier: Apache-2.0
// For tests and fuzzing: sessions in this process, one after another, on one driver. Main thread.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <set>

#include "gpu/cuda/driver.h"
#include "session/lane/service.h"
#include "transport/testing/test_channels.h"
#include "worker/cuda/executor/callbacks.h"
#include "worker/cuda/executor/executor.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/graphs.h"

namespace tendril::worker::cuda {

inline constexpr uint32_t kTestSlots = 2;

inline wire::Assignment test_assignment() {
  wire::Assignment assignment{};
  assignment.slice_count = kTestSlots;
  for (uint32_t i = 0; i < kTestSlots; ++i)
    assignment.slices[i] = {i, 500'000, 64u << 20, 1u << 20};
  return assignment;
}

template <typename Object, typename Destroy>
void destroy_each(Executor& executor, Kind kind, Destroy* destroy) {
  executor.objects().for_each(kind, [&](uint64_t, void* object) {
    if (destroy != nullptr) destroy(static_cast<Object>(object));
  });
}

// Leaves the driver as it was before the session, with nothing running. With a real driver the end
// of the worker process does this.
inline void clear_driver(Executor& executor, gpu::Driver& d) {
  executor.contexts().for_each([&](const WorkerContext& context) {
    if (d.cuCtxSetCurrent(context.context) == CUDA_SUCCESS) d.cuCtxSynchronize();
  });
  executor.waiters().finish();
  destroy_each<CUgraphExec>(executor, Kind::kExec, d.cuGraphExecDestroy);
  std::set<void*> graphs;  // one may have several ids
  executor.objects().for_each(Kind::kGraph, [&](uint64_t id, void* graph) {
    const bool own = executor.graphs().is_clients(executor, id, static_cast<CUgraph>(graph));
    if (own) graphs.insert(graph);
  });
  for (void* graph : graphs) d.cuGraphDestroy(static_cast<CUgraph>(graph));
  destroy_each<CUlibrary>(executor, Kind::kLibrary, d.cuLibraryUnload);
  destroy_each<CUgreenCtx>(executor, Kind::kGreenContext, d.cuGreenCtxDestroy);
  executor.contexts().for_each([&](const WorkerContext& context) {
    const uint64_t id = executor.objects().known_id(Kind::kContext, context.context);
    if (!context.primary && executor.objects().owner(id) == nullptr)
      d.cuCtxDestroy_v2(context.context);
  });
  for (int device = 0; device < static_cast<int>(kTestSlots); ++device)
    d.cuDevicePrimaryCtxReset_v2(device);
  d.cuCtxSetCurrent(nullptr);
}

// The driver reports the end of a user object at any time. Here the session may be over by then.
inline void leave_objects_untold(gpu::Driver* driver) {
  static cuUserObjectCreate_t* create = nullptr;
  create = driver->cuUserObjectCreate;
  driver->cuUserObjectCreate = [](CUuserObject* object, void* data, CUhostFn, unsigned references,
                                  unsigned flags) {
    return create(
        object, data, [](void*) {}, references, flags);
  };
}

// Runs all that a client said. Nobody answers host functions.
inline void run_lane(gpu::Driver* driver, const uint8_t* lane, size_t bytes, Turns turns = {}) {
  static wire::AccountingPage page;
  std::memset(static_cast<void*>(&page), 0, sizeof page);
  transport::SpentClient client(lane, bytes);
  auto service = session::Service::open(client.take_worker_end(), nullptr, 0, {});
  const base::Fd output(dup(STDOUT_FILENO)), error(dup(STDERR_FILENO));
  Executor executor(driver, service.get(), test_assignment(), &page, {}, nullptr, turns);
  executor.callbacks().end();
  executor.run();
  clear_driver(executor, *driver);
  dup2(output.get(), STDOUT_FILENO);  // the executor redirects both
  dup2(error.get(), STDERR_FILENO);
}

}  // namespace tendril::worker::cuda
