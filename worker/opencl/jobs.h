// SPDX-License-Identifier: Apache-2.0
// What is to be done when events of the driver have been reached: an answer, data for the client, a
// word about an event. The executor looks at a job for a while and then gives it to a thread, so
// the calls of the program's other threads go on. The driver's callbacks wake that thread. It also
// looks by itself now and then, because some drivers call late. `add` and `poll` are the
// executor's.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/lock.h"
#include "gpu/opencl/driver.h"
#include "session/lane/service.h"
#include "worker/core/output.h"

namespace tendril::worker::opencl {

struct Job {
  std::vector<cl_event> events;              // the job holds a reference to each
  std::vector<std::shared_ptr<Job>> before;  // these are done first
  // `status`: CL_COMPLETE, or the first error of an event.
  std::function<void(cl_int status)> done;
  std::atomic<bool> finished{false};
  uint64_t since_ns = 0;
};
using JobRef = std::shared_ptr<Job>;

class Jobs {
 public:
  // Before a job says that something is over, the client gets what kernels printed.
  Jobs(const gpu::OpenclDriver& driver, Output* output, session::Service* service)
      : driver_(driver), output_(*output), service_(service) {}
  // Ends the thread. Jobs that are left are dropped. Only tests destroy one, and then no event of
  // a job may be pending.
  ~Jobs();

  // `slow`: `done` may wait for the client, so it never runs on the executor's thread. The events
  // get one more reference each.
  JobRef add(std::vector<cl_event> events, std::vector<JobRef> before,
             std::function<void(cl_int)> done, bool slow);
  bool polling() const { return !polled_.empty(); }
  void poll();

  // CL_QUEUED to CL_COMPLETE, or an error.
  cl_int status_of(cl_event event) const;

 private:
  static void wake(cl_event event, cl_int status, void* jobs);
  bool ready(const Job& job, cl_int* status) const;
  void finish(const JobRef& job, cl_int status);
  void hand_over(JobRef job);
  void work();

  const gpu::OpenclDriver& driver_;
  Output& output_;
  session::Service* const service_;
  std::deque<JobRef> polled_;
  base::Event changed_;
  std::mutex mutex_;
  std::deque<JobRef> handed_;  // guarded by mutex_
  bool ended_ = false;         // guarded by mutex_
  std::thread thread_;
};

}  // namespace tendril::worker::opencl
