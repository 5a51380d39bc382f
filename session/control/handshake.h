// SPDX-License-Identifier: Apache-2.0
// The Noise handshake NNpsk0 (25519, AESGCM, SHA256; revision 34 of the Noise specification), on
// bytes. Two messages prove to each end that the other knows the same 32 secret bytes, and give
// both a fresh key. session/control/secure_attach.h uses it; here is nothing of Tendril. Pure
// except for the random bytes of its own secret. One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "transport/sealed/cipher.h"

namespace tendril::session {

inline constexpr size_t kNoiseMessageMax = 65535;

class Handshake {
 public:
  // `prologue`: what both ends must agree on besides.
  Handshake(const transport::Digest& shared_secret, std::string_view prologue);
  ~Handshake();
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  // The first message. kExhausted: the kernel has no random bytes.
  base::Result<std::string> write_first(std::string_view payload);
  // kRefused: it was not made with this secret and prologue, or was changed.
  base::Result<std::string> read_first(std::string_view message);

  // The second message in two steps: after prepare_second the responder knows the keys, before it
  // has chosen the payload.
  base::Status prepare_second();
  std::string write_second(std::string_view payload);
  base::Result<std::string> read_second(std::string_view message);

  // From prepare_second or read_second on: the keys of what initiator and responder send.
  struct Keys {
    transport::Digest initiator, responder;
  };
  Keys split() const;
  // A digest of all that both ends have agreed on when the second message's key was made. The same
  // at both ends, and of no other handshake.
  const transport::Digest& binding() const { return binding_; }
  // A digest of the whole handshake, once it is over.
  const transport::Digest& hash() const { return hash_; }

  // For tests with given secrets.
  void set_secret_for_test(const transport::CurveBytes& secret);

 private:
  void mix_hash(std::string_view bytes);
  void mix_key(std::string_view secret);
  void mix_key_and_hash(std::string_view secret);
  std::string encrypt(std::string_view plain);
  base::Result<std::string> decrypt(std::string_view sealed);
  base::Status make_secret();
  bool mix_shared(const transport::CurveBytes& others);

  transport::Digest chain_ = {}, hash_ = {}, binding_ = {};
  transport::Aead aead_;
  uint64_t number_ = 0;
  bool has_secret_ = false;
  transport::CurveBytes secret_ = {}, others_ = {};
  std::string mine_;  // the public value, of the second message
};

}  // namespace tendril::session
