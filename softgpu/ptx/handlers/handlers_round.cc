// SPDX-License-Identifier: Apache-2.0
// Arithmetic rounded towards zero, down or up. It changes the host's rounding mode around one warp
// instruction. It is built with -frounding-math, and every operand comes from memory behind an
// opaque call. So the compiler can neither fold nor move the work.
#include <cfenv>
#include <cmath>

#include "softgpu/ptx/handlers/handlers_isa.h"
#include "softgpu/ptx/handlers/lanes.h"

namespace tendril::softgpu {
namespace TENDRIL_ISA {
namespace {

template <Falu Op2, class T>
inline T compute(T a, T b, T c) {
  if constexpr (Op2 == Falu::kAdd) return a + b;
  if constexpr (Op2 == Falu::kSub) return a - b;
  if constexpr (Op2 == Falu::kMul) return a * b;
  if constexpr (Op2 == Falu::kFma && sizeof(T) == 4) return __builtin_fmaf(a, b, c);
  if constexpr (Op2 == Falu::kFma && sizeof(T) == 8) return __builtin_fma(a, b, c);
  if constexpr (Op2 == Falu::kDiv) return a / b;
  if constexpr (Op2 == Falu::kRcp) return b / a;  // the caller passes one, from memory
  if constexpr (Op2 == Falu::kSqrt && sizeof(T) == 4) return __builtin_sqrtf(a);
  if constexpr (Op2 == Falu::kSqrt && sizeof(T) == 8) return __builtin_sqrt(a);
  return a;
}

// The result once more, to tell whether it is tiny. Exact where that matters. Sums of floats are
// never rounded there.
template <Falu Op2>
inline double unrounded(float a, float b, float c) {
  if constexpr (Op2 == Falu::kFma)
    return fma_to_odd(a, b, c);
  else
    return compute<Op2, double>(a, b, c);
}

// Op::aux: bit 0 ftz, bit 1 sat, bits 8-9 direction.
template <Falu Op2, class T>
Event rounded(const Op& op, Warp& w, uint32_t m) {
  static constexpr int kModes[4] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  alignas(64) T x[32], y[32], z[32], r[32];
  const T *a = lanes<T>(w, op.a), *b = lanes<T>(w, op.b), *c = lanes<T>(w, op.c);
  const bool ftz = (op.aux & 1) && sizeof(T) == 4, sat = op.aux & 2;
  for (int i = 0; i < 32; ++i) {
    x[i] = a[i], y[i] = Op2 == Falu::kRcp ? T(1) : b[i], z[i] = c[i];
    if constexpr (sizeof(T) == 4) {
      if (ftz) x[i] = flush(x[i]), y[i] = flush(y[i]), z[i] = flush(z[i]);
    }
  }
  T *px = x, *py = y, *pz = z, *pr = r;
  asm volatile("" : "+r"(px), "+r"(py), "+r"(pz), "+r"(pr) : : "memory");
  std::fesetround(kModes[op.aux >> 8 & 3]);
  for (int i = 0; i < 32; ++i) pr[i] = compute<Op2, T>(px[i], py[i], pz[i]);
  asm volatile("" : : "r"(pr) : "memory");
  std::fesetround(FE_TONEAREST);
  T* d = lanes<T>(w, op.d);
  each_active(m, [&](int i) {
    T v = pr[i];
    if constexpr (sizeof(T) == 4) {
      if (ftz) v = flush_tiny(v, unrounded<Op2>(x[i], y[i], z[i]));
      v = sat ? (v > 0 ? (v < 1 ? v : T(1)) : T(0)) : canonical(v);
      if (ftz) v = flush(v);
    }
    d[i] = v;
  });
  return Event::kNext;
}

template <Falu Op2>
Handler pick(Type t) {
  return t == Type::kF64 ? &rounded<Op2, double> : t == Type::kF32 ? &rounded<Op2, float> : nullptr;
}

}  // namespace

Handler rounded_handler(Falu op, Type t, FloatMode) {
  switch (op) {
    case Falu::kAdd:
      return pick<Falu::kAdd>(t);
    case Falu::kSub:
      return pick<Falu::kSub>(t);
    case Falu::kMul:
      return pick<Falu::kMul>(t);
    case Falu::kFma:
      return pick<Falu::kFma>(t);
    case Falu::kDiv:
      return pick<Falu::kDiv>(t);
    case Falu::kRcp:
      return pick<Falu::kRcp>(t);
    case Falu::kSqrt:
      return pick<Falu::kSqrt>(t);
    default:
      return nullptr;
  }
}

}  // namespace TENDRIL_ISA
}  // namespace tendril::softgpu
