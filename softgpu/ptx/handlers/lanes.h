// SPDX-License-Identifier: Apache-2.0
// Loops over the 32 lanes of a warp, for the handler files. Private to one translation unit at a
// time: everything is static or in an unnamed namespace, because those files are compiled for two
// instruction sets.
#pragma once

#include <cstdint>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "softgpu/ptx/exec.h"
#include "softgpu/ptx/handlers/numeric.h"

// A destination is exactly a source, or does not overlap it. So lanes never depend on each other.
// The compiler cannot know that.
#if defined(__clang__)
#define TENDRIL_LANES _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define TENDRIL_LANES _Pragma("GCC ivdep")
#else
#define TENDRIL_LANES
#endif

namespace tendril::softgpu {
namespace {

alignas(128) constexpr uint32_t kBit[32] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
    1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
    1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
    1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};

template <class T>
inline T* lanes(const Warp& w, uint32_t offset) {
  return static_cast<T*>(__builtin_assume_aligned(w.regs + offset, 64));
}

// Lanes that exited or never existed may be overwritten. That turns most partial masks into full
// ones.
inline bool whole(const Warp& w, uint32_t m) { return (m | w.dead) == kAllLanes; }

template <class D, class F>
inline void each(const Warp& w, uint32_t m, D* d, F f) {
  if (whole(w, m)) {
    TENDRIL_LANES
    for (int i = 0; i < 32; ++i) d[i] = f(i);
  } else {
    TENDRIL_LANES
    for (int i = 0; i < 32; ++i) {
      D r = f(i);
      d[i] = (m & kBit[i]) ? r : d[i];
    }
  }
}

// For work that is too expensive for lanes that do not need it.
template <class F>
inline void each_active(uint32_t m, F f) {
  for (; m; m &= m - 1) f(__builtin_ctz(m));
}

// One mask bit per lane from a condition.
template <class F>
inline uint32_t gather_bits(F f) {
#ifdef __AVX2__
  alignas(64) uint32_t word[32];
  TENDRIL_LANES
  for (int i = 0; i < 32; ++i) word[i] = f(i) ? ~0u : 0;
  uint32_t bits = 0;
  for (int k = 0; k < 4; ++k) {
    const __m256 v = _mm256_load_ps(reinterpret_cast<const float*>(word + 8 * k));
    bits |= static_cast<uint32_t>(_mm256_movemask_ps(v)) << (8 * k);
  }
  return bits;
#else
  alignas(64) uint8_t byte[32];
  TENDRIL_LANES
  for (int i = 0; i < 32; ++i) byte[i] = f(i);
  uint32_t r = 0;
  for (int k = 0; k < 4; ++k) {
    uint64_t v;
    __builtin_memcpy(&v, byte + 8 * k, 8);
    // Collects the low bits of eight bytes into the top byte of the product.
    r |= static_cast<uint32_t>((v * 0x0102040810204080ull) >> 56) << (8 * k);
  }
  return r;
#endif
}

inline uint32_t& predicate(Warp& w, uint32_t offset) {
  return *reinterpret_cast<uint32_t*>(w.regs + offset);
}
inline void set_predicate(Warp& w, uint32_t offset, uint32_t m, uint32_t value) {
  uint32_t& p = predicate(w, offset);
  p = (p & ~m) | (value & m);
}

// The usual shape of a handler: F::f(a, b, c) on every lane.
template <class F>
Event apply(const Op& op, Warp& w, uint32_t m) {
  auto* d = lanes<typename F::D>(w, op.d);
  const auto* a = lanes<const typename F::A>(w, op.a);
  const auto* b = lanes<const typename F::B>(w, op.b);
  const auto* c = lanes<const typename F::C>(w, op.c);
  each(w, m, d, [&](int i) { return F::f(a[i], b[i], c[i]); });
  return Event::kNext;
}

template <class T>
struct Traits;
template <>
struct Traits<uint8_t> {
  using U = uint32_t;
  using S = int32_t;
  using Wide = uint16_t;
};
template <>
struct Traits<uint16_t> {
  using U = uint32_t;
  using S = int16_t;
  using Wide = uint32_t;
  using Un = uint16_t;
};
template <>
struct Traits<int16_t> {
  using U = uint32_t;
  using S = int16_t;
  using Wide = int32_t;
  using Un = uint16_t;
};
template <>
struct Traits<uint32_t> {
  using U = uint32_t;
  using S = int32_t;
  using Wide = uint64_t;
  using Un = uint32_t;
};
template <>
struct Traits<int32_t> {
  using U = uint32_t;
  using S = int32_t;
  using Wide = int64_t;
  using Un = uint32_t;
};
template <>
struct Traits<uint64_t> {
  using U = uint64_t;
  using S = int64_t;
  using Wide = unsigned __int128;
  using Un = uint64_t;
};
template <>
struct Traits<int64_t> {
  using U = uint64_t;
  using S = int64_t;
  using Wide = __int128;
  using Un = uint64_t;
};

}  // namespace
}  // namespace tendril::softgpu
