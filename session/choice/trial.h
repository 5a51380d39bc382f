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
// A fabric has two ways at most at one time, so that pairs of ports can be compared.
enum class WayKind : uint32_t { kConnections = 0, kFabric = 1, kOtherFabric = 2 };
inline constexpr size_t kWays = 3;

// The client's end: round trips with the worker, and a burst from it, the same over either way.
// Nothing stays unread on the channels.
base::Result<transport::Measured> measure(transport::Channel* orders, WayKind kind, const Way& way);
// The worker's ports, those that its fabric may use.
base::Result<std::vector<transport::Port>> ask_ports(transport::Channel* orders);
// Where the worker does not know the client's half yet: the blob of its own for it.
base::Result<std::string> ask_first(transport::Channel* orders, const std::string& blob);
// The worker makes one of the fabric's ways anew, on that port of its own, for the client's half
// with this blob. Its own blob.
base::Result<std::string> ask_pair(transport::Channel* orders, WayKind way, size_t port,
                                   const std::string& blob);
// The last word of the trial, with what was measured. True: the worker takes what comes over the
// fabric from now on, and sends over it.
base::Result<bool> tell_choice(transport::Channel* orders, const WayChoice& choice,
                               const transport::Measured& over_fabric,
                               const transport::Measured& over_connections);

// The worker's end: answers until the client has chosen. The client is not trusted: it gets so many
// pairs of ports, round trips and bytes.
struct TrialServer {
  std::string fabric_kind, connections_kind;
  Way ways[kWays];         // one without calls is not there
  bool only_bulk = false;  // what is chosen concerns no calls
  std::function<std::vector<transport::Port>()> ports;
  // Makes the fabric's first way, for the client's half with that blob. The blob of this end's.
  std::function<base::Result<std::string>(const std::string& blob)> first;
  // Puts another way in the place of that one. The blob of this end's new half.
  std::function<base::Result<std::string>(WayKind way, const transport::Port& port,
                                          const std::string& blob)>
      pair;
  // Does what was chosen; false: it cannot.
  std::function<bool(const WayChoice&)> moves;
};
struct TrialLimits {
  int step_ms = 10'000;    // of silence
  int fabric_ms = 2'000;   // of silence of a fabric, which then carries nothing
  int in_all_ms = 60'000;  // the worker's queue pairs are held so long at most
};
base::Result<WayChoice> serve_trial(transport::Channel* orders, TrialServer* server,
                                    const TrialLimits& limits = {});

}  // namespace tendril::session
