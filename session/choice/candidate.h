// SPDX-License-Identifier: Apache-2.0
// What may carry a session's lines besides its connections, until that has been tried: the fabric's
// half, and where its carriers would go. Both ends have one. background_trial.h tries it at the
// client; at the worker `answer_trial` answers. Not on the hot path.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "session/choice/late_pinned.h"
#include "session/choice/trial.h"
#include "transport/registry.h"

namespace tendril::session {

struct Candidate {
  std::string fabric, connections;  // kinds
  // At the worker it may come with the trial: then `answers` makes it, for the client's offer.
  std::unique_ptr<transport::Half> half;
  std::shared_ptr<transport::Carried> lines;
  std::shared_ptr<LatePinned> pinned;
  std::function<base::Result<std::unique_ptr<transport::Half>>(const std::string& offered)> answers;
  bool only_bulk = false;  // there are no calls that the fabric could carry
  bool forced = false;     // somebody wants the fabric if it works, so nothing is measured
};

// The trial's own connections, and the fabric's lines until they are the session's.
class TrialLines {
 public:
  explicit TrialLines(std::vector<base::Fd> connections);
  // The first of the fabric's ways. `half` stays the caller's.
  void begin(transport::Half* half);
  transport::Channel* orders() const { return connections_.front().get(); }
  Way way(WayKind kind) const;
  // Puts a way over this half in the place of one of the fabric's.
  void put(WayKind kind, std::unique_ptr<transport::Half> half);
  void drop(WayKind kind);
  // The session takes what comes over the chosen lines. False: it was cut, or has ended.
  bool give(const WayChoice& choice, const Candidate& candidate);

 private:
  transport::Carriers* fabric(WayKind kind) { return &fabrics_[size_t(kind) - 1]; }
  base::Fd witness() const;

  const base::Fd witness_;
  std::vector<std::unique_ptr<transport::Channel>> connections_;
  transport::Carriers fabrics_[kWays - 1];
  // Of ways that were put: the peer may read what they have laid out for it.
  std::unique_ptr<transport::Half> halves_[kWays - 1];
};

// The worker's end of a trial. Blocks until the client has chosen; for a thread of its own.
base::Result<WayChoice> answer_trial(Candidate candidate, std::vector<base::Fd> connections);

}  // namespace tendril::session
