// SPDX-License-Identifier: Apache-2.0
// What may carry a session's lines besides its connections, until that has been tried: the fabric's
// half, and where its carriers would go. Both ends have one. background_trial.h tries it at the
// client; at the worker `answer_trial` answers. Not on the hot path.
#pragma once

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
  std::unique_ptr<transport::Half> half;
  std::shared_ptr<transport::Lasting> lasting;
  std::shared_ptr<LatePinned> pinned;
};

// The trial's own connections, and the fabric's lines until they are the session's.
class TrialLines {
 public:
  TrialLines(std::vector<base::Fd> connections, transport::Half* half);
  transport::Channel* orders() const { return connections_.front().get(); }
  TrialWays ways(const Candidate& candidate) const;
  // The session takes what comes over the chosen lines. False: it was cut, or has ended.
  bool give(const WayChoice& choice, const Candidate& candidate);

 private:
  std::vector<std::unique_ptr<transport::Channel>> connections_;
  transport::Carriers carriers_;
};

// The worker's end of a trial. Blocks until the client has chosen; for a thread of its own.
base::Result<WayChoice> answer_trial(Candidate candidate, std::vector<base::Fd> connections);

}  // namespace tendril::session
