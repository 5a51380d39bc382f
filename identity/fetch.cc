// SPDX-License-Identifier: Apache-2.0
// See fetch.h. HTTP/1.0, so that the answer has no chunks and ends with the connection.
#include "identity/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "config/text.h"
#include "identity/json_web_token.h"
#include "identity/openssl.h"
#include "session/control/control_io.h"

namespace tendril::identity {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

constexpr size_t kAnswerBytesMax = kKeySetBytesMax + 16'384;

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

bool wait_for(int fd, short events, const Deadline& deadline) {
  pollfd waiting{fd, events, 0};
  int ready;
  do {
    ready = poll(&waiting, 1, deadline.left_ms());
  } while (ready < 0 && errno == EINTR && !deadline.passed());
  return ready > 0;
}

// A connection, inside TLS or not, read and written without blocking.
class Line {
 public:
  Line(base::Fd fd, SslOwner ssl) : fd_(std::move(fd)), ssl_(std::move(ssl)) {
    fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
    if (ssl_ != nullptr) SSL_set_fd(ssl_.get(), fd_.get());
  }
  // Repeats until `step` is done. step: a positive count, 0 at the end, or less with errno or
  // OpenSSL's error set.
  template <typename Step>
  Result<size_t> finish(const Deadline& deadline, Step step) {
    for (;;) {
      ERR_clear_error();
      const int done = step();
      if (done > 0) return size_t(done);
      short events = 0;
      if (ssl_ != nullptr) {
        const int why = SSL_get_error(ssl_.get(), done);
        if (why == SSL_ERROR_ZERO_RETURN) return size_t{0};
        if (why == SSL_ERROR_WANT_READ) events = POLLIN;
        if (why == SSL_ERROR_WANT_WRITE) events = POLLOUT;
      } else if (done == 0) {
        return size_t{0};
      } else if (errno == EAGAIN || errno == EINTR) {
        events = POLLIN | POLLOUT;
      }
      if (events == 0) return broken();
      if (!wait_for(fd_.get(), events, deadline))
        return Status(Code::kTimeout, "the provider does not answer");
    }
  }
  Status shake_hands(const Deadline& deadline) {
    if (ssl_ == nullptr) return Status();
    return finish(deadline, [this] { return SSL_connect(ssl_.get()); }).status();
  }
  Status put(const std::string& text, const Deadline& deadline) {
    for (size_t done = 0; done < text.size();) {
      Result<size_t> some = finish(deadline, [&] {
        const int bytes = int(text.size() - done);
        return ssl_ != nullptr
                   ? SSL_write(ssl_.get(), text.data() + done, bytes)
                   : int(send(fd_.get(), text.data() + done, size_t(bytes), MSG_NOSIGNAL));
      });
      if (!some.ok()) return some.status();
      if (*some == 0) return Status(Code::kClosed, "the provider closed the connection");
      done += *some;
    }
    return Status();
  }
  Result<std::string> take_all(const Deadline& deadline) {
    std::string all;
    char piece[16'384];
    for (;;) {
      Result<size_t> some = finish(deadline, [&] {
        return ssl_ != nullptr ? SSL_read(ssl_.get(), piece, sizeof piece)
                               : int(recv(fd_.get(), piece, sizeof piece, 0));
      });
      if (!some.ok()) return some.status();
      if (*some == 0) return all;
      all.append(piece, *some);
      if (all.size() > kAnswerBytesMax)
        return Status(Code::kInvalid, "the provider's answer is too large");
    }
  }

 private:
  Status broken() {
    const long judged = ssl_ != nullptr ? SSL_get_verify_result(ssl_.get()) : X509_V_OK;
    if (judged != X509_V_OK) {
      ERR_clear_error();
      return Status(Code::kRefused, std::string("the provider's server proves nothing: ") +
                                        X509_verify_cert_error_string(judged) +
                                        " (ca_file names who it believes)");
    }
    return ssl_ != nullptr ? openssl_status("talking to the provider")
                           : base::errno_status(Code::kClosed, "talking to the provider", errno);
  }

  base::Fd fd_;
  SslOwner ssl_;
};

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
    return Status(Code::kNotFound,
                  ca_file.empty() ? "this system has no list of authorities; name one with ca_file"
                                  : "ca_file '" + ca_file + "' holds no certificate");
  }
  SslOwner ssl(SSL_new(context.get()));
  if (ssl == nullptr || SSL_set1_host(ssl.get(), address.host.c_str()) != 1 ||
      SSL_set_tlsext_host_name(ssl.get(), address.host.c_str()) != 1) {
    return openssl_status("preparing TLS");
  }
  return ssl;
}

}  // namespace

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

bool is_fetchable(const std::string& text) {
  Address address;
  return read_address(text, &address) && (address.secure || is_loopback(address.host));
}

Result<std::string> read_answer(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  const bool http = answer.rfind("HTTP/1.", 0) == 0 && answer.size() > 12 && answer[8] == ' ';
  if (!http || end == std::string::npos || answer.size() > kAnswerBytesMax)
    return Status(Code::kInvalid, "the provider does not answer as HTTP servers do");
  const std::string code = answer.substr(9, 3);
  if (code != "200") {
    return Status(Code::kUnavailable,
                  "the provider answers with status " + base::printable(code, 3) + ", not 200");
  }
  return answer.substr(end + 4);
}

Result<std::string> fetch(const std::string& text, const std::string& ca_file, int timeout_ms) {
  const Deadline deadline(timeout_ms);
  Address address;
  if (!is_fetchable(text) || !read_address(text, &address)) {
    return Status(Code::kInvalid, "'" + base::printable(text) +
                                      "' is not an address that is fetched: write https://...");
  }
  const auto about = [&](const Status& why) {
    return Status(why.code(), base::printable(text) + ": " + why.message());
  };
  Result<session::Endpoint> endpoint = session::parse_endpoint(address.host + ":" + address.port);
  if (!endpoint.ok()) return about(endpoint.status());
  SslOwner ssl;
  if (address.secure) {
    Result<SslOwner> made = secured(address, ca_file);
    if (!made.ok()) return about(made.status());
    ssl = made.take();
  }
  Result<session::Connection> connection = session::connect_to(*endpoint, deadline);
  if (!connection.ok()) return about(connection.status());
  Line line(connection->take_descriptor(), std::move(ssl));
  Status done = line.shake_hands(deadline);
  if (done.ok()) {
    done = line.put("GET " + address.path + " HTTP/1.0\r\nHost: " + address.host +
                        "\r\nAccept: application/json\r\nConnection: close\r\n\r\n",
                    deadline);
  }
  if (!done.ok()) return about(done);
  Result<std::string> answer = line.take_all(deadline);
  if (!answer.ok()) return about(answer.status());
  Result<std::string> body = read_answer(*answer);
  return body.ok() ? body : about(body.status());
}

}  // namespace tendril::identity
