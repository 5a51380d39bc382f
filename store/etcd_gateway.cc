// SPDX-License-Identifier: Apache-2.0
// See etcd_gateway.h.
#include "store/etcd_gateway.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "http/response_reader.h"

namespace tendril::store::etcd {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

constexpr size_t kAnswerBytesMax = 16u << 20;
constexpr int kPauseMs = 100;  // between two rounds of all members

// gRPC's codes that etcd uses.
constexpr int kInvalidArgument = 3, kDeadlineExceeded = 4, kPermissionDenied = 7,
              kResourceExhausted = 8, kUnavailable = 14, kUnauthenticated = 16;

bool says(const Refusal& refusal, const char* what) {
  return refusal.message.find(what) != std::string::npos;
}

void pause(const Deadline& deadline) {
  const int left_ms = deadline.left_ms();
  const int wait_ms = left_ms < 0 ? kPauseMs : std::min(left_ms, kPauseMs);
  const timespec wait{0, wait_ms * 1'000'000L};
  nanosleep(&wait, nullptr);
}

}  // namespace

Gateway::Gateway(EtcdOptions options) : options_(std::move(options)) {
  name_ = options_.secure ? "etcds://" : "etcd://";
  for (size_t i = 0; i < options_.members.size(); ++i)
    name_ += (i == 0 ? "" : ",") + options_.members[i];
}

std::string Gateway::member() const { return "etcd at " + options_.members[at_]; }

Result<std::string> Gateway::ask(const std::string& path, const std::string& body,
                                 const Deadline& deadline) {
  bool uncertain = false;
  Status last;
  for (size_t asked = 1;; ++asked) {
    Attempt attempt = ask_member(path, body, deadline);
    if (attempt.status.ok()) return std::move(attempt.body);
    uncertain = uncertain || attempt.uncertain;
    // The last try may have had no time for more than running out of it.
    const bool says_less = attempt.status.code() == Code::kTimeout && deadline.passed();
    if (last.ok() || !says_less) last = attempt.status;
    if (!attempt.next) return last;
    line_.reset();
    at_ = (at_ + 1) % options_.members.size();
    if (deadline.passed()) break;
    if (asked % options_.members.size() == 0) pause(deadline);
    if (deadline.passed()) break;
  }
  return Status(uncertain ? Code::kTimeout : Code::kUnavailable,
                name_ + ": no member can answer: " + last.message());
}

Gateway::Attempt Gateway::ask_member(const std::string& path, const std::string& body,
                                     const Deadline& whole) {
  int left_ms = whole.left_ms();
  // One that hangs must leave time for another.
  if (left_ms > 0 && options_.members.size() > 1) left_ms -= left_ms / 3;
  const Deadline deadline(left_ms < 0 ? int(options_.answer_ms)
                                      : std::min(left_ms, int(options_.answer_ms)));
  const bool authenticates = !options_.user.empty();
  for (int round = 0;; ++round) {
    if (authenticates && token_.empty()) {
      Attempt entered = log_in(deadline);
      if (!entered.status.ok()) return entered;
    }
    const bool had_line = line_.has_value() && line_is_used_;
    Attempt attempt = exchange(path, body, deadline);
    if (attempt.status.ok()) return attempt;
    // A kept connection may have ended long ago, and a token may be too old.
    const bool is_old_line = had_line && attempt.status.code() == Code::kClosed;
    const bool is_old_token = authenticates && token_.empty();
    if (round > 0 || !(is_old_line || is_old_token)) return attempt;
    line_.reset();
  }
}

Gateway::Attempt Gateway::log_in(const Deadline& deadline) {
  Attempt attempt =
      exchange("/v3/auth/authenticate", authenticate(options_.user, options_.password), deadline);
  attempt.uncertain = false;
  if (!attempt.status.ok()) return attempt;
  Result<std::string> token = read_token(attempt.body);
  if (token.ok()) token_ = token.take();
  attempt.status = token.status();
  return attempt;
}

