// SPDX-License-Identifier: Apache-2.0
// The primitives behind sealed channels and the secured attach: AES-GCM, X25519, SHA-256, HMAC and
// HKDF. BearSSL computes them (static and hidden, so that programs may have a library of their
// own), except AES-GCM on processors that do two blocks at once (wide_gcm.h); nothing outside
// cipher.cc knows that. Constant time with respect to keys and data. Any thread, one at a time per
// object. No allocation except where a std::string is returned.
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
    kBest,      // the fastest that this processor has
    kNarrow,    // for tests: never two blocks at once
    kPortable,  // for tests: the code for any processor
  };
  Aead() = default;
  Aead(const Aead&) = delete;
  Aead& operator=(const Aead&) = delete;
  ~Aead();

  // `bytes`: 16 or 32.
  void set_key(const void* key, size_t bytes, Engine engine = Engine::kBest);

  struct Text {
    const void* data;
    size_t bytes;
  };
  // Encrypts `from` to `into`, which may be the same place, and writes kAeadTagBytes to `tag`.
  void seal(const uint8_t* nonce, Text associated, Text from, void* into, uint8_t* tag) const;
  // False: key, nonce, associated data, data and tag do not belong together. Then nothing was
  // written, because the tag is compared before anything is decrypted.
  bool open(const uint8_t* nonce, Text associated, Text from, void* into, const uint8_t* tag) const;
  // Their parts. `run` encrypts, or decrypts, from the byte with number `at`, a multiple of 16.
  void run(const uint8_t* nonce, size_t at, Text from, void* into) const;
  void make_tag(const uint8_t* nonce, Text associated, Text sealed, uint8_t* tag) const;
  bool check(const uint8_t* nonce, Text associated, Text sealed, const uint8_t* tag) const;

 private:
  using RunCounter = void (*)(const void* keys, const uint8_t* nonce, uint32_t counter,
                              const void* from, void* into, size_t bytes);
  using HashBlocks = void (*)(const Aead& aead, uint8_t* hash, Text data);

  static void hash_wide(const Aead& aead, uint8_t* hash, Text data);
  static void hash_instructions(const Aead& aead, uint8_t* hash, Text data);
  static void hash_portable(const Aead& aead, uint8_t* hash, Text data);

  RunCounter run_counter_ = nullptr;
  HashBlocks hash_blocks_ = nullptr;
  uint8_t hash_key_[16] = {};
  alignas(32) uint8_t schedule_[640] = {};
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
