// SPDX-License-Identifier: Apache-2.0
// See foreground.h.
#include "cli/pool/foreground.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "reception/log.h"

namespace tendril::cli {

using reception::Level;

namespace {

void pass_log_on(base::LogLevel level, const char* line) {
  const bool bad = level == base::LogLevel::kError || level == base::LogLevel::kWarning;
  reception::log(bad ? Level::kWarning : Level::kDebug, "%s", line);
}

int blocked(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int each : signals) sigaddset(&set, each);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC);
}

}  // namespace

Foreground::Foreground(bool verbose, bool quiet)
    : stop_(blocked({SIGINT, SIGTERM})),
      reload_(blocked({SIGHUP})),
      over_(eventfd(0, EFD_CLOEXEC)) {
  if (verbose) reception::set_log_level(Level::kDebug);
  if (quiet) reception::set_log_level(Level::kWarning);
  base::set_log_sink(pass_log_on);
}

Foreground::~Foreground() { end_reloads(); }

void Foreground::end_reloads() {
  eventfd_write(over_.get(), 1);
  if (reloader_.joinable()) reloader_.join();
}

void Foreground::on_reload(std::function<void()> reload) {
  reloader_ = std::thread([this, reload = std::move(reload)] {
    pollfd waits[] = {{reload_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}};
    while (poll(waits, 2, -1) >= 0 || errno == EINTR) {
      if (waits[1].revents != 0) return;
      signalfd_siginfo signal;
      if (waits[0].revents == 0 || read(reload_.get(), &signal, sizeof signal) != sizeof signal)
        continue;
      reload();
    }
  });
}

std::string joined(const std::vector<std::string>& addresses) {
  std::string text;
  for (const std::string& address : addresses) text += (text.empty() ? "" : ", ") + address;
  return text;
}

}  // namespace tendril::cli
