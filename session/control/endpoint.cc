// SPDX-License-Identifier: Apache-2.0
// Server addresses as people write them, and connecting to one. Every possible failure has its own
// message.
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>

#include "base/fd.h"
#include "base/text.h"
#include "session/control/control_io.h"

namespace tendril::session {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

bool parse_port(const std::string& text, uint16_t* port) {
  if (text.empty() || text.size() > 5) return false;
  unsigned value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + unsigned(c - '0');
  }
  if (value == 0 || value > 65535) return false;
  *port = uint16_t(value);
  return true;
}

Status connect_status(const Endpoint& endpoint, int error) {
  const char* where = endpoint.text.c_str();
  switch (error) {
    case ECONNREFUSED:
      return Status(Code::kUnavailable,
                    base::format("nobody listens at %s (connection refused); is 'tendril serve' "
                                 "running there, and is the port right?",
                                 where));
    case ENOENT:
      return Status(Code::kNotFound,
                    base::format("there is no socket %s; is 'tendril serve' running?", where));
    case EACCES:
    case EPERM:
      return Status(Code::kRefused, base::format("this user may not connect to %s", where));
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
      return Status(Code::kUnavailable,
                    base::format("there is no route to %s: %s", where, strerror(error)));
    case ETIMEDOUT:
      return Status(Code::kTimeout,
                    base::format("%s does not answer; is the host up, and does a firewall drop the "
                                 "port?",
                                 where));
    default:
      return Status(Code::kUnavailable,
                    base::format("cannot connect to %s: %s", where, strerror(error)));
  }
}

// 0 or errno.
int connect_one(int fd, const sockaddr* address, socklen_t bytes, const Deadline& deadline) {
  int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  int error = 0;
  if (connect(fd, address, bytes) != 0) {
    error = errno;
    if (error == EINPROGRESS || error == EINTR) {
      pollfd p{fd, POLLOUT, 0};
      int ready;
      do {
        ready = poll(&p, 1, deadline.left_ms());
      } while (ready < 0 && errno == EINTR);
      socklen_t size = sizeof error;
      error = ETIMEDOUT;
      if (ready > 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    } else if (error == EAGAIN) {
      error = ETIMEDOUT;  // a unix listener whose queue is full
    }
  }
  fcntl(fd, F_SETFL, flags);
  return error;
}

// 0 or errno. The port is chosen when the connection is made.
int bind_to(int fd, const transport::LocalAddress* own) {
  if (own == nullptr) return 0;
  const int later = 1;
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &later, sizeof later);
  return bind(fd, reinterpret_cast<const sockaddr*>(&own->address), own->bytes) == 0 ? 0 : errno;
}

Result<Connection> connect_unix(const Endpoint& endpoint, const Deadline& deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& path = endpoint.unix_path;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Status(Code::kInvalid, base::format("the socket path in %s is empty or too long",
                                               endpoint.text.c_str()));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  socklen_t bytes = socklen_t(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  if (path[0] == '@') {
    address.sun_path[0] = 0;
    --bytes;
  }
  base::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return base::errno_status(Code::kExhausted, "opening a socket", errno);
  int error = connect_one(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes, deadline);
  if (error != 0) return connect_status(endpoint, error);
  return Connection(std::move(fd), endpoint.text);
}

}  // namespace

