// SPDX-License-Identifier: Apache-2.0
// Control messages over a connection, with deadlines. Both halves of attaching use it, and who
// speaks the control protocol without them: identity/, `tendril lease hold`, the client's lessor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "session/control/attach.h"
#include "wire/control.h"

namespace tendril::session {

struct Message {
  uint16_t kind = 0;
  base::Code code = base::Code::kOk;
  std::vector<uint8_t> body;

  std::string text() const { return std::string(body.begin(), body.end()); }
  template <typename T>
  bool read(T* value) const {
    return wire::decode(body.data(), body.size(), value);
  }
};

std::vector<uint8_t> pack(uint16_t kind, base::Code code, const void* body, size_t bytes);
base::Status send_message(Connection* connection, uint16_t kind, base::Code code,
                          const std::vector<uint8_t>& body, const base::Deadline& deadline);
// `first`: how long to wait for the message to begin. The rest may take `whole_ms`. kInvalid: these
// are not control messages.
base::Result<Message> receive_message(Connection* connection, const base::Deadline& first,
                                      int whole_ms);

// A connection to the server, or an error that says which step failed. `from`: as in
// ConnectOptions.
base::Result<Connection> connect_to(const Endpoint& endpoint, const base::Deadline& deadline,
                                    const std::vector<transport::LocalAddress>& from = {});
// Printable text from a peer, for a terminal.
std::string cleaned(const std::string& text);

}  // namespace tendril::session
