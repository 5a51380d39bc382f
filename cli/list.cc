// SPDX-License-Identifier: Apache-2.0
// `tendril ls` (who holds what) and `tendril smi` (the GPUs, like the well-known tool).
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/live/filter.h"
#include "cli/live/live.h"
#include "cli/local/this_machine.h"
#include "cli/servers.h"
#include "cli/words/width.h"
#include "view/json.h"
#include "view/listing.h"

namespace tendril::cli {
namespace {

// Asks every server. A server that fails is named on stderr and makes the command fail. The others
// are shown anyway. `here`: also leases of this machine's programs on this machine's servers.
base::Result<std::vector<view::ServerView>> ask(const WatchOptions& options, bool here,
                                                bool* failed) {
  auto asked = reach_to_administer(options);
  if (!asked.ok()) return asked.status();
  std::vector<view::ServerView> views = ask_servers(asked->servers.endpoints, asked->connect);
  *failed = !all_answer(views);
  if (here) add_local_leases(asked->connect, &views);
  const base::Status kept = keep_filtered(options.filters, &views);
  if (!kept.ok()) return kept;
  if (!options.json) complain_of_silent(views);  // JSON has a field for it
  return views;
}

// What the command shows now. Returns its exit status.
int look(const WatchOptions& options, bool with_this_machine,
         std::string (*text_of)(const std::vector<view::ServerView>&, size_t width),
         std::string* picture) {
  bool failed = false;
  auto views = ask(options, with_this_machine, &failed);
  if (!views.ok()) {
    const bool words = views.status().code() == base::Code::kInvalid;
    return complain(words ? kUsage : kFailed, views.status());
  }
  *picture =
      options.json ? view::servers_json(*views) + "\n" : text_of(*views, line_width(options.wide));
  return failed ? kFailed : 0;
}

std::string leases_of(const std::vector<view::ServerView>& views, size_t width) {
  const std::string text = view::leases_text(views, width);
  if (!text.empty() || !any_answers(views)) return text;
  return all_answer(views) ? "no leases\n" : "no leases on the servers that answered\n";
}

std::string gpus_of(const std::vector<view::ServerView>& views, size_t width) {
  std::string text;
  for (const view::ServerView& view : views) {
    if (view.status.ok()) text += view::gpus_text(view, width);
  }
  return text;
}

}  // namespace

int list_leases(const WatchOptions& options) {
  // Whoever names servers wants those.
  const bool all = options.servers.empty();
  return look_once_or_watch(
      options, [&](std::string* picture) { return look(options, all, leases_of, picture); });
}

int show_gpus(const WatchOptions& options) {
  return look_once_or_watch(
      options, [&](std::string* picture) { return look(options, false, gpus_of, picture); });
}

}  // namespace tendril::cli
