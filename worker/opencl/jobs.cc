// SPDX-License-Identifier: Apache-2.0
// See jobs.h.
#include "worker/opencl/jobs.h"

#include <algorithm>

#include "base/clock.h"

namespace tendril::worker::opencl {
namespace {

// Handing over costs about 10 us.
constexpr uint64_t kPatienceNs = 60'000;
// For drivers that do not call, or call too late.
constexpr int64_t kLookAgainUs = 5'000;

}  // namespace

Jobs::~Jobs() {
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    ended_ = true;
  }
  changed_.signal();
  if (thread_.joinable()) thread_.join();
}

cl_int Jobs::status_of(cl_event event) const {
  cl_int status = CL_QUEUED;
  const cl_int result = driver_.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                               sizeof status, &status, nullptr);
  return result == CL_SUCCESS ? status : result;
}

bool Jobs::ready(const Job& job, cl_int* status) const {
  for (const JobRef& before : job.before)
    if (!before->finished.load(std::memory_order_acquire)) return false;
  *status = CL_COMPLETE;
  for (cl_event event : job.events) {
    const cl_int now = status_of(event);
    if (now > CL_COMPLETE) return false;
    if (*status == CL_COMPLETE) *status = now;
  }
  return true;
}

JobRef Jobs::add(std::vector<cl_event> events, std::vector<JobRef> before,
                 std::function<void(cl_int)> done, bool slow) {
  auto job = std::make_shared<Job>();
  job->events = std::move(events);
  job->before = std::move(before);
  job->done = std::move(done);
  job->since_ns = base::now_ns();
  for (cl_event event : job->events) driver_.clRetainEvent(event);
  if (slow) {
    hand_over(job);
    return job;
  }
  cl_int status = CL_COMPLETE;
  if (polled_.empty() && ready(*job, &status))
    finish(job, status);
  else
    polled_.push_back(job);
  return job;
}

void Jobs::finish(const JobRef& job, cl_int status) {
  output_.send(service_);
  job->done(status);
  job->done = nullptr;  // and what it kept
  job->finished.store(true, std::memory_order_release);
  for (cl_event event : job->events) driver_.clReleaseEvent(event);
  job->events.clear();
  job->before.clear();
}

void Jobs::poll() {
  const uint64_t now_ns = base::now_ns();
  bool some_done = false;
  for (auto it = polled_.begin(); it != polled_.end();) {
    cl_int status = CL_COMPLETE;
    if (ready(**it, &status)) {
      finish(*it, status);
      it = polled_.erase(it);
      some_done = true;
    } else if (now_ns - (*it)->since_ns > kPatienceNs) {
      hand_over(std::move(*it));
      it = polled_.erase(it);
    } else {
      ++it;
    }
  }
  if (some_done) changed_.signal();  // another job may have waited for these
}

void Jobs::wake(cl_event, cl_int, void* jobs) { static_cast<Jobs*>(jobs)->changed_.signal(); }

void Jobs::hand_over(JobRef job) {
  for (cl_event event : job->events) {
    if (status_of(event) > CL_COMPLETE && driver_.clSetEventCallback != nullptr)
      driver_.clSetEventCallback(event, CL_COMPLETE, &Jobs::wake, this);
  }
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    handed_.push_back(std::move(job));
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.signal();
}

// The lock is not held while the driver is asked: a callback may come meanwhile.
void Jobs::work() {
  for (;;) {
    const uint32_t seen = changed_.read();
    std::deque<JobRef> jobs;
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      if (ended_) return;
      jobs = handed_;
    }
    bool some_done = false;
    for (const JobRef& job : jobs) {
      cl_int status = CL_COMPLETE;
      if (!ready(*job, &status)) continue;
      finish(job, status);
      some_done = true;
      const std::lock_guard<std::mutex> hold(mutex_);
      handed_.erase(std::find(handed_.begin(), handed_.end(), job));
    }
    if (!some_done) changed_.wait(seen, jobs.empty() ? -1 : kLookAgainUs);
  }
}

}  // namespace tendril::worker::opencl
