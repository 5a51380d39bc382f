// SPDX-License-Identifier: Apache-2.0
// mbarrier objects: eight bytes of shared memory that only these instructions understand. A block
// runs on one thread, so lanes take their turns. A wait that fails gives the processor to other
// warps.
#include <cstring>

#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/handlers/lanes.h"
#include "softgpu/ptx/memory.h"

namespace tendril::softgpu {
namespace {

// Pending and expected arrivals, bytes that are still to come, and the parity of the phase.
struct Mbarrier {
  uint64_t pending : 20;
  uint64_t expected : 20;
  int64_t bytes : 23;
  uint64_t phase : 1;

  void settle() {
    if (pending != 0 || bytes != 0) return;
    phase = phase ^ 1u;
    pending = expected;
  }
};
static_assert(sizeof(Mbarrier) == 8);

constexpr uint64_t kMostArrivals = (1u << 20) - 1;

uint64_t lane_address(const Warp& w, uint32_t a, uint32_t aux, int64_t offset, int lane) {
  if (aux & 1) return lanes<uint32_t>(w, a)[lane] + static_cast<uint32_t>(offset);
  return lanes<uint64_t>(w, a)[lane] + static_cast<uint64_t>(offset);
}

// The object, or null with a fault raised.
Mbarrier* object_at(Warp& w, uint64_t address, MemSpace space, int lane) {
  if (address & 7) {
    raise(w, Fault::kMisaligned, "misaligned mbarrier", address, lane);
    return nullptr;
  }
  bool global = false;
  uint8_t* at = translate(w, space, address, sizeof(Mbarrier), lane, &global);
  if (!at || global) {
    raise(w, Fault::kIllegalAddress, "an mbarrier must be in shared memory", address, lane);
    return nullptr;
  }
  return reinterpret_cast<Mbarrier*>(at);
}

// Whether the phase that a state or a parity names is over.
bool phase_over(const Mbarrier& b, const Op& op, const Warp& w, int lane) {
  if (op.size) return b.phase != (lanes<uint32_t>(w, op.b)[lane] & 1);
  return b.phase != bit_cast_to<Mbarrier>(lanes<uint64_t>(w, op.b)[lane]).phase;
}

bool arrive_at(Mbarrier* b, const Op& op, Warp& w, int lane) {
  const uint32_t count = op.b ? lanes<uint32_t>(w, op.b)[lane] : 0;
  const uint32_t bytes = op.c ? lanes<uint32_t>(w, op.c)[lane] : 0;
  if (op.d) lanes<uint64_t>(w, op.d)[lane] = bit_cast_to<uint64_t>(*b);
  b->bytes += bytes;
  if (count > b->pending) {
    raise(w, Fault::kTrap, "more arrivals than an mbarrier expects", count, lane);
    return false;
  }
  if (count == 0) return true;
  b->pending -= count;
  if (static_cast<MbarrierStep>(op.n) == MbarrierStep::kDrop) b->expected -= count;
  b->settle();
  return true;
}

// One step of one lane; waits are elsewhere. False: a fault.
bool step(Mbarrier* b, const Op& op, Warp& w, int lane) {
  const uint32_t value = lanes<uint32_t>(w, op.b)[lane];
  switch (static_cast<MbarrierStep>(op.n)) {
    case MbarrierStep::kInit:
      if (value == 0 || value > kMostArrivals) {
        raise(w, Fault::kTrap, "bad number of arrivals of an mbarrier", value, lane);
        return false;
      }
      *b = {value, value, 0, 0};
      return true;
    case MbarrierStep::kInvalidate:
      *b = {};
      return true;
    case MbarrierStep::kExpect:
      b->bytes += value;
      return true;
    case MbarrierStep::kComplete:
      b->bytes -= value;
      b->settle();
      return true;
    default:
      return arrive_at(b, op, w, lane);
  }
}

}  // namespace

Event run_mbarrier(const Op& op, Warp& w, uint32_t m) {
  const auto what = static_cast<MbarrierStep>(op.n);
  if (what == MbarrierStep::kPendingCount) {
    each_active(m, [&](int lane) {
      lanes<uint32_t>(w, op.d)[lane] =
          static_cast<uint32_t>(bit_cast_to<Mbarrier>(lanes<uint64_t>(w, op.b)[lane]).pending);
    });
    return Event::kNext;
  }
  const bool waits = what == MbarrierStep::kTest || what == MbarrierStep::kTry;
  const auto space = static_cast<MemSpace>(op.aux >> 4 & 7);
  uint32_t over = 0;
  for (uint32_t left = m; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    Mbarrier* b = object_at(w, lane_address(w, op.a, op.aux, op.imm, lane), space, lane);
    if (!b) return Event::kFault;
    if (waits)
      over |= static_cast<uint32_t>(phase_over(*b, op, w, lane)) << lane;
    else if (!step(b, op, w, lane))
      return Event::kFault;
  }
  if (!waits) return Event::kNext;
  set_predicate(w, op.d, m, over);
  if (over == m) return Event::kNext;
  w.yield = 1;  // the warp that it waits for gets a turn
  w.splits[w.current].pc = &op + 1;
  return Event::kSplits;
}

// Op::list: register, offset and kind of address of the source, then of the mbarrier.
Event run_bulk_copy(const Op& op, Warp& w, uint32_t m) {
  for (uint32_t left = m; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    const uint32_t bytes = lanes<uint32_t>(w, op.c)[lane];
    const uint32_t* from = op.list;
    const uint64_t target = lane_address(w, op.a, op.aux, op.imm, lane);
    const uint64_t source = lane_address(w, from[0], from[2], static_cast<int32_t>(from[1]), lane);
    if ((target | source | bytes) & 15)
      return raise(w, Fault::kMisaligned, "bulk copy not on 16 bytes", target, lane);
    bool to_global = false, from_global = false;
    uint8_t* d =
        translate(w, static_cast<MemSpace>(op.aux >> 4 & 7), target, bytes, lane, &to_global);
    uint8_t* s =
        translate(w, static_cast<MemSpace>(from[2] >> 4 & 7), source, bytes, lane, &from_global);
    if (!d || !s)
      return raise(w, Fault::kIllegalAddress, "illegal address", d ? source : target, lane);
    std::memmove(d, s, bytes);
    w.block->bytes_read += from_global ? bytes : 0;
    w.block->bytes_written += to_global ? bytes : 0;
    if (!op.n) continue;
    Mbarrier* b =
        object_at(w, lane_address(w, from[3], from[5], static_cast<int32_t>(from[4]), lane),
                  MemSpace::kShared, lane);
    if (!b) return Event::kFault;
    b->bytes -= bytes;
    b->settle();
  }
  return Event::kNext;
}

}  // namespace tendril::softgpu
