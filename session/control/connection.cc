// SPDX-License-Identifier: Apache-2.0
// See connection.h. Sockets are used non-blocking per call.
#include "session/control/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "transport/tcp/listener.h"

namespace tendril::session {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

constexpr size_t kDescriptorsMax = 64;
constexpr int kRestMs = 5000;
constexpr size_t kOpenedBytes = 16u << 10;

// Waits for the socket. False: the deadline passed.
bool wait_for(int fd, short events, const Deadline& deadline) {
  for (;;) {
    pollfd waiting{fd, events, 0};
    const int ready = poll(&waiting, 1, deadline.left_ms());
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (deadline.passed()) return false;
  }
}

Status send_on(int fd, const void* data, size_t bytes, const Deadline& deadline) {
  const auto* at = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      at += sent;
      bytes -= size_t(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, deadline)) return Status(Code::kTimeout, "the peer does not read");
    } else if (errno != EINTR) {
      return base::errno_status(Code::kClosed, "sending", errno);
    }
  }
  return Status();
}

template <size_t kBytes>
void put_text(char (&into)[kBytes], const std::string& text) {
  const size_t bytes = std::min(text.size(), kBytes - 1);
  std::memcpy(into, text.data(), bytes);
  into[bytes] = 0;
}

template <size_t kBytes>
std::string get_text(const char (&from)[kBytes]) {
  return std::string(from, strnlen(from, kBytes));
}

}  // namespace

Connection::Connection(base::Fd fd) : fd_(std::move(fd)) {
  const transport::PeerFacts facts = transport::describe_peer(fd_.get());
  peer_.text = facts.text;
  peer_.address = facts.address;
  peer_.local = facts.loopback;
  peer_.unix_socket = facts.unix_socket;
  peer_.user = facts.user;
  peer_.socket_path = facts.socket_path;
  if (!facts.unix_socket) return;
  peer_.identity = base::format("uid %u", facts.user);
  peer_.proof = "uid";
}

Connection::Connection(base::Fd fd, std::string server) : fd_(std::move(fd)) {
  peer_.text = std::move(server);
}

Connection::Connection(base::Fd fd, const wire::ConnectionRecord& record) : fd_(std::move(fd)) {
  peer_.text = get_text(record.peer);
  peer_.identity = get_text(record.identity);
  keys_.assign(reinterpret_cast<const char*>(record.keys),
               std::min(record.key_bytes, wire::kConnectionKeyBytesMax));
}

wire::ConnectionRecord record_of(const Peer& peer, const std::string& keys) {
  wire::ConnectionRecord record = {};
  put_text(record.peer, peer.text);
  put_text(record.identity, peer.identity);
  record.key_bytes = uint32_t(std::min<size_t>(keys.size(), sizeof record.keys));
  std::memcpy(record.keys, keys.data(), record.key_bytes);
  return record;
}

wire::ConnectionRecord Connection::record() const { return record_of(peer_, keys_); }

Status Connection::send_all(const void* data, size_t bytes, const Deadline& deadline) {
  if (seal_ == nullptr) return send_on(fd_.get(), data, bytes, deadline);
  std::vector<uint8_t> network;
  const Status sealed = seal_->send(data, bytes, &network);
  return sealed.ok() ? send_on(fd_.get(), network.data(), network.size(), deadline) : sealed;
}

Status Connection::send_all(const void* data, size_t bytes, const base::Fd& riding) {
  const int fd = riding.get();
  return send_descriptors(fd_.get(), data, bytes, &fd, 1);
}

