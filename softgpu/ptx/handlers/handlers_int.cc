// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic, logic, shifts and bit fields. Compiled once per instruction set (TENDRIL_ISA
// names the namespace). No handler here can fault: division by zero gives what hardware gives.
#include "softgpu/ptx/handlers/handlers_isa.h"
#include "softgpu/ptx/handlers/lanes.h"

namespace tendril::softgpu {
namespace TENDRIL_ISA {
namespace {

#define TENDRIL_OP(NAME, DT, AT, BT, CT, EXPR)                                            \
  template <class T>                                                                      \
  struct NAME {                                                                           \
    using U [[maybe_unused]] = typename Traits<T>::U;                                     \
    using Un [[maybe_unused]] = typename Traits<T>::Un;                                   \
    using S [[maybe_unused]] = typename Traits<T>::S;                                     \
    using Wide [[maybe_unused]] = typename Traits<T>::Wide;                               \
    using D = DT;                                                                         \
    using A = AT;                                                                         \
    using B = BT;                                                                         \
    using C = CT;                                                                         \
    static constexpr unsigned kBits [[maybe_unused]] = sizeof(T) * 8;                     \
    static inline D f([[maybe_unused]] A a, [[maybe_unused]] B b, [[maybe_unused]] C c) { \
      return static_cast<D>(EXPR);                                                        \
    }                                                                                     \
  };

template <class T>
inline T divide(T a, T b) {
  if constexpr (T(-1) < T(0)) {
    if (b == T(-1)) return static_cast<T>(0 - static_cast<typename Traits<T>::U>(a));
  }
  return b ? a / b : T(-1);
}
template <class T>
inline T remainder(T a, T b) {
  if constexpr (T(-1) < T(0)) {
    if (b == T(-1)) return 0;
  }
  return b ? a % b : T(-1);  // all ones, as a division by zero
}
template <class T>
inline int leading(T v) {
  if constexpr (sizeof(T) == 8)
    return v ? __builtin_clzll(v) : 64;
  else
    return v ? __builtin_clz(v) : 32;
}
template <class T>
inline uint32_t find_lead(T v) {
  using Un = typename Traits<T>::Un;
  Un u = static_cast<Un>(v);
  if constexpr (T(-1) < T(0)) u = v < 0 ? ~u : u;
  return u ? sizeof(T) * 8 - 1 - leading<Un>(u) : ~0u;
}
template <class T>
inline T reverse(T v) {
  if constexpr (sizeof(T) == 8) {
    v = __builtin_bswap64(v);
    v = ((v >> 4) & 0x0F0F0F0F0F0F0F0Full) | ((v & 0x0F0F0F0F0F0F0F0Full) << 4);
    v = ((v >> 2) & 0x3333333333333333ull) | ((v & 0x3333333333333333ull) << 2);
    return ((v >> 1) & 0x5555555555555555ull) | ((v & 0x5555555555555555ull) << 1);
  } else {
    v = __builtin_bswap32(v);
    v = ((v >> 4) & 0x0F0F0F0Fu) | ((v & 0x0F0F0F0Fu) << 4);
    v = ((v >> 2) & 0x33333333u) | ((v & 0x33333333u) << 2);
    return ((v >> 1) & 0x55555555u) | ((v & 0x55555555u) << 1);
  }
}
// Position and length of a bit field. Their low byte counts; for 64-bit fields all of them do (seen
// on hardware; the text of the ISA says a byte). Clamped, so that sums do not wrap.
template <class T>
inline uint32_t field(uint32_t v) {
  if constexpr (sizeof(T) == 4) return v & 0xFF;
  return v < 0xFFFF ? v : 0xFFFF;
}
template <class T>
inline T extract(T a, uint32_t b, uint32_t c) {
  using Un = typename Traits<T>::Un;
  constexpr uint32_t bits = sizeof(T) * 8;
  constexpr bool sign_extends = T(-1) < T(0);
  uint32_t pos = field<T>(b), len = field<T>(c);
  if (!len) return 0;
  bool sign = sign_extends &&
              (static_cast<Un>(a) >> (pos + len - 1 < bits - 1 ? pos + len - 1 : bits - 1) & 1);
  Un v = pos < bits ? static_cast<Un>(a) >> pos : 0;
  uint32_t avail = pos < bits ? bits - pos : 0, keep = len < avail ? len : avail;
  if (keep >= bits) return static_cast<T>(v);
  Un mask = (Un(1) << keep) - 1;
  return static_cast<T>((v & mask) | (sign ? ~mask : 0));
}
template <class T>
inline T shift_left(T a, uint32_t b) {
  return b < sizeof(T) * 8 ? static_cast<T>(static_cast<typename Traits<T>::U>(a) << b) : T(0);
}
template <class T>
inline T shift_right(T a, uint32_t b) {
  constexpr uint32_t top = sizeof(T) * 8 - 1;
  if constexpr (T(-1) < T(0))
    return static_cast<T>(a >> (b > top ? top : b));
  else
    return b > top ? T(0) : static_cast<T>(a >> b);
}
template <class T>
inline T high(T a, T b) {
  using W = typename Traits<T>::Wide;
  return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> (sizeof(T) * 8));
}
inline int64_t mul24(int32_t a, int32_t b) {
  return static_cast<int64_t>(a << 8 >> 8) * (b << 8 >> 8);
}
inline uint64_t mul24(uint32_t a, uint32_t b) {
  return static_cast<uint64_t>(a & 0xFFFFFF) * (b & 0xFFFFFF);
}
inline int32_t saturate(int64_t v) {
  return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : static_cast<int32_t>(v);
}

TENDRIL_OP(Add, T, T, T, T, U(a) + U(b))
TENDRIL_OP(Sub, T, T, T, T, U(a) - U(b))
TENDRIL_OP(MulLo, T, T, T, T, U(a) * U(b))
TENDRIL_OP(MulHi, T, T, T, T, high<T>(a, b))
TENDRIL_OP(MulWide, Wide, T, T, T, Wide(a) * Wide(b))
TENDRIL_OP(MadLo, T, T, T, T, U(a) * U(b) + U(c))
TENDRIL_OP(MadHi, T, T, T, T, U(high<T>(a, b)) + U(c))
TENDRIL_OP(MadWide, Wide, T, T, Wide,
           typename Traits<Wide>::U(Wide(a) * Wide(b)) + typename Traits<Wide>::U(c))
TENDRIL_OP(Mul24Lo, T, T, T, T, mul24(a, b))
TENDRIL_OP(Mul24Hi, T, T, T, T, mul24(a, b) >> 16)
TENDRIL_OP(Mad24Lo, T, T, T, T, U(mul24(a, b)) + U(c))
TENDRIL_OP(Mad24Hi, T, T, T, T, U(mul24(a, b) >> 16) + U(c))
TENDRIL_OP(Sad, T, T, T, T, U(c) + (a < b ? U(b) - U(a) : U(a) - U(b)))
TENDRIL_OP(Div, T, T, T, T, divide<T>(a, b))
TENDRIL_OP(Rem, T, T, T, T, remainder<T>(a, b))
TENDRIL_OP(Abs, T, T, T, T, a < 0 ? U(0) - U(a) : U(a))
TENDRIL_OP(Neg, T, T, T, T, U(0) - U(a))
TENDRIL_OP(Min, T, T, T, T, a < b ? a : b)
TENDRIL_OP(Max, T, T, T, T, a > b ? a : b)
TENDRIL_OP(MinRelu, T, T, T, T, (a < b ? a : b) > 0 ? (a < b ? a : b) : 0)
TENDRIL_OP(MaxRelu, T, T, T, T, (a > b ? a : b) > 0 ? (a > b ? a : b) : 0)
TENDRIL_OP(Popc, uint32_t, T, T, T, __builtin_popcountll(static_cast<Un>(a)))
TENDRIL_OP(Clz, uint32_t, T, T, T, leading<Un>(static_cast<Un>(a)))
TENDRIL_OP(Bfind, uint32_t, T, T, T, find_lead<T>(a))
TENDRIL_OP(BfindShift, uint32_t, T, T, T,
           find_lead<T>(a) == ~0u ? ~0u : kBits - 1 - find_lead<T>(a))
TENDRIL_OP(Brev, T, T, T, T, reverse<T>(a))
TENDRIL_OP(Bfe, T, T, uint32_t, uint32_t, extract<T>(a, b, c))
TENDRIL_OP(And, T, T, T, T, a& b)
TENDRIL_OP(Or, T, T, T, T, a | b)
TENDRIL_OP(Xor, T, T, T, T, a ^ b)
TENDRIL_OP(Not, T, T, T, T, ~a)
TENDRIL_OP(Cnot, T, T, T, T, a == 0)
TENDRIL_OP(Shl, T, T, uint32_t, T, shift_left<T>(a, b))
TENDRIL_OP(Shr, T, T, uint32_t, T, shift_right<T>(a, b))
TENDRIL_OP(ShfLClamp, T, T, T, uint32_t,
           (c > 32 ? 32 : c) == 0 ? b : (uint64_t(b) << 32 | a) >> (32 - (c > 32 ? 32 : c)))
TENDRIL_OP(ShfLWrap, T, T, T, uint32_t, (uint64_t(b) << 32 | a) >> (32 - (c & 31)))
TENDRIL_OP(ShfRClamp, T, T, T, uint32_t, (uint64_t(b) << 32 | a) >> (c > 32 ? 32 : c))
TENDRIL_OP(ShfRWrap, T, T, T, uint32_t, (uint64_t(b) << 32 | a) >> (c & 31))
TENDRIL_OP(AddSat, T, T, T, T, saturate(int64_t(a) + b))
TENDRIL_OP(SubSat, T, T, T, T, saturate(int64_t(a) - b))
TENDRIL_OP(MadHiSat, T, T, T, T, saturate((int64_t(a) * b >> 32) + c))
TENDRIL_OP(Mad24HiSat, T, T, T, T, saturate((mul24(a, b) >> 16) + c))
TENDRIL_OP(BmskClamp, T, T, T, T,
           a > 31 || b == 0 ? 0 : (b >= 32 - a ? ~0u << a : ((1u << b) - 1) << a))
TENDRIL_OP(BmskWrap, T, T, T, T, ((1u << (b & 31)) - 1) << (a & 31))
TENDRIL_OP(SzextClamp, T, T, uint32_t, T, b > 31 ? a : extract<T>(a, 0, b))
TENDRIL_OP(SzextWrap, T, T, uint32_t, T, extract<T>(a, 0, b & 31))
TENDRIL_OP(Slct, T, T, T, int32_t, c >= 0 ? a : b)
TENDRIL_OP(SlctF, T, T, T, float, c >= 0 ? a : b)
TENDRIL_OP(SlctFtz, T, T, T, float, flush(c) >= 0 ? a : b)

template <class A, class B>
inline uint32_t dot4(uint32_t a, uint32_t b, uint32_t c) {
  for (int i = 0; i < 4; ++i)
    c += static_cast<uint32_t>(static_cast<int32_t>(static_cast<A>(a >> 8 * i)) *
                               static_cast<int32_t>(static_cast<B>(b >> 8 * i)));
  return c;
}
template <class A16, class B8, int Half>
inline uint32_t dot2(uint32_t a, uint32_t b, uint32_t c) {
  for (int i = 0; i < 2; ++i)
    c += static_cast<uint32_t>(static_cast<int32_t>(static_cast<A16>(a >> 16 * i)) *
                               static_cast<int32_t>(static_cast<B8>(b >> (8 * i + 16 * Half))));
  return c;
}
// Op::aux: bit 0 a is signed, bit 1 b is signed.
template <int Kind>
Event dot(const Op& op, Warp& w, uint32_t m) {
  uint32_t* d = lanes<uint32_t>(w, op.d);
  const uint32_t *a = lanes<uint32_t>(w, op.a), *b = lanes<uint32_t>(w, op.b),
                 *c = lanes<uint32_t>(w, op.c);
  auto run = [&](auto x, auto y, auto x16) {
    using X = decltype(x);
    using Y = decltype(y);
    using X16 = decltype(x16);
    each(w, m, d, [&](int i) {
      if constexpr (Kind == 0)
        return dot4<X, Y>(a[i], b[i], c[i]);
      else
        return dot2<X16, Y, Kind - 1>(a[i], b[i], c[i]);
    });
  };
  switch (op.aux & 3) {
    case 0:
      run(uint8_t(), uint8_t(), uint16_t());
      break;
    case 1:
      run(int8_t(), uint8_t(), int16_t());
      break;
    case 2:
      run(uint8_t(), int8_t(), uint16_t());
      break;
    default:
      run(int8_t(), int8_t(), int16_t());
      break;
  }
  return Event::kNext;
}

template <class T>
Event bfi(const Op& op, Warp& w, uint32_t m) {
  T* d = lanes<T>(w, op.d);
  const T *a = lanes<T>(w, op.a), *b = lanes<T>(w, op.b);
  const uint32_t *c = lanes<uint32_t>(w, op.c), *e = lanes<uint32_t>(w, op.e);
  each(w, m, d, [&](int i) {
    uint32_t pos = field<T>(c[i]), len = field<T>(e[i]), bits = sizeof(T) * 8;
    if (!len || pos >= bits) return b[i];
    T ones = len >= bits ? ~T(0) : static_cast<T>((T(1) << len) - 1);
    T mask = static_cast<T>(ones << pos);
    return static_cast<T>((b[i] & ~mask) | ((a[i] << pos) & mask));
  });
  return Event::kNext;
}

Event lop3(const Op& op, Warp& w, uint32_t m) {
  uint32_t* d = lanes<uint32_t>(w, op.d);
  const uint32_t *a = lanes<uint32_t>(w, op.a), *b = lanes<uint32_t>(w, op.b),
                 *c = lanes<uint32_t>(w, op.c);
  uint32_t term[8];
  for (int k = 0; k < 8; ++k) term[k] = (op.imm >> k & 1) ? ~0u : 0;
  each(w, m, d, [&](int i) {
    uint32_t x = a[i], y = b[i], z = c[i];
    uint32_t low = (~y & ((~z & term[0]) | (z & term[1]))) | (y & ((~z & term[2]) | (z & term[3])));
    uint32_t top = (~y & ((~z & term[4]) | (z & term[5]))) | (y & ((~z & term[6]) | (z & term[7])));
    return (~x & low) | (x & top);
  });
  return Event::kNext;
}

// Op::aux: 0 default, 1 f4e, 2 b4e, 3 rc8, 4 ecl, 5 ecr, 6 rc16.
uint32_t permute(uint32_t a, uint32_t b, uint32_t c, uint16_t mode) {
  uint64_t v = static_cast<uint64_t>(b) << 32 | a;
  uint32_t s = c & 3, r = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    uint32_t sel;
    switch (mode) {
      case 0:
        sel = c >> (4 * i) & 0xF;
        break;
      case 1:
        sel = s + i;
        break;
      case 2:
        sel = (s + 8 - i) & 7;
        break;
      case 3:
        sel = s;
        break;
      case 4:
        sel = i < s ? s : i;
        break;
      case 5:
        sel = i < s ? i : s;
        break;
      default:
        sel = (s & 1) * 2 + (i & 1);
        break;
    }
    uint32_t byte = v >> (8 * (sel & 7)) & 0xFF;
    if (mode == 0 && (sel & 8)) byte = (byte & 0x80) ? 0xFF : 0;
    r |= byte << (8 * i);
  }
  return r;
}
Event prmt(const Op& op, Warp& w, uint32_t m) {
  uint32_t* d = lanes<uint32_t>(w, op.d);
  const uint32_t *a = lanes<uint32_t>(w, op.a), *b = lanes<uint32_t>(w, op.b),
                 *c = lanes<uint32_t>(w, op.c);
  each_active(m, [&](int i) { d[i] = permute(a[i], b[i], c[i], op.aux); });
  return Event::kNext;
}

Event fns(const Op& op, Warp& w, uint32_t m) {
  uint32_t* d = lanes<uint32_t>(w, op.d);
  const uint32_t *a = lanes<uint32_t>(w, op.a), *b = lanes<uint32_t>(w, op.b);
  const int32_t* c = lanes<int32_t>(w, op.c);
  each_active(m, [&](int i) {
    uint32_t base = b[i] & 31, r = ~0u;
    int32_t n = c[i];
    if (n == 0) {
      if (a[i] >> base & 1) r = base;
    } else if (n > 0) {
      for (uint32_t k = base; k < 32; ++k)
        if ((a[i] >> k & 1) && --n == 0) {
          r = k;
          break;
        }
    } else {
      for (uint32_t k = base + 1; k-- > 0;)
        if ((a[i] >> k & 1) && ++n == 0) {
          r = k;
          break;
        }
    }
    d[i] = r;
  });
  return Event::kNext;
}

// Extended precision. Kind: 0 add, 1 sub, 2 mad.lo, 3 mad.hi. Subtraction adds the complement, as
// hardware does: its flag is 1 when nothing was borrowed, and addc can see that.
template <class T, int Kind, bool In, bool Out>
Event extended(const Op& op, Warp& w, uint32_t m) {
  using W = unsigned __int128;
  T* d = lanes<T>(w, op.d);
  const T *a = lanes<T>(w, op.a), *b = lanes<T>(w, op.b), *c = lanes<T>(w, op.c);
  const bool is_signed = op.aux & 1;
  uint32_t carry = w.carry;
  each_active(m, [&](int i) {
    uint32_t cin = In ? carry >> i & 1 : 0;
    W r;
    if constexpr (Kind == 0) {
      r = static_cast<W>(a[i]) + b[i] + cin;
    } else if constexpr (Kind == 1) {
      r = static_cast<W>(a[i]) + static_cast<T>(~b[i]) + (In ? cin : 1);
    } else {
      using S = typename Traits<T>::S;
      W p = is_signed
                ? static_cast<W>(static_cast<__int128>(static_cast<S>(a[i])) * static_cast<S>(b[i]))
                : static_cast<W>(a[i]) * b[i];
      T part = static_cast<T>(Kind == 2 ? p : p >> (sizeof(T) * 8));
      r = static_cast<W>(part) + c[i] + cin;
    }
    d[i] = static_cast<T>(r);
    if (Out) carry = (carry & ~(1u << i)) | (static_cast<uint32_t>(r >> (sizeof(T) * 8)) & 1) << i;
  });
  if (Out) w.carry = carry;
  return Event::kNext;
}

template <template <class> class F>
Handler by_type(Type t) {
  switch (t) {
    case Type::kU16:
    case Type::kB16:
      return &apply<F<uint16_t>>;
    case Type::kS16:
      return &apply<F<int16_t>>;
    case Type::kU32:
    case Type::kB32:
      return &apply<F<uint32_t>>;
    case Type::kS32:
      return &apply<F<int32_t>>;
    case Type::kU64:
    case Type::kB64:
      return &apply<F<uint64_t>>;
    case Type::kS64:
      return &apply<F<int64_t>>;
    default:
      return nullptr;
  }
}
template <template <class> class F>
Handler by_type32(Type t) {
  uint32_t n = type_bytes(t);
  if (n != 4 && n != 8) return nullptr;
  if (n == 4) return is_signed(t) ? &apply<F<int32_t>> : &apply<F<uint32_t>>;
  return is_signed(t) ? &apply<F<int64_t>> : &apply<F<uint64_t>>;
}
template <template <class> class F>
Handler wide_type(Type t) {
  uint32_t n = type_bytes(t);
  if (n == 2) return is_signed(t) ? &apply<F<int16_t>> : &apply<F<uint16_t>>;
  if (n == 4) return is_signed(t) ? &apply<F<int32_t>> : &apply<F<uint32_t>>;
  return nullptr;
}
template <template <class> class F>
Handler unsigned_type(Type t) {
  switch (type_bytes(t)) {
    case 2:
      return &apply<F<uint16_t>>;
    case 4:
      return &apply<F<uint32_t>>;
    case 8:
      return &apply<F<uint64_t>>;
    default:
      return nullptr;
  }
}
template <template <class> class F>
Handler only32(Type t) {
  return type_bytes(t) != 4 ? nullptr : is_signed(t) ? &apply<F<int32_t>> : &apply<F<uint32_t>>;
}
template <template <class> class F>
Handler reverse_type(Type t) {
  return type_bytes(t) == 8   ? &apply<F<uint64_t>>
         : type_bytes(t) == 4 ? &apply<F<uint32_t>>
                              : nullptr;
}
template <int Kind, bool In, bool Out>
Handler extended_type(Type t) {
  return type_bytes(t) == 8   ? &extended<uint64_t, Kind, In, Out>
         : type_bytes(t) == 4 ? &extended<uint32_t, Kind, In, Out>
                              : nullptr;
}

Handler extended_handler(Alu op, Type t) {
  switch (op) {
    case Alu::kAddCc:
      return extended_type<0, false, true>(t);
    case Alu::kAddc:
      return extended_type<0, true, false>(t);
    case Alu::kAddcCc:
      return extended_type<0, true, true>(t);
    case Alu::kSubCc:
      return extended_type<1, false, true>(t);
    case Alu::kSubc:
      return extended_type<1, true, false>(t);
    case Alu::kSubcCc:
      return extended_type<1, true, true>(t);
    case Alu::kMadLoCc:
      return extended_type<2, false, true>(t);
    case Alu::kMadHiCc:
      return extended_type<3, false, true>(t);
    case Alu::kMadcLo:
      return extended_type<2, true, false>(t);
    case Alu::kMadcHi:
      return extended_type<3, true, false>(t);
    case Alu::kMadcLoCc:
      return extended_type<2, true, true>(t);
    case Alu::kMadcHiCc:
      return extended_type<3, true, true>(t);
    default:
      return nullptr;
  }
}

Handler bits_handler(Alu op, Type t) {
  const bool wide = type_bytes(t) == 8, word = type_bytes(t) == 4;
  switch (op) {
    case Alu::kPopc:
      return by_type32<Popc>(t);
    case Alu::kClz:
      return by_type32<Clz>(t);
    case Alu::kBfind:
      return by_type32<Bfind>(t);
    case Alu::kBfindShift:
      return by_type32<BfindShift>(t);
    case Alu::kBrev:
      return reverse_type<Brev>(t);
    case Alu::kBfe:
      return by_type32<Bfe>(t);
    case Alu::kBfi:
      return wide ? &bfi<uint64_t> : word ? &bfi<uint32_t> : nullptr;
    case Alu::kBmskClamp:
      return word ? &apply<BmskClamp<uint32_t>> : nullptr;
    case Alu::kBmskWrap:
      return word ? &apply<BmskWrap<uint32_t>> : nullptr;
    case Alu::kSzextClamp:
      return only32<SzextClamp>(t);
    case Alu::kSzextWrap:
      return only32<SzextWrap>(t);
    case Alu::kFns:
      return &fns;
    case Alu::kShfLeftClamp:
      return &apply<ShfLClamp<uint32_t>>;
    case Alu::kShfLeftWrap:
      return &apply<ShfLWrap<uint32_t>>;
    case Alu::kShfRightClamp:
      return &apply<ShfRClamp<uint32_t>>;
    case Alu::kShfRightWrap:
      return &apply<ShfRWrap<uint32_t>>;
    case Alu::kLop3:
      return &lop3;
    case Alu::kPrmt:
      return &prmt;
    case Alu::kDp4a:
      return &dot<0>;
    case Alu::kDp2aLo:
      return &dot<1>;
    case Alu::kDp2aHi:
      return &dot<2>;
    case Alu::kAnd:
      return unsigned_type<And>(t);
    case Alu::kOr:
      return unsigned_type<Or>(t);
    case Alu::kXor:
      return unsigned_type<Xor>(t);
    case Alu::kNot:
      return unsigned_type<Not>(t);
    case Alu::kCnot:
      return unsigned_type<Cnot>(t);
    case Alu::kShl:
      return unsigned_type<Shl>(t);
    case Alu::kShr:
      return by_type<Shr>(t);
    case Alu::kSlct:
      return unsigned_type<Slct>(t);
    case Alu::kSlctF:
      return unsigned_type<SlctF>(t);
    case Alu::kSlctFtz:
      return unsigned_type<SlctFtz>(t);
    default:
      return extended_handler(op, t);
  }
}

// Two 16-bit numbers per register: the same loops over twice as many elements.
template <class F>
Event packed(const Op& op, Warp& w, uint32_t m) {
  using T = typename F::D;
  T* d = lanes<T>(w, op.d);
  const T *a = lanes<const T>(w, op.a), *b = lanes<const T>(w, op.b);
  TENDRIL_LANES
  for (int i = 0; i < 64; ++i) {
    T r = F::f(a[i], b[i], T(0));
    d[i] = (m & kBit[i / 2]) ? r : d[i];
  }
  return Event::kNext;
}
template <class T>
Handler packed_handler(Alu op) {
  switch (op) {
    case Alu::kAdd:
      return &packed<Add<T>>;
    case Alu::kMin:
      return &packed<Min<T>>;
    case Alu::kMax:
      return &packed<Max<T>>;
    case Alu::kMinRelu:
      return &packed<MinRelu<T>>;
    case Alu::kMaxRelu:
      return &packed<MaxRelu<T>>;
    default:
      return nullptr;
  }
}
}  // namespace

