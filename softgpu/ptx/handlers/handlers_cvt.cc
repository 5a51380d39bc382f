// SPDX-License-Identifier: Apache-2.0
// Conversions between number types. Frequent pairs have vector loops. All others go lane by lane
// through one exact routine. Compiled once per instruction set.
#include <cmath>

#include "softgpu/ptx/handlers/handlers_isa.h"
#include "softgpu/ptx/handlers/lanes.h"

namespace tendril::softgpu {
namespace TENDRIL_ISA {
namespace {

// One lane's value during conversion: an integer (sign and magnitude), or a double, which holds
// every narrower float exactly.
struct Value {
  bool integer = true, negative = false;
  uint64_t magnitude = 0;
  double number = 0;
};

struct General {  // unpacked from Op::imm
  CvtMode m;
};
[[maybe_unused]] inline uint64_t pack(const CvtMode& m) {
  return static_cast<uint64_t>(m.to) | static_cast<uint64_t>(m.from) << 8 |
         static_cast<uint64_t>(m.round) << 16 | static_cast<uint64_t>(m.integral) << 24 |
         static_cast<uint64_t>(m.sat) << 25 | static_cast<uint64_t>(m.ftz) << 26 |
         static_cast<uint64_t>(m.relu) << 27 | static_cast<uint64_t>(m.finite) << 28 |
         static_cast<uint64_t>(m.dest_bytes) << 32;
}
inline CvtMode unpack(uint64_t v) {
  CvtMode m;
  m.to = static_cast<Type>(v & 0xFF), m.from = static_cast<Type>(v >> 8 & 0xFF),
  m.round = static_cast<Round>(v >> 16 & 0xFF);
  m.integral = v >> 24 & 1, m.sat = v >> 25 & 1, m.ftz = v >> 26 & 1, m.relu = v >> 27 & 1;
  m.finite = v >> 28 & 1;
  m.dest_bytes = static_cast<uint32_t>(v >> 32);
  return m;
}

double round_integral(double v, Round r) {
  switch (r) {
    case kRoundZero:
      return std::trunc(v);
    case kRoundDown:
      return std::floor(v);
    case kRoundUp:
      return std::ceil(v);
    default: {
      double f = std::floor(v), d = v - f;
      double n = d > 0.5 || (d == 0.5 && std::fmod(f, 2.0) != 0) ? f + 1 : f;
      return std::copysign(n, v);
    }
  }
}

Value read(Type t, bool ftz, uint64_t bits) {
  Value v;
  v.integer = !is_float(t);
  switch (t) {
    case Type::kS8:
      bits = static_cast<uint64_t>(static_cast<int8_t>(bits));
      break;
    case Type::kS16:
      bits = static_cast<uint64_t>(static_cast<int16_t>(bits));
      break;
    case Type::kS32:
      bits = static_cast<uint64_t>(static_cast<int32_t>(bits));
      break;
    case Type::kU8:
    case Type::kB8:
      bits &= 0xFF;
      break;
    case Type::kU16:
    case Type::kB16:
      bits &= 0xFFFF;
      break;
    case Type::kU32:
    case Type::kB32:
      bits &= 0xFFFFFFFF;
      break;
    case Type::kF16:
      v.number = half_to_float(static_cast<uint16_t>(bits));
      break;
    case Type::kBF16:
      v.number = bf16_to_float(static_cast<uint16_t>(bits));
      break;
    case Type::kF32:
    case Type::kTF32: {
      float f = bit_cast_to<float>(static_cast<uint32_t>(bits));
      v.number = ftz ? flush(f) : f;
      break;
    }
    case Type::kF64:
      v.number = bit_cast_to<double>(bits);
      break;
    case Type::kE4M3:
      v.number = e4m3_to_float(static_cast<uint8_t>(bits));
      break;
    case Type::kE5M2:
      v.number = half_to_float(static_cast<uint16_t>(bits << 8));
      break;
    default:
      break;
  }
  if (v.integer) {
    v.negative = is_signed(t) && static_cast<int64_t>(bits) < 0;
    v.magnitude = v.negative ? 0 - bits : bits;
  }
  return v;
}

uint64_t clamp_integer(bool negative, uint64_t magnitude, Type to) {
  unsigned bits = type_bytes(to) * 8;
  uint64_t top = is_signed(to) ? (1ull << (bits - 1)) - 1 : bits == 64 ? ~0ull : (1ull << bits) - 1;
  uint64_t bottom = is_signed(to) ? 1ull << (bits - 1) : 0;
  return negative ? 0 - (magnitude > bottom ? bottom : magnitude)
                  : (magnitude > top ? top : magnitude);
}

// Float to integer always clamps. NaN gives 0, or only the top bit if a 64-bit type takes part.
uint64_t to_integer(double v, const CvtMode& m) {
  if (v != v) {
    const bool wide = type_bytes(m.to) == 8 || type_bytes(m.from) == 8;
    return wide ? 1ull << (8 * type_bytes(m.to) - 1) : 0;
  }
  double r = round_integral(v, m.round);
  bool negative = r < 0;
  double a = std::fabs(r);
  uint64_t magnitude = a >= 18446744073709551616.0 ? ~0ull : static_cast<uint64_t>(a);
  return clamp_integer(negative, magnitude, m.to);
}

uint64_t to_float(const Value& v, const CvtMode& m) {
  int mbits = m.to == Type::kF64    ? 52
              : m.to == Type::kF32  ? 23
              : m.to == Type::kTF32 ? 10
              : m.to == Type::kF16  ? 10
              : m.to == Type::kE5M2 ? 2
                                    : 7;
  int ebits = m.to == Type::kF64 ? 11 : m.to == Type::kF16 || m.to == Type::kE5M2 ? 5 : 8;
  if (v.integer) {
    uint64_t r = narrow_parts(v.negative, v.magnitude, 0, mbits, ebits, m.round);
    if (m.sat && v.negative) r = 0;
    if (m.sat && !v.negative && v.magnitude) r = narrow_double(1.0, mbits, ebits, kRoundNearest);
    return r;
  }
  double x = v.number;
  if (m.integral) x = round_integral(x, m.round);
  if (m.sat) x = x > 0 ? (x < 1 ? x : 1.0) : 0.0;
  if (m.relu && !(x != x)) x = x > 0 ? x : 0.0;
  if (m.finite && std::isinf(x)) x = std::copysign(1e300, x);
  if (m.to == Type::kF64) return bit_cast_to<uint64_t>(x);
  if (m.to == Type::kE4M3) return double_to_e4m3(x);
  const uint64_t infinity = ((1ull << ebits) - 1) << mbits;
  // NaNs of f64 become the quiet one without payload (seen on hardware). NaNs of narrower types
  // become all ones.
  if (m.from == Type::kF64 && x != x) return infinity | 1ull << (mbits - 1);
  uint64_t r = narrow_double(x, mbits, ebits, m.integral ? kRoundNearest : m.round);
  const uint64_t sign = 1ull << (mbits + ebits);
  if (m.finite && (r & (sign - 1)) == infinity) --r;
  if (m.to == Type::kF32 && m.ftz)
    r = bit_cast_to<uint32_t>(flush(bit_cast_to<float>(static_cast<uint32_t>(r))));
  return m.to == Type::kTF32 ? r << 13 : r;
}

uint64_t convert(uint64_t bits, const CvtMode& m) {
  // Towards f16, .ftz flushes only where the result is rounded to an integer (seen on hardware).
  Value v = read(m.from, m.ftz && (m.to != Type::kF16 || m.integral), bits);
  const bool widens = m.from == Type::kBF16 && m.to == Type::kF32;
  if (widens && v.number != v.number && !m.sat)
    return bits << 16 & 0xFFFFFFFF;  // a shift keeps NaNs
  if (is_float(m.to)) return to_float(v, m);
  uint64_t r;
  if (!v.integer)
    r = to_integer(v.number, m);
  else if (m.sat)
    r = clamp_integer(v.negative, v.magnitude, m.to);
  else
    r = v.negative ? 0 - v.magnitude : v.magnitude;
  // The result fills the destination register. The type's sign extends it.
  unsigned spare = 64 - type_bytes(m.to) * 8;
  return is_signed(m.to) ? static_cast<uint64_t>(static_cast<int64_t>(r << spare) >> spare)
                         : r << spare >> spare;
}

uint64_t peek(const uint8_t* p, uint32_t bytes) {
  uint64_t v = 0;
  __builtin_memcpy(&v, p, bytes);
  return v;
}

// Op::n: bytes of the source register, Op::size: bytes of the destination register.
Event general(const Op& op, Warp& w, uint32_t m) {
  const CvtMode mode = unpack(static_cast<uint64_t>(op.imm));
  each_active(m, [&](int i) {
    uint64_t r = convert(peek(w.regs + op.a + i * op.n, op.n), mode);
    __builtin_memcpy(w.regs + op.d + i * op.size, &r, op.size);
  });
  return Event::kNext;
}

Type half_of(Type pair) {
  return pair == Type::kF16x2    ? Type::kF16
         : pair == Type::kBF16x2 ? Type::kBF16
         : pair == Type::kE4M3x2 ? Type::kE4M3
         : pair == Type::kE5M2x2 ? Type::kE5M2
                                 : pair;
}

// cvt.rn.f16x2.f32 d, a, b: a is the upper half. D: the register that holds both.
template <class D>
Event pack_two(const Op& op, Warp& w, uint32_t m) {
  CvtMode mode = unpack(static_cast<uint64_t>(op.imm));
  mode.to = half_of(mode.to);
  const unsigned bits = 4 * sizeof(D);
  D* d = lanes<D>(w, op.d);
  const uint32_t *a = lanes<uint32_t>(w, op.a), *b = lanes<uint32_t>(w, op.b);
  each_active(m, [&](int i) {
    const uint64_t low = convert(b[i], mode) & ((1ull << bits) - 1);
    d[i] = static_cast<D>(convert(a[i], mode) << bits | low);
  });
  return Event::kNext;
}

// cvt.rn.f16x2.e4m3x2 d, a and its like.
template <class D, class S>
Event pair_to_pair(const Op& op, Warp& w, uint32_t m) {
  CvtMode mode = unpack(static_cast<uint64_t>(op.imm));
  mode.to = half_of(mode.to), mode.from = half_of(mode.from);
  D* d = lanes<D>(w, op.d);
  const S* a = lanes<S>(w, op.a);
  each_active(m, [&](int i) {
    const uint64_t low = convert(a[i] & ((1u << 4 * sizeof(S)) - 1), mode),
                   high = convert(static_cast<uint64_t>(a[i]) >> 4 * sizeof(S), mode);
    d[i] = static_cast<D>(high << 4 * sizeof(D) | (low & ((1u << 4 * sizeof(D)) - 1)));
  });
  return Event::kNext;
}

template <class To, class Mid, class From>
Event simple(const Op& op, Warp& w, uint32_t m) {
  To* d = lanes<To>(w, op.d);
  const From* a = lanes<From>(w, op.a);
  each(w, m, d, [&](int i) { return static_cast<To>(static_cast<Mid>(a[i])); });
  return Event::kNext;
}
Event half_from_float(const Op& op, Warp& w, uint32_t m) {
  uint16_t* d = lanes<uint16_t>(w, op.d);
  const float* a = lanes<float>(w, op.a);
  each(w, m, d, [&](int i) { return float_to_half(a[i]); });
  return Event::kNext;
}
Event float_from_half(const Op& op, Warp& w, uint32_t m) {
  float* d = lanes<float>(w, op.d);
  const uint16_t* a = lanes<uint16_t>(w, op.a);
  each(w, m, d, [&](int i) { return canonical(half_to_float(a[i])); });
  return Event::kNext;
}
Event int_from_float(const Op& op, Warp& w, uint32_t m) {
  int32_t* d = lanes<int32_t>(w, op.d);
  const float* a = lanes<float>(w, op.a);
  each(w, m, d, [&](int i) {
    float v = a[i];
    float safe = v >= -2147483648.0f && v < 2147483648.0f ? v : 0.0f;
    int32_t r = static_cast<int32_t>(safe);
    r = v >= 2147483648.0f ? INT32_MAX : r;
    return v < -2147483648.0f ? INT32_MIN : r;
  });
  return Event::kNext;
}

template <class Mid>
Handler integer_pair(uint32_t from, uint32_t to) {
#define TENDRIL_PAIR(F, T) \
  if (from == sizeof(F) && to == sizeof(T)) return &simple<T, Mid, F>
  TENDRIL_PAIR(uint16_t, uint16_t);
  TENDRIL_PAIR(uint16_t, uint32_t);
  TENDRIL_PAIR(uint16_t, uint64_t);
  TENDRIL_PAIR(uint32_t, uint16_t);
  TENDRIL_PAIR(uint32_t, uint32_t);
  TENDRIL_PAIR(uint32_t, uint64_t);
  TENDRIL_PAIR(uint64_t, uint16_t);
  TENDRIL_PAIR(uint64_t, uint32_t);
  TENDRIL_PAIR(uint64_t, uint64_t);
#undef TENDRIL_PAIR
  return nullptr;
}

// Integer to integer without saturation: truncate or extend through the narrower of the two types.
Handler integer_handler(const CvtMode& m, uint32_t source_bytes) {
  Type narrow = type_bytes(m.to) < type_bytes(m.from) ? m.to : m.from;
  switch (narrow) {
    case Type::kU8:
    case Type::kB8:
      return integer_pair<uint8_t>(source_bytes, m.dest_bytes);
    case Type::kS8:
      return type_bytes(m.to) == type_bytes(m.from) && m.to != m.from
                 ? nullptr
                 : integer_pair<int8_t>(source_bytes, m.dest_bytes);
    case Type::kU16:
    case Type::kB16:
      return integer_pair<uint16_t>(source_bytes, m.dest_bytes);
    case Type::kS16:
      return integer_pair<int16_t>(source_bytes, m.dest_bytes);
    case Type::kU32:
    case Type::kB32:
      return integer_pair<uint32_t>(source_bytes, m.dest_bytes);
    case Type::kS32:
      return integer_pair<int32_t>(source_bytes, m.dest_bytes);
    default:
      return integer_pair<uint64_t>(source_bytes, m.dest_bytes);
  }
}

}  // namespace

// CvtMode::dest_bytes arrives as destination | source register bytes << 8; the decoder stores
// encode_cvt() in Op::imm.
Handler cvt_handler(CvtMode m) {
  uint32_t source = m.dest_bytes >> 8;
  m.dest_bytes &= 0xFF;
  if (half_of(m.to) != m.to && half_of(m.from) != m.from)
    return type_bytes(m.to) == 4 ? &pair_to_pair<uint32_t, uint16_t>
                                 : &pair_to_pair<uint16_t, uint32_t>;
  if (half_of(m.to) != m.to)
    return m.from != Type::kF32    ? nullptr
           : type_bytes(m.to) == 4 ? &pack_two<uint32_t>
                                   : &pack_two<uint16_t>;
  bool plain = !m.sat && !m.ftz && !m.relu && !m.finite;
  bool same_width_signs = type_bytes(m.to) == type_bytes(m.from) && m.to != m.from;
  if (!is_float(m.to) && !is_float(m.from)) {
    bool extends = m.dest_bytes > type_bytes(m.to) && type_bytes(m.from) < type_bytes(m.to);
    if (plain && !same_width_signs && !extends)
      if (Handler h = integer_handler(m, source)) return h;
    return &general;
  }
  if (plain && !m.integral && m.round == kRoundNearest) {
    if (m.to == Type::kF32 && m.from == Type::kS32 && source == 4)
      return &simple<float, float, int32_t>;
    if (m.to == Type::kF32 && m.from == Type::kU32 && source == 4)
      return &simple<float, float, uint32_t>;
    if (m.to == Type::kF64 && m.from == Type::kS32 && source == 4)
      return &simple<double, double, int32_t>;
    if (m.to == Type::kF64 && m.from == Type::kF32) return &simple<double, double, float>;
    if (m.to == Type::kF32 && m.from == Type::kF16 && m.dest_bytes == 4) return &float_from_half;
    if (m.to == Type::kF16 && m.from == Type::kF32 && m.dest_bytes == 2) return &half_from_float;
  }
  if (plain && m.to == Type::kS32 && m.from == Type::kF32 && m.round == kRoundZero &&
      m.dest_bytes == 4)
    return &int_from_float;
  return &general;
}

}  // namespace TENDRIL_ISA

uint64_t encode_cvt(const CvtMode& m);
#ifdef TENDRIL_PRIMARY
uint64_t encode_cvt(const CvtMode& m) { return TENDRIL_ISA::pack(m); }
#endif

}  // namespace tendril::softgpu
