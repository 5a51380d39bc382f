// SPDX-License-Identifier: Apache-2.0
// Attaching without sending a secret (docs/decisions/0019): the attach request and its answer
// travel inside a Noise handshake whose key comes from the lease's secret or the server's token.
// Both hellos are part of it, and the server's has a fresh nonce, so a recorded handshake fits no
// other connection. It gives both ends the session's key: data is sealed with it, and it proves
// later connections. On bytes only: the caller sends and receives. Each object serves one
// attach, on one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "session/control/handshake.h"
#include "wire/control.h"

namespace tendril::session {

// The two bodies of hello, as they were sent.
struct Hellos {
  std::vector<uint8_t> client, server;
};

struct AttachProof {
  wire::AttachKey key = wire::AttachKey::kLeaseSecret;
  uint64_t lease_id = 0;
  std::string secret;
};

// The client's half.
class SecureAttach {
 public:
  SecureAttach(const AttachProof& proof, const Hellos& hellos);
  // The body of a kSecuredAttach request.
  base::Result<std::vector<uint8_t>> request(const wire::AttachRequest& request);
  // Reads the body of its answer. kRefused with a text about an impostor: whoever answered does not
  // know the secret. Otherwise an error is the server's own refusal.
  base::Result<wire::AttachReply> answer(const std::vector<uint8_t>& body);
  // After a good answer: transport::kSessionKeyBytes.
  const std::string& session_key() const { return session_key_; }

 private:
  const AttachProof proof_;
  Handshake handshake_;
  std::string session_key_;
};

// The server's half.
class SecureAttachAnswer {
 public:
  // `proof`: what `request` claims to know, with this server's secret for it.
  SecureAttachAnswer(const AttachProof& proof, const Hellos& hellos);
  // The request inside. It is about the lease that was proven. kRefused: the client does not know
  // the secret, or this is the record of another handshake. kInvalid: malformed.
  base::Result<wire::AttachRequest> read(const wire::SecuredAttach& request);
  // Valid after a good read.
  const std::string& session_key() const { return session_key_; }
  // The body of the answer, also for a refusal: its text may name other people.
  std::vector<uint8_t> write(const base::Result<wire::AttachReply>& reply);

 private:
  const AttachProof proof_;
  Handshake handshake_;
  std::string session_key_;
};

// Proves that whoever sends `request` knows the session's key. `kind`: kJoin, kFetch or kUse. One
// that connects again proves it for this connection only.
std::string prove_join(const std::string& session_key, wire::Request kind,
                       const wire::JoinRequest& request);
bool is_proven(const std::string& session_key, wire::Request kind,
               const wire::JoinRequest& request);

}  // namespace tendril::session
