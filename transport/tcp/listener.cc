// SPDX-License-Identifier: Apache-2.0
// See listener.h.
#include "transport/tcp/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"

namespace tendril::transport {
namespace {

using base::Code;
using base::Status;

constexpr int kBacklog = 4096;
constexpr uint32_t kUnacknowledgedMs = 10'000;
constexpr unsigned kResentMin = 3;

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)) return true;
    return IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == 127;
  }
  return address->sa_family == AF_UNIX;
}

std::string address_text(const sockaddr* address, socklen_t bytes, uint16_t* port) {
  char host[NI_MAXHOST] = "?", service[NI_MAXSERV] = "0";
  getnameinfo(address, bytes, host, sizeof host, service, sizeof service,
              NI_NUMERICHOST | NI_NUMERICSERV);
  *port = static_cast<uint16_t>(strtoul(service, nullptr, 10));
  return strchr(host, ':') != nullptr ? "[" + std::string(host) + "]:" + service
                                      : std::string(host) + ":" + service;
}

std::string host_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr, text,
              sizeof text);
    return text;
  }
  if (address.ss_family != AF_INET6) return text;
  in6_addr host = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&host)) {
    inet_ntop(AF_INET, host.s6_addr + 12, text, sizeof text);
    return text;
  }
  memset(host.s6_addr + 8, 0, 8);
  inet_ntop(AF_INET6, &host, text, sizeof text);
  return std::string(text) + "/64";
}

// Splits "[v6]:port", "host:port" and bare v6 addresses.
void split(const std::string& text, std::string* host, std::string* port) {
  if (!text.empty() && text[0] == '[') {
    const size_t end = text.find(']');
    *host = text.substr(1, end == std::string::npos ? std::string::npos : end - 1);
    if (end != std::string::npos && end + 1 < text.size() && text[end + 1] == ':')
      *port = text.substr(end + 2);
    return;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || text.find(':') != colon) {
    *host = text;
    return;
  }
  *host = text.substr(0, colon);
  *port = text.substr(colon + 1);
}

base::Result<Listener> listen_on(const addrinfo& info) {
  Listener listener;
  uint16_t asked_port = 0;
  const std::string doing =
      "cannot listen on " + address_text(info.ai_addr, info.ai_addrlen, &asked_port);
  listener.fd.reset(socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.fd.valid()) return base::errno_status(Code::kUnavailable, doing.c_str(), errno);
  const int on = 1;
  setsockopt(listener.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (info.ai_family == AF_INET6)
    setsockopt(listener.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (bind(listener.fd.get(), info.ai_addr, info.ai_addrlen) != 0 ||
      listen(listener.fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return Status(Code::kUnavailable, doing +
                                            ": another program listens there; end it, or choose "
                                            "another port");
    }
    return base::errno_status(Code::kUnavailable, doing.c_str(), errno);
  }
  sockaddr_storage bound = {};
  socklen_t bytes = sizeof bound;
  getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&bound), &bytes);
  listener.loopback = is_loopback(reinterpret_cast<sockaddr*>(&bound));
  listener.text = address_text(reinterpret_cast<sockaddr*>(&bound), bytes, &listener.port);
  return listener;
}

bool somebody_listens(const sockaddr_un& address, socklen_t bytes) {
  const base::Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0;
}

}  // namespace

base::Result<std::vector<Listener>> listen_tcp(const std::string& text, uint16_t default_port) {
  std::string host, port = std::to_string(default_port);
  split(text, &host, &port);
  char* end = nullptr;
  const unsigned long number = strtoul(port.c_str(), &end, 10);
  if (port.empty() || *end != 0 || number > 65535) {
    return Status(Code::kInvalid,
                  "'" + text + "' is not an address to listen on; write ADDR or ADDR:PORT");
  }
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const bool any = host == "*" || host.empty();
  const int error = getaddrinfo(any ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return Status(Code::kNotFound, "cannot listen on '" + text + "': " + gai_strerror(error));
  }
  std::vector<Listener> listeners;
  Status first_failure;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    base::Result<Listener> listener = listen_on(*info);
    if (listener.ok()) {
      listeners.push_back(listener.take());
      if (number == 0) break;  // two families would get two different ports
    } else if (first_failure.ok()) {
      first_failure = listener.status();
    }
  }
  freeaddrinfo(found);
  if (listeners.empty()) return first_failure;
  return listeners;
}

