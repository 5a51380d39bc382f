// SPDX-License-Identifier: Apache-2.0
// Handlers that exist once: special registers, packing, address windows, votes, matches and warp
// reductions.
#include <chrono>
#include <cstring>

#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/handlers/lanes.h"
#include "softgpu/ptx/memory.h"

namespace tendril::softgpu {
namespace {

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

// What the timers read.
uint64_t timer_ns(const Warp& w) {
  const uint64_t start = w.block->launch->request->clock_ns;
  return start == 0 ? now_ns() : start + w.block->warp_instructions;
}

uint64_t uniform_special(uint32_t s, const Warp& w) {
  const Block& b = *w.block;
  const LaunchRequest& r = *b.launch->request;
  switch (s) {
    case kNtidX:
      return r.block.x;
    case kNtidY:
      return r.block.y;
    case kNtidZ:
      return r.block.z;
    case kCtaidX:
    case kCtaidY:
    case kCtaidZ:
      return b.ctaid[s - kCtaidX];
    case kNctaidX:
      return r.grid.x;
    case kNctaidY:
      return r.grid.y;
    case kNctaidZ:
      return r.grid.z;
    case kWarpid:
      return w.index;
    case kNwarpid:
      return b.launch->warps;
    case kSmid:
      return b.smid;
    case kNsmid:
      return r.sm_count;
    case kClock:
      return static_cast<uint32_t>(timer_ns(w));
    case kClockHi:
    case kGlobaltimerHi:
      return timer_ns(w) >> 32;
    case kClock64:
    case kGlobaltimer:
      return timer_ns(w);
    case kGlobaltimerLo:
      return static_cast<uint32_t>(timer_ns(w));
    case kDynamicSmem:
      return r.dynamic_shared_bytes;
    case kTotalSmem:
      return b.shared_bytes;
    case kWarpSize:
      return 32;
    case kOneSpecial:
      return 1;
    default:
      return 0;
  }
}

uint32_t lane_special(uint32_t s, uint32_t lane, const Warp& w) {
  switch (s) {
    case kTidX:
    case kTidY:
    case kTidZ:
      return w.tid[s - kTidX][lane];
    case kLaneid:
      return lane;
    case kLanemaskEq:
      return 1u << lane;
    case kLanemaskLe:
      return (2u << lane) - 1;
    case kLanemaskLt:
      return (1u << lane) - 1;
    case kLanemaskGe:
      return ~((1u << lane) - 1);
    default:
      return ~((2u << lane) - 1);  // kLanemaskGt
  }
}

bool per_lane(uint32_t s) {
  return s <= kTidZ || s == kLaneid || (s >= kLanemaskEq && s <= kLanemaskGt);
}

}  // namespace

Event run_special(const Op& op, Warp& w, uint32_t m) {
  const uint32_t s = static_cast<uint32_t>(op.imm);
  if (per_lane(s)) {
    alignas(64) uint32_t v[32];
    if (s <= kTidZ)
      std::memcpy(v, w.tid[s - kTidX], sizeof v);
    else
      for (uint32_t i = 0; i < 32; ++i) v[i] = lane_special(s, i, w);
    if (op.size == 4)
      each(w, m, lanes<uint32_t>(w, op.d), [&](int i) { return v[i]; });
    else
      each(w, m, lanes<uint64_t>(w, op.d), [&](int i) { return static_cast<uint64_t>(v[i]); });
    return Event::kNext;
  }
  const uint64_t v = uniform_special(s, w);
  if (op.size == 4)
    each(w, m, lanes<uint32_t>(w, op.d), [&](int) { return static_cast<uint32_t>(v); });
  else
    each(w, m, lanes<uint64_t>(w, op.d), [&](int) { return v; });
  return Event::kNext;
}

Event run_local_address(const Op& op, Warp& w, uint32_t m) {
  const uint64_t v = w.frame->local_base + static_cast<uint64_t>(op.imm);
  if (op.size == 4)
    each(w, m, lanes<uint32_t>(w, op.d), [&](int) { return static_cast<uint32_t>(v); });
  else
    each(w, m, lanes<uint64_t>(w, op.d), [&](int) { return v; });
  return Event::kNext;
}

Event run_pack(const Op& op, Warp& w, uint32_t m) {
  const uint32_t n = op.n, size = op.size, whole_bytes = n * size, stride = std::max(size, 2u);
  each_active(m, [&](int i) {
    uint8_t v[16];
    for (uint32_t k = 0; k < n; ++k)
      std::memcpy(v + k * size, w.regs + op.list[k] + i * stride, size);
    std::memcpy(w.regs + op.d + i * whole_bytes, v, whole_bytes);
  });
  return Event::kNext;
}

Event run_unpack(const Op& op, Warp& w, uint32_t m) {
  const uint32_t n = op.n, size = op.size, whole_bytes = n * size, stride = std::max(size, 2u);
  each_active(m, [&](int i) {
    uint8_t v[16];
    std::memcpy(v, w.regs + op.a + i * whole_bytes, whole_bytes);
    for (uint32_t k = 0; k < n; ++k) {
      uint64_t e = 0;
      std::memcpy(&e, v + k * size, size);
      std::memcpy(w.regs + op.list[k] + i * stride, &e, stride);
    }
  });
  return Event::kNext;
}

// May be applied twice, in both directions: the address of a parameter may already carry its
// window.
Event run_cvta(const Op& op, Warp& w, uint32_t m) {
  uint64_t* d = lanes<uint64_t>(w, op.d);
  const uint64_t* a = lanes<uint64_t>(w, op.a);
  const uint64_t window = static_cast<uint64_t>(op.imm), low = ~(0xFFull << 56);
  if (op.aux)
    each(w, m, d, [&](int i) { return a[i] & low; });
  else
    each(w, m, d, [&](int i) { return (a[i] & low) | window; });
  return Event::kNext;
}

Event run_isspacep(const Op& op, Warp& w, uint32_t m) {
  const uint64_t* a = lanes<uint64_t>(w, op.a);
  uint32_t r = gather_bits([&](int i) {
    uint64_t window = a[i] >> 56;
    switch (static_cast<MemSpace>(op.imm)) {
      case MemSpace::kShared:
        return window == kSharedWindow >> 56;
      case MemSpace::kLocal:
        return window == kLocalWindow >> 56;
      case MemSpace::kParamKernel:
        return window == kParamWindow >> 56;
      case MemSpace::kGlobal:
        return window != kSharedWindow >> 56 && window != kLocalWindow >> 56 &&
               window != kParamWindow >> 56;
      default:
        return false;
    }
  });
  set_predicate(w, op.d, m, r);
  return Event::kNext;
}

Event run_vote(const Op& op, Warp& w, uint32_t m) {
  const uint32_t* members = lanes<uint32_t>(w, op.e);
  const bool sync = op.aux & 1;
  if (sync && !meet(op, w, m, members)) return Event::kSplits;
  const uint32_t p = (predicate(w, op.a) ^ (op.aux & 2 ? ~0u : 0)) & m;
  uint32_t result = 0;
  uint32_t* d = op.imm == 3 ? lanes<uint32_t>(w, op.d) : nullptr;  // otherwise a predicate
  each_active(m, [&](int i) {
    uint32_t who = sync ? members[i] & m : m, set = p & who;
    bool r = op.imm == 0 ? set == who : op.imm == 1 ? set != 0 : set == 0 || set == who;
    if (op.imm == 3) d[i] = set;
    result |= static_cast<uint32_t>(r) << i;
  });
  if (op.imm != 3) set_predicate(w, op.d, m, result);
  return Event::kNext;
}

Event run_activemask(const Op& op, Warp& w, uint32_t m) {
  each(w, m, lanes<uint32_t>(w, op.d), [&](int) { return m; });
  return Event::kNext;
}

Event run_match(const Op& op, Warp& w, uint32_t m) {
  const uint32_t* members = lanes<uint32_t>(w, op.e);
  if (!meet(op, w, m, members)) return Event::kSplits;
  uint64_t v[32];
  for (int i = 0; i < 32; ++i) {
    v[i] = 0;
    std::memcpy(&v[i], w.regs + op.a + i * op.size, op.size);
  }
  uint32_t p = 0, r[32] = {};
  each_active(m, [&](int i) {
    uint32_t who = members[i] & m, same = 0;
    each_active(who, [&](int j) { same |= static_cast<uint32_t>(v[j] == v[i]) << j; });
    if (op.imm) {
      r[i] = same == who ? who : 0;
      p |= static_cast<uint32_t>(same == who) << i;
    } else {
      r[i] = same;
    }
  });
  uint32_t* d = lanes<uint32_t>(w, op.d);
  each_active(m, [&](int i) { d[i] = r[i]; });
  if (op.b) set_predicate(w, op.b, m, p);
  return Event::kNext;
}

namespace {
uint32_t reduce(int64_t kind, bool is_signed, uint32_t x, uint32_t y) {
  int32_t sx = static_cast<int32_t>(x), sy = static_cast<int32_t>(y);
  switch (kind) {
    case 0:
      return x + y;
    case 1:
      return is_signed ? (sx < sy ? x : y) : (x < y ? x : y);
    case 2:
      return is_signed ? (sx > sy ? x : y) : (x > y ? x : y);
    case 3:
      return x & y;
    case 4:
      return x | y;
    default:
      return x ^ y;
  }
}
}  // namespace

Event run_redux(const Op& op, Warp& w, uint32_t m) {
  const uint32_t* members = lanes<uint32_t>(w, op.e);
  if (!meet(op, w, m, members)) return Event::kSplits;
  const uint32_t* a = lanes<uint32_t>(w, op.a);
  uint32_t r[32] = {};
  each_active(m, [&](int i) {
    uint32_t who = (members[i] & m) | 1u << i, acc = a[__builtin_ctz(who)];
    each_active(who & (who - 1), [&](int j) { acc = reduce(op.imm, op.n, acc, a[j]); });
    r[i] = acc;
  });
  uint32_t* d = lanes<uint32_t>(w, op.d);
  each_active(m, [&](int i) { d[i] = r[i]; });
  return Event::kNext;
}

Event run_elect(const Op& op, Warp& w, uint32_t m) {
  if (!meet(op, w, m, lanes<uint32_t>(w, op.e))) return Event::kSplits;
  const uint32_t leader = static_cast<uint32_t>(__builtin_ctz(m));
  each(w, m, lanes<uint32_t>(w, op.d), [&](int) { return leader; });
  if (op.b) set_predicate(w, op.b, m, 1u << leader);
  return Event::kNext;
}

Event run_cvt_pack(const Op& op, Warp& w, uint32_t m) {
  const int bits = op.size;
  const int64_t top = op.n ? (1ll << (bits - 1)) - 1 : (1ll << bits) - 1,
                bottom = op.n ? -(1ll << (bits - 1)) : 0;
  uint32_t* d = lanes<uint32_t>(w, op.d);
  const int32_t *a = lanes<int32_t>(w, op.a), *b = lanes<int32_t>(w, op.b);
  const uint32_t* c = lanes<uint32_t>(w, op.c);
  auto clamp = [&](int64_t v) {
    return static_cast<uint32_t>(v > top      ? top
                                 : v < bottom ? bottom
                                              : v) &
           static_cast<uint32_t>((1ll << bits) - 1);
  };
  each_active(m, [&](int i) {
    uint32_t pair = clamp(a[i]) << bits | clamp(b[i]);
    d[i] = bits < 16 ? c[i] << 2 * bits | pair : pair;
  });
  return Event::kNext;
}

Event run_cp_async(const Op& op, Warp& w, uint32_t m) {
  const uint64_t* from = lanes<uint64_t>(w, op.a);
  const uint32_t* count = lanes<uint32_t>(w, op.c);
  bool failed = false;
  each_active(m, [&](int i) {
    if (failed) return;
    uint64_t to = op.aux & 4 ? lanes<uint32_t>(w, op.b)[i] : lanes<uint64_t>(w, op.b)[i];
    to += static_cast<uint64_t>(static_cast<int32_t>(op.e));
    uint64_t source = from[i] + static_cast<uint64_t>(op.imm);
    uint32_t n = std::min<uint32_t>(count[i], op.size);
    bool global = false;
    uint8_t* d = translate(w, MemSpace::kShared, to, op.size, i, &global);
    uint8_t* s = n ? translate(w, MemSpace::kGlobal, source, n, i, &global) : d;
    if ((to | (n ? source : 0)) & (op.size - 1u)) {
      failed = true, raise(w, Fault::kMisaligned, "misaligned address", source, i);
    } else if (!d || !s) {
      failed = true, raise(w, Fault::kIllegalAddress, "illegal address", d ? source : to, i);
    } else {
      if (n) std::memcpy(d, s, n);
      std::memset(d + n, 0, op.size - n);
      w.block->bytes_read += n;
    }
  });
  return failed ? Event::kFault : Event::kNext;
}

}  // namespace tendril::softgpu
