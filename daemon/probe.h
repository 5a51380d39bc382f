// SPDX-License-Identifier: Apache-2.0
// What the daemon learns from short-lived runs of the worker executable: which GPUs there are and
// as whom workers can run; and from a long-lived one: utilisation, temperature and power. The
// daemon itself opens no vendor library.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/worker_pool.h"
#include "gpu/inventory.h"
#include "gpu/monitor.h"
#include "wire/control.h"

namespace tendril::daemon {

// Beside the running executable (bin/, libexec/tendril/), or TENDRIL_WORKER.
base::Result<std::string> find_worker_executable(const std::string& asked);

// Runs the probe and decides options->uid_base: with "auto" and root an unprivileged user, provided
// that user can open the GPUs; otherwise the daemon's own, with the reason in the log. A number
// insists.
base::Result<gpu::Inventory> probe(const std::string& worker_user, WorkerOptions* options);

// The monitoring child. Samples are kept by PCI bus id; without a monitoring library there are
// none.
class MonitorFeed {
 public:
  static std::shared_ptr<MonitorFeed> start(EventLoop* loop, const WorkerOptions& options);
  void fill(wire::GpuRecord* gpu);
  void stop();

 private:
  void take_output();
  EventLoop* loop_ = nullptr;
  std::mutex mutex_;
  std::vector<gpu::Sample> samples_;  // guarded by mutex_
  Child child_;                       // guarded by mutex_
  base::Fd output_;
  std::string partial_;
};

}  // namespace tendril::daemon
