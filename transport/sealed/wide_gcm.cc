// SPDX-License-Identifier: Apache-2.0
// See wide_gcm.h. The hash works on blocks with their bytes reversed (Gueron and Kounavis, Intel's
// white paper on GCM): products of 16 blocks with 16 powers of the key are added up, and reduced
// once.
#include "transport/sealed/wide_gcm.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#include <atomic>
#include <cstring>

#define TENDRIL_WIDE __attribute__((target("avx2,aes,pclmul,vaes,vpclmulqdq")))
#define TENDRIL_WIDE_INLINE \
  __attribute__((target("avx2,aes,pclmul,vaes,vpclmulqdq"), always_inline)) inline

namespace tendril::transport {
namespace {

constexpr int kRounds = 10, kPairs = 8;
constexpr size_t kBlockBytes = 16, kStrideBytes = 2 * kPairs * kBlockBytes;

struct Keys {
  __m256i rounds[kRounds + 1];  // each twice
  __m256i powers[kPairs];       // of the hash's key: 16 and 15, 14 and 13, ..., 2 and 1
};
static_assert(sizeof(Keys) <= kWideKeyBytes);

enum : int { kUnknown = 0, kAbsent = 1, kPresent = 2 };
constinit std::atomic<int> g_wide{kUnknown};

int look() {
  constexpr unsigned kStateSaved = 1u << 27, kAvx2 = 1u << 5;
  constexpr unsigned kVectorAes = 1u << 9, kVectorMultiply = 1u << 10, kBothHalves = 6;
  constexpr unsigned kAesAndMultiply = 1u << 25 | 1u << 1;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kStateSaved) == 0 ||
      (c & kAesAndMultiply) != kAesAndMultiply) {
    return kAbsent;
  }
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kBothHalves) != kBothHalves) return kAbsent;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b & kAvx2) == 0) return kAbsent;
  return (c & kVectorAes) != 0 && (c & kVectorMultiply) != 0 ? kPresent : kAbsent;
}

template <int kConstant>
TENDRIL_WIDE_INLINE __m128i next_round_key(__m128i key) {
  __m128i assist = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, kConstant), 0xff);
  key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
  key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
  key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
  return _mm_xor_si128(key, assist);
}

