// SPDX-License-Identifier: Apache-2.0
// See ask.h.
#include "cli/pool/ask.h"

namespace tendril::cli {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr size_t kAnswerBytesMax = 256u << 20;

// One command, with all parts of its answer.
Result<std::string> ask(session::Control* control, wire::PoolCommand command, int timeout_ms) {
  std::string json;
  for (;;) {
    auto body =
        control->other(uint16_t(wire::Request::kPoolCommand), wire::encode(command), timeout_ms);
    if (!body.ok()) return body.status();
    wire::PoolAnswer answer;
    if (!wire::decode(body->data(), body->size(), &answer))
      return Status(Code::kMismatch, "the pool answered with something else");
    json += answer.json;
    if (!answer.more) return json;
    if (json.size() > kAnswerBytesMax)
      return Status(Code::kMismatch, "the pool's answer has no end");
    command = wire::PoolCommand();
    command.verb = "more";
  }
}

}  // namespace

Result<std::string> ask_pool(const Reach& reach, const wire::PoolCommand& command, int timeout_ms) {
  Status failure(Code::kNotFound, "no address of a pool is known; name one with --server");
  std::string others;
  for (const session::Endpoint& endpoint : reach.servers.endpoints) {
    auto control = session::Control::connect(endpoint, reach.connect);
    if (control.ok() && (*control)->server_hello().pool.empty()) {
      failure = Status(Code::kUnsupported,
                       endpoint.text + " is a server and no pool; name the pool's schedulers");
    } else if (!control.ok()) {
      failure = control.status();
    } else {
      auto answer = ask(control->get(), command, timeout_ms);
      const bool standby = !(*control)->server_hello().schedules;
      if (answer.ok() || !standby) return answer;
      failure = answer.status();
    }
    others += (others.empty() ? "" : "; ") + failure.message();
  }
  return Status(failure.code(), others.empty() ? failure.message() : others);
}

}  // namespace tendril::cli
