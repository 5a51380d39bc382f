// SPDX-License-Identifier: Apache-2.0
// The seam between the worker process (worker/process: sockets, sandbox, signals) and the APIs that
// it serves (worker/cuda and others). Each API makes an Api and implements Worker; the process has
// a table of them (worker/process/apis.h). A process makes one Worker, warms it, and runs one
// session with it. All on the main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "session/lane/service.h"
#include "transport/host_window.h"
#include "wire/assignment.h"
#include "worker/core/exports.h"
#include "worker/core/turns.h"

namespace tendril::worker {

class Worker {
 public:
  virtual ~Worker() = default;

  // Creates the context of one GPU ahead of time, so that attaching is quick. Optional.
  virtual base::Status warm(uint32_t gpu_index) = 0;

  // Memory for bulk slots (pinned once a context exists). Lives as long as the worker.
  virtual session::SlotPool slot_pool() = 0;

  // Runs the session until the client goes or the service ends. Returns the process' exit status.
  virtual int run(session::Service* service, const wire::Assignment& assignment,
                  wire::AccountingPage* accounting, transport::HostWindow window, Exports* exports,
                  Turns turns) = 0;
};

// One API that a worker executable serves.
struct Api {
  const char* name;  // as in api/: "cuda"; at most 32 bytes
  uint64_t digest;   // of its messages; a client with another digest is refused when it attaches
  // Opens the vendor library at `driver_path` (empty: the system's) and initialises it.
  base::Result<std::unique_ptr<Worker>> (*create)(const std::string& driver_path);
};

}  // namespace tendril::worker
