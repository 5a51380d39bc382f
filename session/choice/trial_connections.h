// SPDX-License-Identifier: Apache-2.0
// The connections of a session's trial as they come to its worker, one by one, perhaps never. One
// thread waits for them, another one brings them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "base/lock.h"

namespace tendril::session {

class TrialConnections {
 public:
  // So many make a trial. Some may have come before.
  void expect(size_t count);
  // Closes what comes twice, too late, or under a number that the trial has not.
  void take(size_t number, base::Fd connection);
  // No more will come: ends the wait.
  void give_up();
  // Waits until all are here. Empty: they did not come in time, and none is kept. Once.
  std::vector<base::Fd> wait(int timeout_ms);

 private:
  bool complete() const;

  base::Lock lock_;
  base::Event changed_;
  std::vector<base::Fd> here_;  // guarded by lock_
  size_t expected_ = 0;         // guarded by lock_; 0: nobody knows yet
  bool over_ = false;           // guarded by lock_
};

}  // namespace tendril::session
