// SPDX-License-Identifier: Apache-2.0
// Integer, logic, bit and comparison instructions against models in wide host integers.
#include "softgpu/ptx/ops_harness.h"

namespace tendril::softgpu {
namespace {

using i16 = int16_t;
using u16 = uint16_t;
using i32 = int32_t;
using u32 = uint32_t;
using i64 = int64_t;
using u64 = uint64_t;
using i128 = __int128;
using u128 = unsigned __int128;

class IntOps : public ::testing::TestWithParam<OpCase> {};
TEST_P(IntOps, MatchesModel) { check_op(GetParam()); }

template <class T>
void arithmetic(std::vector<OpCase>& v, const std::string& t) {
  v.push_back(
      op<T(T, T)>("add." + t, [](T a, T b) { return static_cast<T>(static_cast<i128>(a) + b); }));
  v.push_back(
      op<T(T, T)>("sub." + t, [](T a, T b) { return static_cast<T>(static_cast<i128>(a) - b); }));
  v.push_back(op<T(T, T)>("mul.lo." + t, [](T a, T b) {
    return static_cast<T>(static_cast<u128>(a) * static_cast<u128>(b));
  }));
  v.push_back(op<T(T, T)>("mul.hi." + t, [](T a, T b) {
    using W = std::conditional_t<std::is_signed_v<T>, i128, u128>;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b) >> (sizeof(T) * 8));
  }));
  v.push_back(op<T(T, T, T)>("mad.lo." + t, [](T a, T b, T c) {
    return static_cast<T>(static_cast<u128>(a) * static_cast<u128>(b) + static_cast<u128>(c));
  }));
  v.push_back(op<T(T, T, T)>("mad.hi." + t, [](T a, T b, T c) {
    using W = std::conditional_t<std::is_signed_v<T>, i128, u128>;
    return static_cast<T>((static_cast<W>(a) * static_cast<W>(b) >> (sizeof(T) * 8)) + c);
  }));
  v.push_back(op<T(T, T)>("div." + t, [](T a, T b) {
    return static_cast<T>(b == 0 ? static_cast<i128>(-1) : static_cast<i128>(a) / b);
  }));
  v.push_back(op<T(T, T)>("rem." + t, [](T a, T b) {
    return static_cast<T>(b == 0 ? static_cast<i128>(a) : static_cast<i128>(a) % b);
  }));
  v.push_back(op<T(T, T)>("min." + t, [](T a, T b) { return std::min(a, b); }));
  v.push_back(op<T(T, T)>("max." + t, [](T a, T b) { return std::max(a, b); }));
  v.push_back(op<T(T, T, T)>("sad." + t, [](T a, T b, T c) {
    return static_cast<T>(static_cast<i128>(c) +
                          (a < b ? static_cast<i128>(b) - a : static_cast<i128>(a) - b));
  }));
  if (std::is_signed_v<T>) {
    v.push_back(op<T(T)>("abs." + t, [](T a) {
      return static_cast<T>(a < 0 ? -static_cast<i128>(a) : static_cast<i128>(a));
    }));
    v.push_back(op<T(T)>("neg." + t, [](T a) { return static_cast<T>(-static_cast<i128>(a)); }));
  }
  v.push_back(op<T(T, Count)>("shr." + t, [](T a, Count n) {
    if (n.v >= sizeof(T) * 8) return static_cast<T>(std::is_signed_v<T> && a < 0 ? -1 : 0);
    return static_cast<T>(a >> n.v);
  }));
  const char* cmp[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  for (int k = 0; k < 6; ++k)
    v.push_back(op<bool(T, T)>(std::string("setp.") + cmp[k] + "." + t, [k](T a, T b) {
      return k == 0   ? a == b
             : k == 1 ? a != b
             : k == 2 ? a < b
             : k == 3 ? a <= b
             : k == 4 ? a > b
                      : a >= b;
    }));
}

template <class T>
void wide(std::vector<OpCase>& v, const std::string& t) {
  using W = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, i32, u32>,
                               std::conditional_t<std::is_signed_v<T>, i64, u64>>;
  v.push_back(op<W(T, T)>("mul.wide." + t,
                          [](T a, T b) { return static_cast<W>(static_cast<i128>(a) * b); }));
  v.push_back(op<W(T, T, W)>(
      "mad.wide." + t, [](T a, T b, W c) { return static_cast<W>(static_cast<i128>(a) * b + c); }));
}

template <class T>
void logic(std::vector<OpCase>& v, const std::string& b) {
  v.push_back(op<T(T, T)>("and." + b, [](T x, T y) { return static_cast<T>(x & y); }));
  v.push_back(op<T(T, T)>("or." + b, [](T x, T y) { return static_cast<T>(x | y); }));
  v.push_back(op<T(T, T)>("xor." + b, [](T x, T y) { return static_cast<T>(x ^ y); }));
  v.push_back(op<T(T)>("not." + b, [](T x) { return static_cast<T>(~x); }));
  v.push_back(op<T(T)>("cnot." + b, [](T x) { return static_cast<T>(x == 0); }));
  v.push_back(op<T(T, Count)>("shl." + b, [](T x, Count n) {
    return static_cast<T>(n.v >= sizeof(T) * 8 ? 0 : static_cast<u128>(x) << n.v);
  }));
}

// Bit by bit, as the ISA defines it.
template <class T>
T bfe(T a, u32 b, u32 c) {
  using U = std::make_unsigned_t<T>;
  int msb = sizeof(T) * 8 - 1, pos = b & 255, len = c & 255;
  U x = static_cast<U>(a), d = 0;
  bool sign = std::is_signed_v<T> && len ? x >> std::min(pos + len - 1, msb) & 1 : false;
  for (int i = 0; i <= msb; ++i) {
    bool bit = i < len && pos + i <= msb ? x >> (pos + i) & 1 : sign;
    d |= static_cast<U>(bit) << i;
  }
  return static_cast<T>(d);
}
template <class T>
T bfi(T a, T b, u32 c, u32 d) {
  int msb = sizeof(T) * 8 - 1, pos = c & 255, len = d & 255;
  for (int i = 0; i < len && pos + i <= msb; ++i) {
    T bit = T(1) << (pos + i);
    b = (a >> i & 1) ? b | bit : b & ~bit;
  }
  return b;
}
template <class T>
u32 bfind(T a) {
  using U = std::make_unsigned_t<T>;
  U x = a < 0 ? ~static_cast<U>(a) : static_cast<U>(a);
  for (int i = sizeof(T) * 8 - 1; i >= 0; --i)
    if (x >> i & 1) return static_cast<u32>(i);
  return ~0u;
}

template <class T>
void bits(std::vector<OpCase>& v, const std::string& b, const std::string& u,
          const std::string& s) {
  using S = std::make_signed_t<T>;
  v.push_back(op<u32(T)>("popc." + b, [](T x) {
    u32 n = 0;
    for (; x; x >>= 1) n += x & 1;
    return n;
  }));
  v.push_back(op<u32(T)>("clz." + b, [](T x) {
    u32 i = bfind<T>(x);
    return i == ~0u ? u32(sizeof(T) * 8) : u32(sizeof(T) * 8 - 1 - i);
  }));
  v.push_back(op<T(T)>("brev." + b, [](T x) {
    T r = 0;
    for (unsigned i = 0; i < sizeof(T) * 8; ++i) r = r << 1 | (x >> i & 1);
    return r;
  }));
  v.push_back(op<u32(T)>("bfind." + u, [](T x) { return bfind<T>(x); }));
  v.push_back(op<u32(S)>("bfind." + s, [](S x) { return bfind<S>(x); }));
  v.push_back(op<u32(S)>("bfind.shiftamt." + s, [](S x) {
    u32 i = bfind<S>(x);
    return i == ~0u ? i : u32(sizeof(T) * 8 - 1 - i);
  }));
  v.push_back(op<T(T, Count, Count)>("bfe." + u,
                                     [](T a, Count x, Count y) { return bfe<T>(a, x.v, y.v); }));
  v.push_back(op<S(S, Count, Count)>("bfe." + s,
                                     [](S a, Count x, Count y) { return bfe<S>(a, x.v, y.v); }));
  v.push_back(op<T(T, T, Count)>("bfi." + b + " %d, %a, %b, %c, 11;",
                                 [](T a, T x, Count y) { return bfi<T>(a, x, y.v, 11); }));
  v.push_back(op<T(T, T, Count)>("bfi." + b + " %d, %a, %b, 5, %c;",
                                 [](T a, T x, Count y) { return bfi<T>(a, x, 5, y.v); }));
}

i32 clamp(i64 x) {
  return static_cast<i32>(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}

u32 prmt(u32 a, u32 b, u32 c) {
  unsigned char src[8];
  std::memcpy(src, &a, 4), std::memcpy(src + 4, &b, 4);
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    u32 s = c >> 4 * i & 15, byte = src[s & 7];
    r |= (s & 8 ? (byte & 0x80 ? 255u : 0u) : byte) << 8 * i;
  }
  return r;
}

void words(std::vector<OpCase>& v) {  // structure: table
  v.push_back(op<i32(i32, i32)>("add.sat.s32",
                                [](i32 a, i32 b) { return clamp(static_cast<i64>(a) + b); }));
  v.push_back(op<i32(i32, i32)>("sub.sat.s32",
                                [](i32 a, i32 b) { return clamp(static_cast<i64>(a) - b); }));
  v.push_back(op<i32(i32, i32, i32)>("mad.hi.sat.s32", [](i32 a, i32 b, i32 c) {
    return clamp((static_cast<i64>(a) * b >> 32) + c);
  }));
  auto s24 = [](i32 a) {
    return static_cast<i64>(static_cast<i32>(static_cast<u32>(a) << 8) >> 8);
  };
  v.push_back(op<i32(i32, i32)>("mul24.lo.s32",
                                [s24](i32 a, i32 b) { return static_cast<i32>(s24(a) * s24(b)); }));
  v.push_back(op<i32(i32, i32)>(
      "mul24.hi.s32", [s24](i32 a, i32 b) { return static_cast<i32>(s24(a) * s24(b) >> 16); }));
  v.push_back(op<u32(u32, u32)>("mul24.lo.u32", [](u32 a, u32 b) {
    return static_cast<u32>(static_cast<u64>(a & 0xFFFFFF) * (b & 0xFFFFFF));
  }));
  v.push_back(op<u32(u32, u32, u32)>("mad24.hi.u32", [](u32 a, u32 b, u32 c) {
    return static_cast<u32>(static_cast<u64>(a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16) + c;
  }));
  v.push_back(op<u32(u32, u32, u32)>("prmt.b32", prmt));
  v.push_back(op<u32(u32, u32, u32)>("lop3.b32 %d, %a, %b, %c, 0xE8;", [](u32 a, u32 b, u32 c) {
    return (a & b) | (a & c) | (b & c);
  }));
  v.push_back(op<u32(u32, u32, u32)>("lop3.b32 %d, %a, %b, %c, 0x2D;", [](u32 a, u32 b, u32 c) {
    u32 r = 0;
    for (int i = 0; i < 32; ++i)
      r |= static_cast<u32>(0x2D >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i;
    return r;
  }));
  auto cat = [](u32 lo, u32 hi) { return static_cast<u64>(hi) << 32 | lo; };
  v.push_back(op<u32(u32, u32, Count)>("shf.l.wrap.b32", [cat](u32 a, u32 b, Count n) {
    return static_cast<u32>(cat(a, b) << (n.v & 31) >> 32);
  }));
  v.push_back(op<u32(u32, u32, Count)>("shf.r.wrap.b32", [cat](u32 a, u32 b, Count n) {
    return static_cast<u32>(cat(a, b) >> (n.v & 31));
  }));
  v.push_back(op<u32(u32, u32, Count)>("shf.l.clamp.b32", [cat](u32 a, u32 b, Count n) {
    return n.v >= 32 ? a : static_cast<u32>(cat(a, b) << n.v >> 32);
  }));
  v.push_back(op<u32(u32, u32, Count)>("shf.r.clamp.b32", [cat](u32 a, u32 b, Count n) {
    return n.v >= 32 ? b : static_cast<u32>(cat(a, b) >> n.v);
  }));
  v.push_back(op<u32(u32, u32, u32)>("dp4a.u32.u32", [](u32 a, u32 b, u32 c) {
    for (int i = 0; i < 4; ++i) c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return c;
  }));
  v.push_back(op<i32(u32, u32, i32)>("dp4a.s32.u32", [](u32 a, u32 b, i32 c) {
    i64 r = c;
    for (int i = 0; i < 4; ++i)
      r += static_cast<i64>(static_cast<int8_t>(a >> 8 * i)) * static_cast<i64>(b >> 8 * i & 255);
    return static_cast<i32>(r);
  }));
  v.push_back(op<i32(u32, u32, i32)>("dp2a.hi.s32.s32", [](u32 a, u32 b, i32 c) {
    i64 r = c;
    for (int i = 0; i < 2; ++i)
      r += static_cast<i64>(static_cast<i16>(a >> 16 * i)) * static_cast<int8_t>(b >> (16 + 8 * i));
    return static_cast<i32>(r);
  }));
  v.push_back(op<u32(Count, Count)>("bmsk.clamp.b32", [](Count a, Count b) {
    u32 r = 0;
    for (u64 i = a.v; i < static_cast<u64>(a.v) + b.v && i < 32; ++i) r |= 1u << i;
    return r;
  }));
  v.push_back(
      op<u32(u32, u32, i32)>("selp.b32 %d, %a, %b, %p1;", [](u32 a, u32, i32) { return a; }));
  v.back().text = "setp.lt.s32 %p1, %c, 0; selp.b32 %d, %a, %b, %p1;";
  v.back().model = [](const u64* x) { return static_cast<i32>(x[2]) < 0 ? x[0] : x[1]; };
  v.push_back(
      op<u32(u32, u32, i32)>("slct.u32.s32", [](u32 a, u32 b, i32 c) { return c >= 0 ? a : b; }));
  v.push_back(op<u32(u32, u32, float)>("slct.u32.f32",
                                       [](u32 a, u32 b, float c) { return c >= 0 ? a : b; }));
  v.push_back(op<u32(i32, i32)>("set.lt.u32.s32", [](i32 a, i32 b) { return a < b ? ~0u : 0u; }));
  v.push_back(
      op<float(u32, u32)>("set.hi.f32.u32", [](u32 a, u32 b) { return a > b ? 1.0f : 0.0f; }));
}

void carries(std::vector<OpCase>& v) {
  v.push_back(
      op<u64(u64, u64)>("{.reg .b32 x<6>; mov.b64 {x0,x1}, %a; mov.b64 {x2,x3}, %b; add.cc.u32 x4, "
                        "x0, x2; addc.u32 x5, x1, x3; mov.b64 %d, {x4,x5};}",
                        [](u64 a, u64 b) { return a + b; }));
  v.push_back(
      op<u64(u64, u64)>("{.reg .b32 x<6>; mov.b64 {x0,x1}, %a; mov.b64 {x2,x3}, %b; sub.cc.u32 x4, "
                        "x0, x2; subc.u32 x5, x1, x3; mov.b64 %d, {x4,x5};}",
                        [](u64 a, u64 b) { return a - b; }));
  v.push_back(op<u64(u64, u64)>(
      "{.reg .b64 l, h; add.cc.u64 l, %a, %b; addc.u64 h, 0, 0; mov.b64 %d, h;}",
      [](u64 a, u64 b) { return static_cast<u64>((static_cast<u128>(a) + b) >> 64); }));
  v.push_back(
      op<u64(u32, u32, u64)>("{.reg .b32 x<6>; mov.b64 {x0,x1}, %c; mad.lo.cc.u32 x2, %a, %b, x0; "
                             "madc.hi.u32 x3, %a, %b, x1; mov.b64 %d, {x2,x3};}",
                             [](u32 a, u32 b, u64 c) { return static_cast<u64>(a) * b + c; }));
}

std::vector<OpCase> all() {
  std::vector<OpCase> v;
  arithmetic<i16>(v, "s16"), arithmetic<u16>(v, "u16"), arithmetic<i32>(v, "s32"),
      arithmetic<u32>(v, "u32");
  arithmetic<i64>(v, "s64"), arithmetic<u64>(v, "u64");
  wide<i16>(v, "s16"), wide<u16>(v, "u16"), wide<i32>(v, "s32"), wide<u32>(v, "u32");
  logic<u16>(v, "b16"), logic<u32>(v, "b32"), logic<u64>(v, "b64");
  bits<u32>(v, "b32", "u32", "s32"), bits<u64>(v, "b64", "u64", "s64");
  words(v), carries(v);
  return v;
}

std::string name_of(const ::testing::TestParamInfo<OpCase>& info) {
  std::string s = info.param.text.substr(0, info.param.text.find(' '));
  for (char& c : s)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return s + "_" + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Table, IntOps, ::testing::ValuesIn(all()), name_of);

}  // namespace
}  // namespace tendril::softgpu
