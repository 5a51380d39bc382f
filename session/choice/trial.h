// SPDX-License-Identifier: Apache-2.0
// How good two ways between both ends of a session are, measured alike, and the client's word of
// what the fabric shall carry. The client orders on a connection of the trial's own, the worker
// answers. For session/control. Blocking, with time-outs, while the session runs on other
// connections.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "session/choice/way_choice.h"
#include "transport/transport.h"

namespace tendril::session {

// One way's channels. The caller keeps them.
struct Way {
  transport::Channel* calls = nullptr;
  std::vector<transport::Channel*> bulk;
};
enum class WayKind : uint32_t { kConnections = 0, kFabric = 1 };

// The client's end: round trips with the worker, and a burst from it, the same over either way.
// Nothing stays unread on the channels.
base::Result<transport::Measured> measure(transport::Channel* orders, WayKind kind, const Way& way);
// The last word of the trial, with what was measured. True: the worker takes what comes over the
// fabric from now on, and sends over it.
base::Result<bool> tell_choice(transport::Channel* orders, const WayChoice& choice,
                               const transport::Measured& over_fabric,
                               const transport::Measured& over_connections);

// The worker's end: answers until the client has chosen. The client is not trusted: it gets so many
// round trips and bytes. `fabric`, `connections`: the kinds. `moves` does what was chosen; false:
// it cannot.
struct TrialWays {
  std::string fabric_kind, connections_kind;
  Way fabric, connections;
};
struct TrialLimits {
  int step_ms = 10'000;    // of silence
  int in_all_ms = 60'000;  // the worker's queue pairs are held so long at most
};
base::Result<WayChoice> serve_trial(transport::Channel* orders, const TrialWays& ways,
                                    const std::function<bool(const WayChoice&)>& moves,
                                    const TrialLimits& limits = {});

}  // namespace tendril::session
