// SPDX-License-Identifier: Apache-2.0
// `tendril top`: shows every second what the sessions of each server do. On a terminal it draws
// over the last picture and ends with q or Ctrl-C. In a pipe the pictures follow each other.
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/servers.h"
#include "view/json.h"
#include "view/rates.h"

namespace tendril::cli {
namespace {

volatile sig_atomic_t g_stop = 0;

// Reads single keys without Enter and without an echo while this object lives. Does nothing if no
// person types.
class Keys {
 public:
  Keys() {
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before_) != 0)
      return;
    termios single = before_;
    single.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    single.c_cc[VMIN] = 0;
    single.c_cc[VTIME] = 0;
    here_ = tcsetattr(STDIN_FILENO, TCSANOW, &single) == 0;
  }
  ~Keys() {
    if (here_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  // Waits this long, or until it is time to end. False: end.
  bool wait(int milliseconds) const {
    const base::Deadline deadline(milliseconds);
    while (g_stop == 0 && !deadline.passed()) {
      pollfd input = {STDIN_FILENO, POLLIN, 0};
      if (poll(&input, here_ ? 1 : 0, deadline.left_ms()) <= 0) continue;
      char key = 0;
      if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') return false;
    }
    return g_stop == 0;
  }

 private:
  termios before_ = {};
  bool here_ = false;
};

void stop_at_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { g_stop = 1; };
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

class Top {
 public:
  Top(const TopOptions& options, std::vector<session::Endpoint> endpoints,
      session::ConnectOptions connect)
      : options_(options), endpoints_(std::move(endpoints)), connect_(std::move(connect)) {}

  int run() {
    const Keys keys;
    std::vector<ServerView> before = ask_servers(endpoints_, connect_);
    complain_of_silent(before);
    if (!any_answers(before)) return kFailed;  // nothing to show
    for (;;) {
      if (!keys.wait(static_cast<int>(options_.interval_s * 1000))) return 0;
      std::vector<ServerView> after = ask_servers(endpoints_, connect_);
      show(before, after);
      if (options_.once) return all_answer(after) ? 0 : kFailed;
      if (ferror(stdout) != 0) return kFailed;
      before = std::move(after);
    }
  }

 private:
  void show(const std::vector<ServerView>& before, const std::vector<ServerView>& after) const {
    std::vector<view::ServerRates> rates;
    for (size_t i = 0; i < after.size(); ++i)
      rates.push_back(view::rates_between(before[i], after[i]));
    std::string text;
    if (options_.json) {
      text = view::top_json(rates) + "\n";
    } else {
      for (const view::ServerRates& server : rates) text += view::top_text(server) + "\n";
      if (isatty(STDOUT_FILENO)) text = "\033[H\033[2J" + text;
    }
    fputs(text.c_str(), stdout);
    fflush(stdout);
  }

  const TopOptions& options_;
  const std::vector<session::Endpoint> endpoints_;
  const session::ConnectOptions connect_;
};

}  // namespace

int top(const TopOptions& options) {
  auto asked = reach_to_administer(options);
  if (!asked.ok()) return complain(kFailed, asked.status());
  stop_at_signals();
  return Top(options, asked->servers.endpoints, asked->connect).run();
}

}  // namespace tendril::cli
