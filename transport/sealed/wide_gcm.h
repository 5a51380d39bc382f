// SPDX-License-Identifier: Apache-2.0
// Counter mode and GCM's hash for AES-128, two blocks with one instruction (VAES and VPCLMULQDQ,
// in servers' processors since 2019). BearSSL has no code for these and takes three times as long.
// Only transport/sealed/cipher.cc calls this, after a look at what the processor has. Constant
// time; no allocation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tendril::transport {

inline constexpr size_t kWideKeyBytes = 640;

// What the processor can, looked up once.
bool has_wide_gcm();

// Everything below needs has_wide_gcm(). `keys`: kWideKeyBytes, aligned to 32. The powers of the
// hash's key are made when `hash_key` is given, after the schedule.
void wide_schedule(const uint8_t* key, void* keys);
void wide_powers(const uint8_t* hash_key, void* keys);

// As BearSSL's counter mode, from one place to another (or the same).
void wide_counter(const void* keys, const uint8_t* nonce, uint32_t counter, const void* from,
                  void* to, size_t bytes);
// As BearSSL's hash: updates the 16 bytes of `hash`; the data are padded with zeros.
void wide_hash(const void* keys, uint8_t* hash, const void* data, size_t bytes);

}  // namespace tendril::transport
