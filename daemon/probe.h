// SPDX-License-Identifier: Apache-2.0
// What the daemon learns from runs of the worker executable. Short runs tell which GPUs there are
// and which users workers can run as. A long run reports utilisation, temperature and power. The
// daemon itself opens no vendor library.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/containment/isolation.h"
#include "daemon/worker_pool.h"
#include "gpu/inventory.h"
#include "gpu/monitor.h"
#include "wire/control.h"

namespace tendril::daemon {

// `asked` if not empty, else TENDRIL_WORKER, else the file beside the running executable or in
// libexec/tendril/.
base::Result<std::string> find_worker_executable(const std::string& asked);

// Runs the probe and sets options->isolation. Fails if workers cannot be kept apart, unless the
// administrator has said that they need not be.
base::Result<gpu::Inventory> probe(const IsolationWish& wish, WorkerOptions* options);

// The monitoring child. Samples are kept by PCI bus id. Without a monitoring library there are
// none, and the log says why.
class MonitorFeed {
 public:
  static std::shared_ptr<MonitorFeed> start(EventLoop* loop, const WorkerOptions& options);
  void fill(wire::GpuRecord* gpu);
  void stop();

 private:
  void take_output();
  EventLoop* loop_ = nullptr;
  bool library_was_named_ = false;  // then it is a fault if it does not work
  std::mutex mutex_;
  std::vector<gpu::Sample> samples_;  // guarded by mutex_
  Child child_;                       // guarded by mutex_
  base::Fd output_;
  std::string partial_;
};

}  // namespace tendril::daemon
