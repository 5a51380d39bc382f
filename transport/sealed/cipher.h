// SPDX-License-Identifier: Apache-2.0
// The primitives behind sealed channels and the secured attach: AES-GCM, X25519, SHA-256, HMAC and
// HKDF. BearSSL computes them (static and hidden, so that programs may have a library of their
// own); nothing outside cipher.cc knows that. Constant time with respect to keys and data. Any
// thread, one at a time per object. No allocation except where a std::string is returned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tendril::transport {

inline constexpr size_t kAeadTagBytes = 16, kAeadNonceBytes = 12;
inline constexpr size_t kDigestBytes = 32, kCurveBytes = 32;

using Digest = std::array<uint8_t, kDigestBytes>;
using CurveBytes = std::array<uint8_t, kCurveBytes>;

// AES-128-GCM or AES-256-GCM under one key. The caller never uses a nonce twice.
class Aead {
 public:
  enum class Engine : uint8_t {
    kBest,      // the processor's instructions if it has them
    kPortable,  // for tests: the constant-time code for any processor
  };
  Aead() = default;
  Aead(const Aead&) = delete;
  Aead& operator=(const Aead&) = delete;
  ~Aead();

  // `bytes`: 16 or 32.
  void set_key(const void* key, size_t bytes, Engine engine = Engine::kBest);

  // Encrypts `data` in place and writes kAeadTagBytes to `tag`.
  void seal(const uint8_t* nonce, const void* associated, size_t associated_bytes, void* data,
            size_t bytes, uint8_t* tag) const;
  // False: key, nonce, associated data, data and tag do not belong together. Then `data` is as it
  // was. The tag is compared before anything is decrypted.
  bool open(const uint8_t* nonce, const void* associated, size_t associated_bytes, void* data,
            size_t bytes, const uint8_t* tag) const;

 private:
  using RunCounter = uint32_t (*)(const void* keys, const void* nonce, uint32_t counter, void* data,
                                  size_t bytes);
  using HashBlocks = void (*)(void* hash, const void* key, const void* data, size_t bytes);

  void make_tag(const uint8_t* nonce, const void* associated, size_t associated_bytes,
                const void* data, size_t bytes, uint8_t* tag) const;

  RunCounter run_counter_ = nullptr;
  HashBlocks hash_blocks_ = nullptr;
  uint8_t hash_key_[16] = {};
  alignas(16) uint8_t schedule_[544] = {};
};

// The public value of a secret.
CurveBytes curve_public(const CurveBytes& secret);
// What both ends compute. False: the other end's value is one of the few that give zero.
bool curve_shared(const CurveBytes& secret, const CurveBytes& others, CurveBytes* shared);

// Of the parts, one after the other.
Digest sha256(std::initializer_list<std::string_view> parts);
Digest hmac_sha256(std::string_view key, std::initializer_list<std::string_view> parts);

// HKDF (RFC 5869) with SHA-256. `bytes`: at most 255 * 32.
Digest hkdf_extract(std::string_view salt, std::string_view secret);
std::string hkdf_expand(const Digest& key, std::string_view info, size_t bytes);
// As TLS 1.3 uses it (RFC 8446, 7.1), with an empty context.
std::string hkdf_expand_label(const Digest& secret, std::string_view label, size_t bytes);

inline std::string_view view_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// Compares in constant time.
bool equal_bytes(const void* a, const void* b, size_t bytes);
// Clears memory that held a secret, and is not optimised away.
void wipe(void* at, size_t bytes);

}  // namespace tendril::transport
