// SPDX-License-Identifier: Apache-2.0
// How a connection proves to be a session's, and how a client connects the channels of its session
// again after a cut. The server's half of the proof is for who serves control connections.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/control/attach.h"
#include "transport/lasting/lasting.h"

namespace tendril::session {

// What proves that a connection is the session's.
struct Membership {
  uint64_t session_id = 0;
  std::string secret;  // of a session that was attached without a handshake
  std::string key;     // of one with a handshake; empty: there was none
};
// The body of a request of that kind. `attempt` and `nonce` as in wire::JoinRequest.
std::vector<uint8_t> membership_request(const Membership& membership, wire::Request kind,
                                        uint16_t channel, uint32_t attempt = 0,
                                        const std::string& nonce = std::string());

// Whether a request of that kind proves it. An attempt to connect again needs a session with a key.
bool is_member(const Membership& membership, wire::Request kind, const wire::JoinRequest& request);

// Connects all channels again. Runs on the session's own thread. `way`: of the fabric that carries
// its lines, which is forgotten when it fails.
std::unique_ptr<transport::Redial> redial(const Endpoint& endpoint, const ConnectOptions& options,
                                          Membership membership, uint16_t bulk_channels,
                                          const std::string& way);

}  // namespace tendril::session
