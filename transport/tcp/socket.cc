// SPDX-License-Identifier: Apache-2.0
// See socket.h. Every system call is non-blocking. Waiting means spinning on the call itself, then
// poll(2), which shutdown() wakes.
#include "transport/tcp/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/clock.h"
#include "transport/parts.h"

namespace tendril::transport {
namespace {

using base::Code;
using base::Result;
using base::Status;

class SocketChannel final : public Channel {
 public:
  SocketChannel(base::Fd fd, const char* kind) : fd_(std::move(fd)), kind_(kind) {}

  Status send(const iovec* parts, int count) override {
    Parts rest(parts, count);
    while (!rest.empty()) {
      Result<size_t> sent = some(&rest, -1);
      if (!sent.ok()) return sent.status();
    }
    return Status();
  }

  Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) override {
    Parts rest(parts, count);
    return some(&rest, timeout_ms);
  }

  Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) override {
    auto* at = static_cast<uint8_t*>(into);
    size_t got = 0;
    base::Spin spin(wait.spin_us);
    base::Deadline deadline(wait.timeout_ms);
    for (;;) {
      ssize_t n = recv(fd_.get(), at + got, max - got, MSG_DONTWAIT);
      if (n > 0) {
        got += size_t(n);
        if (got >= min) return got;
        spin.reset();
        continue;
      }
      if (n == 0 && max > got) {
        ended_.store(
            true, std::memory_order_relaxed);  // half a connection is none: sends answer the same
        return closed();
      }
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return closed();
      if (got >= min) return got;
      if (spin.again()) continue;
      if (got == 0 && deadline.passed()) return Status(Code::kTimeout, "nothing arrived in time");
      wait_for(POLLIN, got == 0 ? deadline.left_ms() : -1);
    }
  }

  void shutdown() override {
    down_.store(true, std::memory_order_relaxed);
    ::shutdown(fd_.get(), SHUT_RDWR);
  }
  const char* kind() const override { return kind_; }

 private:
  Status closed() const {
    if (down_.load(std::memory_order_relaxed))
      return Status(Code::kClosed, "the connection was closed on this side");
    return Status(Code::kClosed, "the peer closed the connection");
  }

  // The events; 0: none.
  short wait_for(short events, int timeout_ms) {
    pollfd p{fd_.get(), events, 0};
    return poll(&p, 1, timeout_ms) > 0 ? p.revents : short(0);
  }

  Result<size_t> some(Parts* rest, int timeout_ms) {
    base::Deadline deadline(timeout_ms == 0 ? -1 : timeout_ms);
    if (ended_.load(std::memory_order_relaxed)) return closed();
    for (;;) {
      msghdr message{};
      message.msg_iov = rest->array();
      message.msg_iovlen = size_t(rest->count());
      ssize_t n = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) {
        rest->advance(size_t(n));
        return size_t(n);
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return closed();
      if (timeout_ms == 0 || deadline.passed()) return size_t(0);
      // A peer that ended its side reads no more. With TCP alone we would fill its buffer and wait
      // for ever.
      short events = wait_for(POLLOUT | POLLRDHUP, deadline.left_ms());
      if (events != 0 && (events & POLLOUT) == 0) return closed();
    }
  }

  base::Fd fd_;
  const char* kind_;
  std::atomic<bool> down_{false};
  std::atomic<bool> ended_{false};
};

}  // namespace

std::unique_ptr<Channel> socket_channel(base::Fd fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  bool tcp = address.ss_family == AF_INET || address.ss_family == AF_INET6;
  int on = 1;
  if (tcp) setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return std::unique_ptr<Channel>(new SocketChannel(std::move(fd), tcp ? "tcp" : "unix"));
}

Result<std::unique_ptr<Channel>> unix_pair(std::unique_ptr<Channel>* other) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return base::errno_status(Code::kExhausted, "making a pair of sockets", errno);
  }
  *other = socket_channel(base::Fd(fds[1]));
  return socket_channel(base::Fd(fds[0]));
}

}  // namespace tendril::transport
