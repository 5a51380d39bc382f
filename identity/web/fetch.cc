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
  Result<Line> line = Line::open(address, ca_file, "the provider", deadline);
  if (!line.ok()) return about(line.status());
  const Status done = line->put("GET " + address.path + " HTTP/1.0\r\nHost: " + address.host +
                                    "\r\nAccept: application/json\r\nConnection: close\r\n\r\n",
                                deadline);
  if (!done.ok()) return about(done);
  Result<std::string> answer = take_all(&*line, deadline);
  if (!answer.ok()) return about(answer.status());
  Result<std::string> body = read_answer(*answer);
  return body.ok() ? body : about(body.status());
}

}  // namespace tendril::identity
