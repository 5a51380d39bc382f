// SPDX-License-Identifier: Apache-2.0
// `tendril top`: shows every second what the sessions of each server do.
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/live/filter.h"
#include "cli/live/live.h"
#include "cli/servers.h"
#include "cli/words/width.h"
#include "view/json.h"
#include "view/rates.h"

namespace tendril::cli {
namespace {

class Top {
 public:
  Top(const TopOptions& options, std::vector<session::Endpoint> endpoints,
      session::ConnectOptions connect)
      : options_(options), endpoints_(std::move(endpoints)), connect_(std::move(connect)) {}

  int run() {
    const Live live;
    std::vector<ServerView> before = ask_servers(endpoints_, connect_);
    complain_of_silent(before);
    if (!any_answers(before)) return kFailed;  // nothing to show
    for (;;) {
      if (!live.wait(options_.interval_s)) return 0;
      std::vector<ServerView> after = ask_servers(endpoints_, connect_);
      const bool read = live.show(picture(before, after));
      if (options_.once) return all_answer(after) ? 0 : kFailed;
      if (!read) return kFailed;
      before = std::move(after);
    }
  }

 private:
  std::string picture(const std::vector<ServerView>& before,
                      const std::vector<ServerView>& after) const {
    std::vector<view::ServerRates> rates;
    std::vector<ServerView> shown = after;
    const base::Status kept = keep_filtered(options_.filters, &shown);  // `top` has looked
    for (size_t i = 0; kept.ok() && i < shown.size(); ++i) {
      rates.push_back(view::rates_between(before[i], shown[i]));
      const base::Status sorted = view::sort_sessions(&rates.back().sessions, options_.sort);
      (void)sorted;  // so has it
    }
    if (options_.json) return view::top_json(rates) + "\n";
    std::string text;
    for (const view::ServerRates& server : rates)
      text += view::top_text(server, line_width(options_.wide)) + "\n";
    return text;
  }

  const TopOptions& options_;
  const std::vector<session::Endpoint> endpoints_;
  const session::ConnectOptions connect_;
};

}  // namespace

int top(const TopOptions& options) {
  std::vector<ServerView> none;
  std::vector<view::SessionRates> nobody;
  base::Status words = keep_filtered(options.filters, &none);
  if (words.ok()) words = view::sort_sessions(&nobody, options.sort);
  if (!words.ok()) return complain(kUsage, words);
  auto asked = reach_to_administer(options);
  if (!asked.ok()) return complain(kFailed, asked.status());
  return Top(options, asked->servers.endpoints, asked->connect).run();
}

}  // namespace tendril::cli
