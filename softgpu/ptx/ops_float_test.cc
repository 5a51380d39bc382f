// SPDX-License-Identifier: Apache-2.0
// Floating point and conversions against models in wider host arithmetic. Directed roundings are
// modelled by stepping from the nearest value, with the exact result in 113-bit arithmetic, so they
// share nothing with the engine's use of the host's rounding mode.
#include "softgpu/ptx/ops_harness.h"

namespace tendril::softgpu {
namespace {

using Quad = __float128;
using u32 = uint32_t;
using u64 = uint64_t;

class FloatOps : public ::testing::TestWithParam<OpCase> {};
TEST_P(FloatOps, MatchesModel) { check_op(GetParam()); }

// mode: 0 nearest, 1 zero, 2 down, 3 up.
template <class T>
T round_quad(Quad q, int mode) {
  T n = static_cast<T>(q);
  if (n != n || mode == 0) return n;
  const T inf = std::numeric_limits<T>::infinity();
  if (std::isinf(n) &&
      (q > static_cast<Quad>(std::numeric_limits<T>::max()) * 4 ||
       q < -static_cast<Quad>(std::numeric_limits<T>::max()) * 4) &&
      q - q != 0)
    return n;
  bool up = mode == 3 || (mode == 1 && q < 0);
  if (up && static_cast<Quad>(n) < q) n = std::nextafter(n, inf);
  if (!up && static_cast<Quad>(n) > q) n = std::nextafter(n, -inf);
  return n;
}
const char* kModes[] = {"rn", "rz", "rm", "rp"};

// Exact zero sums take the sign of the rounding direction.
template <class T>
T add(T a, T b, int mode) {
  Quad q = static_cast<Quad>(a) + static_cast<Quad>(b);
  if (q == 0 && std::signbit(a) != std::signbit(b)) return mode == 2 ? -T(0) : T(0);
  if (q == 0) return a + b;
  // 113 bits do not hold every sum of floats; what they lose decides on which side of the result it
  // lies.
  Quad large = std::fabs(a) > std::fabs(b) ? a : b, small = std::fabs(a) > std::fabs(b) ? b : a,
       lost = small - (q - large);
  T r = round_quad<T>(q, mode);
  if (std::isinf(a) || std::isinf(b) || r != r || static_cast<Quad>(r) != q) return r;
  bool up = mode == 3 || (mode == 1 && q < 0);
  if (lost > 0 && up) return std::nextafter(r, std::numeric_limits<T>::infinity());
  if (lost < 0 && !up) return std::nextafter(r, -std::numeric_limits<T>::infinity());
  return r;
}
template <class T>
T mul(T a, T b, int mode) {
  Quad q = static_cast<Quad>(a) * static_cast<Quad>(b);
  T r = round_quad<T>(q, mode);
  return q == 0 || r == 0 ? std::copysign(r, std::signbit(a) != std::signbit(b) ? T(-1) : T(1)) : r;
}

// structure: table
template <class T>
void arithmetic(std::vector<OpCase>& v, const std::string& t) {
  for (int m = 0; m < 4; ++m) {
    const std::string s = std::string(".") + kModes[m] + "." + t;
    // Double sums with far apart exponents exceed 113 bits; their directed forms are checked on f32
    // only.
    if (m == 0)
      v.push_back(op<T(T, T)>("add" + s, [](T a, T b) { return a + b; }));
    else if (sizeof(T) == 4)
      v.push_back(op<T(T, T)>("add" + s, [m](T a, T b) { return add<T>(a, b, m); }));
    if (m == 0)
      v.push_back(op<T(T, T)>("sub" + s, [](T a, T b) { return a - b; }));
    else if (sizeof(T) == 4)
      v.push_back(op<T(T, T)>("sub" + s, [m](T a, T b) { return add<T>(a, -b, m); }));
    v.push_back(op<T(T, T)>("mul" + s, [m](T a, T b) { return mul<T>(a, b, m); }));
  }
  v.push_back(op<T(T, T, T)>("fma.rn." + t, [](T a, T b, T c) { return std::fma(a, b, c); }));
  v.push_back(op<T(T, T)>("div.rn." + t, [](T a, T b) { return a / b; }));
  v.push_back(op<T(T)>("rcp.rn." + t, [](T a) { return T(1) / a; }));
  v.push_back(op<T(T)>("sqrt.rn." + t, [](T a) { return std::sqrt(a); }));
  v.push_back(op<T(T)>("abs." + t, [](T a) { return std::fabs(a); }));
  v.push_back(op<T(T)>("neg." + t, [](T a) { return -a; }));
  v.push_back(op<T(T, T)>("copysign." + t, [](T a, T b) { return std::copysign(b, a); }));
  v.back().f32 = v.back().f64 = false;  // NaN bits pass through
  auto less = [](T a, T b) { return a < b || (a == b && std::signbit(a)); };
  v.push_back(op<T(T, T)>("min." + t, [less](T a, T b) {
    return a != a ? b : b != b ? a : less(a, b) ? a : b;
  }));
  v.push_back(op<T(T, T)>("max." + t, [less](T a, T b) {
    return a != a ? b : b != b ? a : less(a, b) ? b : a;
  }));
  const char* cmp[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                       "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  for (int k = 0; k < 14; ++k) {
    v.push_back(op<bool(T, T)>(std::string("setp.") + cmp[k] + "." + t, [k](T a, T b) {
      bool un = std::isunordered(a, b);
      if (k >= 12) return un == (k == 13);
      if (un) return k >= 6;
      switch (k % 6) {
        case 0:
          return a == b;
        case 1:
          return a != b;
        case 2:
          return a < b;
        case 3:
          return a <= b;
        case 4:
          return a > b;
        default:
          return a >= b;
      }
    }));
  }
  const char* classes[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
  for (int k = 0; k < 6; ++k)
    v.push_back(op<bool(T)>(std::string("testp.") + classes[k] + "." + t, [k](T a) {
      int c = std::fpclassify(a);
      switch (k) {
        case 0:
          return std::isfinite(a);
        case 1:
          return std::isinf(a);
        case 2:
          return !std::isnan(a);
        case 3:
          return std::isnan(a);
        case 4:
          return c == FP_NORMAL || c == FP_ZERO;
        default:
          return c == FP_SUBNORMAL;
      }
    }));
}

float ftz(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
float sat(float x) { return x != x ? 0.0f : x <= 0 ? 0.0f : x > 1 ? 1.0f : x; }

void singles(std::vector<OpCase>& v) {
  v.push_back(op<float(float, float)>("add.ftz.f32",
                                      [](float a, float b) { return ftz(ftz(a) + ftz(b)); }));
  v.push_back(op<float(float, float)>("mul.sat.f32", [](float a, float b) { return sat(a * b); }));
  v.push_back(op<float(float, float)>(
      "mul.rz.ftz.f32", [](float a, float b) { return ftz(mul<float>(ftz(a), ftz(b), 1)); }));
  v.push_back(op<float(float, float, float)>("fma.rn.ftz.sat.f32", [](float a, float b, float c) {
    return sat(ftz(std::fma(ftz(a), ftz(b), ftz(c))));
  }));
  v.push_back(op<float(float, float, float)>(
      "mad.rn.f32", [](float a, float b, float c) { return std::fma(a, b, c); }));
  v.push_back(op<float(float, float)>("min.NaN.f32", [](float a, float b) {
    return a != a || b != b ? std::nanf("") : a < b || (a == b && std::signbit(a)) ? a : b;
  }));
  v.push_back(
      op<bool(float, float)>("setp.eq.ftz.f32", [](float a, float b) { return ftz(a) == ftz(b); }));
  v.push_back(op<float(float, float)>(
      "div.full.f32", [](float a, float b) { return a / b; }, 1e-6));
  v.push_back(op<float(float)>(
      "rsqrt.approx.f32", [](float a) { return static_cast<float>(1.0L / sqrtl(a)); }, 1e-6));
  v.push_back(op<float(float)>(
      "sqrt.approx.f32", [](float a) { return std::sqrt(a); }, 1e-6));
  v.push_back(op<float(float)>(
      "rcp.approx.ftz.f32", [](float a) { return ftz(1 / ftz(a)); }, 1e-6));
  v.push_back(op<float(float)>(
      "ex2.approx.f32", [](float a) { return static_cast<float>(exp2l(a)); }, 1e-5));
  v.push_back(op<float(float)>(
      "lg2.approx.f32", [](float a) { return static_cast<float>(log2l(a)); }, 1e-5));
  v.push_back(op<float(float)>(
      "tanh.approx.f32", [](float a) { return static_cast<float>(tanhl(a)); }, 1e-5));
  v.push_back(op<float(float)>(
      "sin.approx.f32", [](float a) { return static_cast<float>(sinl(a)); }, 1e-5));
  v.push_back(op<float(float)>(
      "cos.approx.f32", [](float a) { return static_cast<float>(cosl(a)); }, 1e-5));
  for (int m = 1; m < 4; ++m) {
    const std::string s = std::string(".") + kModes[m] + ".f32";
    v.push_back(op<float(float, float)>("div" + s, [m](float a, float b) {
      float n = a / b;
      if (a != a || b != b || std::isinf(a) || std::isinf(b) || a == 0 || b == 0) return n;
      float r = round_quad<float>(static_cast<Quad>(a) / static_cast<Quad>(b), m);
      return r == 0 ? std::copysign(r, n) : r;
    }));
    v.push_back(op<float(float)>("sqrt" + s, [m](float a) {
      if (!(a > 0) || std::isinf(a)) return std::sqrt(a);
      float n = std::sqrt(a);
      Quad q = static_cast<Quad>(n) * static_cast<Quad>(n);
      if (m == 3 && q < a) n = std::nextafter(n, INFINITY);
      if (m != 3 && q > a) n = std::nextafter(n, 0.0f);
      return n;
    }));
  }
}

// Halves, from first principles: the value of every encoding, then search for the nearest. Slow and
// obviously right.
double half_value(unsigned v, int mant, int exp_bits) {
  int e = v >> mant & ((1 << exp_bits) - 1), bias = (1 << (exp_bits - 1)) - 1,
      f = v & ((1 << mant) - 1);
  double s = v & 0x8000 ? -1 : 1;
  if (e == (1 << exp_bits) - 1) return f ? std::nan("") : s * INFINITY;
  return s * (e ? std::ldexp((1 << mant) + f, e - bias - mant) : std::ldexp(f, 1 - bias - mant));
}
uint16_t half_nearest(Quad q, bool negative, int mant, int exp_bits) {
  if (q != q) return 0x7FFF;
  unsigned top = ((1u << exp_bits) - 1) << mant;
  Quad a = q < 0 ? -q : q;
  unsigned lo = 0, hi = top;  // magnitude between encodings; `top` stands for the next power of two
  auto value = [&](unsigned v) -> Quad {
    return v == top ? static_cast<Quad>(std::ldexp(1.0, 1 << (exp_bits - 1)))
                    : static_cast<Quad>(half_value(v, mant, exp_bits));
  };
  if (a >= value(top)) return static_cast<uint16_t>(top | (negative ? 0x8000 : 0));
  while (hi - lo > 1) {
    unsigned mid = (lo + hi) / 2;
    (value(mid) <= a ? lo : hi) = mid;
  }
  Quad down = a - value(lo), up = value(hi) - a;
  unsigned r = down < up || (down == up && !(lo & 1)) ? lo : hi;
  return static_cast<uint16_t>(r | (negative ? 0x8000 : 0));
}

template <class H>
void halves(std::vector<OpCase>& v, const std::string& t, int mant, int exp_bits) {
  auto val = [=](H h) { return half_value(h.v, mant, exp_bits); };
  auto out = [=](Quad q, double sign) {
    return H{half_nearest(q, q == 0 ? std::signbit(sign) : q < 0, mant, exp_bits)};
  };
  v.push_back(op<H(H, H)>("add.rn." + t, [=](H a, H b) {
    return out(static_cast<Quad>(val(a)) + val(b), val(a) + val(b));
  }));
  v.push_back(op<H(H, H)>("sub.rn." + t, [=](H a, H b) {
    return out(static_cast<Quad>(val(a)) - val(b), val(a) - val(b));
  }));
  v.push_back(op<H(H, H)>("mul.rn." + t, [=](H a, H b) {
    return out(static_cast<Quad>(val(a)) * val(b), val(a) * val(b));
  }));
  v.push_back(op<H(H, H, H)>("fma.rn." + t, [=](H a, H b, H c) {
    Quad p = static_cast<Quad>(val(a)) * val(b), q = p + val(c);
    // Beyond 113 bits: keep a trace of the smaller part so that ties break correctly.
    if (q == p && val(c) != 0 && p != 0 && std::isfinite(static_cast<double>(p)))
      q = p * (1 + ((val(c) > 0) == (p > 0) ? 1 : -1) * static_cast<Quad>(std::ldexp(1.0, -100)));
    if (q == val(c) && p != 0 && val(c) != 0 && std::isfinite(val(c)))
      q = q * (1 + ((p > 0) == (val(c) > 0) ? 1 : -1) * static_cast<Quad>(std::ldexp(1.0, -100)));
    return out(q, std::fma(val(a), val(b), val(c)));
  }));
  v.push_back(op<H(H)>("neg." + t, [](H a) { return H{static_cast<uint16_t>(a.v ^ 0x8000)}; }));
  v.push_back(op<H(H)>("abs." + t, [](H a) { return H{static_cast<uint16_t>(a.v & 0x7FFF)}; }));
  v.push_back(op<bool(H, H)>("setp.lt." + t, [=](H a, H b) { return val(a) < val(b); }));
  v.push_back(op<H(H, H)>("min." + t, [=](H a, H b) {
    double x = val(a), y = val(b);
    if (x != x && y != y) return H{0x7FFF};
    return x != x ? b : y != y ? a : x < y || (x == y && std::signbit(x)) ? a : b;
  }));
  v.push_back(op<H(float)>("cvt.rn." + t + ".f32", [=](float a) {
    return H{half_nearest(a, std::signbit(a), mant, exp_bits)};
  }));
  v.push_back(op<float(H)>("cvt.f32." + t, [=](H a) { return static_cast<float>(val(a)); }));
}

// Float to integer: round, clamp, NaN to zero.
template <class I, class F>
I to_int(F x, int mode) {
  if (x != x) return 0;
  F r = mode == 0   ? std::nearbyint(x)
        : mode == 1 ? std::trunc(x)
        : mode == 2 ? std::floor(x)
                    : std::ceil(x);
  long double q = r, lo = std::numeric_limits<I>::min(), hi = std::numeric_limits<I>::max();
  return q < lo   ? std::numeric_limits<I>::min()
         : q > hi ? std::numeric_limits<I>::max()
                  : static_cast<I>(q);
}

template <class I>
void integers(std::vector<OpCase>& v, const std::string& t) {
  const char* modes[] = {"rni", "rzi", "rmi", "rpi"};
  for (int m = 0; m < 4; ++m) {
    if (sizeof(I) < 8)
      v.push_back(op<I(float)>(std::string("cvt.") + modes[m] + "." + t + ".f32",
                               [m](float a) { return to_int<I>(a, m); }));
    v.push_back(op<float(I)>(std::string("cvt.") + kModes[m] + ".f32." + t,
                             [m](I a) { return round_quad<float>(static_cast<Quad>(a), m); }));
  }
  v.push_back(op<double(I)>("cvt.rn.f64." + t, [](I a) { return static_cast<double>(a); }));
}

template <class D, class S>
void integer_pair(std::vector<OpCase>& v, const std::string& d, const std::string& s) {
  v.push_back(op<D(S)>("cvt." + d + "." + s, [](S a) { return static_cast<D>(a); }));
  v.push_back(op<D(S)>("cvt.sat." + d + "." + s, [](S a) {
    __int128 x = a, lo = std::numeric_limits<D>::min(), hi = std::numeric_limits<D>::max();
    return static_cast<D>(x < lo ? lo : x > hi ? hi : x);
  }));
}

void conversions(std::vector<OpCase>& v) {
  integers<int16_t>(v, "s16"), integers<uint16_t>(v, "u16"), integers<int32_t>(v, "s32"),
      integers<u32>(v, "u32");
  integers<int64_t>(v, "s64"), integers<u64>(v, "u64");
  integer_pair<int16_t, int32_t>(v, "s16", "s32"), integer_pair<u32, int32_t>(v, "u32", "s32"),
      integer_pair<int64_t, int32_t>(v, "s64", "s32");
  integer_pair<u64, int16_t>(v, "u64", "s16"), integer_pair<int32_t, u64>(v, "s32", "u64"),
      integer_pair<uint16_t, int64_t>(v, "u16", "s64");
  v.push_back(op<double(float)>("cvt.f64.f32", [](float a) { return static_cast<double>(a); }));
  for (int m = 0; m < 4; ++m)
    v.push_back(op<float(double)>(std::string("cvt.") + kModes[m] + ".f32.f64", [m](double a) {
      float r = round_quad<float>(static_cast<Quad>(a), m);
      return r == 0 ? std::copysign(r, static_cast<float>(std::copysign(1.0, a))) : r;
    }));
  v.push_back(op<float(float)>("cvt.rni.f32.f32", [](float a) { return std::nearbyint(a); }));
  v.push_back(op<float(float)>("cvt.rmi.f32.f32", [](float a) { return std::floor(a); }));
  v.push_back(op<double(double)>("cvt.rpi.f64.f64", [](double a) { return std::ceil(a); }));
  v.push_back(op<float(float)>("cvt.sat.f32.f32", [](float a) { return sat(a); }));
  v.push_back(op<int32_t(int32_t)>(
      "cvt.s32.s8", [](int32_t a) { return static_cast<int32_t>(static_cast<int8_t>(a)); }));
  v.push_back(op<u32(u32)>("cvt.u8.u32", [](u32 a) { return a & 0xFF; }));
  v.push_back(op<int32_t(int32_t)>("cvt.sat.s8.s32", [](int32_t a) {
    return a > 127 ? 127 : a < -128 ? -128 : a;
  }));
  v.push_back(op<u32(float, float)>("cvt.rn.f16x2.f32", [](float a, float b) {
    return static_cast<u32>(half_nearest(a, std::signbit(a), 10, 5)) << 16 |
           half_nearest(b, std::signbit(b), 10, 5);
  }));
  v.push_back(
      op<u32(int32_t, int32_t, u32)>("cvt.pack.sat.u8.s32.b32", [](int32_t a, int32_t b, u32 c) {
        auto f = [](int32_t x) { return static_cast<u32>(x < 0 ? 0 : x > 255 ? 255 : x); };
        return c << 16 | f(a) << 8 | f(b);
      }));
}

std::vector<OpCase> all() {
  std::vector<OpCase> v;
  arithmetic<float>(v, "f32"), arithmetic<double>(v, "f64");
  singles(v);
  halves<Half>(v, "f16", 10, 5), halves<Brain>(v, "bf16", 7, 8);
  conversions(v);
  return v;
}
std::string name_of(const ::testing::TestParamInfo<OpCase>& info) {
  std::string s = info.param.text.substr(0, info.param.text.find(' '));
  for (char& c : s)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return s + "_" + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Table, FloatOps, ::testing::ValuesIn(all()), name_of);

}  // namespace
}  // namespace tendril::softgpu