Result<Endpoint> parse_endpoint(const std::string& written) {
  Endpoint endpoint;
  endpoint.text = written;
  std::string text = written;
  auto bad = [&](const char* why) {
    return Status(
        Code::kInvalid,
        base::format("'%s' is not a server address: %s (write host, host:port, [v6]:port, "
                     "name=host:port or unix:/path)",
                     written.c_str(), why));
  };
  if (text.rfind("unix:", 0) == 0) {
    endpoint.unix_path = text.substr(5);
    if (endpoint.unix_path.empty() ||
        (endpoint.unix_path[0] != '/' && endpoint.unix_path[0] != '@')) {
      return bad("the path must be absolute");
    }
    return endpoint;
  }
  if (text.empty()) return bad("it is empty");
  const size_t named = text.find('=');
  if (named != std::string::npos) {
    endpoint.name = text.substr(0, named);
    text.erase(0, named + 1);
    if (endpoint.name.empty()) return bad("the name before '=' is missing");
    if (text.find('=') != std::string::npos) return bad("there are two '='");
    if (text.rfind("unix:", 0) == 0) return bad("a socket of this machine has no name");
  }
  for (char c : text) {
    if (static_cast<unsigned char>(c) <= 32 || c == '/')
      return bad("it contains a blank or a slash");
  }
  std::string port;
  if (text[0] == '[') {
    size_t close = text.find(']');
    if (close == std::string::npos) return bad("the ']' is missing");
    endpoint.host = text.substr(1, close - 1);
    std::string rest = text.substr(close + 1);
    if (!rest.empty() && rest[0] != ':') return bad("only ':port' may follow the ']'");
    if (!rest.empty() && !parse_port(rest.substr(1), &endpoint.port))
      return bad("the port is not a number from 1 to 65535");
  } else {
    size_t colon = text.find(':');
    if (colon != std::string::npos && text.find(':', colon + 1) != std::string::npos) {
      endpoint.host = text;  // a bare IPv6 address
    } else {
      endpoint.host = text.substr(0, colon);
      if (colon != std::string::npos && !parse_port(text.substr(colon + 1), &endpoint.port)) {
        return bad("the port is not a number from 1 to 65535");
      }
    }
  }
  if (endpoint.host.empty()) return bad("the host is missing");
  // A bare IPv6 address ends with no port.
  endpoint.has_port = text.size() > endpoint.host.size() && text.back() != ']';
  return endpoint;
}

Result<Connection> connect_to(const Endpoint& endpoint, const Deadline& deadline,
                              const std::vector<transport::LocalAddress>& from) {
  if (!endpoint.unix_path.empty()) return connect_unix(endpoint, deadline);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  int resolved = getaddrinfo(endpoint.host.c_str(),
                             base::format("%u", unsigned(endpoint.port)).c_str(), &hints, &list);
  if (resolved != 0) {
    return Status(
        Code::kNotFound,
        base::format("the name '%s' cannot be resolved: %s; check the spelling and the name "
                     "service",
                     endpoint.host.c_str(), gai_strerror(resolved)));
  }
  int error = EHOSTUNREACH;
  bool same_kind = from.empty();
  base::Fd connected;
  for (addrinfo* at = list; at != nullptr && !connected.valid(); at = at->ai_next) {
    base::Fd fd(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, at->ai_protocol));
    if (!fd.valid()) {
      if (errno != EAFNOSUPPORT) error = errno;
      continue;
    }
    const transport::LocalAddress* const own =
        from.empty() ? nullptr : transport::address_towards(from, at->ai_addr);
    if (!from.empty() && own == nullptr) continue;
    same_kind = true;
    int failed = bind_to(fd.get(), own);
    if (failed == 0) failed = connect_one(fd.get(), at->ai_addr, at->ai_addrlen, deadline);
    if (failed == 0) {
      connected = std::move(fd);
    } else if (error == EHOSTUNREACH || failed == ECONNREFUSED) {
      error = failed;  // "refused" says most: the host exists
    }
    if (deadline.passed()) break;
  }
  freeaddrinfo(list);
  if (!same_kind) {
    return Status(
        Code::kUnavailable,
        base::format("%s cannot be reached from %s: %s has no address of its kind (IPv4 or IPv6)",
                     endpoint.text.c_str(), from[0].text.c_str(), from[0].interface.c_str()));
  }
  if (!connected.valid()) return connect_status(endpoint, error);
  Connection connection(std::move(connected), endpoint.text);
  connection.keep_alive();
  return connection;
}

}  // namespace tendril::session
