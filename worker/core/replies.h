// SPDX-License-Identifier: Apache-2.0
// Answers a session's calls, for any API. An answer is a result (0: success) and the reply's
// message. The generated dispatcher calls this after each handler. Executor thread. A wait that
// answers later uses the session's service directly.
#pragma once

#include <cstdint>
#include <vector>

#include "session/lane/service.h"
#include "wire/frame.h"
#include "wire/message.h"

namespace tendril::worker {

class Replies {
 public:
  explicit Replies(session::Service* service) : service_(service) {}

  // A call is about to run.
  void begin() {
    taken_over_ = false;
    always_has_body_ = false;
  }
  // A wait has taken over the call and will send the reply.
  void take_over() { taken_over_ = true; }
  // For replies that carry data even with an error, such as a compiler's log.
  void reply_with_body_anyway() { always_has_body_ = true; }

  // A call with a reply has run.
  template <typename Answer>
  void answer(const session::Call& call, int32_t result, const Answer& message) {
    result_ = result;
    if (taken_over_) return;
    const uint64_t bytes = result == 0 || always_has_body_ ? wire::message_bytes(message) : 0;
    always_has_body_ = false;
    uint8_t* body = bytes != 0 ? buffer(bytes) : nullptr;
    if (body != nullptr) wire::write_message(message, body);
    send(call, result, body, static_cast<uint32_t>(body != nullptr ? bytes : 0));
  }
  // A call without a reply has run.
  void finish(const session::Call& call, int32_t result) {
    result_ = result;
    if (result != 0) fail(call, result);
  }
  // A client may ask for an answer to a call that has none. It gets the error.
  void fail(const session::Call& call, int32_t result) { send(call, result, nullptr, 0); }

  // The result of the call that ran last; for traces.
  int32_t result() const { return result_; }
  bool taken_over() const { return taken_over_; }

 private:
  void send(const session::Call& call, int32_t result, const uint8_t* body, uint32_t bytes) {
    if (call.reply_id == 0) return;  // the client wants no answer
    service_->reply(call.reply_id, result, body, bytes);
  }
  // Null: `bytes` is more than a reply may have.
  uint8_t* buffer(uint64_t bytes) {
    if (bytes > wire::kReplyBytesMax) return nullptr;
    if (buffer_.size() < bytes) buffer_.resize(bytes);
    return buffer_.data();
  }

  session::Service* service_;
  std::vector<uint8_t> buffer_;
  int32_t result_ = 0;
  bool taken_over_ = false;
  bool always_has_body_ = false;
};

}  // namespace tendril::worker
