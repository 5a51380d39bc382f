// SPDX-License-Identifier: Apache-2.0
// See worker_process.h.
#include "daemon/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/log.h"
#include "session/control/connection.h"

namespace tendril::daemon {
namespace {

constexpr size_t kLineMax = 1024;
// A tenant's program can make its worker write. It must not be able to fill the server's disk with
// that.
constexpr uint32_t kLinesPerSecond = 50;

}  // namespace

base::Result<std::shared_ptr<WorkerProcess>> WorkerProcess::start(
    EventLoop* loop, const std::string& executable, const std::vector<std::string>& arguments,
    const Post& post, uint32_t slot, Events events) {
  int pair[2], ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return base::errno_status(base::Code::kExhausted, "cannot make a worker's socket", errno);
  }
  base::Fd ours(pair[0]), theirs(pair[1]);
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return base::errno_status(base::Code::kExhausted, "cannot make a worker's output pipe", errno);
  }
  base::Fd reader(ends[0]), writer(ends[1]);
  fcntl(writer.get(), F_SETFL, 0);  // the worker's end blocks
  base::Result<Child> child = start_child(executable, arguments, writer.get(), theirs.get());
  if (!child.ok()) return child.status();
  std::shared_ptr<WorkerProcess> worker(new WorkerProcess);
  worker->loop_ = loop;
  worker->events_ = std::move(events);
  worker->pid_ = child->pid;
  worker->post_ = post;
  worker->slot_ = slot;
  worker->child_ = child.take();
  worker->control_ = std::move(ours);
  worker->output_ = std::move(reader);
  const base::Status watched = worker->watch();
  if (!watched.ok()) {
    kill_child(worker->child_);
    worker->loop_->unwatch(worker->child_.pidfd.get());
    worker->loop_->unwatch(worker->control_.get());
    worker->loop_->unwatch(worker->output_.get());
    reap_child(&worker->child_);
    return watched;
  }
  return worker;
}

base::Status WorkerProcess::watch() {
  // The loop's callbacks keep the object alive until collect() has unwatched all three.
  const std::shared_ptr<WorkerProcess> self = shared_from_this();
  base::Status status =
      loop_->watch(child_.pidfd.get(), EPOLLIN, [self](uint32_t) { self->collect(); });
  if (status.ok())
    status = loop_->watch(control_.get(), EPOLLIN, [self](uint32_t) { self->read_control(); });
  if (status.ok())
    status = loop_->watch(output_.get(), EPOLLIN, [self](uint32_t) { self->read_output(); });
  return status;
}

void WorkerProcess::read_control() {
  std::vector<uint8_t> buffer(sizeof(wire::WorkerRequest) + wire::kTailBytesMax);
  size_t bytes = 0;
  auto received =
      session::receive_descriptors(control_.get(), buffer.data(), buffer.size(), &bytes);
  std::vector<base::Fd> fds;
  if (received.ok()) {
    for (const int fd : *received) fds.emplace_back(fd);
  }
  wire::WorkerRequest request = {};
  wire::TransportAnswers answers;
  bool good = received.ok() && bytes >= sizeof request;
  std::string tail;
  if (good) {
    memcpy(&request, buffer.data(), sizeof request);
    tail.assign(buffer.begin() + sizeof request, buffer.begin() + static_cast<ptrdiff_t>(bytes));
  }
  if (good && request.kind == wire::WorkerRequestKind::kTransport)
    good = wire::decode(reinterpret_cast<const uint8_t*>(tail.data()), tail.size(), &answers);
  if (!good) {
    // The worker closed its end and will exit. Or it sent nonsense and must exit.
    loop_->unwatch(control_.get());
    if (bytes != 0) kill();
    return;
  }
  base::Fd first = fds.empty() ? base::Fd() : std::move(fds.front());
  if (request.kind == wire::WorkerRequestKind::kReady) {
    if (events_.ready) events_.ready(this);
  } else if (request.kind == wire::WorkerRequestKind::kTransport) {
    if (events_.answered) events_.answered(this, answers, std::move(first));
  } else if (request.kind == wire::WorkerRequestKind::kLearned) {
    const char* name = reinterpret_cast<const char*>(request.record.content);
    if (events_.learned)
      events_.learned(std::string(name, strnlen(name, sizeof request.record.content)));
  } else if (events_.asked) {
    events_.asked(this, request, std::move(first), tail);
  }
}

void WorkerProcess::take_line(const std::string& line) {
  if (line.empty()) return;
  last_line_ = printable(line, kLineMax);
  const uint64_t now_ns = base::now_ns();
  if (now_ns - window_ns_ > 1'000'000'000u) {
    if (dropped_ != 0) log(Level::kWarning, "worker %d: %u more lines not shown", pid_, dropped_);
    window_ns_ = now_ns;
    window_lines_ = dropped_ = 0;
  }
  if (++window_lines_ > kLinesPerSecond) {
    ++dropped_;
    return;
  }
  log(Level::kInfo, "worker %d: %s", pid_, last_line_.c_str());
}

void WorkerProcess::read_output() {
  char buffer[8192];
  // At most a few reads per turn: one worker must not starve the others.
  for (int turn = 0; turn < 4; ++turn) {
    const ssize_t got = read(output_.get(), buffer, sizeof buffer);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      loop_->unwatch(output_.get());
      return;
    }
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] == '\n' || partial_.size() >= kLineMax) {
        take_line(partial_);
        partial_.clear();
      }
      if (buffer[i] != '\n') partial_ += buffer[i];
    }
  }
}

void WorkerProcess::collect() {
  const std::shared_ptr<WorkerProcess> self = shared_from_this();
  read_output();
  take_line(partial_);
  loop_->unwatch(child_.pidfd.get());
  loop_->unwatch(control_.get());
  loop_->unwatch(output_.get());
  std::string how;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    how = describe_exit(reap_child(&child_));
    control_.reset();
  }
  output_.reset();
  const auto gone = std::move(events_.gone);
  events_ = Events{};
  if (gone) gone(this, how);
}

base::Status WorkerProcess::send(const wire::WorkerMessage& message, const int* fds, size_t count,
                                 const std::vector<uint8_t>& tail) {
  const auto* raw = reinterpret_cast<const uint8_t*>(&message);
  std::vector<uint8_t> all(raw, raw + sizeof message);
  all.insert(all.end(), tail.begin(), tail.end());
  std::lock_guard<std::mutex> hold(mutex_);
  if (!control_.valid()) return base::Status(base::Code::kClosed, "the worker process is gone");
  return session::send_descriptors(control_.get(), all.data(), all.size(), fds, count);
}

void WorkerProcess::answer(const wire::WorkerMessage& message, int fd) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (!control_.valid()) return;
  // A socket that reports room has room for many messages.
  pollfd room = {control_.get(), POLLOUT, 0};
  const bool takes = poll(&room, 1, 0) == 1 && (room.revents & POLLOUT) != 0;
  if (!takes ||
      !session::send_descriptors(control_.get(), &message, sizeof message, &fd, fd >= 0 ? 1 : 0)
           .ok())
    kill_child(child_);
}

void WorkerProcess::visit(const std::function<void(pid_t)>& call) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (child_.pidfd.valid()) call(child_.pid);
}

void WorkerProcess::kill() {
  std::lock_guard<std::mutex> hold(mutex_);
  kill_child(child_);
}

}  // namespace tendril::daemon
