// SPDX-License-Identifier: Apache-2.0
// See cipher.h. GCM is put together here from BearSSL's counter mode and its hash, because its own
// GCM object decrypts before the tag is known.
#include "transport/sealed/cipher.h"

#include <bearssl/bearssl.h>

#include <cstring>

#include "transport/sealed/wide_gcm.h"

namespace tendril::transport {
namespace {

constexpr size_t kBlockBytes = 16, kWideBytes = 16;
// Counter 1 masks the tag, the data begins at 2 (NIST SP 800-38D).
constexpr uint32_t kTagCounter = 1, kDataCounter = 2;

void put_big_endian(uint64_t value, uint8_t* into) {
  for (int i = 0; i < 8; ++i) into[i] = uint8_t(value >> (56 - 8 * i));
}

void copy_if_apart(const void* from, void* into, size_t bytes) {
  if (from != into && bytes != 0) std::memcpy(into, from, bytes);
}

void run_instructions(const void* keys, const uint8_t* nonce, uint32_t counter, const void* from,
                      void* into, size_t bytes) {
  copy_if_apart(from, into, bytes);
  br_aes_x86ni_ctr_run(static_cast<const br_aes_x86ni_ctr_keys*>(keys), nonce, counter, into,
                       bytes);
}

void run_portable(const void* keys, const uint8_t* nonce, uint32_t counter, const void* from,
                  void* into, size_t bytes) {
  copy_if_apart(from, into, bytes);
  br_aes_ct64_ctr_run(static_cast<const br_aes_ct64_ctr_keys*>(keys), nonce, counter, into, bytes);
}

}  // namespace

Aead::~Aead() {
  wipe(schedule_, sizeof schedule_);
  wipe(hash_key_, sizeof hash_key_);
}

void Aead::hash_wide(const Aead& aead, uint8_t* hash, Text data) {
  wide_hash(aead.schedule_, hash, data.data, data.bytes);
}

void Aead::hash_instructions(const Aead& aead, uint8_t* hash, Text data) {
  br_ghash_pclmul(hash, aead.hash_key_, data.data, data.bytes);
}

void Aead::hash_portable(const Aead& aead, uint8_t* hash, Text data) {
  br_ghash_ctmul64(hash, aead.hash_key_, data.data, data.bytes);
}

void Aead::set_key(const void* key, size_t bytes, Engine engine) {
  static_assert(sizeof schedule_ >= sizeof(br_aes_x86ni_ctr_keys));
  static_assert(sizeof schedule_ >= sizeof(br_aes_ct64_ctr_keys));
  static_assert(sizeof schedule_ >= kWideKeyBytes);
  const bool wide = engine == Engine::kBest && bytes == kWideBytes && has_wide_gcm();
  const bool instructions = engine != Engine::kPortable;
  if (wide) {
    wide_schedule(static_cast<const uint8_t*>(key), schedule_);
    run_counter_ = wide_counter;
    hash_blocks_ = hash_wide;
  } else if (instructions && br_aes_x86ni_ctr_get_vtable() != nullptr) {
    br_aes_x86ni_ctr_init(reinterpret_cast<br_aes_x86ni_ctr_keys*>(schedule_), key, bytes);
    run_counter_ = run_instructions;
  } else {
    br_aes_ct64_ctr_init(reinterpret_cast<br_aes_ct64_ctr_keys*>(schedule_), key, bytes);
    run_counter_ = run_portable;
  }
  static constexpr uint8_t kZeros[kBlockBytes] = {};
  run_counter_(schedule_, kZeros, 0, kZeros, hash_key_, sizeof hash_key_);
  if (wide) {
    wide_powers(hash_key_, schedule_);
  } else {
    hash_blocks_ =
        instructions && br_ghash_pclmul_get() != nullptr ? hash_instructions : hash_portable;
  }
}

void Aead::make_tag(const uint8_t* nonce, Text associated, Text sealed, uint8_t* tag) const {
  uint8_t hash[kBlockBytes] = {}, lengths[kBlockBytes];
  put_big_endian(uint64_t{associated.bytes} * 8, lengths);
  put_big_endian(uint64_t{sealed.bytes} * 8, lengths + 8);
  hash_blocks_(*this, hash, associated);
  hash_blocks_(*this, hash, sealed);
  hash_blocks_(*this, hash, {lengths, sizeof lengths});
  run_counter_(schedule_, nonce, kTagCounter, hash, tag, sizeof hash);
}

bool Aead::check(const uint8_t* nonce, Text associated, Text sealed, const uint8_t* tag) const {
  uint8_t expected[kAeadTagBytes];
  make_tag(nonce, associated, sealed, expected);
  return equal_bytes(expected, tag, sizeof expected);
}

void Aead::run(const uint8_t* nonce, size_t at, Text from, void* into) const {
  const uint32_t counter = kDataCounter + uint32_t(at / kBlockBytes);
  run_counter_(schedule_, nonce, counter, from.data, into, from.bytes);
}

void Aead::seal(const uint8_t* nonce, Text associated, Text from, void* into, uint8_t* tag) const {
  run(nonce, 0, from, into);
  make_tag(nonce, associated, {into, from.bytes}, tag);
}

bool Aead::open(const uint8_t* nonce, Text associated, Text from, void* into,
                const uint8_t* tag) const {
  if (!check(nonce, associated, from, tag)) return false;
  run(nonce, 0, from, into);
  return true;
}

// BearSSL clamps the scalar. It takes it as the curve writes it, least significant byte first.
CurveBytes curve_public(const CurveBytes& secret) {
  CurveBytes nine = {9}, shared = {};
  curve_shared(secret, nine, &shared);
  return shared;
}

bool curve_shared(const CurveBytes& secret, const CurveBytes& others, CurveBytes* shared) {
  *shared = others;
  const uint32_t done = br_ec_c25519_m31.mul(shared->data(), shared->size(), secret.data(),
                                             secret.size(), BR_EC_curve25519);
  static constexpr CurveBytes kZeros = {};
  return done == 1 && !equal_bytes(shared->data(), kZeros.data(), kCurveBytes);
}

Digest sha256(std::initializer_list<std::string_view> parts) {
  br_sha256_context context;
  br_sha256_init(&context);
  for (const std::string_view part : parts) br_sha256_update(&context, part.data(), part.size());
  Digest digest;
  br_sha256_out(&context, digest.data());
  return digest;
}

Digest hmac_sha256(std::string_view key, std::initializer_list<std::string_view> parts) {
  br_hmac_key_context key_context;
  br_hmac_key_init(&key_context, &br_sha256_vtable, key.data(), key.size());
  br_hmac_context context;
  br_hmac_init(&context, &key_context, 0);
  for (const std::string_view part : parts) br_hmac_update(&context, part.data(), part.size());
  Digest digest;
  br_hmac_out(&context, digest.data());
  wipe(&key_context, sizeof key_context);
  wipe(&context, sizeof context);
  return digest;
}

Digest hkdf_extract(std::string_view salt, std::string_view secret) {
  return hmac_sha256(salt, {secret});
}

std::string hkdf_expand(const Digest& key, std::string_view info, size_t bytes) {
  std::string out;
  Digest block = {};
  for (uint8_t number = 1; out.size() < bytes; ++number) {
    const char last = char(number);
    block = hmac_sha256(view_of(key),
                        {number == 1 ? std::string_view() : view_of(block), info, {&last, 1}});
    out += view_of(block);
  }
  wipe(block.data(), block.size());
  out.resize(bytes);
  return out;
}

std::string hkdf_expand_label(const Digest& secret, std::string_view label, size_t bytes) {
  static constexpr std::string_view kPrefix = "tls13 ";
  std::string info;
  info += char(bytes >> 8);
  info += char(bytes);
  info += char(kPrefix.size() + label.size());
  info += kPrefix;
  info += label;
  info += '\0';
  return hkdf_expand(secret, info, bytes);
}

bool equal_bytes(const void* a, const void* b, size_t bytes) {
  const auto* left = static_cast<const uint8_t*>(a);
  const auto* right = static_cast<const uint8_t*>(b);
  uint8_t different = 0;
  for (size_t i = 0; i < bytes; ++i) different |= left[i] ^ right[i];
  return different == 0;
}

void wipe(void* at, size_t bytes) {
  std::memset(at, 0, bytes);
  asm volatile("" : : "r"(at) : "memory");
}

}  // namespace tendril::transport
