// SPDX-License-Identifier: Apache-2.0
// See control_io.h; also the passing of descriptors between daemon and worker. Sockets are used
// non-blocking per call.
#include "session/control/control_io.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>

#include "base/fd.h"

namespace tendril::session {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

constexpr size_t kDescriptorsMax = 64;
constexpr size_t kTextMax = 4096;

// Waits for the socket; false when the deadline passed.
bool wait_for(int fd, short events, const Deadline& deadline) {
  for (;;) {
    pollfd p{fd, events, 0};
    int ready = poll(&p, 1, deadline.left_ms());
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (deadline.passed()) return false;
  }
}

}  // namespace

Status send_all(int fd, const void* data, size_t bytes, const Deadline& deadline) {
  const auto* at = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      at += n;
      bytes -= size_t(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, deadline)) return Status(Code::kTimeout, "the peer does not read");
    } else if (errno != EINTR) {
      return base::errno_status(Code::kClosed, "sending", errno);
    }
  }
  return Status();
}

Status receive_all(int fd, void* into, size_t bytes, const Deadline& deadline, size_t* got) {
  auto* at = static_cast<uint8_t*>(into);
  *got = 0;
  while (*got < bytes) {
    ssize_t n = recv(fd, at + *got, bytes - *got, MSG_DONTWAIT);
    if (n > 0) {
      *got += size_t(n);
    } else if (n == 0) {
      return Status(Code::kClosed, "the peer closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLIN, deadline))
        return Status(Code::kTimeout, "the peer does not answer");
    } else if (errno != EINTR) {
      return base::errno_status(Code::kClosed, "receiving", errno);
    }
  }
  return Status();
}

std::vector<uint8_t> pack(uint16_t kind, Code code, const void* body, size_t bytes) {
  wire::ControlHeader header;
  header.bytes = uint32_t(bytes);
  header.kind = kind;
  header.code = uint16_t(code);
  std::vector<uint8_t> all(sizeof header + bytes);
  std::memcpy(all.data(), &header, sizeof header);
  if (bytes != 0) std::memcpy(all.data() + sizeof header, body, bytes);
  return all;
}

Status send_message(int fd, uint16_t kind, Code code, const std::vector<uint8_t>& body,
                    const Deadline& deadline) {
  if (body.size() > wire::kControlBytesMax)
    return Status(Code::kInternal, "a control message is too large");
  std::vector<uint8_t> all = pack(kind, code, body.data(), body.size());
  return send_all(fd, all.data(), all.size(), deadline);
}

Result<Message> receive_message(int fd, const Deadline& first, int whole_ms) {
  wire::ControlHeader header;
  auto* raw = reinterpret_cast<uint8_t*>(&header);
  size_t got = 0;
  Status status = receive_all(fd, raw, 1, first, &got);
  if (!status.ok()) return status;
  Deadline rest(whole_ms);
  // Magic first: a stranger's banner may be shorter than a header.
  status = receive_all(fd, raw + 1, sizeof header.magic - 1, rest, &got);
  if (!status.ok() || header.magic != wire::kHelloMagic)
    return Status(Code::kInvalid, "not a Tendril message");
  status =
      receive_all(fd, raw + sizeof header.magic, sizeof header - sizeof header.magic, rest, &got);
  if (!status.ok()) return status;
  if (!wire::believable(header))
    return Status(Code::kInvalid, "a control message of impossible size");
  Message message;
  message.kind = header.kind;
  message.code = Code(header.code);
  // Grows as the bytes come: a header alone commits no memory.
  for (size_t done = 0; done < header.bytes; done += got) {
    size_t step = header.bytes - done < (64u << 10) ? header.bytes - done : (64u << 10);
    message.body.resize(done + step);
    status = receive_all(fd, message.body.data() + done, step, rest, &got);
    if (!status.ok()) return status;
  }
  return message;
}

std::string boot_id() {
  base::Fd fd(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[64];
  ssize_t n = fd.valid() ? read(fd.get(), text, sizeof text) : 0;
  while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' ')) --n;
  return n > 0 ? std::string(text, size_t(n)) : std::string();
}

std::string cleaned(const std::string& text) {
  std::string out = text.substr(0, kTextMax);
  for (char& c : out) {
    if ((static_cast<unsigned char>(c) < 32 && c != '\n') || c == 127) c = '?';
  }
  return out;
}

void keep_alive(int fd) {
  int on = 1, idle_s = 5, interval_s = 2, count = 3, user_ms = 12'000;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) return;  // not TCP
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof user_ms);
}

void allow_stalls(int fd) {
  const int none = 0;
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none);
}

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
  // Descriptors went with the first byte; the rest of the message follows plainly.
  if (size_t(sent) < bytes) {
    return send_all(socket, static_cast<const uint8_t*>(message) + sent, bytes - size_t(sent),
                    Deadline(5000));
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
