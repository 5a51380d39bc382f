// SPDX-License-Identifier: Apache-2.0
// See line.h.
#include "identity/web/line.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "base/fd.h"
#include "base/text.h"
#include "config/text.h"
#include "identity/openssl.h"
#include "session/control/control_io.h"

namespace tendril::identity {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

bool wait_for(int fd, short events, const Deadline& deadline) {
  pollfd waiting{fd, events, 0};
  int ready;
  do {
    ready = poll(&waiting, 1, deadline.left_ms());
  } while (ready < 0 && errno == EINTR && !deadline.passed());
  return ready > 0;
}

// The usual places of a system's authorities: ours is linked statically and knows Debian's only.
bool believe_system(SSL_CTX* context) {
  const std::string named = config::variable("SSL_CERT_FILE");
  if (!named.empty()) return SSL_CTX_load_verify_file(context, named.c_str()) == 1;
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (SSL_CTX_load_verify_file(context, path) == 1) return true;
  }
  return false;
}

bool is_number(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

Result<SslOwner> secured(const Address& address, const std::string& ca_file) {
  prepare_openssl();
  const SslContextOwner context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return openssl_status("preparing TLS");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  const bool believes = ca_file.empty()
                            ? believe_system(context.get())
                            : SSL_CTX_load_verify_file(context.get(), ca_file.c_str()) == 1;
  ERR_clear_error();
  if (!believes) {
    return Status(Code::kNotFound, ca_file.empty()
                                       ? "this system has no list of authorities; name one"
                                       : "the file of authorities '" + ca_file +
                                             "' is not there or holds no certificate");
  }
  std::string host = address.host;
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  SslOwner ssl(SSL_new(context.get()));
  // A name goes into the greeting, for hosts with several; an address must not.
  if (ssl == nullptr || SSL_set1_host(ssl.get(), host.c_str()) != 1 ||
      (!is_number(host) && SSL_set_tlsext_host_name(ssl.get(), host.c_str()) != 1)) {
    return openssl_status("preparing TLS");
  }
  return ssl;
}

}  // namespace

struct Line::State {
  base::Fd fd;
  SslOwner ssl;
  std::string who;

  // Repeats until `step` is done. step: a positive count, 0 at the end, or less with errno or
  // OpenSSL's error set.
  template <typename Step>
  Result<size_t> finish(const Deadline& deadline, Step step) {
    for (;;) {
      ERR_clear_error();
      const int done = step();
      if (done > 0) return size_t(done);
      short events = 0;
      if (ssl != nullptr) {
        const int why = SSL_get_error(ssl.get(), done);
        if (why == SSL_ERROR_ZERO_RETURN) return size_t{0};
        if (why == SSL_ERROR_WANT_READ) events = POLLIN;
        if (why == SSL_ERROR_WANT_WRITE) events = POLLOUT;
      } else if (done == 0) {
        return size_t{0};
      } else if (errno == EAGAIN || errno == EINTR) {
        events = waits_for;
      }
      if (events == 0) return broken();
      if (!wait_for(fd.get(), events, deadline))
        return Status(Code::kTimeout, who + " does not answer");
    }
  }
  Status broken() const {
    const int error = errno;
    const long judged = ssl != nullptr ? SSL_get_verify_result(ssl.get()) : X509_V_OK;
    if (judged != X509_V_OK) {
      ERR_clear_error();
      return Status(Code::kRefused,
                    who + "'s server proves nothing: " + X509_verify_cert_error_string(judged) +
                        " (the file of authorities names who is believed)");
    }
    if (ssl == nullptr || (ERR_peek_error() == 0 && error != 0))
      return base::errno_status(Code::kClosed, ("talking to " + who).c_str(), error);
    return openssl_status("talking to " + who);
  }

  short waits_for = POLLIN;
};

Line::Line(std::unique_ptr<State> state) : state_(std::move(state)) {}
Line::Line(Line&&) noexcept = default;
Line& Line::operator=(Line&&) noexcept = default;
Line::~Line() = default;

Result<Line> Line::open(const Address& address, const std::string& ca_file, const std::string& who,
                        const Deadline& deadline) {
  Result<session::Endpoint> endpoint = session::parse_endpoint(address.host + ":" + address.port);
  if (!endpoint.ok()) return endpoint.status();
  auto state = std::make_unique<State>();
  state->who = who;
  if (address.secure) {
    Result<SslOwner> made = secured(address, ca_file);
    if (!made.ok()) return made.status();
    state->ssl = made.take();
  }
  Result<session::Connection> connection = session::connect_to(*endpoint, deadline);
  if (!connection.ok()) return connection.status();
  state->fd = connection->take_descriptor();
  fcntl(state->fd.get(), F_SETFL, O_NONBLOCK);
  if (state->ssl != nullptr) {
    SSL* const ssl = state->ssl.get();
    SSL_set_fd(ssl, state->fd.get());
    const Result<size_t> shaken = state->finish(deadline, [ssl] { return SSL_connect(ssl); });
    if (!shaken.ok()) return shaken.status();
    if (shaken.value() == 0) return Status(Code::kClosed, who + " closed the connection");
  }
  return Line(std::move(state));
}

Status Line::put(const std::string& text, const Deadline& deadline) {
  State& state = *state_;
  state.waits_for = POLLOUT;
  for (size_t done = 0; done < text.size();) {
    Result<size_t> some = state.finish(deadline, [&] {
      const int bytes = int(text.size() - done);
      return state.ssl != nullptr
                 ? SSL_write(state.ssl.get(), text.data() + done, bytes)
                 : int(send(state.fd.get(), text.data() + done, size_t(bytes), MSG_NOSIGNAL));
    });
    if (!some.ok()) return some.status();
    if (*some == 0) return Status(Code::kClosed, state.who + " closed the connection");
    done += *some;
  }
  return Status();
}

Result<size_t> Line::take(char* into, size_t bytes, const Deadline& deadline) {
  State& state = *state_;
  state.waits_for = POLLIN;
  return state.finish(deadline, [&] {
    return state.ssl != nullptr ? SSL_read(state.ssl.get(), into, int(bytes))
                                : int(recv(state.fd.get(), into, bytes, 0));
  });
}

bool read_address(const std::string& text, Address* address) {
  const std::string secure = "https://", clear = "http://";
  address->secure = text.rfind(secure, 0) == 0;
  if (!address->secure && text.rfind(clear, 0) != 0) return false;
  if (text.size() > 2048) return false;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= 32 || static_cast<unsigned char>(c) >= 127) return false;
  }
  const std::string rest = text.substr(address->secure ? secure.size() : clear.size());
  const size_t slash = rest.find('/');
  const std::string place = rest.substr(0, slash);
  address->path = slash == std::string::npos ? "/" : rest.substr(slash);
  const size_t colon =
      place.find(':', place.rfind(']') == std::string::npos ? 0 : place.rfind(']'));
  address->host = place.substr(0, colon);
  address->port = address->secure ? "443" : "80";
  if (colon != std::string::npos) address->port = place.substr(colon + 1);
  uint64_t port = 0;
  return !address->host.empty() && config::read_number(address->port, &port) && port > 0 &&
         port < 65'536 && place.find('@') == std::string::npos;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

}  // namespace tendril::identity