TENDRIL_WIDE_INLINE __m128i reversing() {
  return _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
TENDRIL_WIDE_INLINE __m128i load(const void* at) {
  return _mm_loadu_si128(static_cast<const __m128i*>(at));
}
TENDRIL_WIDE_INLINE void store(void* at, __m128i value) {
  _mm_storeu_si128(static_cast<__m128i*>(at), value);
}

// A sum of products, 256 bits: low, high, and what lies across the middle.
struct Sum {
  __m128i low, middle, high;
};

TENDRIL_WIDE_INLINE void add_product(Sum* sum, __m128i a, __m128i b) {
  sum->low = _mm_xor_si128(sum->low, _mm_clmulepi64_si128(a, b, 0x00));
  sum->high = _mm_xor_si128(sum->high, _mm_clmulepi64_si128(a, b, 0x11));
  sum->middle = _mm_xor_si128(sum->middle, _mm_clmulepi64_si128(a, b, 0x10));
  sum->middle = _mm_xor_si128(sum->middle, _mm_clmulepi64_si128(a, b, 0x01));
}

TENDRIL_WIDE_INLINE __m128i reduced(const Sum& sum) {
  __m128i low = _mm_xor_si128(sum.low, _mm_slli_si128(sum.middle, 8));
  __m128i high = _mm_xor_si128(sum.high, _mm_srli_si128(sum.middle, 8));
  // Reversed bits make the product one bit short: shift it.
  const __m128i low_carry = _mm_srli_epi32(low, 31), high_carry = _mm_srli_epi32(high, 31);
  low = _mm_or_si128(_mm_slli_epi32(low, 1), _mm_slli_si128(low_carry, 4));
  high = _mm_or_si128(_mm_slli_epi32(high, 1), _mm_slli_si128(high_carry, 4));
  high = _mm_or_si128(high, _mm_srli_si128(low_carry, 12));
  // Modulo x^128 + x^7 + x^2 + x + 1.
  __m128i folded = _mm_xor_si128(_mm_slli_epi32(low, 31), _mm_slli_epi32(low, 30));
  folded = _mm_xor_si128(folded, _mm_slli_epi32(low, 25));
  const __m128i rest = _mm_srli_si128(folded, 4);
  low = _mm_xor_si128(low, _mm_slli_si128(folded, 12));
  __m128i out = _mm_xor_si128(_mm_srli_epi32(low, 1), _mm_srli_epi32(low, 2));
  out = _mm_xor_si128(out, _mm_srli_epi32(low, 7));
  out = _mm_xor_si128(_mm_xor_si128(out, rest), low);
  return _mm_xor_si128(high, out);
}

TENDRIL_WIDE_INLINE __m128i product(__m128i a, __m128i b) {
  Sum sum = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
  add_product(&sum, a, b);
  return reduced(sum);
}

TENDRIL_WIDE_INLINE __m128i both_halves(__m256i pair) {
  return _mm_xor_si128(_mm256_castsi256_si128(pair), _mm256_extracti128_si256(pair, 1));
}

struct WideSum {
  __m256i low, middle, high;
};

TENDRIL_WIDE_INLINE void add_pair(WideSum* sum, __m256i pair, __m256i power) {
  sum->low = _mm256_xor_si256(sum->low, _mm256_clmulepi64_epi128(pair, power, 0x00));
  sum->high = _mm256_xor_si256(sum->high, _mm256_clmulepi64_epi128(pair, power, 0x11));
  sum->middle = _mm256_xor_si256(sum->middle, _mm256_clmulepi64_epi128(pair, power, 0x10));
  sum->middle = _mm256_xor_si256(sum->middle, _mm256_clmulepi64_epi128(pair, power, 0x01));
}

TENDRIL_WIDE_INLINE __m256i load_reversed(const uint8_t* at) {
  return _mm256_shuffle_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)),
                             _mm256_broadcastsi128_si256(reversing()));
}

// One stride: 16 blocks. The hash so far belongs to the first.
TENDRIL_WIDE_INLINE __m128i hash_stride(const Keys& keys, __m128i hash, const uint8_t* data) {
  const __m256i none = _mm256_setzero_si256();
  WideSum sum = {none, none, none};
  const __m256i first = _mm256_xor_si256(load_reversed(data), _mm256_zextsi128_si256(hash));
  add_pair(&sum, load_reversed(data + 32), keys.powers[1]);
  add_pair(&sum, load_reversed(data + 64), keys.powers[2]);
  add_pair(&sum, load_reversed(data + 96), keys.powers[3]);
  add_pair(&sum, load_reversed(data + 128), keys.powers[4]);
  add_pair(&sum, load_reversed(data + 160), keys.powers[5]);
  add_pair(&sum, load_reversed(data + 192), keys.powers[6]);
  add_pair(&sum, load_reversed(data + 224), keys.powers[7]);
  add_pair(&sum, first, keys.powers[0]);
  return reduced({both_halves(sum.low), both_halves(sum.middle), both_halves(sum.high)});
}

TENDRIL_WIDE void make_schedule(const uint8_t* key, Keys* keys) {
  __m128i round = load(key);
  __m128i rounds[kRounds + 1];
  rounds[0] = round;
  rounds[1] = round = next_round_key<0x01>(round);
  rounds[2] = round = next_round_key<0x02>(round);
  rounds[3] = round = next_round_key<0x04>(round);
  rounds[4] = round = next_round_key<0x08>(round);
  rounds[5] = round = next_round_key<0x10>(round);
  rounds[6] = round = next_round_key<0x20>(round);
  rounds[7] = round = next_round_key<0x40>(round);
  rounds[8] = round = next_round_key<0x80>(round);
  rounds[9] = round = next_round_key<0x1b>(round);
  rounds[10] = next_round_key<0x36>(round);
  for (int i = 0; i <= kRounds; ++i) keys->rounds[i] = _mm256_broadcastsi128_si256(rounds[i]);
}

