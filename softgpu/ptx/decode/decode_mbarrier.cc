// SPDX-License-Identifier: Apache-2.0
// Decoding of mbarrier objects and of bulk copies. Bulk copies complete at once and tell their
// mbarrier. A cluster has one block here.
#include "softgpu/ptx/decode/decoder.h"

namespace tendril::softgpu {

// An engine that runs a block on one thread may ignore orders and scopes.
void Decoder::skip_memory_model() {
  for (std::string_view s : {"acquire", "release", "relaxed", "cta", "cluster"}) has(s);
}

bool Decoder::op_mbarrier() {
  skip_memory_model();
  static constexpr std::pair<std::string_view, MbarrierStep> kSteps[] = {
      {"init", MbarrierStep::kInit},
      {"inval", MbarrierStep::kInvalidate},
      {"arrive", MbarrierStep::kArrive},
      {"arrive_drop", MbarrierStep::kDrop},
      {"complete_tx", MbarrierStep::kComplete},
      {"test_wait", MbarrierStep::kTest},
      {"try_wait", MbarrierStep::kTry},
      {"pending_count", MbarrierStep::kPendingCount}};
  Op op = make(nullptr);
  for (auto& [name, step] : kSteps)
    if (!op.fn && has(name)) op.fn = &run_mbarrier, op.n = static_cast<uint8_t>(step);
  const bool expects = has("expect_tx");
  if (!op.fn && expects) op.fn = &run_mbarrier, op.n = static_cast<uint8_t>(MbarrierStep::kExpect);
  if (!op.fn) return unsupported();
  switch (static_cast<MbarrierStep>(op.n)) {
    case MbarrierStep::kArrive:
    case MbarrierStep::kDrop:
      return mbarrier_arrive(op, expects);
    case MbarrierStep::kTest:
    case MbarrierStep::kTry:
      return mbarrier_wait(op);
    case MbarrierStep::kPendingCount:
      if (!has("b64") || !need(2, 2)) return unsupported();
      op.d = dest(at(0), 4), op.b = source(at(1), Type::kB64);
      return emit_checked(op);
    default:
      return mbarrier_change(op);
  }
}

// mbarrier.arrive{_drop}{.expect_tx}{.noComplete} state, [a]{, count or bytes}
bool Decoder::mbarrier_arrive(Op op, bool expects) {
  has("noComplete");
  MemSpace space;
  if (!need(1, 3)) return false;
  const uint32_t place = at(0).address ? 0 : 1;  // without a state in the newest ISA
  take_space(&space, &at(place));
  if (!has("b64")) return unsupported();
  if (place == 1 && at(0).kind != Operand::Kind::kSink) op.d = dest(at(0), 8);
  op.b = count() > place + 1 ? source(at(place + 1), Type::kU32) : constant(1, 4);
  op.c = 0;
  if (expects) op.c = op.b, op.b = constant(1, 4);
  return address(at(place), op, space) && emit_checked(op);
}

// mbarrier.{test,try}_wait{.parity} p, [a], state or parity{, hint}
bool Decoder::mbarrier_wait(Op op) {
  MemSpace space;
  if (!need(3, 4)) return false;
  take_space(&space, &at(1));
  if (!has("b64")) return unsupported();
  op.size = has("parity");
  op.d = pred_dest(at(0));
  op.b = source(at(2), op.size ? Type::kU32 : Type::kB64);
  return address(at(1), op, space) && emit_checked(op);
}

// init [a], count; inval [a]; expect_tx and complete_tx [a], bytes
bool Decoder::mbarrier_change(Op op) {
  MemSpace space;
  const bool alone = static_cast<MbarrierStep>(op.n) == MbarrierStep::kInvalidate;
  if (!need(alone ? 1 : 2, alone ? 1 : 2)) return false;
  take_space(&space, &at(0));
  if (!has("b64")) return unsupported();
  if (!alone) op.b = source(at(1), Type::kU32);
  return address(at(0), op, space) && emit_checked(op);
}

// cp.async.mbarrier.arrive{.noinc}: the copies before it are complete. Without .noinc it first
// counts itself as expected, so nothing changes.
bool Decoder::op_async_arrive() {
  const bool counted = has("noinc");
  if (!has("arrive") || !has("b64") || !need(1, 1)) return unsupported();
  MemSpace space;
  take_space(&space, &at(0));
  Op op = make(&run_mbarrier);
  op.n = static_cast<uint8_t>(MbarrierStep::kArrive);
  op.b = constant(counted, 4);
  return address(at(0), op, space) && emit_checked(op);
}

// cp.async.bulk.DST.SRC.completion [dst], [src], bytes{, [mbarrier]}
bool Decoder::op_bulk_copy() {
  const bool waits = has("mbarrier::complete_tx::bytes");
  if (!waits && !has("bulk_group")) return unsupported();
  skip_cache_hints();
  const bool to_global = parts_.size() > 3 && parts_[3] == "global";
  const bool shared = has("shared::cta") || has("shared::cluster");
  const bool other = to_global ? has("global") : has("global") || has("shared::cta");
  if (!shared || !other || to_global == waits || !need(waits ? 4 : 3, waits ? 5 : 4))
    return unsupported();
  const bool within = !to_global && parts_.size() > 4 && parts_[4] == "shared::cta";
  Op op = make(&run_bulk_copy), source_of, barrier;
  const MemSpace from = to_global || within ? MemSpace::kShared : MemSpace::kGlobal;
  if (!address(at(0), op, to_global ? MemSpace::kGlobal : MemSpace::kShared)) return false;
  if (!address(at(1), source_of, from)) return false;
  if (waits && !address(at(3), barrier, MemSpace::kShared)) return false;
  op.c = source(at(2), Type::kU32);
  op.list = keep_list({source_of.a, static_cast<uint32_t>(source_of.imm), source_of.aux, barrier.a,
                       static_cast<uint32_t>(barrier.imm), barrier.aux})
                .data();
  op.n = waits;
  return emit_checked(op);
}

}  // namespace tendril::softgpu
