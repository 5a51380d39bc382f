// SPDX-License-Identifier: Apache-2.0
// `tendril queue`, and what administrators ask of a pool: `tendril pool status`, `drain` and the
// others. Asks the scheduler among the addresses that schedules, and prints its answer.
#include "cli/commands.h"
#include "base/text.h"
#include "cli/complain.h"
#include "cli/live/live.h"
#include "cli/servers.h"
#include "cli/words/width.h"
#include "config/text.h"
#include "view/pool.h"
#include "wire/pool.h"

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

// The first scheduler that schedules answers; else the error says of each why not.
Result<std::string> ask_any(const Reach& reach, const wire::PoolCommand& command, int timeout_ms) {
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

// What the pool says to the command. Returns the exit status.
int answer(const PoolCommandOptions& options, const wire::PoolCommand& command,
           std::string* picture) {
  auto asked = reach_to_administer(options);
  if (!asked.ok()) return complain(kFailed, asked.status());
  auto json = ask_any(*asked, command, options.timeout_ms);
  if (!json.ok()) return complain(kFailed, json.status());
  if (options.json) {
    *picture = json.take() + "\n";
    return 0;
  }
  auto text = view::pool_text(command.verb, *json, line_width(options.wide));
  if (!text.ok()) return complain(kFailed, text.status());
  *picture = text.take();
  return 0;
}

}  // namespace

int pool_command(const PoolCommandOptions& options) {
  wire::PoolCommand command;
  command.verb = options.dry_run ? "dry-run" : options.verb;
  command.arguments = options.arguments;
  if (!options.file.empty()) {
    auto text = config::read_file(options.file);
    if (!text.ok()) return complain(kFailed, text.status());
    command.body = text.take();
    command.arguments = {options.file};  // for messages
  }
  return look_once_or_watch(
      options, [&](std::string* picture) { return answer(options, command, picture); });
}

}  // namespace tendril::cli