base::Result<Listener> listen_unix(const std::string& path, uint32_t mode) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Status(Code::kInvalid, "'" + path + "' is too long for a unix socket");
  }
  memcpy(address.sun_path, path.data(), path.size());
  const bool abstract = path[0] == '@';
  if (abstract) address.sun_path[0] = 0;
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1));
  const std::string doing = "cannot listen on the unix socket " + path;
  Listener listener;
  listener.fd.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.fd.valid()) return base::errno_status(Code::kUnavailable, doing.c_str(), errno);
  // The file gets the mode of the descriptor, so nobody else can connect before chmod.
  if (!abstract) fchmod(listener.fd.get(), mode & 0700);
  struct stat facts;
  if (!abstract && stat(path.c_str(), &facts) == 0 && S_ISSOCK(facts.st_mode) &&
      !somebody_listens(address, bytes)) {
    unlink(path.c_str());
  }
  if (bind(listener.fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      listen(listener.fd.get(), kBacklog) != 0) {
    return base::errno_status(Code::kUnavailable, doing.c_str(), errno);
  }
  if (!abstract) {
    chmod(path.c_str(), mode);
    listener.unlink_path = path;
  }
  listener.text = path;
  listener.loopback = true;
  return listener;
}

base::Result<base::Fd> accept_on(const Listener& listener, int timeout_ms, bool* local) {
  const base::Deadline deadline(timeout_ms);
  for (;;) {
    pollfd waiting = {listener.fd.get(), POLLIN, 0};
    const int ready = poll(&waiting, 1, deadline.left_ms());
    if (ready == 0) return Status(Code::kTimeout, "nobody connected");
    if (ready < 0 && errno == EINTR) continue;
    sockaddr_storage peer = {};
    socklen_t bytes = sizeof peer;
    base::Fd fd(
        accept4(listener.fd.get(), reinterpret_cast<sockaddr*>(&peer), &bytes, SOCK_CLOEXEC));
    if (fd.valid()) {
      *local = bytes == 0 || is_loopback(reinterpret_cast<sockaddr*>(&peer));
      return fd;
    }
    if (errno != EINTR && errno != ECONNABORTED)
      return base::errno_status(Code::kExhausted, "accepting a connection", errno);
  }
}

bool is_half_open(int fd) {
  tcp_info info = {};
  socklen_t bytes = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
  return info.tcpi_unacked > 0 && info.tcpi_retransmits >= kResentMin &&
         info.tcpi_last_ack_recv > kUnacknowledgedMs;
}

namespace {

std::string socket_path(int fd) {
  sockaddr_storage mine = {};
  socklen_t bytes = sizeof mine;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&mine), &bytes) != 0) return std::string();
  const auto* here = reinterpret_cast<const sockaddr_un*>(&mine);
  const size_t name_bytes = bytes - std::min<size_t>(bytes, offsetof(sockaddr_un, sun_path));
  std::string path(here->sun_path, std::min(name_bytes, sizeof here->sun_path));
  if (!path.empty() && path[0] == 0) {
    path[0] = '@';
  } else {
    path.resize(strnlen(path.c_str(), path.size()));
  }
  return path;
}

}  // namespace

PeerFacts describe_peer(int fd) {
  PeerFacts facts;
  sockaddr_storage peer = {};
  socklen_t bytes = sizeof peer;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) {
    facts.text = "a peer that is gone";
    return facts;
  }
  facts.loopback = is_loopback(reinterpret_cast<sockaddr*>(&peer));
  if (peer.ss_family != AF_UNIX) {
    uint16_t port = 0;
    facts.text = address_text(reinterpret_cast<sockaddr*>(&peer), bytes, &port);
    facts.address = host_text(peer);
    return facts;
  }
  facts.unix_socket = true;
  ucred credentials = {};
  socklen_t credential_bytes = sizeof credentials;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &credential_bytes) != 0) {
    facts.text = "a unix peer";
    facts.unix_socket = false;  // then it has no user either
    return facts;
  }
  facts.user = credentials.uid;
  facts.socket_path = socket_path(fd);
  facts.text = base::format("unix pid %d uid %u", credentials.pid, credentials.uid);
  facts.address = base::format("uid %u", credentials.uid);
  return facts;
}

}  // namespace tendril::transport
