// SPDX-License-Identifier: Apache-2.0
// `tendril queue`, and what administrators ask of a pool: `tendril pool status`, `drain` and the
// others. Asks the scheduler among the addresses that schedules, and prints its answer.
#include "cli/commands.h"
#include "base/text.h"
#include "cli/complain.h"
#include "cli/live/live.h"
#include "cli/pool/ask.h"
#include "cli/servers.h"
#include "cli/words/width.h"
#include "config/text.h"
#include "view/pool.h"
#include "wire/pool.h"

namespace tendril::cli {

namespace {

// What the pool says to the command. Returns the exit status.
int answer(const PoolCommandOptions& options, const wire::PoolCommand& command,
           std::string* picture) {
  auto asked = reach_to_administer(options);
  if (!asked.ok()) return complain(kFailed, asked.status());
  auto json = ask_pool(*asked, command, options.timeout_ms);
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
