// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic in round-to-nearest, and the approximations, for f32, f64, f16, bf16
// and the packed halves. Compiled once per instruction set with -ffp-contract=off: only fma may
// fuse. handlers_round.cc has directed rounding. f32 results that are NaN become 0x7fffffff and
// half ones 0x7fff, as on hardware.
#include <cmath>

#include "softgpu/ptx/handlers/handlers_isa.h"
#include "softgpu/ptx/handlers/lanes.h"

namespace tendril::softgpu {
namespace TENDRIL_ISA {
Handler rounded_handler(Falu op, Type t, FloatMode mode);  // handlers_round.cc

namespace {

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <bool Ftz, class T>
inline T in(T v) {
  if constexpr (Ftz && sizeof(T) == 4)
    return flush(v);
  else
    return v;
}
template <bool Ftz, bool Sat, class T>
inline T out(T r) {
  if constexpr (sizeof(T) == 4) {
    if constexpr (Sat)
      r = r > T(0) ? (r < T(1) ? r : T(1)) : T(0);  // NaN fails the first comparison and becomes +0
    else
      r = canonical(r);
    if constexpr (Ftz) r = flush(r);
  }
  return r;
}

// Double holds products of floats exactly, and quotients far more precisely than the test for tiny
// values needs.
template <bool Ftz, class T>
inline T product(T a, T b) {
  if constexpr (Ftz)
    return flush_tiny(a * b, static_cast<double>(a) * static_cast<double>(b));
  else
    return a * b;
}
template <bool Ftz, class T>
inline T product_and_sum(T a, T b, T c) {
  if constexpr (Ftz)
    return flush_tiny(fused(a, b, c), fma_to_odd(a, b, c));
  else
    return fused(a, b, c);
}
template <bool Ftz, class T>
inline T quotient(T a, T b) {
  if constexpr (Ftz)
    return flush_tiny(a / b, static_cast<double>(a) / static_cast<double>(b));
  else
    return a / b;
}

#define TENDRIL_FLOAT_OP(NAME, EXPR)                                                      \
  template <class T, bool Ftz, bool Sat>                                                  \
  struct NAME {                                                                           \
    using D = T;                                                                          \
    using A = T;                                                                          \
    using B = T;                                                                          \
    using C = T;                                                                          \
    static inline T f([[maybe_unused]] T x, [[maybe_unused]] T y, [[maybe_unused]] T z) { \
      [[maybe_unused]] T a = in<Ftz>(x), b = in<Ftz>(y), c = in<Ftz>(z);                  \
      return out<Ftz, Sat, T>(EXPR);                                                      \
    }                                                                                     \
  };

template <class T>
inline T negative_zero_first(T a, T b, bool minimum) {
  using U = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  U x = bit_cast_to<U>(a), y = bit_cast_to<U>(b);
  return bit_cast_to<T>(minimum ? x | y
                                : x & y);  // equal values differ at most in the sign of zero
}
template <class T>
inline T smaller(T a, T b) {
  T r = a == b ? negative_zero_first(a, b, true) : a < b ? a : b;
  r = a != a ? b : r;
  return b != b ? a : r;
}
template <class T>
inline T larger(T a, T b) {
  T r = a == b ? negative_zero_first(a, b, false) : a > b ? a : b;
  r = a != a ? b : r;
  return b != b ? a : r;
}
template <class T>
inline T magnitude(T a) {
  if constexpr (sizeof(T) == 4)
    return bit_cast_to<T>(bit_cast_to<uint32_t>(a) & 0x7FFFFFFFu);
  else
    return bit_cast_to<T>(bit_cast_to<uint64_t>(a) & 0x7FFFFFFFFFFFFFFFull);
}
template <class T>
inline T negate(T a) {
  if constexpr (sizeof(T) == 4)
    return bit_cast_to<T>(bit_cast_to<uint32_t>(a) ^ 0x80000000u);
  else
    return bit_cast_to<T>(bit_cast_to<uint64_t>(a) ^ 0x8000000000000000ull);
}
template <class T>
inline T sign_xor(T r, T a, T b) {
  if constexpr (sizeof(T) == 4)
    return bit_cast_to<T>(bit_cast_to<uint32_t>(r) |
                          ((bit_cast_to<uint32_t>(a) ^ bit_cast_to<uint32_t>(b)) & 0x80000000u));
  else
    return r;
}
template <class T>
inline T nan_or(T a, T b, T r) {
  return a != a ? a : b != b ? b : r;
}
// Sign of the first operand on the magnitude of the second.
template <class T>
inline T with_sign(T sign, T mag) {
  if constexpr (sizeof(T) == 4)
    return bit_cast_to<T>((bit_cast_to<uint32_t>(sign) & 0x80000000u) |
                          (bit_cast_to<uint32_t>(mag) & 0x7FFFFFFFu));
  else
    return bit_cast_to<T>((bit_cast_to<uint64_t>(sign) & 0x8000000000000000ull) |
                          (bit_cast_to<uint64_t>(mag) & 0x7FFFFFFFFFFFFFFFull));
}
inline float root(float v) { return __builtin_sqrtf(v); }
inline double root(double v) { return __builtin_sqrt(v); }
template <class T>
inline T inverse_root(T v) {
  if constexpr (sizeof(T) == 4)
    return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(v)));
  else
    return 1.0 / __builtin_sqrt(v);
}
// rcp.approx.ftz.f64 delivers the upper half only. Code that uses it refines the rest.
template <class T>
inline T rough(T v) {
  if constexpr (sizeof(T) == 8)
    return bit_cast_to<T>(bit_cast_to<uint64_t>(v) & ~0xFFFFFFFFull);
  else
    return v;
}

// div.approx multiplies by a reciprocal. For a divisor beyond 2^126 that is flushed to zero.
template <class T>
inline T rough_quotient(T a, T b) {
  if constexpr (sizeof(T) == 4) {
    const uint32_t bits = bit_cast_to<uint32_t>(b), size = bits & 0x7FFFFFFFu;
    const float zero = bit_cast_to<float>(bits & 0x80000000u);
    return size > 0x7E800000u && size < 0x7F800000u ? a * zero : a / b;
  } else {
    return a / b;
  }
}

TENDRIL_FLOAT_OP(Add, a + b)
TENDRIL_FLOAT_OP(Sub, a - b)
TENDRIL_FLOAT_OP(Mul, product<Ftz>(a, b))
TENDRIL_FLOAT_OP(Fma, product_and_sum<Ftz>(a, b, c))
TENDRIL_FLOAT_OP(Div, quotient<Ftz>(a, b))
TENDRIL_FLOAT_OP(DivApprox, rough_quotient(a, b))
TENDRIL_FLOAT_OP(Rcp, quotient<Ftz>(T(1), a))
TENDRIL_FLOAT_OP(Sqrt, root(a))
TENDRIL_FLOAT_OP(Rsqrt, inverse_root(a))
TENDRIL_FLOAT_OP(Min, smaller(a, b))
TENDRIL_FLOAT_OP(Max, larger(a, b))
TENDRIL_FLOAT_OP(MinNan, nan_or(a, b, smaller(a, b)))
TENDRIL_FLOAT_OP(MaxNan, nan_or(a, b, larger(a, b)))
TENDRIL_FLOAT_OP(MinXs, sign_xor(smaller(magnitude(a), magnitude(b)), a, b))
TENDRIL_FLOAT_OP(MaxXs, sign_xor(larger(magnitude(a), magnitude(b)), a, b))
TENDRIL_FLOAT_OP(MinNanXs, nan_or(a, b, sign_xor(smaller(magnitude(a), magnitude(b)), a, b)))
TENDRIL_FLOAT_OP(MaxNanXs, nan_or(a, b, sign_xor(larger(magnitude(a), magnitude(b)), a, b)))
TENDRIL_FLOAT_OP(Abs, magnitude(a))
TENDRIL_FLOAT_OP(Neg, negate(a))

template <class T>
struct Copysign {
  using D = T;
  using A = T;
  using B = T;
  using C = T;
  static inline T f(T a, T b, T) { return with_sign(a, b); }
};

template <template <class, bool, bool> class F>
Handler pick(Type t, FloatMode m) {
  if (t == Type::kF64) return &apply<F<double, false, false>>;
  if (t != Type::kF32) return nullptr;
  if (m.ftz) return m.sat ? &apply<F<float, true, true>> : &apply<F<float, true, false>>;
  return m.sat ? &apply<F<float, false, true>> : &apply<F<float, false, false>>;
}

// Approximations by the host's maths library, lane by lane.
template <class F>
Event scalar(const Op& op, Warp& w, uint32_t m) {
  float* d = lanes<float>(w, op.d);
  const float* a = lanes<float>(w, op.a);
  const bool ftz = op.aux & 1;
  each_active(m, [&](int i) {
    float r = canonical(F::f(ftz ? flush(a[i]) : a[i]));
    d[i] = ftz ? flush(r) : r;
  });
  return Event::kNext;
}
struct SinF {
  static float f(float v) { return sinf(v); }
};
struct CosF {
  static float f(float v) { return cosf(v); }
};
struct Ex2F {
  static float f(float v) { return exp2f(v); }
};
struct Lg2F {
  static float f(float v) { return log2f(v); }
};
struct TanhF {
  static float f(float v) { return tanhf(v); }
};

// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64.
template <bool Root>
Event rough_f64(const Op& op, Warp& w, uint32_t m) {
  double* d = lanes<double>(w, op.d);
  const double* a = lanes<double>(w, op.a);
  each(w, m, d, [&](int i) { return rough(Root ? inverse_root(a[i]) : 1.0 / a[i]); });
  return Event::kNext;
}

// f16 and bf16 are computed wider and rounded once. For sums and products of two, float is exact
// enough (24 >= 2 * 11 + 2). fma goes through a double rounded to odd.
struct F16 {
  static inline float load(uint16_t v) { return half_to_float(v); }
  static inline uint16_t store(float v) { return float_to_half(v); }
  static inline uint16_t store_exact(double v) {
    return static_cast<uint16_t>(narrow_double(v, 10, 5, kRoundNearest));
  }
  static constexpr uint16_t kInfinity = 0x7C00, kOne = 0x3C00, kMinNormal = 0x0400;
};
struct Bf16 {
  static inline float load(uint16_t v) { return bf16_to_float(v); }
  static inline uint16_t store(float v) { return float_to_bf16(v); }
  static inline uint16_t store_exact(double v) {
    return static_cast<uint16_t>(narrow_double(v, 7, 8, kRoundNearest));
  }
  static constexpr uint16_t kInfinity = 0x7F80, kOne = 0x3F80, kMinNormal = 0x0080;
};

template <class H>
inline bool half_nan(uint16_t v) {
  return (v & 0x7FFF) > H::kInfinity;
}

template <class H, Falu Op2>
inline uint16_t half_op(uint16_t a, uint16_t b, uint16_t c) {
  if constexpr (Op2 == Falu::kAdd) return H::store(H::load(a) + H::load(b));
  if constexpr (Op2 == Falu::kSub) return H::store(H::load(a) - H::load(b));
  if constexpr (Op2 == Falu::kMul) return H::store(H::load(a) * H::load(b));
  if constexpr (Op2 == Falu::kFma)
    return H::store_exact(fma_to_odd(H::load(a), H::load(b), H::load(c)));
  if constexpr (Op2 == Falu::kAbs) return a & 0x7FFF;
  if constexpr (Op2 == Falu::kNeg) return a ^ 0x8000;
  if constexpr (Op2 == Falu::kMin || Op2 == Falu::kMax) {
    if (half_nan<H>(a) && half_nan<H>(b)) return 0x7FFF;
    if (half_nan<H>(a)) return b;
    if (half_nan<H>(b)) return a;
    float x = H::load(a), y = H::load(b);
    if (x == y) return Op2 == Falu::kMin ? a | b : a & b;
    return (x < y) == (Op2 == Falu::kMin) ? a : b;
  }
  if constexpr (Op2 == Falu::kMinNan || Op2 == Falu::kMaxNan) {
    if (half_nan<H>(a) || half_nan<H>(b)) return 0x7FFF;
    float x = H::load(a), y = H::load(b);
    if (x == y) return Op2 == Falu::kMinNan ? a | b : a & b;
    return (x < y) == (Op2 == Falu::kMinNan) ? a : b;
  }
  if constexpr (Op2 == Falu::kMinXorsign || Op2 == Falu::kMaxXorsign ||
                Op2 == Falu::kMinNanXorsign || Op2 == Falu::kMaxNanXorsign) {
    constexpr Falu kPlain = Op2 == Falu::kMinXorsign      ? Falu::kMin
                            : Op2 == Falu::kMaxXorsign    ? Falu::kMax
                            : Op2 == Falu::kMinNanXorsign ? Falu::kMinNan
                                                          : Falu::kMaxNan;
    uint16_t r = half_op<H, kPlain>(a & 0x7FFF, b & 0x7FFF, c);
    return half_nan<H>(r) ? r : r | ((a ^ b) & 0x8000);
  }
  if constexpr (Op2 == Falu::kEx2) return H::store(exp2f(H::load(a)));
  if constexpr (Op2 == Falu::kTanh) return H::store(tanhf(H::load(a)));
  return 0;
}

// Op::aux: bit 0 ftz, bit 1 sat, bit 2 relu.
template <class H>
inline uint16_t half_in(uint16_t v, uint16_t aux) {
  return (aux & 1) && (v & 0x7FFF) < H::kMinNormal ? v & 0x8000 : v;
}
template <class H>
inline uint16_t half_out(uint16_t v, uint16_t aux) {
  if ((aux & 1) && (v & 0x7FFF) < H::kMinNormal) v &= 0x8000;
  if (aux & 2) v = half_nan<H>(v) || (v & 0x8000) ? 0 : v > H::kOne ? H::kOne : v;
  if (aux & 4) v = half_nan<H>(v) ? 0x7FFF : (v & 0x8000) ? 0 : v;
  return v;
}
template <class H, Falu Op2, int Parts>
Event half(const Op& op, Warp& w, uint32_t m) {
  const uint16_t aux = op.aux;
  uint16_t* d = lanes<uint16_t>(w, op.d);
  const uint16_t *a = lanes<uint16_t>(w, op.a), *b = lanes<uint16_t>(w, op.b),
                 *c = lanes<uint16_t>(w, op.c);
  each_active(m, [&](int lane) {
    for (int k = 0; k < Parts; ++k) {
      int i = lane * Parts + k;
      d[i] = half_out<H>(
          half_op<H, Op2>(half_in<H>(a[i], aux), half_in<H>(b[i], aux), half_in<H>(c[i], aux)),
          aux);
    }
  });
  return Event::kNext;
}
// The common case without modifiers, in a form that the compiler can vectorise.
template <class H, Falu Op2, int Parts>
Event half_fast(const Op& op, Warp& w, uint32_t m) {
  if (!whole(w, m) || op.aux) return half<H, Op2, Parts>(op, w, m);
  uint16_t* d = lanes<uint16_t>(w, op.d);
  const uint16_t *a = lanes<uint16_t>(w, op.a), *b = lanes<uint16_t>(w, op.b),
                 *c = lanes<uint16_t>(w, op.c);
  TENDRIL_LANES
  for (int i = 0; i < 32 * Parts; ++i) d[i] = half_op<H, Op2>(a[i], b[i], c[i]);
  return Event::kNext;
}

template <class H, int Parts>
Handler half_handler(Falu op) {
  switch (op) {
    case Falu::kAdd:
      return &half_fast<H, Falu::kAdd, Parts>;
    case Falu::kSub:
      return &half_fast<H, Falu::kSub, Parts>;
    case Falu::kMul:
      return &half_fast<H, Falu::kMul, Parts>;
    case Falu::kFma:
    case Falu::kFmaRelu:
      return &half<H, Falu::kFma, Parts>;
    case Falu::kAbs:
      return &half<H, Falu::kAbs, Parts>;
    case Falu::kNeg:
      return &half<H, Falu::kNeg, Parts>;
    case Falu::kMin:
      return &half<H, Falu::kMin, Parts>;
    case Falu::kMax:
      return &half<H, Falu::kMax, Parts>;
    case Falu::kMinNan:
      return &half<H, Falu::kMinNan, Parts>;
    case Falu::kMaxNan:
      return &half<H, Falu::kMaxNan, Parts>;
    case Falu::kMinXorsign:
      return &half<H, Falu::kMinXorsign, Parts>;
    case Falu::kMaxXorsign:
      return &half<H, Falu::kMaxXorsign, Parts>;
    case Falu::kMinNanXorsign:
      return &half<H, Falu::kMinNanXorsign, Parts>;
    case Falu::kMaxNanXorsign:
      return &half<H, Falu::kMaxNanXorsign, Parts>;
    case Falu::kEx2:
      return &half<H, Falu::kEx2, Parts>;
    case Falu::kTanh:
      return &half<H, Falu::kTanh, Parts>;
    default:
      return nullptr;
  }
}

Handler approximation(Falu op, Type t) {
  if (t != Type::kF32) return nullptr;
  switch (op) {
    case Falu::kSin:
      return &scalar<SinF>;
    case Falu::kCos:
      return &scalar<CosF>;
    case Falu::kEx2:
      return &scalar<Ex2F>;
    case Falu::kLg2:
      return &scalar<Lg2F>;
    case Falu::kTanh:
      return &scalar<TanhF>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler falu_handler(Falu op, Type t, FloatMode m) {
  if (t == Type::kF16) return half_handler<F16, 1>(op);
  if (t == Type::kF16x2) return half_handler<F16, 2>(op);
  if (t == Type::kBF16) return half_handler<Bf16, 1>(op);
  if (t == Type::kBF16x2) return half_handler<Bf16, 2>(op);
  if (m.round != kRoundNearest) return rounded_handler(op, t, m);
  switch (op) {
    case Falu::kAdd:
      return pick<Add>(t, m);
    case Falu::kSub:
      return pick<Sub>(t, m);
    case Falu::kMul:
      return pick<Mul>(t, m);
    case Falu::kFma:
      return pick<Fma>(t, m);
    case Falu::kDiv:
      return pick<Div>(t, m);
    case Falu::kDivApprox:
      return pick<DivApprox>(t, m);
    case Falu::kRcp:
      return t == Type::kF64 && m.ftz ? &rough_f64<false> : pick<Rcp>(t, m);
    case Falu::kRsqrt:
      return t == Type::kF64 && m.ftz ? &rough_f64<true> : pick<Rsqrt>(t, m);
    case Falu::kSqrt:
      return pick<Sqrt>(t, m);
    case Falu::kMin:
      return pick<Min>(t, m);
    case Falu::kMax:
      return pick<Max>(t, m);
    case Falu::kMinNan:
      return pick<MinNan>(t, m);
    case Falu::kMaxNan:
      return pick<MaxNan>(t, m);
    case Falu::kMinXorsign:
      return pick<MinXs>(t, m);
    case Falu::kMaxXorsign:
      return pick<MaxXs>(t, m);
    case Falu::kMinNanXorsign:
      return pick<MinNanXs>(t, m);
    case Falu::kMaxNanXorsign:
      return pick<MaxNanXs>(t, m);
    case Falu::kAbs:
      return pick<Abs>(t, m);
    case Falu::kNeg:
      return pick<Neg>(t, m);
    case Falu::kCopysign:
      return t == Type::kF64 ? &apply<Copysign<double>> : &apply<Copysign<float>>;
    default:
      return approximation(op, t);
  }
}

}  // namespace TENDRIL_ISA
}  // namespace tendril::softgpu
