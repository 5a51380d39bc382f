// SPDX-License-Identifier: Apache-2.0
// Comparisons, selections, moves, predicate logic and shuffles. Compiled once per instruction set.
#include "softgpu/ptx/handlers/handlers_isa.h"
#include "softgpu/ptx/handlers/lanes.h"

namespace tendril::softgpu {
namespace TENDRIL_ISA {
namespace {

template <Cmp K, class V>
inline bool test(V a, V b) {
  bool unordered = a != a || b != b;
  if constexpr (K == Cmp::kEq) return a == b;
  if constexpr (K == Cmp::kNe) return !unordered && a != b;
  if constexpr (K == Cmp::kLt) return a < b;
  if constexpr (K == Cmp::kLe) return a <= b;
  if constexpr (K == Cmp::kGt) return a > b;
  if constexpr (K == Cmp::kGe) return a >= b;
  if constexpr (K == Cmp::kEqu) return unordered || a == b;
  if constexpr (K == Cmp::kNeu) return !(a == b);
  if constexpr (K == Cmp::kLtu) return !(a >= b);
  if constexpr (K == Cmp::kLeu) return !(a > b);
  if constexpr (K == Cmp::kGtu) return !(a <= b);
  if constexpr (K == Cmp::kGeu) return !(a < b);
  if constexpr (K == Cmp::kNum) return !unordered;
  return unordered;
}

// How a lane's storage becomes a comparable value.
template <class T>
struct Plain {
  using Store = T;
  static inline T load(T v) { return v; }
};
struct Flushed {
  using Store = float;
  static inline float load(float v) { return flush(v); }
};
struct Half {
  using Store = uint16_t;
  static inline float load(uint16_t v) { return half_to_float(v); }
};
struct Bf16 {
  using Store = uint16_t;
  static inline float load(uint16_t v) { return bf16_to_float(v); }
};

template <Cmp K, class V>
inline uint32_t compare(const Op& op, const Warp& w) {
  const auto* a = lanes<const typename V::Store>(w, op.a);
  const auto* b = lanes<const typename V::Store>(w, op.b);
  return gather_bits([&](int i) { return test<K>(V::load(a[i]), V::load(b[i])); });
}
inline uint32_t combine(const Op& op, Warp& w, uint32_t r) {
  if (!(op.aux & 3)) return r;
  uint32_t c = predicate(w, op.c) ^ (op.aux & 16 ? ~0u : 0u);
  switch (op.aux & 3) {
    case 1:
      return r & c;
    case 2:
      return r | c;
    default:
      return r ^ c;
  }
}

// `setp p|q`: q gets the complement of the comparison, combined with c in the same way.
template <Cmp K, class V>
Event setp(const Op& op, Warp& w, uint32_t m) {
  uint32_t r = compare<K, V>(op, w);
  uint32_t p = combine(op, w, r), q = combine(op, w, ~r);
  set_predicate(w, op.d, m, p);
  if (op.e) set_predicate(w, op.e, m, q);
  return Event::kNext;
}

// Op::imm: the value for true; Op::n: bytes of the destination.
template <Cmp K, class V>
Event set(const Op& op, Warp& w, uint32_t m) {
  uint32_t p = combine(op, w, compare<K, V>(op, w));
  if (op.n == 2) {
    uint16_t* d = lanes<uint16_t>(w, op.d);
    each_active(m, [&](int i) { d[i] = p >> i & 1 ? static_cast<uint16_t>(op.imm) : 0; });
  } else {
    uint32_t* d = lanes<uint32_t>(w, op.d);
    each_active(m, [&](int i) { d[i] = p >> i & 1 ? static_cast<uint32_t>(op.imm) : 0; });
  }
  return Event::kNext;
}

// set on f16x2/bf16x2: both halves, results packed (aux bit 5: destination halves get 1.0 or ones,
// by imm's halves). setp writes p and q from the low and high halves.
template <Cmp K, class V>
Event packed(const Op& op, Warp& w, uint32_t m) {
  const uint16_t *a = lanes<uint16_t>(w, op.a), *b = lanes<uint16_t>(w, op.b);
  uint32_t low = 0, top = 0;
  for (int i = 0; i < 32; ++i) {
    low |= static_cast<uint32_t>(test<K>(V::load(a[2 * i]), V::load(b[2 * i]))) << i;
    top |= static_cast<uint32_t>(test<K>(V::load(a[2 * i + 1]), V::load(b[2 * i + 1]))) << i;
  }
  low = combine(op, w, low), top = combine(op, w, top);
  if (op.aux & 32) {
    uint32_t* d = lanes<uint32_t>(w, op.d);
    uint32_t one = static_cast<uint32_t>(op.imm) & 0xFFFF;
    each_active(m,
                [&](int i) { d[i] = (low >> i & 1 ? one : 0) | (top >> i & 1 ? one << 16 : 0); });
  } else {
    set_predicate(w, op.d, m, low);
    if (op.e) set_predicate(w, op.e, m, top);
  }
  return Event::kNext;
}

template <class V, bool Set>
Handler by_cmp(Cmp c) {
  switch (c) {
#define TENDRIL_CMP(K) \
  case Cmp::K:         \
    return Set ? &set<Cmp::K, V> : &setp<Cmp::K, V>
    TENDRIL_CMP(kEq);
    TENDRIL_CMP(kNe);
    TENDRIL_CMP(kLt);
    TENDRIL_CMP(kLe);
    TENDRIL_CMP(kGt);
    TENDRIL_CMP(kGe);
    TENDRIL_CMP(kEqu);
    TENDRIL_CMP(kNeu);
    TENDRIL_CMP(kLtu);
    TENDRIL_CMP(kLeu);
    TENDRIL_CMP(kGtu);
    TENDRIL_CMP(kGeu);
    TENDRIL_CMP(kNum);
    TENDRIL_CMP(kNan);
#undef TENDRIL_CMP
  }
  return nullptr;
}
template <class T, bool Set>
Handler by_int_cmp(Cmp c) {
  switch (c) {
#define TENDRIL_CMP(K) \
  case Cmp::K:         \
    return Set ? &set<Cmp::K, Plain<T>> : &setp<Cmp::K, Plain<T>>
    TENDRIL_CMP(kEq);
    TENDRIL_CMP(kNe);
    TENDRIL_CMP(kLt);
    TENDRIL_CMP(kLe);
    TENDRIL_CMP(kGt);
    TENDRIL_CMP(kGe);
#undef TENDRIL_CMP
    default:
      return nullptr;
  }
}
template <class V>
Handler by_packed_cmp(Cmp c) {
  switch (c) {
#define TENDRIL_CMP(K) \
  case Cmp::K:         \
    return &packed<Cmp::K, V>
    TENDRIL_CMP(kEq);
    TENDRIL_CMP(kNe);
    TENDRIL_CMP(kLt);
    TENDRIL_CMP(kLe);
    TENDRIL_CMP(kGt);
    TENDRIL_CMP(kGe);
    TENDRIL_CMP(kEqu);
    TENDRIL_CMP(kNeu);
    TENDRIL_CMP(kLtu);
    TENDRIL_CMP(kLeu);
    TENDRIL_CMP(kGtu);
    TENDRIL_CMP(kGeu);
    TENDRIL_CMP(kNum);
    TENDRIL_CMP(kNan);
#undef TENDRIL_CMP
  }
  return nullptr;
}

template <bool Set>
Handler compare_handler(Cmp c, Type t, bool ftz) {
  switch (t) {
    case Type::kB16:
    case Type::kU16:
      return by_int_cmp<uint16_t, Set>(c);
    case Type::kS16:
      return by_int_cmp<int16_t, Set>(c);
    case Type::kB32:
    case Type::kU32:
      return by_int_cmp<uint32_t, Set>(c);
    case Type::kS32:
      return by_int_cmp<int32_t, Set>(c);
    case Type::kB64:
    case Type::kU64:
      return by_int_cmp<uint64_t, Set>(c);
    case Type::kS64:
      return by_int_cmp<int64_t, Set>(c);
    case Type::kF32:
      return ftz ? by_cmp<Flushed, Set>(c) : by_cmp<Plain<float>, Set>(c);
    case Type::kF64:
      return by_cmp<Plain<double>, Set>(c);
    case Type::kF16:
      return by_cmp<Half, Set>(c);
    case Type::kBF16:
      return by_cmp<Bf16, Set>(c);
    case Type::kF16x2:
      return by_packed_cmp<Half>(c);
    case Type::kBF16x2:
      return by_packed_cmp<Bf16>(c);
    default:
      return nullptr;
  }
}

template <class T>
Event selp(const Op& op, Warp& w, uint32_t m) {
  T* d = lanes<T>(w, op.d);
  const T *a = lanes<T>(w, op.a), *b = lanes<T>(w, op.b);
  const uint32_t p = predicate(w, op.c) ^ op.e;  // e: all ones for a negated predicate
  each(w, m, d, [&](int i) { return (p & kBit[i]) ? a[i] : b[i]; });
  return Event::kNext;
}

template <class T>
Event mov(const Op& op, Warp& w, uint32_t m) {
  T* d = lanes<T>(w, op.d);
  const T* a = lanes<T>(w, op.a);
  if (whole(w, m))
    __builtin_memcpy(d, a, 32 * sizeof(T));
  else
    each(w, m, d, [&](int i) { return a[i]; });
  return Event::kNext;
}

template <TestP K, class T, class U, int Mant>
Event testp(const Op& op, Warp& w, uint32_t m) {
  const U* a = lanes<const U>(w, op.a);
  constexpr U top = ~U(0) >> 1;
  [[maybe_unused]] constexpr U inf = top & ~((U(1) << Mant) - 1);
  uint32_t r = gather_bits([&](int i) {
    U v = a[i] & top;
    if constexpr (K == TestP::kFinite) return v < inf;
    if constexpr (K == TestP::kInfinite) return v == inf;
    if constexpr (K == TestP::kNumber) return v <= inf;
    if constexpr (K == TestP::kNotANumber) return v > inf;
    if constexpr (K == TestP::kNormal)
      return v == 0 || (v < inf && v >= (U(1) << Mant));  // the ISA counts zeros as normal
    return v != 0 && v < (U(1) << Mant);
  });
  set_predicate(w, op.d, m, r);
  return Event::kNext;
}
template <TestP K>
Handler testp_type(Type t) {
  return t == Type::kF64   ? &testp<K, double, uint64_t, 52>
         : t == Type::kF32 ? &testp<K, float, uint32_t, 23>
                           : nullptr;
}

// Op::aux: bit 0 a negated, bit 1 b negated.
template <Alu K>
Event logic(const Op& op, Warp& w, uint32_t m) {
  uint32_t a = predicate(w, op.a) ^ (op.aux & 1 ? ~0u : 0),
           b = predicate(w, op.b) ^ (op.aux & 2 ? ~0u : 0);
  uint32_t r = K == Alu::kAnd   ? a & b
               : K == Alu::kOr  ? a | b
               : K == Alu::kXor ? a ^ b
               : K == Alu::kNot ? ~a
                                : a;
  set_predicate(w, op.d, m, r);
  return Event::kNext;
}

// Lanes read from inactive ones get 0, as measured on hardware. With `.sync`, e is the frame offset
// of the member masks.
template <int Mode>
Event shuffle(const Op& op, Warp& w, uint32_t m) {
  uint32_t* d = lanes<uint32_t>(w, op.d);
  const uint32_t *a = lanes<uint32_t>(w, op.a), *b = lanes<uint32_t>(w, op.b),
                 *c = lanes<uint32_t>(w, op.c);
  if (op.aux && !meet(op, w, m, lanes<uint32_t>(w, op.e))) return Event::kSplits;
  alignas(64) uint32_t value[32], r[32];
  for (int i = 0; i < 32; ++i) value[i] = (m >> i & 1) ? a[i] : 0;
  alignas(64) uint8_t ok[32];
  for (int i = 0; i < 32; ++i) {
    const int lane = i;
    int bv = b[i] & 31, mask = c[i] >> 8 & 31, clamp = c[i] & 31;
    int max_lane = (lane & mask) | (clamp & ~mask & 31), min_lane = lane & mask;
    int j = Mode == 0   ? lane - bv
            : Mode == 1 ? lane + bv
            : Mode == 2 ? lane ^ bv
                        : min_lane | (bv & ~mask & 31);
    bool in = Mode == 0 ? j >= max_lane : j <= max_lane;
    j = in ? j : lane;
    ok[i] = in;
    r[i] = value[j & 31];
  }
  each(w, m, d, [&](int i) { return r[i]; });
  if (op.imm) {
    uint32_t p = gather_bits([&](int i) { return ok[i]; });
    set_predicate(w, static_cast<uint32_t>(op.imm), m, p);
  }
  return Event::kNext;
}

}  // namespace

Handler setp_handler(Cmp c, Type t, bool ftz) { return compare_handler<false>(c, t, ftz); }
Handler set_handler(Cmp c, Type t, Type, bool ftz) { return compare_handler<true>(c, t, ftz); }
Handler selp_handler(uint32_t bytes) {
  return bytes == 2   ? &selp<uint16_t>
         : bytes == 4 ? &selp<uint32_t>
         : bytes == 8 ? &selp<uint64_t>
                      : nullptr;
}
Handler mov_handler(uint32_t bytes) {
  return bytes == 2   ? &mov<uint16_t>
         : bytes == 4 ? &mov<uint32_t>
         : bytes == 8 ? &mov<uint64_t>
                      : nullptr;
}
Handler testp_handler(TestP p, Type t) {
  switch (p) {
    case TestP::kFinite:
      return testp_type<TestP::kFinite>(t);
    case TestP::kInfinite:
      return testp_type<TestP::kInfinite>(t);
    case TestP::kNumber:
      return testp_type<TestP::kNumber>(t);
    case TestP::kNotANumber:
      return testp_type<TestP::kNotANumber>(t);
    case TestP::kNormal:
      return testp_type<TestP::kNormal>(t);
    default:
      return testp_type<TestP::kSubnormal>(t);
  }
}
Handler predicate_handler(Alu op) {
  switch (op) {
    case Alu::kAnd:
      return &logic<Alu::kAnd>;
    case Alu::kOr:
      return &logic<Alu::kOr>;
    case Alu::kXor:
      return &logic<Alu::kXor>;
    case Alu::kNot:
      return &logic<Alu::kNot>;
    case Alu::kAdd:
      return &logic<Alu::kAdd>;
    default:
      return nullptr;
  }
}
Handler shuffle_handler(uint32_t mode) {
  switch (mode) {
    case 0:
      return &shuffle<0>;
    case 1:
      return &shuffle<1>;
    case 2:
      return &shuffle<2>;
    default:
      return &shuffle<3>;
  }
}

Handler alu_handler(Alu op, Type t);
Handler falu_handler(Falu op, Type t, FloatMode m);
Handler cvt_handler(CvtMode m);
Handler load_handler(MemSpace s, uint32_t bytes, uint32_t reg_bytes, bool is_signed, uint32_t vec);
Handler store_handler(MemSpace s, uint32_t bytes, uint32_t reg_bytes, uint32_t vec);

const IsaTable& table() {
  static constexpr IsaTable t = {&alu_handler,  &falu_handler, &setp_handler,  &set_handler,
                                 &selp_handler, &mov_handler,  &testp_handler, &predicate_handler,
                                 &cvt_handler,  &load_handler, &store_handler, &shuffle_handler};
  return t;
}

}  // namespace TENDRIL_ISA
}  // namespace tendril::softgpu
