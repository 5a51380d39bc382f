// SPDX-License-Identifier: Apache-2.0
// What protects the bytes of a control connection, as an interface on bytes: no sockets, no
// waiting. Both ends use it: the client through Connection::secure, the server through
// Conversation. The implementation (TLS) is elsewhere, because this room is part of the client
// library. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::session {

struct Endpoint;

// Every function appends to its vectors and never clears them.
class Seal {
 public:
  virtual ~Seal() = default;
  // The beginning of the handshake. Nothing at a server.
  virtual base::Status start(std::vector<uint8_t>* network) = 0;
  // Takes bytes from the network. Appends what they mean to `plain`, and what the peer must get in
  // return to `network`. After an error the caller sends `network` (it may hold an alert) and ends
  // the connection. The text says what is wrong with the peer or with this end's credentials.
  virtual base::Status receive(const void* data, size_t bytes, std::vector<uint8_t>* plain,
                               std::vector<uint8_t>* network) = 0;
  // Takes bytes for the peer. Called only when is_open().
  virtual base::Status send(const void* data, size_t bytes, std::vector<uint8_t>* network) = 0;
  // Says goodbye. Nothing is sent afterwards.
  virtual void finish(std::vector<uint8_t>* network) = 0;
  // The handshake is over: the peer has proven what it must.
  virtual bool is_open() const = 0;
  // The goodbye of the peer has come.
  virtual bool has_ended() const = 0;
  // Who the peer is ("spiffe://POOL/ROLE/NAME"); empty: it has not said. Valid once open.
  virtual std::string identity() const = 0;
  // How that was proven, for people: "certificate", "token"; empty: not at all.
  virtual std::string proof() const = 0;
};

// Makes the client's half of a seal for a server. Null: the plain protocol is spoken with it.
class Securer {
 public:
  virtual ~Securer() = default;
  virtual base::Result<std::unique_ptr<Seal>> secure(const Endpoint& endpoint) const = 0;
};

// The first byte of a TLS connection, a handshake record. The plain protocol begins with another.
inline constexpr uint8_t kTlsFirstByte = 0x16;

}  // namespace tendril::session
