// SPDX-License-Identifier: Apache-2.0
// `tendril ls` (who holds what) and `tendril smi` (the GPUs, like the well-known tool).
#include <stdio.h>

#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/local/this_machine.h"
#include "cli/servers.h"
#include "view/json.h"
#include "view/listing.h"

namespace tendril::cli {
namespace {

// Asks every server. A server that fails is named on stderr and makes the command fail. The others
// are shown anyway. `here`: also leases of this machine's programs on this machine's servers.
base::Result<std::vector<view::ServerView>> ask(const CommonOptions& options, bool here,
                                                bool* failed) {
  auto asked = reach_to_administer(options);
  if (!asked.ok()) return asked.status();
  std::vector<view::ServerView> views = ask_servers(asked->servers.endpoints, asked->connect);
  *failed = !all_answer(views);
  if (here) add_local_leases(asked->connect, &views);
  if (!options.json) complain_of_silent(views);  // JSON has a field for it
  return views;
}

}  // namespace

int list_leases(const CommonOptions& options) {
  bool failed = false;
  // Whoever names servers wants those.
  auto views = ask(options, options.servers.empty(), &failed);
  if (!views.ok()) return complain(kFailed, views.status());
  if (options.json) {
    printf("%s\n", view::servers_json(*views).c_str());
    return failed ? kFailed : 0;
  }
  const std::string text = view::leases_text(*views);
  if (!text.empty()) {
    fputs(text.c_str(), stdout);
  } else if (any_answers(*views)) {
    printf(failed ? "no leases on the servers that answered\n" : "no leases\n");
  }
  return failed ? kFailed : 0;
}

int show_gpus(const CommonOptions& options) {
  bool failed = false;
  auto views = ask(options, false, &failed);
  if (!views.ok()) return complain(kFailed, views.status());
  if (options.json) {
    printf("%s\n", view::servers_json(*views).c_str());
    return failed ? kFailed : 0;
  }
  for (const view::ServerView& view : *views) {
    if (view.status.ok()) fputs(view::gpus_text(view).c_str(), stdout);
  }
  return failed ? kFailed : 0;
}

}  // namespace tendril::cli
