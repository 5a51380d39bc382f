// SPDX-License-Identifier: Apache-2.0
// See router.h.
#include "http/router.h"

#include <algorithm>

#include "base/text.h"

namespace tendril::http {
namespace {

constexpr std::string_view kBlanks = " \t";

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 421:
      return "Misdirected Request";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

Response problem_of(int status, const char* text) {
  Response response;
  response.status = status;
  response.body = text;
  return response;
}

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

// Printable ASCII without blanks, as a request's line has it.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// Letters, digits and what else names of methods and headers are made of.
bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), allowed);
}

// %XX as bytes. False: a digit is missing, or the byte is a control character.
bool decode_path(std::string_view text, std::string* path) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      path->push_back(text[i]);
      continue;
    }
    const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    const int byte = high * 16 + low;
    if (high < 0 || low < 0 || byte < 0x20 || byte == 0x7f) return false;
    path->push_back(static_cast<char>(byte));
    i += 2;
  }
  return true;
}

// Takes the next line off `text`, without its end.
std::string_view next_line(std::string_view* text) {
  const size_t end = text->find('\n');
  std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool parse_line(std::string_view line, Request* request) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || last == first) return false;
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (line.substr(last + 1, 5) != "HTTP/" || !is_plain(line.substr(last + 1))) return false;
  request->keeps = line.substr(last + 1) == "HTTP/1.1";
  request->method = line.substr(0, first);
  if (!is_name(request->method) || !is_plain(target) || target.empty() || target[0] != '/')
    return false;
  const size_t mark = target.find('?');
  if (mark != std::string_view::npos) request->query = target.substr(mark + 1);
  return decode_path(target.substr(0, mark), &request->path);
}

bool parse_header(std::string_view line, Request* request) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_name(line.substr(0, colon))) return false;
  std::string name(line.substr(0, colon));
  for (char& letter : name) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter + 32);
  }
  request->headers.emplace_back(std::move(name), without_blanks(line.substr(colon + 1)));
  return true;
}

// Empty: the header is another one.
std::string bearer_token(std::string_view header) {
  constexpr std::string_view kScheme = "Bearer ";
  if (header.substr(0, kScheme.size()) != kScheme) return std::string();
  return std::string(without_blanks(header.substr(kScheme.size())));
}

}  // namespace

std::string_view Request::header(std::string_view name) const {
  for (const auto& [each, value] : headers) {
    if (each == name) return value;
  }
  return {};
}

bool parse_request(std::string_view text, Request* request, Response* problem) {
  if (text.size() > kRequestBytesMax) {
    *problem = problem_of(431, "the request is too long\n");
    return false;
  }
  *problem = problem_of(400, "this is not a request\n");
  if (!parse_line(next_line(&text), request)) return false;
  for (std::string_view line = next_line(&text); !line.empty(); line = next_line(&text)) {
    if (request->headers.size() == kHeadersMax) {
      *problem = problem_of(431, "the request has too many headers\n");
      return false;
    }
    if (!parse_header(line, request)) return false;
  }
  if (request->header("connection") == "close") request->keeps = false;
  return true;
}

bool body_bytes_of(const Request& request, size_t max, size_t* bytes, Response* problem) {
  *bytes = 0;
  size_t lengths = 0;
  std::string_view length;
  for (const auto& [name, value] : request.headers) {
    if (name == "transfer-encoding") {
      *problem = problem_of(411, "say how long the body is: Content-Length\n");
      return false;
    }
    if (name != "content-length") continue;
    ++lengths;
    length = value;
  }
  if (lengths == 0) return true;
  const bool digits = !length.empty() && length.size() <= 9 &&
                      std::all_of(length.begin(), length.end(),
                                  [](char digit) { return digit >= '0' && digit <= '9'; });
  if (lengths != 1 || (!digits && length.size() <= 9)) {
    *problem = problem_of(400, "this is not the length of a body\n");
    return false;
  }
  for (const char digit : digits ? length : std::string_view())
    *bytes = *bytes * 10 + static_cast<size_t>(digit - '0');
  if (digits && *bytes <= max) return true;
  *problem = problem_of(413, "the body is too long\n");
  return false;
}

std::string answer_text(const Response& response, bool keeps) {
  std::string text = base::format(
      "HTTP/%s %d %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %zu\r\n%s",
      keeps ? "1.1" : "1.0", response.status, reason_of(response.status), response.type.c_str(),
      response.body.size(), response.status == 401 ? "WWW-Authenticate: Bearer\r\n" : "");
  for (const auto& [name, value] : response.headers) text += name + ": " + value + "\r\n";
  if (!keeps) text += "Connection: close\r\n";
  return text + "\r\n" + response.body;
}

std::string stream_text(const Response& head) {
  std::string text = base::format("HTTP/1.1 %d %s\r\nContent-Type: %s; charset=utf-8\r\n",
                                  head.status, reason_of(head.status), head.type.c_str());
  for (const auto& [name, value] : head.headers) text += name + ": " + value + "\r\n";
  return text + "Connection: close\r\n\r\n" + head.body;
}

void Router::add(std::string method, std::string path, Handler handler) {
  routes_.push_back({std::move(method), std::move(path), std::move(handler)});
}

Response Router::route(const Request& request, bool known) const {
  if (requires_proof_ && !known) {
    if (token_.empty()) return problem_of(401, "show a certificate of the role metrics\n");
    if (!base::equal_in_constant_time(token_, bearer_token(request.header("authorization"))))
      return problem_of(401, "say the token: Authorization: Bearer TOKEN\n");
  }
  bool found = false;
  for (const Route& route : routes_) {
    if (route.path != request.path) continue;
    if (route.method == request.method) return route.handler(request);
    found = true;
  }
  return found ? problem_of(405, "this is not understood here\n")
               : problem_of(404, "nothing is here\n");
}

std::string Router::answer(std::string_view text, bool known) const {
  Request request;
  Response problem;
  if (!parse_request(text, &request, &problem)) return answer_text(problem);
  return answer_text(route(request, known));
}

}  // namespace tendril::http
