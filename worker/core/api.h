// SPDX-License-Identifier: Apache-2.0
// The seam between the worker process (worker/process: sockets, sandbox, signals) and the worker's
// work (dispatch, objects, memory charge). A process makes one Worker, warms it, and runs one
// session with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "session/lane/service.h"
#include "transport/host_window.h"
#include "wire/assignment.h"
#include "worker/core/exports.h"
#include "worker/core/turns.h"

namespace tendril::worker {

class Worker {
 public:
  // Opens the vendor library at `driver_path` (empty: the system's) and initialises it.
  static base::Result<std::unique_ptr<Worker>> create(const std::string& driver_path);
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

}  // namespace tendril::worker
