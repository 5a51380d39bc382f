// SPDX-License-Identifier: Apache-2.0
// See trial_connections.h.
#include "session/choice/trial_connections.h"

#include <algorithm>

#include "base/clock.h"

namespace tendril::session {

using base::Locked;

namespace {
constexpr size_t kMost = 256;  // before their count is known
}

bool TrialConnections::complete() const {
  return expected_ != 0 && here_.size() == expected_ &&
         std::all_of(here_.begin(), here_.end(), [](const base::Fd& fd) { return fd.valid(); });
}

void TrialConnections::expect(size_t count) {
  Locked locked(lock_);
  expected_ = std::clamp<size_t>(count, 1, kMost);
  here_.resize(expected_);
  changed_.signal();
}

void TrialConnections::take(size_t number, base::Fd connection) {
  Locked locked(lock_);
  if (over_ || number >= (expected_ != 0 ? expected_ : kMost)) return;
  here_.resize(std::max(here_.size(), number + 1));
  if (here_[number].valid()) return;
  here_[number] = std::move(connection);
  changed_.signal();
}

void TrialConnections::give_up() {
  Locked locked(lock_);
  over_ = true;
  changed_.signal();
}

std::vector<base::Fd> TrialConnections::wait(int timeout_ms) {
  const base::Deadline deadline(timeout_ms);
  for (;;) {
    const uint32_t seen = changed_.read();
    {
      Locked locked(lock_);
      const bool all = complete();
      if (all || over_ || deadline.passed()) {
        over_ = true;
        std::vector<base::Fd> taken = std::move(here_);
        here_.clear();
        if (!all) taken.clear();
        return taken;
      }
    }
    changed_.wait(seen, int64_t{deadline.left_ms()} * 1000);
  }
}

}  // namespace tendril::session