Handler alu_handler(Alu op, Type t) {
  if (t == Type::kU16x2) return packed_handler<uint16_t>(op);
  if (t == Type::kS16x2) return packed_handler<int16_t>(op);
  switch (op) {
    case Alu::kAdd:
      return by_type<Add>(t);
    case Alu::kSub:
      return by_type<Sub>(t);
    case Alu::kMulLo:
      return by_type<MulLo>(t);
    case Alu::kMulHi:
      return by_type<MulHi>(t);
    case Alu::kMulWide:
      return wide_type<MulWide>(t);
    case Alu::kMadLo:
      return by_type<MadLo>(t);
    case Alu::kMadHi:
      return by_type<MadHi>(t);
    case Alu::kMadWide:
      return wide_type<MadWide>(t);
    case Alu::kMul24Lo:
      return only32<Mul24Lo>(t);
    case Alu::kMul24Hi:
      return only32<Mul24Hi>(t);
    case Alu::kMad24Lo:
      return only32<Mad24Lo>(t);
    case Alu::kMad24Hi:
      return only32<Mad24Hi>(t);
    case Alu::kSad:
      return by_type<Sad>(t);
    case Alu::kDiv:
      return by_type<Div>(t);
    case Alu::kRem:
      return by_type<Rem>(t);
    case Alu::kAbs:
      return by_type<Abs>(t);
    case Alu::kNeg:
      return by_type<Neg>(t);
    case Alu::kMin:
      return by_type<Min>(t);
    case Alu::kMax:
      return by_type<Max>(t);
    case Alu::kMinRelu:
      return by_type<MinRelu>(t);
    case Alu::kMaxRelu:
      return by_type<MaxRelu>(t);
    case Alu::kAddSat:
      return t == Type::kS32 ? &apply<AddSat<int32_t>> : nullptr;
    case Alu::kSubSat:
      return t == Type::kS32 ? &apply<SubSat<int32_t>> : nullptr;
    case Alu::kMadHiSat:
      return t == Type::kS32 ? &apply<MadHiSat<int32_t>> : nullptr;
    case Alu::kMad24HiSat:
      return t == Type::kS32 ? &apply<Mad24HiSat<int32_t>> : nullptr;
    default:
      return bits_handler(op, t);
  }
}

}  // namespace TENDRIL_ISA
}  // namespace tendril::softgpu
