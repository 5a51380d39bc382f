// SPDX-License-Identifier: Apache-2.0
// TCP between ranks. See socket.h.
#include "softnccl/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "softnccl/knobs.h"

namespace tendril::softnccl {
namespace {

bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

void without_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

sockaddr_in name_of(Address at) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = at.port;
  name.sin_addr.s_addr = at.ip;
  return name;
}

Net wait_one(int fd, short events, const Stop& stop) {
  std::vector<pollfd> entries = {{fd, events, 0}};
  return wait_for(&entries, stop);
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Stop::Stop() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Stop::raise() {
  const uint64_t one = 1;
  // A second raise changes nothing, so a refusal does not matter.
  [[maybe_unused]] ssize_t written = write(event_.fd(), &one, sizeof one);
}

bool Stop::raised() const {
  pollfd entry = {event_.fd(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

void Stop::wait() const {
  pollfd entry = {event_.fd(), POLLIN, 0};
  while (poll(&entry, 1, -1) != 1) {
  }
}

Net wait_for(std::vector<pollfd>* entries, const Stop& stop, int timeout_ms) {
  entries->push_back({stop.fd(), POLLIN, 0});
  int ready;
  do {
    ready = poll(entries->data(), entries->size(), timeout_ms);
  } while (ready < 0 && errno == EINTR);
  const bool stopped = ready > 0 && entries->back().revents != 0;
  entries->pop_back();
  if (stopped) return Net::kStopped;
  return ready < 0 ? Net::kFailed : Net::kDone;
}

Net listen_anywhere(Socket* made, Address* at) {
  Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return Net::kFailed;
  Address wanted;
  inet_pton(AF_INET, knobs().address.c_str(), &wanted.ip);
  sockaddr_in name = name_of(wanted);
  socklen_t length = sizeof name;
  if (bind(listener.fd(), reinterpret_cast<sockaddr*>(&name), length) != 0 ||
      listen(listener.fd(), SOMAXCONN) != 0 ||
      getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&name), &length) != 0)
    return Net::kFailed;
  *at = {name.sin_addr.s_addr, name.sin_port};
  *made = std::move(listener);
  return Net::kDone;
}

Net connect_to(Address at, const Stop& stop, Socket* made) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return Net::kFailed;
  without_delay(socket.fd());
  const sockaddr_in name = name_of(at);
  if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    if (errno != EINPROGRESS) return Net::kLost;
    if (Net bad = wait_one(socket.fd(), POLLOUT, stop); bad != Net::kDone) return bad;
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0)
      return Net::kLost;
  }
  *made = std::move(socket);
  return Net::kDone;
}

Net accept_one(const Socket& listener, Socket* made) {
  Socket accepted(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!accepted) {
    const bool none = would_wait() || errno == ECONNABORTED;
    return none ? Net::kLost : Net::kFailed;
  }
  without_delay(accepted.fd());
  *made = std::move(accepted);
  return Net::kDone;
}

Net send_some(const Socket& socket, const void* data, size_t bytes, size_t* done) {
  while (*done < bytes) {
    const ssize_t sent =
        send(socket.fd(), static_cast<const char*>(data) + *done, bytes - *done, MSG_NOSIGNAL);
    if (sent < 0) return would_wait() ? Net::kDone : Net::kLost;
    *done += static_cast<size_t>(sent);
  }
  return Net::kDone;
}

Net receive_some(const Socket& socket, void* data, size_t bytes, size_t* done) {
  while (*done < bytes) {
    const ssize_t got = recv(socket.fd(), static_cast<char*>(data) + *done, bytes - *done, 0);
    if (got < 0) return would_wait() ? Net::kDone : Net::kLost;
    if (got == 0) return Net::kLost;
    *done += static_cast<size_t>(got);
  }
  return Net::kDone;
}

Net send_all(const Socket& socket, const void* data, size_t bytes, const Stop& stop) {
  for (size_t done = 0;;) {
    if (Net bad = send_some(socket, data, bytes, &done); bad != Net::kDone) return bad;
    if (done == bytes) return Net::kDone;
    if (Net bad = wait_one(socket.fd(), POLLOUT, stop); bad != Net::kDone) return bad;
  }
}

Net receive_all(const Socket& socket, void* data, size_t bytes, const Stop& stop) {
  for (size_t done = 0;;) {
    if (Net bad = receive_some(socket, data, bytes, &done); bad != Net::kDone) return bad;
    if (done == bytes) return Net::kDone;
    if (Net bad = wait_one(socket.fd(), POLLIN, stop); bad != Net::kDone) return bad;
  }
}

}  // namespace tendril::softnccl