TENDRIL_WIDE void make_powers(const uint8_t* hash_key, Keys* keys) {
  const __m128i key = _mm_shuffle_epi8(load(hash_key), reversing());
  __m128i power = key;  // of the last block
  for (int i = kPairs - 1; i >= 0; --i) {
    const __m128i higher = product(power, key);
    keys->powers[i] = _mm256_set_m128i(power, higher);
    power = product(higher, key);
  }
}

TENDRIL_WIDE_INLINE __m256i encrypted(const Keys& keys, __m256i block) {
  block = _mm256_xor_si256(block, keys.rounds[0]);
  for (int round = 1; round < kRounds; ++round)
    block = _mm256_aesenc_epi128(block, keys.rounds[round]);
  return _mm256_aesenclast_epi128(block, keys.rounds[kRounds]);
}

// Written out, because compilers keep an array of eight registers in memory.
struct Stride {
  __m256i a, b, c, d, e, f, g, h;
};

TENDRIL_WIDE_INLINE void add_round(Stride* s, __m256i key) {
  s->a = _mm256_aesenc_epi128(s->a, key);
  s->b = _mm256_aesenc_epi128(s->b, key);
  s->c = _mm256_aesenc_epi128(s->c, key);
  s->d = _mm256_aesenc_epi128(s->d, key);
  s->e = _mm256_aesenc_epi128(s->e, key);
  s->f = _mm256_aesenc_epi128(s->f, key);
  s->g = _mm256_aesenc_epi128(s->g, key);
  s->h = _mm256_aesenc_epi128(s->h, key);
}

// The next two counters as blocks, with the first round's key.
TENDRIL_WIDE_INLINE __m256i next_pair(__m256i* counters, __m256i key) {
  const __m256i reverse = _mm256_broadcastsi128_si256(reversing());
  const __m256i pair = _mm256_xor_si256(_mm256_shuffle_epi8(*counters, reverse), key);
  *counters = _mm256_add_epi32(*counters, _mm256_set_epi32(0, 0, 0, 2, 0, 0, 0, 2));
  return pair;
}

TENDRIL_WIDE_INLINE void mask_pair(__m256i pair, __m256i key, const uint8_t* from, uint8_t* to) {
  const __m256i data = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  // The data may join the last round's key, which is added at the end.
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_aesenclast_epi128(pair, _mm256_xor_si256(key, data)));
}

TENDRIL_WIDE_INLINE __m256i run_stride(const Keys& keys, __m256i counters, const uint8_t* from,
                                       uint8_t* to) {
  Stride s;
  s.a = next_pair(&counters, keys.rounds[0]);
  s.b = next_pair(&counters, keys.rounds[0]);
  s.c = next_pair(&counters, keys.rounds[0]);
  s.d = next_pair(&counters, keys.rounds[0]);
  s.e = next_pair(&counters, keys.rounds[0]);
  s.f = next_pair(&counters, keys.rounds[0]);
  s.g = next_pair(&counters, keys.rounds[0]);
  s.h = next_pair(&counters, keys.rounds[0]);
  for (int round = 1; round < kRounds; ++round) add_round(&s, keys.rounds[round]);
  const __m256i last = keys.rounds[kRounds];
  mask_pair(s.a, last, from, to);
  mask_pair(s.b, last, from + 32, to + 32);
  mask_pair(s.c, last, from + 64, to + 64);
  mask_pair(s.d, last, from + 96, to + 96);
  mask_pair(s.e, last, from + 128, to + 128);
  mask_pair(s.f, last, from + 160, to + 160);
  mask_pair(s.g, last, from + 192, to + 192);
  mask_pair(s.h, last, from + 224, to + 224);
  return counters;
}

