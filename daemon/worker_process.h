// SPDX-License-Identifier: Apache-2.0
// One worker as the daemon sees it: its process, the socket for its orders, and its output, which
// goes line by line into the daemon's log. Made and watched on the supervisor's thread. Any thread
// may call `send` and `kill`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "daemon/child_process.h"
#include "daemon/event_loop.h"
#include "wire/assignment.h"
#include "wire/control.h"

namespace tendril::daemon {

class WorkerProcess : public std::enable_shared_from_this<WorkerProcess> {
 public:
  struct Events {
    std::function<void(WorkerProcess*)> ready;  // its context exists; it waits for an assignment
    // `tail`: what followed the request.
    std::function<void(WorkerProcess*, const wire::WorkerRequest&, base::Fd,
                       const std::string& tail)>
        asked;
    // Its answer to the client's offers of transports.
    std::function<void(WorkerProcess*, const wire::TransportAnswers&, base::Fd)> answered;
    std::function<void(const std::string& name)> learned;  // a system call that is on no list
    std::function<void(WorkerProcess*, const std::string&)>
        gone;  // exited and collected; the text says how
  };

  // What the worker warms up for.
  struct Post {
    uint32_t gpu = 0;
    std::string api;
    bool operator==(const Post& other) const { return gpu == other.gpu && api == other.api; }
  };
  // Supervisor's thread. `slot`: which of the unprivileged users it runs as.
  static base::Result<std::shared_ptr<WorkerProcess>> start(
      EventLoop* loop, const std::string& executable, const std::vector<std::string>& arguments,
      const Post& post, uint32_t slot, Events events);
  ~WorkerProcess() = default;

  // `tail` follows the message.
  base::Status send(const wire::WorkerMessage& message, const int* fds, size_t count,
                    const std::vector<uint8_t>& tail = {});
  // Answers a request of the worker. A worker that does not read its answers is killed, because the
  // daemon must not wait for a worker.
  void answer(const wire::WorkerMessage& message, int fd);
  void kill();
  // Calls with the process' number if it has not been collected, so nobody else has that number.
  void visit(const std::function<void(pid_t)>& call);

  pid_t pid() const { return pid_; }
  const Post& post() const { return post_; }
  uint32_t gpu() const { return post_.gpu; }
  uint32_t slot() const { return slot_; }  // which of the unprivileged users it runs as
  const std::string& last_line() const { return last_line_; }  // supervisor's thread

 private:
  WorkerProcess() = default;
  base::Status watch();
  void read_output();
  void read_control();
  void take_line(const std::string& line);
  void collect();

  EventLoop* loop_ = nullptr;
  Events events_;
  pid_t pid_ = -1;
  Post post_;
  uint32_t slot_ = 0;
  std::mutex mutex_;
  Child child_;       // guarded by mutex_: any thread may kill while this one collects
  base::Fd control_;  // guarded by mutex_ likewise
  base::Fd output_;
  std::string partial_, last_line_;
  uint64_t window_ns_ = 0;
  uint32_t window_lines_ = 0, dropped_ = 0;
};

}  // namespace tendril::daemon
