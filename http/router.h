// SPDX-License-Identifier: Apache-2.0
// From a request's bytes to an answer's bytes: parsing within limits, and a table from method and
// path to a handler. Whoever can connect may send anything, so nothing here trusts its input, and a
// request that is not understood gets a status, never a handler. A site with routes (http/site.h)
// has one. Any thread, when no route is added any more.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tendril::http {

// The longest request, its headers included. A longer one is answered with 431.
inline constexpr size_t kRequestBytesMax = 4096;
// The most headers that a request may have.
inline constexpr size_t kHeadersMax = 64;

struct Request {
  std::string method;  // "GET"
  std::string path;    // "/metrics", with %XX decoded; always begins with '/'
  std::string query;   // what follows '?', as it came
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  bool keeps = false;  // HTTP/1.1, and the connection may go on after the answer
  std::string body;

  // The first header of that name (lower case); empty when there is none.
  std::string_view header(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string type = "text/plain";  // the answer adds "; charset=utf-8"
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // more of them; from this program only
};

// Reads a request up to its empty line. False: it is not one; *problem says what to answer. A body
// is not read.
bool parse_request(std::string_view text, Request* request, Response* problem);
// How long the body is that follows the empty line. False: it is longer than `max`, or nobody can
// say; *problem says what to answer.
bool body_bytes_of(const Request& request, size_t max, size_t* bytes, Response* problem);

// The bytes of an answer. Unless `keeps`, the connection ends after it.
std::string answer_text(const Response& response, bool keeps = false);
// The beginning of an answer without end.
std::string stream_text(const Response& head);

class Router {
 public:
  using Handler = std::function<Response(const Request&)>;

  // Who does not say "Authorization: Bearer TOKEN" is answered with 401, whatever it asks for.
  void require_token(std::string token) { token_ = std::move(token), requires_proof_ = true; }
  // Who is not known otherwise must say the token; without a token it is refused.
  void require_proof() { requires_proof_ = true; }
  bool requires_proof() const { return requires_proof_; }
  // `path` is compared as a whole.
  void add(std::string method, std::string path, Handler handler);
  // 401 without the token, 404 without such a path, 405 when the path has other methods. `known`:
  // the peer has proven who it is, and may ask.
  Response route(const Request& request, bool known = false) const;
  // The whole answer to a complete request.
  std::string answer(std::string_view request, bool known = false) const;

 private:
  struct Route {
    std::string method, path;
    Handler handler;
  };
  std::vector<Route> routes_;
  std::string token_;
  bool requires_proof_ = false;  // false: everybody may ask
};

}  // namespace tendril::http