TENDRIL_WIDE void run_counter(const Keys& keys, const uint8_t* nonce, uint32_t counter,
                              const uint8_t* from, uint8_t* to, size_t bytes) {
  uint8_t first[kBlockBytes] = {};
  std::memcpy(first, nonce, kBlockBytes - sizeof counter);
  const __m256i reverse = _mm256_broadcastsi128_si256(reversing());
  const __m256i two = _mm256_set_epi32(0, 0, 0, 2, 0, 0, 0, 2);
  const int number = static_cast<int>(counter);
  __m256i counters = _mm256_broadcastsi128_si256(_mm_shuffle_epi8(load(first), reversing()));
  counters = _mm256_add_epi32(counters, _mm256_set_epi32(0, 0, 0, number + 1, 0, 0, 0, number));
  for (; bytes >= kStrideBytes; bytes -= kStrideBytes) {
    counters = run_stride(keys, counters, from, to);
    from += kStrideBytes;
    to += kStrideBytes;
  }
  while (bytes > 0) {
    const __m256i mask = encrypted(keys, _mm256_shuffle_epi8(counters, reverse));
    counters = _mm256_add_epi32(counters, two);
    if (bytes >= sizeof mask) {
      const __m256i data = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_xor_si256(data, mask));
      from += sizeof mask;
      to += sizeof mask;
      bytes -= sizeof mask;
      continue;
    }
    uint8_t last[sizeof mask];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(last), mask);
    for (size_t i = 0; i < bytes; ++i) to[i] = uint8_t(from[i] ^ last[i]);
    bytes = 0;
  }
}

TENDRIL_WIDE void run_hash(const Keys& keys, uint8_t* into, const uint8_t* data, size_t bytes) {
  __m128i hash = _mm_shuffle_epi8(load(into), reversing());
  for (; bytes >= kStrideBytes; bytes -= kStrideBytes, data += kStrideBytes)
    hash = hash_stride(keys, hash, data);
  // Fewer than 16 blocks are left: the last powers.
  const auto* powers = reinterpret_cast<const __m128i*>(keys.powers);
  const size_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
  if (blocks > 0) {
    Sum sum = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
    for (size_t left = blocks; left > 0; --left) {
      uint8_t padded[kBlockBytes] = {};
      const size_t step = bytes < kBlockBytes ? bytes : kBlockBytes;
      if (step < kBlockBytes) std::memcpy(padded, data, step);
      const __m128i block = _mm_shuffle_epi8(load(step < kBlockBytes ? padded : data), reversing());
      add_product(&sum, _mm_xor_si128(block, hash), load(powers + 2 * kPairs - left));
      hash = _mm_setzero_si128();
      data += step;
      bytes -= step;
    }
    hash = reduced(sum);
  }
  store(into, _mm_shuffle_epi8(hash, reversing()));
}

}  // namespace

bool has_wide_gcm() {
  int wide = g_wide.load(std::memory_order_relaxed);
  if (wide == kUnknown) {
    wide = look();
    g_wide.store(wide, std::memory_order_relaxed);
  }
  return wide == kPresent;
}

void wide_schedule(const uint8_t* key, void* keys) { make_schedule(key, static_cast<Keys*>(keys)); }
void wide_powers(const uint8_t* hash_key, void* keys) {
  make_powers(hash_key, static_cast<Keys*>(keys));
}
void wide_counter(const void* keys, const uint8_t* nonce, uint32_t counter, const void* from,
                  void* to, size_t bytes) {
  run_counter(*static_cast<const Keys*>(keys), nonce, counter, static_cast<const uint8_t*>(from),
              static_cast<uint8_t*>(to), bytes);
}
void wide_hash(const void* keys, uint8_t* hash, const void* data, size_t bytes) {
  run_hash(*static_cast<const Keys*>(keys), hash, static_cast<const uint8_t*>(data), bytes);
}

}  // namespace tendril::transport

#else

namespace tendril::transport {

bool has_wide_gcm() { return false; }
void wide_schedule(const uint8_t*, void*) {}
void wide_powers(const uint8_t*, void*) {}
void wide_counter(const void*, const uint8_t*, uint32_t, const void*, void*, size_t) {}
void wide_hash(const void*, uint8_t*, const void*, size_t) {}

}  // namespace tendril::transport

#endif
