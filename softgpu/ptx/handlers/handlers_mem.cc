// SPDX-License-Identifier: Apache-2.0
// Loads and stores. A warp's 32 addresses are checked together if possible: one bounds check on the
// smallest and largest, then one copy (contiguous), one broadcast (uniform) or an unchecked gather.
// Only if that fails is each lane looked at; that also finds faults. Compiled once per instruction
// set.
#include "softgpu/ptx/handlers/handlers_isa.h"
#include "softgpu/ptx/handlers/lanes.h"
#include "softgpu/ptx/memory.h"

namespace tendril::softgpu {
namespace TENDRIL_ISA {
namespace {

struct Access {
  alignas(64) uint64_t address[32];
  uint64_t low, high, bits;
  uint64_t base =
      0;  // host pointer minus device address, modulo 2^64: host() adds them; 0: go lane by lane
  MemSpace space;
  bool global = false, contiguous = false;
};

constexpr uint64_t kMaxPagesChecked = 16;
constexpr uint32_t kAhead = 16;  // warps

// Integers, because computing a pointer outside its object is not allowed.
inline uint8_t* host(uint64_t base, uint64_t address) {
  return reinterpret_cast<uint8_t*>(base + address);
}

inline uint64_t* unused_lane_fix(uint64_t* address, uint32_t m) {
  uint64_t first = address[__builtin_ctz(m)];
  for (int i = 0; i < 32; ++i) address[i] = (m & kBit[i]) ? address[i] : first;
  return address;
}

inline void find_global(Access& x, const Warp& w, uint32_t size) {
  const MemoryView& view = *w.block->launch->request->memory;
  x.global = true;
  if (view.exact && !in_block(view, x.low, x.high - x.low + size))
    return;  // perhaps several blocks
  for (const MemoryRegion& r : view.regions) {
    uint64_t lo = x.low - r.base, hi = x.high - r.base;
    if (lo >= r.bytes || hi >= r.bytes || size > r.bytes - hi) continue;
    if (r.valid_pages) {
      uint64_t p = lo / kPageBytes, q = (hi + size - 1) / kPageBytes;
      if (q - p > kMaxPagesChecked) return;
      for (; p <= q; ++p)
        if (!page_valid(r.valid_pages + p)) return;
    }
    x.base = reinterpret_cast<uint64_t>(r.host) - r.base;
    return;
  }
}

inline void find_window(Access& x, Warp& w, uint32_t size) {
  Block& b = *w.block;
  MemSpace s = x.space;
  if (s == MemSpace::kGeneric && x.low >> 56 == x.high >> 56) {
    uint64_t window = x.low >> 56;
    s = window == kSharedWindow >> 56  ? MemSpace::kShared
        : window == kLocalWindow >> 56 ? MemSpace::kLocal
        : window == kParamWindow >> 56 ? MemSpace::kParamKernel
                                       : MemSpace::kGlobal;
    if (s == MemSpace::kShared || s == MemSpace::kLocal) {
      for (uint64_t& a : x.address) a &= ~(0xFFull << 56);
      x.low &= ~(0xFFull << 56), x.high &= ~(0xFFull << 56);
    }
    x.space = s;
  }
  switch (s) {
    case MemSpace::kGlobal:
      find_global(x, w, size);
      break;
    case MemSpace::kShared:
      if (x.high < b.shared_bytes && size <= b.shared_bytes - x.high)
        x.base = reinterpret_cast<uint64_t>(b.shared);
      break;
    case MemSpace::kLocal:
      if (x.high < w.local_stride && size <= w.local_stride - x.high && !(x.bits & (size - 1))) {
        for (int i = 0; i < 32; ++i) x.address[i] += static_cast<uint64_t>(i) * w.local_stride;
        x.base = reinterpret_cast<uint64_t>(w.local.data());
        x.low = 0, x.high = 1;  // neither uniform nor contiguous any more
        x.contiguous = false;
      }
      break;
    default:
      break;
  }
}

// Fills in addresses and tries to resolve them together. An inactive lane takes the address of an
// active one.
inline void prepare(Access& x, const Op& op, Warp& w, uint32_t m, uint32_t size) {
  const uint64_t imm = static_cast<uint64_t>(op.imm);
  if (op.aux & 1) {
    const uint32_t* a = lanes<uint32_t>(w, op.a);
    for (int i = 0; i < 32; ++i)
      x.address[i] = static_cast<uint32_t>(a[i] + static_cast<uint32_t>(imm));
  } else {
    const uint64_t* a = lanes<uint64_t>(w, op.a);
    for (int i = 0; i < 32; ++i) x.address[i] = a[i] + imm;
  }
  if (m != kAllLanes) unused_lane_fix(x.address, m);
  uint64_t first = x.address[0], bits = 0, off = 0, same = 0;
  for (int i = 0; i < 32; ++i) {
    bits |= x.address[i];
    off |= x.address[i] ^ (first + static_cast<uint64_t>(i) * size);
    same |= x.address[i] ^ first;
  }
  x.bits = bits;
  x.contiguous = !off;
  x.space = static_cast<MemSpace>(op.aux >> 4 & 7);
  if (!off) {
    x.low = first, x.high = first + 31ull * size;
    if (x.high < x.low) x.contiguous = false, x.high = ~0ull;
  } else if (!same) {
    x.low = x.high = first;
  } else {
    uint64_t low = first, high = first;
    for (int i = 0; i < 32; ++i) {
      low = x.address[i] < low ? x.address[i] : low;
      high = x.address[i] > high ? x.address[i] : high;
    }
    x.low = low, x.high = high;
  }
  find_window(x, w, size);
}

// The shape of most traffic, found without writing down 64-bit addresses: a whole warp on
// consecutive elements of global memory. Returns its host pointer, or null.
template <uint32_t kSize>
inline uint8_t* run_of_global(const Op& op, Warp& w, uint32_t m) {
  if (m != kAllLanes || (op.aux & 0x71) != static_cast<uint16_t>(MemSpace::kGlobal) << 4)
    return nullptr;
  const uint64_t* a = lanes<uint64_t>(w, op.a);
  const uint64_t first = a[0];
  uint64_t off = 0;
  for (int i = 0; i < 32; ++i) off |= (a[i] - first) ^ (static_cast<uint64_t>(i) * kSize);
  const uint64_t at = first + static_cast<uint64_t>(op.imm);
  if (off || (at & (kSize - 1))) return nullptr;
  Access x;
  x.low = at, x.high = at + 31ull * kSize;
  if (x.high < x.low) return nullptr;
  find_global(x, w, kSize);
  return x.base ? host(x.base, at) : nullptr;
}

// Shared memory is small. In nearly all accesses each half of the warp reads or writes consecutive
// elements, or one element. This finds them without writing addresses down. Lanes that do not take
// part count too. If they spoil the shape, the slower ways remain.
struct Halves {
  uint32_t first[2];
  bool run[2];  // consecutive, not the same
};
template <uint32_t kSize, class A>
inline bool shared_halves(Halves& h, const A* a, uint64_t offset, uint64_t shared_bytes) {
  uint64_t off = 0;
  for (int half = 0; half < 2; ++half) {
    const A* at = a + 16 * half;
    const A first = at[0], step = static_cast<A>(at[1] - first);
    A different = 0;
    if (step == 0) {
      for (int i = 0; i < 16; ++i) different |= at[i] ^ first;
    } else if (step == kSize) {
      for (int i = 0; i < 16; ++i)
        different |=
            static_cast<A>(at[i] - first) ^ static_cast<A>(static_cast<uint32_t>(i) * kSize);
    } else {
      return false;
    }
    const uint64_t begin =
        sizeof(A) == 4 ? static_cast<uint32_t>(first + static_cast<A>(offset)) : first + offset;
    const uint64_t bytes = step == 0 ? kSize : 16 * kSize;
    if (begin >= shared_bytes || bytes > shared_bytes - begin) return false;
    off |= different | (begin & (kSize - 1));
    h.first[half] = static_cast<uint32_t>(begin);
    h.run[half] = step != 0;
  }
  return !off;
}
template <uint32_t kSize>
inline bool shared_halves(Halves& h, const Op& op, const Warp& w) {
  if ((op.aux >> 4 & 7) != static_cast<uint16_t>(MemSpace::kShared)) return false;
  const uint64_t offset = static_cast<uint64_t>(op.imm), bytes = w.block->shared_bytes;
  return op.aux & 1 ? shared_halves<kSize>(h, lanes<const uint32_t>(w, op.a), offset, bytes)
                    : shared_halves<kSize>(h, lanes<const uint64_t>(w, op.a), offset, bytes);
}

// Shared memory is small, so 32-bit offsets are enough. False if some lane needs a look of its own.
struct Offsets {
  alignas(64) uint32_t at[32];
  bool run = false;  // consecutive elements
};
template <uint32_t kSize>
inline bool shared_offsets(Offsets& o, const Op& op, const Warp& w, uint32_t m) {
  if ((op.aux >> 4 & 7) != static_cast<uint16_t>(MemSpace::kShared)) return false;
  uint32_t beyond = 0, bits = 0, top = 0, off = 0;
  if (op.aux & 1) {
    const uint32_t* a = lanes<uint32_t>(w, op.a);
    for (int i = 0; i < 32; ++i) o.at[i] = a[i] + static_cast<uint32_t>(op.imm);
  } else {
    const uint64_t* a = lanes<uint64_t>(w, op.a);
    for (int i = 0; i < 32; ++i) {
      const uint64_t v = a[i] + static_cast<uint64_t>(op.imm);
      o.at[i] = static_cast<uint32_t>(v);
      beyond |= (m & kBit[i]) ? static_cast<uint32_t>(v >> 32) : 0;
    }
  }
  if (m != kAllLanes)
    for (int i = 0; i < 32; ++i) o.at[i] = (m & kBit[i]) ? o.at[i] : 0;
  const uint32_t first = o.at[0];
  for (int i = 0; i < 32; ++i) {
    bits |= o.at[i];
    top = o.at[i] > top ? o.at[i] : top;
    off |= (o.at[i] - first) ^ (static_cast<uint32_t>(i) * kSize);
  }
  o.run = !off;
  const uint32_t bytes = w.block->shared_bytes;
  return !beyond && !(bits & (kSize - 1)) && top < bytes && kSize <= bytes - top;
}

// Finds the host pointer of every active lane, or the lane that faults.
inline bool by_lane(Access& x, Warp& w, uint32_t m, uint32_t size, uint8_t** pointer) {
  for (uint32_t left = m; left; left &= left - 1) {
    int i = __builtin_ctz(left);
    if (x.address[i] & (size - 1)) {
      raise(w, Fault::kMisaligned, "misaligned address", x.address[i], i);
      return false;
    }
    bool global = false;
    pointer[i] = translate(w, x.space, x.address[i], size, i, &global);
    x.global |= global;
    if (!pointer[i]) {
      raise(w, Fault::kIllegalAddress, "illegal address", x.address[i], i);
      return false;
    }
  }
  return true;
}

template <class M>
inline M fetch(const uint8_t* p) {
  M v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

template <int V>
inline uint32_t register_of(const Op& op, int k) {
  return V == 1 ? op.d : op.list[k];
}

// Sixteen lanes from consecutive elements or from one.
template <class M, class R>
inline void load_half(R* d, const uint8_t* from, bool run, uint32_t m) {
  const bool all = (m & 0xFFFF) == 0xFFFF;
  if (!run) {
    const R v = static_cast<R>(fetch<M>(from));
    if (all) {
      for (int i = 0; i < 16; ++i) d[i] = v;
    } else {
      for (int i = 0; i < 16; ++i) d[i] = (m & kBit[i]) ? v : d[i];
    }
  } else if (all) {
    for (int i = 0; i < 16; ++i) d[i] = static_cast<R>(fetch<M>(from + i * sizeof(M)));
  } else {
    for (int i = 0; i < 16; ++i) {
      const R v = static_cast<R>(fetch<M>(from + i * sizeof(M)));
      d[i] = (m & kBit[i]) ? v : d[i];
    }
  }
}

template <class M, class R>
inline bool load_fast(const Op& op, Warp& w, uint32_t m) {
  R* d = lanes<R>(w, op.d);
  if (const uint8_t* p = run_of_global<sizeof(M)>(op, w, m)) {
    if (op.aux & 2) return false;
    // The next warps probably go on where this one ends.
    const uint64_t ahead = reinterpret_cast<uint64_t>(p) + kAhead * 32 * sizeof(M);
    for (uint32_t line = 0; line < 32 * sizeof(M); line += 64)
      __builtin_prefetch(host(ahead, line));
    for (int i = 0; i < 32; ++i) d[i] = static_cast<R>(fetch<M>(p + i * sizeof(M)));
    w.block->bytes_read += 32 * sizeof(M);
    return true;
  }
  const uint8_t* base = w.block->shared;
  Halves h;
  if (shared_halves<sizeof(M)>(h, op, w)) {
    for (int half = 0; half < 2; ++half) {
      const uint8_t* from = base + h.first[half];
      load_half<M>(d + 16 * half, from, h.run[half], whole(w, m) ? kAllLanes : m >> 16 * half);
    }
    return true;
  }
  Offsets o;
  if (!shared_offsets<sizeof(M)>(o, op, w, m)) return false;
  if (o.run && whole(w, m)) {
    for (int i = 0; i < 32; ++i) d[i] = static_cast<R>(fetch<M>(base + o.at[0] + i * sizeof(M)));
  } else if (whole(w, m)) {
    for (int i = 0; i < 32; ++i) d[i] = static_cast<R>(fetch<M>(base + o.at[i]));
  } else {
    each_active(m, [&](int i) { d[i] = static_cast<R>(fetch<M>(base + o.at[i])); });
  }
  return true;
}

// Sixteen lanes to consecutive elements. Elements of lanes that do not take part are written back
// unchanged: the block is ours alone.
template <class M, class R>
inline void store_half(uint8_t* to, const R* s, uint32_t m) {
  if (!(m & 0xFFFF)) return;
  M v[16];
  __builtin_memcpy(v, to, sizeof v);
  for (int i = 0; i < 16; ++i) v[i] = (m & kBit[i]) ? static_cast<M>(s[i]) : v[i];
  __builtin_memcpy(to, v, sizeof v);
}

template <class M, class R>
inline bool store_fast(const Op& op, Warp& w, uint32_t m) {
  const R* s = lanes<R>(w, op.d);
  uint8_t* to = run_of_global<sizeof(M)>(op, w, m);
  Offsets o;
  if (to) {
    if (op.aux & 2) return false;
    w.block->bytes_written += 32 * sizeof(M);
  } else {
    Halves h;
    if (shared_halves<sizeof(M)>(h, op, w) && h.run[0] && h.run[1]) {
      for (int half = 0; half < 2; ++half)
        store_half<M>(w.block->shared + h.first[half], s + 16 * half, m >> 16 * half);
      return true;
    }
    if (!shared_offsets<sizeof(M)>(o, op, w, m)) return false;
    if (m != kAllLanes || !o.run) {
      each_active(m, [&](int i) {
        const M v = static_cast<M>(s[i]);
        __builtin_memcpy(w.block->shared + o.at[i], &v, sizeof v);
      });
      return true;
    }
    to = w.block->shared + o.at[0];
  }
  for (int i = 0; i < 32; ++i) {
    const M v = static_cast<M>(s[i]);
    __builtin_memcpy(to + i * sizeof(M), &v, sizeof v);
  }
  return true;
}

template <class M, class R, int V>
Event load(const Op& op, Warp& w, uint32_t m) {
  constexpr uint32_t size = sizeof(M) * V;
  if constexpr (V == 1 && sizeof(M) >= 4) {
    if (load_fast<M, R>(op, w, m)) return Event::kNext;
  }
  Access x;
  prepare(x, op, w, m, size);
  if (!x.base || (x.bits & (size - 1))) {
    uint8_t* pointer[32];
    if (!by_lane(x, w, m, size, pointer)) return Event::kFault;
    each_active(m, [&](int i) {
      // All elements are read before a register changes, because the address may be one of them.
      R value[V];
      for (int k = 0; k < V; ++k) value[k] = static_cast<R>(fetch<M>(pointer[i] + k * sizeof(M)));
      for (int k = 0; k < V; ++k) lanes<R>(w, register_of<V>(op, k))[i] = value[k];
    });
  } else if (x.contiguous && V == 1 && m == kAllLanes && sizeof(M) == sizeof(R)) {
    __builtin_memcpy(lanes<R>(w, op.d), host(x.base, x.low), 32 * sizeof(R));
  } else if (x.low == x.high) {
    for (int k = 0; k < V; ++k) {
      const R v = static_cast<R>(fetch<M>(host(x.base, x.low + k * sizeof(M))));
      each(w, m, lanes<R>(w, register_of<V>(op, k)), [&](int) { return v; });
    }
  } else {
    const uint64_t base = x.base;
    for (int k = 0; k < V; ++k) {
      R* d = lanes<R>(w, register_of<V>(op, k));
      if (whole(w, m)) {
        for (int i = 0; i < 32; ++i)
          d[i] = static_cast<R>(fetch<M>(host(base, x.address[i] + k * sizeof(M))));
      } else {
        each_active(m, [&](int i) {
          d[i] = static_cast<R>(fetch<M>(host(base, x.address[i] + k * sizeof(M))));
        });
      }
    }
  }
  if (x.global) w.block->bytes_read += static_cast<uint64_t>(__builtin_popcount(m)) * size;
  if (op.aux & 2) std::atomic_thread_fence(std::memory_order_acquire);
  return Event::kNext;
}

template <class M, class R, int V>
Event store(const Op& op, Warp& w, uint32_t m) {
  constexpr uint32_t size = sizeof(M) * V;
  if constexpr (V == 1 && sizeof(M) >= 4) {
    if (store_fast<M, R>(op, w, m)) return Event::kNext;
  }
  Access x;
  prepare(x, op, w, m, size);
  if (op.aux & 2) std::atomic_thread_fence(std::memory_order_release);
  if (x.base && !(x.bits & (size - 1))) {
    if (V == 1 && x.contiguous && m == kAllLanes && sizeof(M) == sizeof(R)) {
      __builtin_memcpy(host(x.base, x.low), lanes<R>(w, op.d), 32 * sizeof(R));
    } else {
      for (int k = 0; k < V; ++k) {
        const R* s = lanes<R>(w, register_of<V>(op, k));
        each_active(m, [&](int i) {
          M v = static_cast<M>(s[i]);
          __builtin_memcpy(host(x.base, x.address[i] + k * sizeof(M)), &v, sizeof v);
        });
      }
    }
  } else {
    uint8_t* pointer[32];
    if (!by_lane(x, w, m, size, pointer)) return Event::kFault;
    each_active(m, [&](int i) {
      for (int k = 0; k < V; ++k) {
        M v = static_cast<M>(lanes<R>(w, register_of<V>(op, k))[i]);
        __builtin_memcpy(pointer[i] + k * sizeof(M), &v, sizeof v);
      }
    });
  }
  if (x.global) w.block->bytes_written += static_cast<uint64_t>(__builtin_popcount(m)) * size;
  return Event::kNext;
}

template <class M, class R>
Handler by_vector(bool is_load, uint32_t vec) {
  switch (vec) {
    case 1:
      return is_load ? &load<M, R, 1> : &store<M, R, 1>;
    case 2:
      return is_load ? &load<M, R, 2> : &store<M, R, 2>;
    case 4:
      return is_load ? &load<M, R, 4> : &store<M, R, 4>;
    case 8:
      return is_load ? &load<M, R, 8> : &store<M, R, 8>;
    default:
      return nullptr;
  }
}
template <class M>
Handler by_register(bool is_load, uint32_t reg_bytes, uint32_t vec) {
  switch (reg_bytes) {
    case 2:
      return sizeof(M) <= 2 ? by_vector<M, uint16_t>(is_load, vec) : nullptr;
    case 4:
      return sizeof(M) <= 4 ? by_vector<M, uint32_t>(is_load, vec) : nullptr;
    case 8:
      return by_vector<M, uint64_t>(is_load, vec);
    default:
      return nullptr;
  }
}
Handler by_width(bool is_load, uint32_t bytes, uint32_t reg_bytes, bool is_signed, uint32_t vec) {
  switch (bytes) {
    case 1:
      return is_signed ? by_register<int8_t>(is_load, reg_bytes, vec)
                       : by_register<uint8_t>(is_load, reg_bytes, vec);
    case 2:
      return is_signed ? by_register<int16_t>(is_load, reg_bytes, vec)
                       : by_register<uint16_t>(is_load, reg_bytes, vec);
    case 4:
      return is_signed ? by_register<int32_t>(is_load, reg_bytes, vec)
                       : by_register<uint32_t>(is_load, reg_bytes, vec);
    case 8:
      return reg_bytes == 8 ? by_vector<uint64_t, uint64_t>(is_load, vec) : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

Handler load_handler(MemSpace, uint32_t bytes, uint32_t reg_bytes, bool is_signed, uint32_t vec) {
  return by_width(true, bytes, reg_bytes, is_signed, vec);
}
Handler store_handler(MemSpace, uint32_t bytes, uint32_t reg_bytes, uint32_t vec) {
  return by_width(false, bytes, reg_bytes, false, vec);
}

}  // namespace TENDRIL_ISA
}  // namespace tendril::softgpu
