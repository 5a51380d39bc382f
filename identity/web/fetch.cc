// SPDX-License-Identifier: Apache-2.0
// See fetch.h. HTTP/1.0, so that the answer has no chunks and ends with the connection.
#include "identity/web/fetch.h"

#include "base/clock.h"
#include "base/text.h"
#include "identity/json_web_token.h"
#include "identity/web/line.h"

namespace tendril::identity {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

constexpr size_t kAnswerBytesMax = kKeySetBytesMax + 16'384;

Result<std::string> take_all(Line* line, const Deadline& deadline) {
  std::string all;
  char piece[16'384];
  for (;;) {
    Result<size_t> some = line->take(piece, sizeof piece, deadline);
    if (!some.ok()) return some.status();
    if (*some == 0) return all;
    all.append(piece, *some);
    if (all.size() > kAnswerBytesMax)
      return Status(Code::kInvalid, "the provider's answer is too large");
  }
}

}  // namespace

bool is_fetchable(const std::string& text) {
  Address address;
  return read_address(text, &address) && (address.secure || is_loopback(address.host));
}

Result<WebAnswer> read_answer(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  const bool http = answer.rfind("HTTP/1.", 0) == 0 && answer.size() > 12 && answer[8] == ' ';
  if (!http || end == std::string::npos || answer.size() > kAnswerBytesMax)
    return Status(Code::kInvalid, "the provider does not answer as HTTP servers do");
  WebAnswer read;
  for (const char digit : answer.substr(9, 3)) {
    if (digit < '0' || digit > '9')
      return Status(Code::kInvalid, "the provider does not answer as HTTP servers do");
    read.status = read.status * 10 + (digit - '0');
  }
  read.body = answer.substr(end + 4);
  return read;
}

namespace {

// One question, and the whole answer. An empty form: there is none.
Result<WebAnswer> ask(const std::string& text, const char* method, const std::string& form,
                      const std::string& ca_file, int timeout_ms) {
  const Deadline deadline(timeout_ms);
  Address address;
  if (!is_fetchable(text) || !read_address(text, &address)) {
    return Status(Code::kInvalid, "'" + base::printable(text) +
                                      "' is not an address that is fetched: write https://...");
  }
  const auto about = [&](const Status& why) {
    return Status(why.code(), base::printable(text) + ": " + why.message());
  };
  Result<Line> line = Line::open(address, ca_file, "the provider", deadline);
  if (!line.ok()) return about(line.status());
  std::string request = std::string(method) + " " + address.path +
                        " HTTP/1.0\r\nHost: " + address.host +
                        "\r\nAccept: application/json\r\nConnection: close\r\n";
  if (!form.empty()) {
    request += "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: " +
               std::to_string(form.size()) + "\r\n";
  }
  const Status done = line->put(request + "\r\n" + form, deadline);
  if (!done.ok()) return about(done);
  Result<std::string> answer = take_all(&*line, deadline);
  if (!answer.ok()) return about(answer.status());
  Result<WebAnswer> read = read_answer(*answer);
  return read.ok() ? read : about(read.status());
}

}  // namespace

Result<std::string> fetch(const std::string& text, const std::string& ca_file, int timeout_ms) {
  Result<WebAnswer> answer = ask(text, "GET", std::string(), ca_file, timeout_ms);
  if (!answer.ok()) return answer.status();
  if (answer->status == 200) return answer->body;
  return Status(Code::kUnavailable,
                base::printable(text) + ": " +
                    base::format("the provider answers with status %d, not 200", answer->status));
}

Result<WebAnswer> post_form(const std::string& address, const std::string& form,
                            const std::string& ca_file, int timeout_ms) {
  return ask(address, "POST", form, ca_file, timeout_ms);
}

}  // namespace tendril::identity
