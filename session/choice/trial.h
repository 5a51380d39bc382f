// SPDX-License-Identifier: Apache-2.0
// How good a session's connections are, measured before it begins, and the client's word of what a
// fabric shall carry. Client and worker speak it on the connections themselves, when all are there:
// the client orders, the worker answers. For session/control. Blocking, with time-outs.
#pragma once

#include <string>

#include "base/result.h"
#include "session/choice/way_choice.h"
#include "transport/registry.h"

namespace tendril::session {

// The client's end. Nothing stays unread on the connections.
base::Result<transport::Measured> measure_connections(const transport::Streams& streams);
// The last word of the trial. Then come what was measured; zeros: it was asked for.
base::Status tell_choice(const transport::Streams& streams, const WayChoice& choice,
                         const transport::Measured& over_fabric,
                         const transport::Measured& over_connections);
// The worker's end: answers until the client has chosen. The client is not trusted: it gets so many
// round trips and bytes, and so much time.
base::Result<WayChoice> serve_trial(const transport::Streams& streams, const std::string& fabric,
                                    const std::string& connections);

}  // namespace tendril::session
