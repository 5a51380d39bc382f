// SPDX-License-Identifier: Apache-2.0
// The seam between the worker process (worker/process: sockets, sandbox, signals) and the APIs that
// it serves (worker/cuda and others). Each API fills in an Api and implements Worker; the process
// has a table of APIs (worker/process/apis.h). A process makes one Worker, warms it, and runs one
// session with it. Main thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/inventory.h"
#include "session/lane/service.h"
#include "transport/host_window.h"
#include "transport/registry.h"
#include "wire/assignment.h"
#include "worker/core/exports.h"
#include "worker/core/turns.h"

namespace tendril::worker {

class Worker {
 public:
  virtual ~Worker() = default;

  // Creates the context of one GPU ahead of time, so that a client attaches quickly. Optional.
  virtual base::Status warm(uint32_t gpu_index) = 0;

  // What the API says of one GPU to programs that have no session yet. Empty: nothing.
  virtual std::string facts(uint32_t /*gpu_index*/) { return {}; }

  // The operator's libraries for collectives. A session may open one of them.
  virtual void lend_collectives(std::vector<gpu::NcclFile> /*libraries*/) {}

  // The cards that carry, or may come to carry, the session's bulk data. Before `run`.
  virtual void lend_cards(std::shared_ptr<transport::PinnedMemory> /*cards*/) {}

  // Memory for the slots of bulk transfers. It is pinned once a context exists, and lives as long
  // as the worker.
  virtual session::SlotPool slot_pool() = 0;

  // Runs the session until the client leaves or the service ends. Returns the process' exit status.
  virtual int run(session::Service* service, const wire::Assignment& assignment,
                  wire::AccountingPage* accounting, transport::HostWindow window, Exports* exports,
                  Turns turns) = 0;
};

// One API that a worker executable serves.
struct Api {
  const char* name;  // as in api/: "cuda"; at most 32 bytes
  uint64_t digest;   // of its messages; a client whose digest differs cannot attach
  // Opens the vendor library at `driver_path` (empty: the system's) and initialises it.
  base::Result<std::unique_ptr<Worker>> (*create)(const std::string& driver_path);
  // Which devices the API's driver has. A server lends the devices of one inventory, by all APIs
  // that have it.
  base::Result<gpu::Inventory> (*inventory)(const std::string& driver_path) = &gpu::take_inventory;
  // The driver compiles for its devices with programs and files of its own. So the worker may start
  // processes, and gets a folder that only it sees.
  bool compiles = false;
};

}  // namespace tendril::worker
