// SPDX-License-Identifier: Apache-2.0
// See live.h.
#include "cli/live/live.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

namespace tendril::cli {
namespace {

volatile sig_atomic_t g_stop = 0;

}  // namespace

Live::Live() {
  struct sigaction action = {};
  action.sa_handler = [](int) { g_stop = 1; };
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before_) != 0)
    return;
  termios single = before_;
  single.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  single.c_cc[VMIN] = 0;
  single.c_cc[VTIME] = 0;
  types_ = tcsetattr(STDIN_FILENO, TCSANOW, &single) == 0;
}

Live::~Live() {
  if (types_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

bool Live::show(const std::string& picture) const {
  if (isatty(STDOUT_FILENO)) fputs("\033[H\033[2J", stdout);
  fputs(picture.c_str(), stdout);
  fflush(stdout);
  return ferror(stdout) == 0;
}

bool Live::wait(double seconds) const {
  const base::Deadline deadline(static_cast<int>(seconds * 1000));
  while (g_stop == 0 && !deadline.passed()) {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (poll(&input, types_ ? 1 : 0, deadline.left_ms()) <= 0) continue;
    char key = 0;
    if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') return false;
  }
  return g_stop == 0;
}

int look_once_or_watch(const WatchOptions& options, const std::function<int(std::string*)>& look) {
  std::string picture;
  int status = look(&picture);
  if (!options.watch || picture.empty()) {
    fputs(picture.c_str(), stdout);
    return status;
  }
  const Live live;
  while (live.show(picture) && live.wait(options.interval_s)) {
    picture.clear();
    status = look(&picture);
  }
  return status;
}

}  // namespace tendril::cli
