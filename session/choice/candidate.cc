// SPDX-License-Identifier: Apache-2.0
// See candidate.h.
#include "session/choice/candidate.h"

#include <fcntl.h>

#include "transport/tcp/socket.h"

namespace tendril::session {

using base::Result;
using transport::Channel;

TrialLines::TrialLines(std::vector<base::Fd> connections, transport::Half* half) {
  // The first one's end shows that the peer is gone, as long as the fabric carries anything.
  base::Fd witness(fcntl(connections.front().get(), F_DUPFD_CLOEXEC, 0));
  for (base::Fd& fd : connections) connections_.push_back(transport::socket_channel(std::move(fd)));
  carriers_ = half->carry(std::move(witness));
}

TrialWays TrialLines::ways(const Candidate& candidate) const {
  TrialWays ways{candidate.fabric, candidate.connections, {}, {}};
  ways.connections.calls = orders();
  for (const auto& each : connections_) ways.connections.bulk.push_back(each.get());
  for (const auto& each : carriers_.lines) {
    if (ways.fabric.calls == nullptr)
      ways.fabric.calls = each.get();
    else
      ways.fabric.bulk.push_back(each.get());
  }
  return ways;
}

bool TrialLines::give(const WayChoice& choice, const Candidate& candidate) {
  for (size_t i = 0; i < carriers_.lines.size(); ++i) {
    if (!(i == 0 ? choice.calls : choice.bulk)) carriers_.lines[i].reset();
  }
  const bool taken = candidate.lasting->take_carriers(std::move(carriers_.lines)).ok();
  candidate.pinned->settle(taken && choice.bulk ? std::move(carriers_.pinned) : nullptr);
  return taken;
}

Result<WayChoice> answer_trial(Candidate candidate, std::vector<base::Fd> connections) {
  TrialLines lines(std::move(connections), candidate.half.get());
  Result<WayChoice> choice =
      serve_trial(lines.orders(), lines.ways(candidate), [&](const WayChoice& chosen) {
        if (!chosen.calls && !chosen.bulk) return true;
        if (!lines.give(chosen, candidate)) return false;
        candidate.lasting->use_carriers();
        return true;
      });
  if (!choice.ok() || !choice->bulk) candidate.pinned->settle(nullptr);
  return choice;
}

}  // namespace tendril::session
