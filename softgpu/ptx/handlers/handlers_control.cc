// SPDX-License-Identifier: Apache-2.0
// Handlers that change which lanes run where: branches, calls, returns, exits, barriers and meeting
// points. They edit the warp's list of splits. scheduler.cc chooses among the splits afterwards.
#include <algorithm>
#include <cstring>

#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/handlers/lanes.h"

namespace tendril::softgpu {
namespace {

constexpr uint32_t kMaxCallDepth = 1024;
constexpr uint32_t kMaxLocalBytes = 512u << 10;  // the ISA's limit of local memory per thread

uint32_t first_lane(uint32_t m) { return static_cast<uint32_t>(__builtin_ctz(m)); }

// Takes lanes m out of the running split; the others continue at `rest`. Returns the split that now
// holds exactly m.
Split& carve(Warp& w, uint32_t m, const Op* rest) {
  Split& s = w.splits[w.current];
  if (m == s.mask) return s;
  add_split(w, rest, s.frame, s.mask & ~m);
  Split& again = w.splits[w.current];
  again.mask = m;
  return again;
}

struct Place {
  uint8_t* base;
  uint32_t stride, bytes;
  bool predicate;
};
Place place(const Frame& f, uint32_t kind, uint32_t offset, uint32_t bytes) {
  if (kind == kInBlock)
    return {f.regs + f.function->param_base + offset, f.function->param_stride, bytes, false};
  return {f.regs + offset, bytes, bytes, kind == kInPredicate};
}
Place actual(const Frame& f, const uint32_t* item) { return place(f, item[0], item[1], item[2]); }
Place formal(const Frame& f, const Formal& p) { return place(f, p.kind, p.offset, p.bytes); }
void copy_lanes(const Place& to, const Place& from, uint32_t m) {
  if (to.predicate || from.predicate) {
    if (!to.predicate || !from.predicate) return;  // only an indirect call can disagree
    uint32_t& d = *reinterpret_cast<uint32_t*>(to.base);
    d = (d & ~m) | (*reinterpret_cast<const uint32_t*>(from.base) & m);
    return;
  }
  const uint32_t n = std::min(to.bytes, from.bytes);
  each_active(m, [&](int i) {
    std::memcpy(to.base + static_cast<size_t>(i) * to.stride,
                from.base + static_cast<size_t>(i) * from.stride, n);
    if (to.bytes > n)
      std::memset(to.base + static_cast<size_t>(i) * to.stride + n, 0, to.bytes - n);
  });
}

bool grow_local(Warp& w, uint32_t need) {
  if (need <= w.local_stride) return true;
  if (need > kMaxLocalBytes) return false;
  uint32_t stride = std::min(std::max((need + 255) & ~255u, w.local_stride * 2), kMaxLocalBytes);
  std::vector<uint8_t> fresh(static_cast<size_t>(stride) * 32);
  for (size_t i = 0; i < 32 && w.local_stride; ++i)
    std::memcpy(&fresh[i * stride], &w.local[i * w.local_stride], w.local_stride);
  w.local.swap(fresh);
  w.local_stride = stride;
  return true;
}

Event leave(Warp& w, uint32_t m, const Op* rest) {
  w.dead |= m;
  w.block->live_threads -= static_cast<uint32_t>(__builtin_popcount(m));
  carve(w, m, rest);
  drop_frame(w, w.splits[w.current].frame);
  remove_split(w, w.current);
  check_barriers(*w.block);
  return Event::kSplits;
}

void release(Block& b, uint32_t id) {
  BarrierState& s = b.barriers[id];
  for (Warp& w : b.warps) {
    for (uint32_t k = 0; k < w.count; ++k) {
      Split& p = w.splits[k];
      if (p.state != SplitState::kBarrier || p.barrier != id) continue;
      p.state = SplitState::kRun;
      const Op& op = *p.waiting;
      if (op.aux == 2) {
        uint32_t* d = reinterpret_cast<uint32_t*>(p.frame->regs + op.d);
        each_active(p.mask, [&](int i) { d[i] = s.popc; });
      } else if (op.aux > 2) {
        uint32_t& d = *reinterpret_cast<uint32_t*>(p.frame->regs + op.d);
        bool v = op.aux == 3 ? s.all : s.any;
        d = (d & ~p.mask) | (v ? p.mask : 0);
      }
    }
  }
  s = BarrierState();
  b.barriers_in_use &= ~(1u << id);
}

}  // namespace

Event raise(Warp& w, Fault f, const char* text, uint64_t address, int lane) {
  Block& b = *w.block;
  b.fault = f, b.fault_text = text, b.fault_address = address, b.fault_lane = lane;
  return Event::kFault;
}

void drop_frame(Warp& w, Frame* f) {
  while (f && --f->refs == 0) {
    Frame* parent = f->parent;
    w.block->pool->give(f);
    f = parent;
  }
}

void add_split(Warp& w, const Op* pc, Frame* frame, uint32_t mask) {
  Split& s = w.splits[w.count++];
  s = Split();
  s.pc = pc, s.frame = frame, s.mask = mask;
  s.turn = w.splits[w.current].turn;
  ++frame->refs;
}

void remove_split(Warp& w, uint32_t index) { w.splits[index] = w.splits[--w.count]; }

bool meet(const Op& op, Warp& w, uint32_t m, const uint32_t* member_masks) {
  if ((w.mask | w.dead) == kAllLanes || w.count == 1) return true;
  uint32_t required = 0;
  each_active(m, [&](int i) { required |= member_masks[i]; });
  Split& s = w.splits[w.current];
  if (!(required & ~(w.mask | w.dead)) || s.forced) {
    s.forced = false;
    return true;
  }
  s.pc = &op;
  s.state = SplitState::kSync;
  return false;
}

void check_barrier(Block& b, uint32_t id) {
  const BarrierState& s = b.barriers[id];
  const uint32_t needed = s.expected ? std::min(s.expected, b.launch->threads) : b.live_threads;
  if (s.arrived && s.arrived >= needed) release(b, id);
}

void check_barriers(Block& b) {
  for (uint32_t left = b.barriers_in_use; left; left &= left - 1)
    check_barrier(b, static_cast<uint32_t>(__builtin_ctz(left)));
}

bool release_stuck_barrier(Block& b) {
  for (uint32_t id = 0; id < 16; ++id) {
    if (!b.barriers[id].arrived || b.barriers[id].arrived < b.live_threads) continue;
    release(b, id);
    return true;
  }
  return false;
}

Event run_bra(const Op& op, Warp& w, uint32_t m) {
  if (m == w.mask) {
    w.pc = op.target;
    return Event::kJump;
  }
  carve(w, m, &op + 1).pc = op.target;
  return Event::kSplits;
}

Event run_brx(const Op& op, Warp& w, uint32_t m) {
  const uint32_t* a = lanes<uint32_t>(w, op.a);
  const Op* first_op = w.frame->function->ops.data();
  const uint32_t index = a[first_lane(m)];
  if (index >= static_cast<uint64_t>(op.imm))
    return raise(w, Fault::kIllegalInstruction, "branch index out of range", index);
  uint32_t same = 0;
  each_active(m, [&](int i) { same |= static_cast<uint32_t>(a[i] == index) << i; });
  const Op* target = first_op + op.list[index];
  if (same == w.mask) {
    w.pc = target;
    return Event::kJump;
  }
  // Lanes with another index come back to this instruction. Lanes whose guard is false go past it.
  Split& s = w.splits[w.current];
  if (uint32_t past = s.mask & ~m) add_split(w, &op + 1, s.frame, past);
  if (uint32_t again = m & ~same) add_split(w, &op, s.frame, again);
  w.splits[w.current].mask = same;
  w.splits[w.current].pc = target;
  return Event::kSplits;
}

Event run_call(const Op& op, Warp& w, uint32_t m) {
  uint32_t index = static_cast<uint32_t>(op.imm), rest = 0;
  const DecodedKernel& k = *w.block->launch->kernel;
  if (op.aux) {
    const uint64_t* a = lanes<uint64_t>(w, op.a);
    const uint64_t target = a[first_lane(m)];
    uint32_t same = 0;
    each_active(m, [&](int i) { same |= static_cast<uint32_t>(a[i] == target) << i; });
    rest = m & ~same;
    m = same;
    index = static_cast<uint32_t>((target - kFunctionWindow) / 16);
    if (target >> 56 != kFunctionWindow >> 56 || (target & 15) || index >= k.functions.size())
      return raise(w, Fault::kIllegalInstruction, "call of something that is no function", target);
  }
  const DecodedFunction* f = k.functions[index].get();
  Frame* caller = w.frame;
  if (!f || f->source->is_entry)
    return raise(w, Fault::kIllegalInstruction, "call of something that is no function");
  uint32_t local = caller->local_base + ((caller->function->source->local_bytes + 15) & ~15u);
  if (caller->depth >= kMaxCallDepth || !grow_local(w, local + f->source->local_bytes))
    return raise(w, Fault::kIllegalAddress, "stack overflow");
  const uint32_t n = op.list[0];
  if (n != f->params.size())
    return raise(w, Fault::kIllegalInstruction, "indirect call with a wrong number of arguments");
  Frame* callee = w.block->pool->take(*f);
  callee->parent = caller, callee->call = &op, callee->depth = caller->depth + 1,
  callee->local_base = local, callee->refs = 1;
  for (uint32_t i = 0; i < n; ++i)
    copy_lanes(formal(*callee, f->params[i]), actual(*caller, op.list + 1 + 3 * i), m);
  if (rest) add_split(w, &op, caller, rest);
  w.splits[w.current].mask &= ~rest;
  Split& s = carve(w, m, &op + 1);
  s.frame = callee;  // the split's reference to its caller moves to the callee
  s.pc = f->ops.data();
  return Event::kSplits;
}

Event run_ret(const Op& op, Warp& w, uint32_t m) {
  Frame* f = w.frame;
  if (!f->parent) return leave(w, m, &op + 1);
  const Op& call = *f->call;
  const uint32_t* returns = call.list + 1 + 3 * call.list[0];
  const uint32_t n =
      std::min<uint32_t>(returns[0], static_cast<uint32_t>(f->function->returns.size()));
  for (uint32_t i = 0; i < n; ++i)
    copy_lanes(actual(*f->parent, returns + 1 + 3 * i), formal(*f, f->function->returns[i]), m);
  Split& s = carve(w, m, &op + 1);
  s.frame = f->parent;
  s.pc = &call + 1;
  ++f->parent->refs;
  drop_frame(w, f);
  return Event::kSplits;
}

Event run_exit(const Op& op, Warp& w, uint32_t m) { return leave(w, m, &op + 1); }

Event run_trap(const Op&, Warp& w, uint32_t) { return raise(w, Fault::kTrap, "trap instruction"); }

Event run_bar(const Op& op, Warp& w, uint32_t m) {
  const uint32_t lane = first_lane(m), id = lanes<uint32_t>(w, op.a)[lane],
                 count = op.n ? lanes<uint32_t>(w, op.b)[lane] : 0;
  if (id > 15) return raise(w, Fault::kIllegalInstruction, "barrier number above 15", id);
  Block& b = *w.block;
  BarrierState& s = b.barriers[id];
  s.arrived += static_cast<uint32_t>(__builtin_popcount(m));
  s.expected = count;
  b.barriers_in_use |= 1u << id;
  if (op.aux >= 2) {
    uint32_t p = (predicate(w, op.c) ^ op.e) & m;
    s.popc += static_cast<uint32_t>(__builtin_popcount(p));
    s.all &= p == m;
    s.any |= p != 0;
  }
  if (op.aux == 1) {
    check_barrier(b, id);
    w.pc = &op + 1;
    w.splits[w.current].pc = w.pc;
    return Event::kSplits;
  }
  Split& parked = carve(w, m, &op + 1);
  parked.pc = &op + 1;
  parked.state = SplitState::kBarrier;
  parked.barrier = static_cast<uint8_t>(id);
  parked.waiting = &op;
  check_barrier(b, id);
  return Event::kSplits;
}

Event run_warp_sync(const Op& op, Warp& w, uint32_t m) {
  if (!meet(op, w, m, lanes<uint32_t>(w, op.e))) return Event::kSplits;
  return Event::kNext;
}

Event run_fence(const Op&, Warp&, uint32_t) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return Event::kNext;
}

// Gives the processor to other warps and blocks: a thread that sleeps is waiting for another.
Event run_nanosleep(const Op& op, Warp& w, uint32_t) {
  w.yield = 1;
  w.splits[w.current].pc = &op + 1;
  return Event::kSplits;
}

}  // namespace tendril::softgpu
