// SPDX-License-Identifier: Apache-2.0
// Control messages over a descriptor, with deadlines. Private to session/: used by both halves of
// attaching.
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

base::Status send_all(int fd, const void* data, size_t bytes, const base::Deadline& deadline);
// kClosed at the end of the stream, kTimeout. *got: what came before that.
base::Status receive_all(int fd, void* into, size_t bytes, const base::Deadline& deadline,
                         size_t* got);

std::vector<uint8_t> pack(uint16_t kind, base::Code code, const void* body, size_t bytes);
base::Status send_message(int fd, uint16_t kind, base::Code code, const std::vector<uint8_t>& body,
                          const base::Deadline& deadline);
// `first`: how long to wait for the message to begin; the rest has `whole_ms`. kInvalid: these are
// not control messages.
base::Result<Message> receive_message(int fd, const base::Deadline& first, int whole_ms);

// A connected socket, or an error that says which step failed.
base::Result<int> connect_to(const Endpoint& endpoint, const base::Deadline& deadline);
std::string boot_id();
// Printable text from a peer, for a terminal.
std::string cleaned(const std::string& text);

}  // namespace tendril::session
