// SPDX-License-Identifier: Apache-2.0
// Number formats that the host lacks: f16, bf16, tf32. Rounding in every direction is done in
// integer arithmetic. Everything is `static`: the handler files are compiled for two instruction
// sets and must not share inline functions through the linker.
#pragma once

#include <cstdint>
#include <cstring>

namespace tendril::softgpu {

enum Round : uint8_t { kRoundNearest, kRoundZero, kRoundDown, kRoundUp, kRoundAway };

template <class To, class From>
static inline To bit_cast_to(From v) {
  static_assert(sizeof(To) == sizeof(From));
  To r;
  std::memcpy(&r, &v, sizeof r);
  return r;
}

// Value (-1)^sign * m * 2^e in a format of `mbits` stored mantissa and `ebits` exponent bits.
static inline uint64_t narrow_parts(bool sign, uint64_t m, int e, int mbits, int ebits,
                                    Round mode) {
  uint64_t sign_bit = static_cast<uint64_t>(sign) << (mbits + ebits);
  if (!m) return sign_bit;
  int lead = __builtin_clzll(m);
  m <<= lead;
  e += 63 - lead;  // value = m / 2^63 * 2^e
  int bias = (1 << (ebits - 1)) - 1, emin = 1 - bias;
  int shift = 63 - mbits + (e < emin ? emin - e : 0);
  uint64_t q, rem, half;
  if (shift > 64) {
    q = 0, rem = 1, half = 2;
  } else if (shift == 64) {
    q = 0, rem = m, half = 1ull << 63;
  } else {
    q = m >> shift, rem = m & ((1ull << shift) - 1), half = 1ull << (shift - 1);
  }
  bool up = mode == kRoundNearest ? rem > half || (rem == half && (q & 1))
            : mode == kRoundAway  ? rem >= half
            : mode == kRoundUp    ? rem && !sign
            : mode == kRoundDown  ? rem && sign
                                  : false;
  q += up;
  uint64_t out = e < emin ? q : (static_cast<uint64_t>(e + bias - 1) << mbits) + q;
  uint64_t infinity = ((1ull << ebits) - 1) << mbits;
  bool stay = mode == kRoundZero || (mode == kRoundUp && sign) || (mode == kRoundDown && !sign);
  if (out >= infinity || e > bias) out = stay ? infinity - 1 : infinity;
  return sign_bit | out;
}

static inline uint64_t narrow_double(double v, int mbits, int ebits, Round mode) {
  uint64_t b = bit_cast_to<uint64_t>(v);
  bool sign = b >> 63;
  int e = static_cast<int>(b >> 52 & 0x7FF);
  uint64_t f = b & ((1ull << 52) - 1);
  uint64_t infinity = ((1ull << ebits) - 1) << mbits;
  if (e == 0x7FF) {
    if (f)
      return infinity |
             ((1ull << mbits) - 1);  // the canonical NaN of the narrow formats: positive, all ones
    return infinity | static_cast<uint64_t>(sign) << (mbits + ebits);
  }
  return e ? narrow_parts(sign, f | 1ull << 52, e - 1075, mbits, ebits, mode)
           : narrow_parts(sign, f, -1074, mbits, ebits, mode);
}

static inline float half_to_float(uint16_t h) {
  uint32_t em = (h & 0x7FFFu), sign = (h & 0x8000u) << 16;
  uint32_t normal = (em << 13) + (112u << 23) + (em >= 0x7C00u ? 112u << 23 : 0u);
  float tiny = bit_cast_to<float>((em << 13) + (113u << 23)) - 6.103515625e-05f;  // 2^-14
  uint32_t bits = em < 0x400u ? bit_cast_to<uint32_t>(tiny) : normal;
  return bit_cast_to<float>(bits | sign);
}

static inline uint16_t float_to_half(float v) {
  uint32_t b = bit_cast_to<uint32_t>(v), a = b & 0x7FFFFFFFu, sign = (b >> 16) & 0x8000u;
  uint32_t tiny = bit_cast_to<uint32_t>(bit_cast_to<float>(a) + 0.5f) - 0x3F000000u;
  uint32_t normal = (a + 0xFFFu + ((a >> 13) & 1u) - (112u << 23)) >> 13;
  uint32_t r = a < 0x38800000u ? tiny : normal;
  r = a >= 0x47800000u ? 0x7C00u : r;
  return static_cast<uint16_t>(a > 0x7F800000u ? 0x7FFFu : r | sign);
}

static inline float bf16_to_float(uint16_t h) {
  return bit_cast_to<float>(static_cast<uint32_t>(h) << 16);
}

static inline uint16_t float_to_bf16(float v) {
  uint32_t b = bit_cast_to<uint32_t>(v);
  uint32_t r = (b + 0x7FFFu + ((b >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((b & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFu : r);
}

// Four exponent and three mantissa bits and no infinity. Only all ones is NaN.
static inline float e4m3_to_float(uint8_t v) {
  if ((v & 0x7F) == 0x7F) return bit_cast_to<float>(0x7FFFFFFFu);
  // As a half with the same fields the value is 2^8 too small.
  return half_to_float(static_cast<uint16_t>((v & 0x80) << 8 | (v & 0x7F) << 7)) * 256.0f;
}
// Always limited to the largest number: the instructions have no other form.
static inline uint8_t double_to_e4m3(double v) {
  if (v != v) return 0x7F;
  const uint64_t sign = bit_cast_to<uint64_t>(v) >> 63;
  const double a = sign ? -v : v;
  uint64_t r = 0x7E;
  if (a < 256.0) {
    r = narrow_double(a, 3, 4, kRoundNearest);
  } else if (a < 448.0) {  // where other formats have infinity; 2^20 more leaves a step of 32
    r = 0x78 - 8 + (bit_cast_to<uint64_t>(a + 0x1p57) & 0xF);
  }
  return static_cast<uint8_t>(sign << 7 | r);
}

// a * b + c, where the product is exact in double. The sum is rounded to odd, so that a second
// rounding to a narrow format is correct.
static inline double fma_to_odd(float a, float b, float c) {
  double p = static_cast<double>(a) * static_cast<double>(b), z = c, s = p + z;
  double zz = s - p, err = (p - (s - zz)) + (z - zz);
  uint64_t bits = bit_cast_to<uint64_t>(s);
  bool finite = (bits >> 52 & 0x7FF) != 0x7FF;
  if (finite && err != 0 && !(bits & 1)) bits += (err > 0) == (s > 0) ? 1 : -1;
  return bit_cast_to<double>(bits);
}

template <class F>
static inline bool is_nan(F v) {
  return v != v;
}
static inline float flush(float v) {
  uint32_t b = bit_cast_to<uint32_t>(v);
  return bit_cast_to<float>((b & 0x7F800000u) ? b : b & 0x80000000u);
}
// Arithmetic with .ftz flushes results below the normal numbers before it rounds them, even if
// rounding would give the smallest normal number (seen on hardware). `exact` need be exact only as
// far as that comparison goes.
static inline float flush_tiny(float rounded, double exact) {
  const uint32_t sign = bit_cast_to<uint32_t>(rounded) & 0x80000000u;
  return exact > -0x1p-126 && exact < 0x1p-126 ? bit_cast_to<float>(sign) : rounded;
}
static inline float canonical(float v) { return v != v ? bit_cast_to<float>(0x7FFFFFFFu) : v; }

}  // namespace tendril::softgpu