Status Connection::receive_all(void* into, size_t bytes, const Deadline& deadline, size_t* got) {
  auto* at = static_cast<uint8_t*>(into);
  *got = 0;
  while (seal_ != nullptr && *got < bytes) {
    size_t some = 0;
    const Status status = receive_any(at + *got, bytes - *got, deadline, &some);
    if (!status.ok()) return status;
    *got += some;
  }
  while (*got < bytes) {
    const ssize_t received = recv(fd_.get(), at + *got, bytes - *got, MSG_DONTWAIT);
    if (received > 0) {
      *got += size_t(received);
    } else if (received == 0) {
      return Status(Code::kClosed, "the peer closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd_.get(), POLLIN, deadline))
        return Status(Code::kTimeout, "the peer does not answer");
    } else if (errno != EINTR) {
      return base::errno_status(Code::kClosed, "receiving", errno);
    }
  }
  return Status();
}

Status Connection::receive_some(void* into, size_t bytes, const Deadline& deadline, size_t* got,
                                base::Fd* riding) {
  if (!wait_for(fd_.get(), POLLIN, deadline))
    return Status(Code::kTimeout, "the peer does not answer");
  Result<std::vector<int>> received = receive_descriptors(fd_.get(), into, bytes, got);
  if (!received.ok()) return received.status();
  std::vector<base::Fd> owned;
  for (const int fd : *received) owned.emplace_back(fd);
  if (owned.size() > 1) return Status(Code::kMismatch, "more than one descriptor came");
  if (!owned.empty()) *riding = std::move(owned[0]);
  return Status();
}

Status Connection::await(int other, const Deadline& deadline) {
  if (!plain_.empty()) return Status();
  for (;;) {
    pollfd waiting[] = {{fd_.get(), POLLIN, 0}, {other, POLLIN, 0}};
    const int ready = poll(waiting, other < 0 ? 1 : 2, deadline.left_ms());
    if (ready > 0 && other >= 0 && waiting[1].revents != 0)
      return Status(Code::kUnavailable, "the wait was given up");
    if (ready > 0 || (ready < 0 && errno != EINTR)) return Status();
    if (deadline.passed()) return Status(Code::kTimeout, "the peer does not answer");
  }
}

Status Connection::receive_any(void* into, size_t bytes, const Deadline& deadline, size_t* got) {
  *got = 0;
  while (seal_ != nullptr) {
    if (!plain_.empty()) {
      *got = std::min(bytes, plain_.size());
      std::memcpy(into, plain_.data(), *got);
      plain_.erase(plain_.begin(), plain_.begin() + ptrdiff_t(*got));
      return Status();
    }
    if (seal_->has_ended()) return Status(Code::kClosed, "the peer closed the connection");
    const Status opened = open_some(deadline);
    if (!opened.ok()) return opened;
  }
  for (;;) {
    const ssize_t received = recv(fd_.get(), into, bytes, MSG_DONTWAIT);
    if (received > 0) {
      *got = size_t(received);
      return Status();
    }
    if (received == 0) return Status(Code::kClosed, "the peer closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd_.get(), POLLIN, deadline))
        return Status(Code::kTimeout, "the peer does not answer");
    } else if (errno != EINTR) {
      return base::errno_status(Code::kClosed, "receiving", errno);
    }
  }
}

Status Connection::send_sealed(const std::vector<uint8_t>& network, const Deadline& deadline) {
  return network.empty() ? Status() : send_on(fd_.get(), network.data(), network.size(), deadline);
}

Status Connection::open_some(const Deadline& deadline) {
  uint8_t buffer[kOpenedBytes];
  for (;;) {
    const ssize_t received = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (received == 0) return Status(Code::kClosed, "the peer closed the connection");
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(fd_.get(), POLLIN, deadline))
        return Status(Code::kTimeout, "the peer does not answer");
      continue;
    }
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) return base::errno_status(Code::kClosed, "receiving", errno);
    std::vector<uint8_t> network;
    const Status opened = seal_->receive(buffer, size_t(received), &plain_, &network);
    const Status sent = send_sealed(network, deadline);
    return opened.ok() ? sent : opened;  // the seal knows better what is wrong
  }
}

Status Connection::secure(std::unique_ptr<Seal> seal, const Deadline& deadline) {
  seal_ = std::move(seal);
  std::vector<uint8_t> network;
  Status status = seal_->start(&network);
  if (status.ok()) status = send_sealed(network, deadline);
  while (status.ok() && !seal_->is_open()) status = open_some(deadline);
  if (!status.ok()) return status;
  peer_.identity = seal_->identity();
  peer_.proof = seal_->proof();
  return status;
}

bool Connection::has_ended() {
  if (seal_ != nullptr) {
    const Status opened = open_some(Deadline(0));
    plain_.clear();
    return seal_->has_ended() || (!opened.ok() && opened.code() != Code::kTimeout);
  }
  uint8_t unasked[kOpenedBytes];
  const ssize_t got = recv(fd_.get(), unasked, sizeof unasked, MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void Connection::keep_alive() {
  const int fd = fd_.get();
  const int on = 1, idle_s = 5, interval_s = 2, count = 3, user_ms = 12'000;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) return;  // not TCP
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof user_ms);
}

void Connection::allow_stalls() {
  const int none = 0;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none);
}

bool Connection::is_half_open() const { return transport::is_half_open(fd_.get()); }

void Connection::shutdown() { ::shutdown(fd_.get(), SHUT_RDWR); }

Status send_descriptors(int socket, const void* message, size_t bytes, const int* fds,
                        size_t count) {
  if (count > kDescriptorsMax || bytes == 0)
    return Status(Code::kInvalid, "too many descriptors in one message");
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  iovec part{const_cast<void*>(message), bytes};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (count > 0) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds, count * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return base::errno_status(Code::kClosed, "passing descriptors", errno);
  // The descriptors went with the first byte. The rest of the message follows without any.
  if (size_t(sent) < bytes) {
    return send_on(socket, static_cast<const uint8_t*>(message) + sent, bytes - size_t(sent),
                   Deadline(kRestMs));
  }
  return Status();
}

Result<std::vector<int>> receive_descriptors(int socket, void* message, size_t capacity,
                                             size_t* bytes) {
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  iovec part{message, capacity};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return base::errno_status(Code::kClosed, "receiving descriptors", errno);
  std::vector<int> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    size_t before = fds.size();
    fds.resize(before + count);
    std::memcpy(fds.data() + before, CMSG_DATA(c), count * sizeof(int));
  }
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    for (int fd : fds) close(fd);
    return Status(Code::kExhausted,
                  "descriptors were lost on the way: too many, or this process may open no more");
  }
  *bytes = size_t(got);
  return fds;
}

}  // namespace tendril::session
