// SPDX-License-Identifier: Apache-2.0
// Which connections the trial of a session's fabric gets: each number once, from the session's own
// client, and in time. Pure; the time is passed in. Who serves control connections asks
// (daemon/sessions_attach.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "wire/control.h"

namespace tendril::session {

// Until then, from its start, a session's trial has begun, or there will be none. The worker keeps
// its queue pairs so long.
inline constexpr int kTrialComesMs = 20'000;

class TrialEntry {
 public:
  // The worker has answered. `lasts`: the session outlasts cuts. Without a fabric among the
  // answers, or another way to fall back on, there is nothing to try.
  void open(const wire::TransportAnswers& answers, uint16_t bulk_channels, bool lasts);
  // The session has begun. Its client may have sent the first connections a moment before.
  void begin(uint64_t now_ns) { until_ns_ = now_ns + uint64_t{kTrialComesMs} * 1'000'000u; }
  // The session runs on the fabric already, or has ended.
  void close() { seats_.clear(); }
  // A connection that has proven to be the session's wants to be this one of its trial.
  // kInvalid: there is none, it is there already, or it comes too late.
  base::Status join(uint16_t number, uint64_t now_ns);

 private:
  std::vector<bool> seats_;  // one for each connection; taken?
  uint64_t until_ns_ = UINT64_MAX;
};

}  // namespace tendril::session
