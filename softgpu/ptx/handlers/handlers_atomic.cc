// SPDX-License-Identifier: Apache-2.0
// Atomics and reductions. Engine threads share global memory, so those accesses use the host's
// atomics. Shared memory belongs to one block and therefore to one thread. Lanes go in ascending
// order.
#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/handlers/lanes.h"
#include "softgpu/ptx/memory.h"

namespace tendril::softgpu {
namespace {

template <class S, AtomOp K>
inline S combine(S old, S b, S c) {
  using U = std::make_unsigned_t<S>;
  switch (K) {
    case AtomOp::kAdd:
      return static_cast<S>(static_cast<U>(old) + static_cast<U>(b));
    case AtomOp::kMin:
      return old < b ? old : b;
    case AtomOp::kMax:
      return old > b ? old : b;
    case AtomOp::kInc:
      return static_cast<U>(old) >= static_cast<U>(b) ? S(0) : static_cast<S>(old + 1);
    case AtomOp::kDec:
      return old == 0 || static_cast<U>(old) > static_cast<U>(b) ? b : static_cast<S>(old - 1);
    case AtomOp::kAnd:
      return old & b;
    case AtomOp::kOr:
      return old | b;
    case AtomOp::kXor:
      return old ^ b;
    case AtomOp::kExch:
      return b;
    default:
      return old == b ? c : old;
  }
}

// Floats: T names the arithmetic, S the storage.
struct AddF32 {
  using S = uint32_t;
  static S f(S o, S b, S) {
    return bit_cast_to<uint32_t>(canonical(bit_cast_to<float>(o) + bit_cast_to<float>(b)));
  }
};
struct AddF64 {
  using S = uint64_t;
  static S f(S o, S b, S) {
    return bit_cast_to<uint64_t>(bit_cast_to<double>(o) + bit_cast_to<double>(b));
  }
};
uint16_t add_half(uint16_t a, uint16_t b) {
  return float_to_half(half_to_float(a) + half_to_float(b));
}
uint16_t add_bf16(uint16_t a, uint16_t b) {
  return float_to_bf16(bf16_to_float(a) + bf16_to_float(b));
}
struct AddF16 {
  using S = uint16_t;
  static S f(S o, S b, S) { return add_half(o, b); }
};
struct AddBf16 {
  using S = uint16_t;
  static S f(S o, S b, S) { return add_bf16(o, b); }
};
struct AddF16x2 {
  using S = uint32_t;
  static S f(S o, S b, S) {
    return add_half(static_cast<uint16_t>(o), static_cast<uint16_t>(b)) |
           static_cast<uint32_t>(add_half(o >> 16, b >> 16)) << 16;
  }
};
struct AddBf16x2 {
  using S = uint32_t;
  static S f(S o, S b, S) {
    return add_bf16(static_cast<uint16_t>(o), static_cast<uint16_t>(b)) |
           static_cast<uint32_t>(add_bf16(o >> 16, b >> 16)) << 16;
  }
};
template <class T, AtomOp K>
struct Integer {
  using S = T;
  static S f(S o, S b, S c) { return combine<T, K>(o, b, c); }
};

inline uint64_t lane_address(const Op& op, Warp& w, int i) {
  if (op.aux & 1)
    return static_cast<uint32_t>(lanes<uint32_t>(w, op.a)[i] + static_cast<uint32_t>(op.imm));
  return lanes<uint64_t>(w, op.a)[i] + static_cast<uint64_t>(op.imm);
}

template <class F>
Event atomic(const Op& op, Warp& w, uint32_t m) {
  using S = typename F::S;
  const MemSpace space = static_cast<MemSpace>(op.aux >> 4 & 7);
  const S *b = lanes<S>(w, op.b), *c = lanes<S>(w, op.c);
  S* d = op.d ? lanes<S>(w, op.d) : nullptr;
  for (uint32_t left = m; left; left &= left - 1) {
    const int i = __builtin_ctz(left);
    const uint64_t address = lane_address(op, w, i);
    bool global = false;
    if (address & (sizeof(S) - 1))
      return raise(w, Fault::kMisaligned, "misaligned address", address, i);
    S* p = reinterpret_cast<S*>(translate(w, space, address, sizeof(S), i, &global));
    if (!p) return raise(w, Fault::kIllegalAddress, "illegal address", address, i);
    S old;
    if (global) {
      old = __atomic_load_n(p, __ATOMIC_RELAXED);
      while (!__atomic_compare_exchange_n(p, &old, F::f(old, b[i], c[i]), true, __ATOMIC_SEQ_CST,
                                          __ATOMIC_RELAXED)) {
      }
      w.block->bytes_read += sizeof(S), w.block->bytes_written += sizeof(S);
    } else {
      old = *p;
      *p = F::f(old, b[i], c[i]);
    }
    if (d) d[i] = old;
  }
  return Event::kNext;
}

template <class T>
Handler integer(AtomOp op) {
  switch (op) {
    case AtomOp::kAdd:
      return &atomic<Integer<T, AtomOp::kAdd>>;
    case AtomOp::kMin:
      return &atomic<Integer<T, AtomOp::kMin>>;
    case AtomOp::kMax:
      return &atomic<Integer<T, AtomOp::kMax>>;
    case AtomOp::kInc:
      return &atomic<Integer<T, AtomOp::kInc>>;
    case AtomOp::kDec:
      return &atomic<Integer<T, AtomOp::kDec>>;
    case AtomOp::kAnd:
      return &atomic<Integer<T, AtomOp::kAnd>>;
    case AtomOp::kOr:
      return &atomic<Integer<T, AtomOp::kOr>>;
    case AtomOp::kXor:
      return &atomic<Integer<T, AtomOp::kXor>>;
    case AtomOp::kExch:
      return &atomic<Integer<T, AtomOp::kExch>>;
    default:
      return &atomic<Integer<T, AtomOp::kCas>>;
  }
}

}  // namespace

Handler atom_handler(AtomOp op, Type t) {
  const bool add = op == AtomOp::kAdd;
  switch (t) {
    case Type::kB16:
    case Type::kU16:
      return op == AtomOp::kCas || op == AtomOp::kExch ? integer<uint16_t>(op) : nullptr;
    case Type::kB32:
    case Type::kU32:
      return integer<uint32_t>(op);
    case Type::kS32:
      return integer<int32_t>(op);
    case Type::kB64:
    case Type::kU64:
      return integer<uint64_t>(op);
    case Type::kS64:
      return integer<int64_t>(op);
    case Type::kF32:
      return add ? &atomic<AddF32> : op == AtomOp::kExch ? integer<uint32_t>(op) : nullptr;
    case Type::kF64:
      return add ? &atomic<AddF64> : op == AtomOp::kExch ? integer<uint64_t>(op) : nullptr;
    case Type::kF16:
      return add ? &atomic<AddF16> : nullptr;
    case Type::kBF16:
      return add ? &atomic<AddBf16> : nullptr;
    case Type::kF16x2:
      return add ? &atomic<AddF16x2> : nullptr;
    case Type::kBF16x2:
      return add ? &atomic<AddBf16x2> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace tendril::softgpu