// Asks the member at_ once.
Gateway::Attempt Gateway::exchange(const std::string& path, const std::string& body,
                                   const Deadline& deadline) {
  const auto failed = [this](const Status& why, bool uncertain) {
    line_.reset();
    // A wrong certificate or file is nothing that waiting would mend, but another member's may be
    // right.
    return Attempt{Status(why.code(), member() + ": " + why.message()), "", true, uncertain};
  };
  if (!line_.has_value()) {
    identity::Address address;
    const std::string scheme = options_.secure ? "https://" : "http://";
    if (!identity::read_address(scheme + options_.members[at_] + "/", &address))
      return failed(Status(Code::kInvalid, "this is no address"), false);
    Result<identity::Line> opened =
        identity::Line::open(address, options_.ca_file, "etcd", deadline);
    if (!opened.ok()) return failed(opened.status(), false);
    line_ = opened.take();
    line_is_used_ = false;
  }
  std::string question = "POST " + path + " HTTP/1.1\r\nHost: " + options_.members[at_] +
                         "\r\nContent-Type: application/json\r\n";
  if (!token_.empty()) question += "Authorization: " + token_ + "\r\n";
  question += base::format("Content-Length: %zu\r\n\r\n", body.size()) + body;
  const Status sent = line_->put(question, deadline);
  if (!sent.ok()) return failed(sent, true);
  http::ResponseReader reader(kAnswerBytesMax);
  std::vector<char> piece(65'536);
  while (!reader.is_whole()) {
    Result<size_t> some = line_->take(piece.data(), piece.size(), deadline);
    if (!some.ok()) return failed(some.status(), true);
    const Status done = *some == 0 ? reader.end() : reader.take({piece.data(), *some});
    if (done.code() == Code::kExhausted) {  // a smaller question may help, another member does not
      line_.reset();
      return Attempt{Status(done.code(), member() + ": " + done.message()), "", false, true};
    }
    if (!done.ok()) return failed(done, true);
  }
  line_is_used_ = true;
  if (!reader.keeps_connection()) line_.reset();
  if (reader.status() != 200) return refused(reader.status(), reader.body());
  return Attempt{Status(), reader.body(), false, false};
}

// What etcd means when it does not answer with success.
Gateway::Attempt Gateway::refused(int http_status, const std::string& body) {
  const Refusal refusal = read_refusal(http_status, body);
  const std::string said = member() + " says: " + refusal.message;
  const auto finally = [&](Code code, const char* more) {
    return Attempt{Status(code, said + more), "", false, false};
  };
  if (says(refusal, "database space exceeded")) {
    return finally(Code::kExhausted,
                   "; etcd is full: compact and defragment it, then `etcdctl alarm disarm`");
  }
  if (says(refusal, "corrupt"))
    return finally(Code::kInternal, "; etcd is damaged: restore it from a snapshot");
  if (refusal.code == kUnauthenticated || says(refusal, "invalid auth token")) {
    token_.clear();
    return finally(Code::kRefused, "; the store's address needs another user or password");
  }
  if (refusal.code == kPermissionDenied || says(refusal, "user name is empty") ||
      says(refusal, "authentication failed") || says(refusal, "permission denied")) {
    return finally(Code::kRefused,
                   "; the store's address needs ?user= and &password-file= of somebody who may "
                   "read and write the keys");
  }
  if (refusal.code == kUnavailable || refusal.code == kDeadlineExceeded ||
      refusal.code == kResourceExhausted || http_status == 503 || http_status == 504 ||
      says(refusal, "timed out") || says(refusal, "deadline exceeded")) {
    const bool not_applied = says(refusal, "no leader") || says(refusal, "too many requests");
    return Attempt{Status(Code::kUnavailable, said), "", true, !not_applied};
  }
  if (refusal.code == kInvalidArgument) return finally(Code::kInvalid, "");
  if (http_status == 404 && refusal.code == 0) {
    return finally(Code::kUnsupported, "; is this etcd 3.4 or newer, with its JSON gateway?");
  }
  return finally(refusal.code == 5 ? Code::kNotFound : Code::kMismatch, "");
}

}  // namespace tendril::store::etcd
