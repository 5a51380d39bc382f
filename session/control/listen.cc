// SPDX-License-Identifier: Apache-2.0
// See listen.h.
#include "session/control/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"
#include "session/control/attach.h"

namespace tendril::session {

using base::Code;
using base::Result;
using base::Status;

namespace {

bool is_local(const sockaddr_storage& address) {
  if (address.ss_family == AF_UNIX) return true;
  if (address.ss_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return address.ss_family == AF_INET6 &&
         (IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127));
}

std::string address_text(const sockaddr_storage& address, uint16_t* port) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    *port = ntohs(v4.sin_port);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return base::format("%s:%u", text, unsigned(*port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  *port = ntohs(v6.sin6_port);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return base::format("[%s]:%u", text, unsigned(*port));
}

Result<Listening> listen_unix(const std::string& address, const std::string& path, int backlog) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof name.sun_path)
    return Status(Code::kInvalid, "the socket path " + path + " is too long");
  std::memcpy(name.sun_path, path.data(), path.size());
  socklen_t bytes = socklen_t(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  if (path[0] == '@') {
    name.sun_path[0] = 0;
    --bytes;
  }
  Listening listening;
  listening.fd.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listening.fd.valid() ||
      bind(listening.fd.get(), reinterpret_cast<sockaddr*>(&name), bytes) != 0 ||
      listen(listening.fd.get(), backlog) != 0) {
    return base::errno_status(Code::kUnavailable, ("cannot listen on " + address).c_str(), errno);
  }
  listening.text = address;
  listening.loopback = true;
  return listening;
}

}  // namespace

Result<Listening> listen_on(const std::string& address, int backlog) {
  std::string wanted = address.empty() ? std::string("127.0.0.1") : address;
  bool any_port = wanted.size() > 2 && wanted.compare(wanted.size() - 2, 2, ":0") == 0 &&
                  wanted.rfind("unix:", 0) != 0;
  Result<Endpoint> endpoint =
      parse_endpoint(any_port ? wanted.substr(0, wanted.size() - 2) : wanted);
  if (!endpoint.ok()) return endpoint.status();
  if (!endpoint->unix_path.empty()) return listen_unix(wanted, endpoint->unix_path, backlog);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  std::string port = base::format("%u", any_port ? 0u : unsigned(endpoint->port));
  int resolved = getaddrinfo(endpoint->host.c_str(), port.c_str(), &hints, &list);
  if (resolved != 0) {
    return Status(Code::kNotFound, base::format("cannot listen on '%s': %s", wanted.c_str(),
                                                gai_strerror(resolved)));
  }
  Listening listening;
  int on = 1, error = 0;
  listening.fd.reset(socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  setsockopt(listening.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!listening.fd.valid() || bind(listening.fd.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      listen(listening.fd.get(), backlog) != 0) {
    error = errno;
  }
  freeaddrinfo(list);
  if (error != 0)
    return base::errno_status(Code::kUnavailable, ("cannot listen on " + wanted).c_str(), error);
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  getsockname(listening.fd.get(), reinterpret_cast<sockaddr*>(&bound), &bytes);
  listening.text = address_text(bound, &listening.port);
  listening.loopback = is_local(bound);
  return listening;
}

Result<base::Fd> accept_on(const Listening& listening, int timeout_ms, bool* local) {
  base::Deadline deadline(timeout_ms);
  for (;;) {
    pollfd p{listening.fd.get(), POLLIN, 0};
    int ready = poll(&p, 1, deadline.left_ms());
    if (ready == 0) return Status(Code::kTimeout, "nobody connected");
    if (ready < 0 && errno == EINTR) continue;
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    base::Fd fd(
        accept4(listening.fd.get(), reinterpret_cast<sockaddr*>(&peer), &bytes, SOCK_CLOEXEC));
    if (fd.valid()) {
      if (peer.ss_family == 0) peer.ss_family = AF_UNIX;
      *local = is_local(peer);
      return fd;
    }
    if (errno != EINTR && errno != ECONNABORTED)
      return base::errno_status(Code::kExhausted, "accepting a connection", errno);
  }
}

}  // namespace tendril::session
