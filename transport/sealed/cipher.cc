// SPDX-License-Identifier: Apache-2.0
// See cipher.h. GCM is put together here from BearSSL's counter mode and its hash, because its own
// GCM object decrypts before the tag is known.
#include "transport/sealed/cipher.h"

#include <bearssl/bearssl.h>

#include <cstring>

namespace tendril::transport {
namespace {

constexpr size_t kBlockBytes = 16;
// Counter 1 masks the tag, the data begins at 2 (NIST SP 800-38D).
constexpr uint32_t kTagCounter = 1, kDataCounter = 2;

void put_big_endian(uint64_t value, uint8_t* into) {
  for (int i = 0; i < 8; ++i) into[i] = uint8_t(value >> (56 - 8 * i));
}

uint32_t run_instructions(const void* keys, const void* nonce, uint32_t counter, void* data,
                          size_t bytes) {
  return br_aes_x86ni_ctr_run(static_cast<const br_aes_x86ni_ctr_keys*>(keys), nonce, counter, data,
                              bytes);
}

uint32_t run_portable(const void* keys, const void* nonce, uint32_t counter, void* data,
                      size_t bytes) {
  return br_aes_ct64_ctr_run(static_cast<const br_aes_ct64_ctr_keys*>(keys), nonce, counter, data,
                             bytes);
}

}  // namespace

Aead::~Aead() {
  wipe(schedule_, sizeof schedule_);
  wipe(hash_key_, sizeof hash_key_);
}

void Aead::set_key(const void* key, size_t bytes, Engine engine) {
  static_assert(sizeof schedule_ >= sizeof(br_aes_x86ni_ctr_keys));
  static_assert(sizeof schedule_ >= sizeof(br_aes_ct64_ctr_keys));
  const bool best = engine == Engine::kBest;
  if (best && br_aes_x86ni_ctr_get_vtable() != nullptr) {
    br_aes_x86ni_ctr_init(reinterpret_cast<br_aes_x86ni_ctr_keys*>(schedule_), key, bytes);
    run_counter_ = run_instructions;
  } else {
    br_aes_ct64_ctr_init(reinterpret_cast<br_aes_ct64_ctr_keys*>(schedule_), key, bytes);
    run_counter_ = run_portable;
  }
  const br_ghash with_instructions = best ? br_ghash_pclmul_get() : nullptr;
  hash_blocks_ = with_instructions != nullptr ? with_instructions : br_ghash_ctmul64;
  static constexpr uint8_t kZeros[kAeadNonceBytes] = {};
  std::memset(hash_key_, 0, sizeof hash_key_);
  run_counter_(schedule_, kZeros, 0, hash_key_, sizeof hash_key_);
}

void Aead::make_tag(const uint8_t* nonce, const void* associated, size_t associated_bytes,
                    const void* data, size_t bytes, uint8_t* tag) const {
  uint8_t hash[kBlockBytes] = {}, lengths[kBlockBytes];
  put_big_endian(uint64_t{associated_bytes} * 8, lengths);
  put_big_endian(uint64_t{bytes} * 8, lengths + 8);
  hash_blocks_(hash, hash_key_, associated, associated_bytes);
  hash_blocks_(hash, hash_key_, data, bytes);
  hash_blocks_(hash, hash_key_, lengths, sizeof lengths);
  run_counter_(schedule_, nonce, kTagCounter, hash, sizeof hash);
  std::memcpy(tag, hash, sizeof hash);
}

void Aead::seal(const uint8_t* nonce, const void* associated, size_t associated_bytes, void* data,
                size_t bytes, uint8_t* tag) const {
  run_counter_(schedule_, nonce, kDataCounter, data, bytes);
  make_tag(nonce, associated, associated_bytes, data, bytes, tag);
}

bool Aead::open(const uint8_t* nonce, const void* associated, size_t associated_bytes, void* data,
                size_t bytes, const uint8_t* tag) const {
  uint8_t expected[kAeadTagBytes];
  make_tag(nonce, associated, associated_bytes, data, bytes, expected);
  if (!equal_bytes(expected, tag, sizeof expected)) return false;
  run_counter_(schedule_, nonce, kDataCounter, data, bytes);
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
