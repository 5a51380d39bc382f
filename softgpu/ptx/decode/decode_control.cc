// SPDX-License-Identifier: Apache-2.0
// Decoding of branches, calls, barriers and warp-wide instructions.
#include <algorithm>

#include "softgpu/ptx/decode/decoder.h"

namespace tendril::softgpu {

bool Decoder::find_label(std::string_view name, uint32_t scope, uint32_t* index) {
  for (uint32_t s = scope; s != ~0u; s = f_.scope_parent[s]) {
    auto it = f_.labels.find(std::to_string(s) + ":" + std::string(name));
    if (it == f_.labels.end()) continue;
    *index = it->second;
    return true;
  }
  return fail("unknown label '" + std::string(name.substr(0, 60)) + "'");
}

const BranchTable* Decoder::find_table(std::string_view name, uint32_t scope) {
  for (uint32_t s = scope; s != ~0u; s = f_.scope_parent[s])
    if (auto it = f_.tables.find(std::to_string(s) + ":" + std::string(name));
        it != f_.tables.end())
      return &it->second;
  return nullptr;
}

bool Decoder::op_bra() {
  if (!need(1, 1)) return false;
  has("uni");
  uint32_t index = 0;
  if (at(0).kind == Operand::Kind::kReg || at(0).kind == Operand::Kind::kInt) return unsupported();
  if (!find_label(at(0).name, current_->scope, &index)) return false;
  branches_.push_back({static_cast<uint32_t>(out_.ops.size()), index});
  return emit_checked(make(&run_bra));
}

bool Decoder::op_brx() {
  if (!need(2, 2) || !has("idx")) return unsupported();
  has("uni");
  const BranchTable* table = find_table(at(1).name, current_->scope);
  if (!table) return fail("unknown branch table '" + std::string(at(1).name) + "'");
  std::vector<uint32_t> targets;
  for (std::string_view label : table->labels) {
    uint32_t index = 0;
    if (!find_label(label, current_->scope, &index)) return false;
    targets.push_back(index);
  }
  Op op = make(&run_brx);
  op.a = source(at(0), Type::kU32);
  op.imm = static_cast<int64_t>(targets.size());
  const std::vector<uint32_t>& list = keep_list(targets);
  tables_.push_back({out_.lists.size() - 1, std::move(targets)});
  op.list = list.data();
  return emit_checked(op);
}

bool Decoder::call_value(const Operand& o, std::vector<uint32_t>& list, bool is_return) {
  if (o.kind == Operand::Kind::kVar && o.var->space == Space::kParam && !o.var->is_kernel_param) {
    list.insert(list.end(), {kInBlock, o.var->offset, static_cast<uint32_t>(o.var->bytes)});
  } else if (o.kind == Operand::Kind::kReg) {
    const PassedAs kind = is_pred(o) ? kInPredicate : kInRegister;
    list.insert(list.end(), {kind, reg_offset(o.id), reg_bytes(o.id)});
  } else if (is_return) {
    if (o.kind != Operand::Kind::kSink) return fail("bad return operand");
    list.insert(list.end(), {kInRegister, temp(8), 8});
  } else {
    list.insert(list.end(), {kInRegister, source_any(o, 8, Type::kB64), 8});
  }
  return error_.empty();
}

namespace {
// A register that is a vector is passed element by element.
uint32_t passed_values(const std::vector<const Variable*>& variables) {
  uint32_t n = 0;
  for (const Variable* v : variables) n += v->space == Space::kReg ? v->vec : 1;
  return n;
}
}  // namespace

// list: number of arguments, then (is register, offset, bytes) of each; number of returns, then the
// same.
bool Decoder::call_operands(const Operand* returns, const Operand* arguments,
                            const Function* callee, std::vector<uint32_t>& list) {
  for (const Operand* group : {arguments, returns}) {
    bool is_return = group == returns;
    const size_t head = list.size();
    list.push_back(0);
    for (uint32_t i = 0; group && i < group->count; ++i) {
      const Operand& o = *element(*group, i);
      bool literal =
          !is_return && (o.kind == Operand::Kind::kInt || o.kind == Operand::Kind::kFloat);
      if (literal && callee && i < callee->params.size()) {
        Type t = callee->params[i]->type;
        uint32_t bytes = std::max(type_bytes(t), 2u);
        list.insert(list.end(), {kInRegister, source_any(o, bytes, t), bytes});
      } else if (o.kind == Operand::Kind::kVector) {
        for (uint32_t k = 0; k < o.count; ++k)
          if (!call_value(*element(o, k), list, is_return)) return false;
      } else if (!call_value(o, list, is_return)) {
        return false;
      }
    }
    const uint32_t n = list[head] = static_cast<uint32_t>((list.size() - head - 1) / 3);
    if (callee && n != passed_values(is_return ? callee->returns : callee->params))
      return fail("call of '" + std::string(callee->name) + "' with a wrong number of operands");
  }
  return true;
}

bool Decoder::op_call() {
  has("uni");
  if (!need(1, 4)) return false;
  uint32_t i = 0;
  const Operand* returns = at(0).kind == Operand::Kind::kVector ? &at(i++) : nullptr;
  if (i >= count()) return unsupported();
  Operand target = at(i++);
  const Operand* arguments = i < count() && at(i).kind == Operand::Kind::kVector ? &at(i) : nullptr;
  Op op = make(&run_call);
  std::vector<uint32_t> list;
  if (target.kind == Operand::Kind::kReg) {
    if (reg_bytes(target.id) != 8)
      return fail("indirect call through a register that is not 64 bits wide");
    op.aux = 1, op.a = reg_offset(target.id);
    if (!call_operands(returns, arguments, nullptr, list)) return false;
    kernel_.has_calls = true;
    op.list = keep_list(std::move(list)).data();
    return emit_checked(op);
  }
  if (!resolve_name(target)) return false;
  if (target.kind != Operand::Kind::kFunction) return unsupported();
  const Function& callee = m_.functions[target.id];
  if (!call_operands(returns, arguments, &callee, list)) return false;
  if (!callee.has_body) {
    static const std::pair<std::string_view, Handler> kBuiltins[] = {
        {"vprintf", &run_printf},
        {"__assertfail", &run_assertfail},
        {"malloc", &run_malloc},
        {"cudaGraphSetConditional", &run_set_conditional},
        {"cudaGraphLaunch", &run_graph_launch},
        {"free", &run_free}};
    op.fn = nullptr;
    for (auto& [name, h] : kBuiltins)
      if (name == callee.name) op.fn = h;
    if (!op.fn)
      return fail("unsupported instruction 'call' of undefined function '" +
                  std::string(callee.name) + "'");
  } else {
    op.imm = target.id;
    kernel_.has_calls = true;
  }
  op.list = keep_list(std::move(list)).data();
  return emit_checked(op);
}

bool Decoder::op_ret() {
  has("uni");
  return emit_checked(make(&run_ret));
}
bool Decoder::op_exit() { return emit_checked(make(&run_exit)); }
bool Decoder::op_trap() { return emit_checked(make(&run_trap)); }

bool Decoder::op_bar() {
  has("cta"), has("aligned");
  if (has("warp")) {
    if (!has("sync") || !need(1, 1)) return unsupported();
    Op op = make(&run_warp_sync);
    op.e = source(at(0), Type::kB32);
    return emit_checked(op);
  }
  Op op = make(&run_bar);
  if (has("sync")) {
    if (!need(0, 2)) return false;
    if (count() > 0) op.a = source(at(0), Type::kU32);
    if (count() > 1) op.b = source(at(1), Type::kU32), op.n = 1;
    return emit_checked(op);
  }
  if (has("arrive")) {
    if (!need(2, 2)) return false;
    op.aux = 1, op.a = source(at(0), Type::kU32), op.b = source(at(1), Type::kU32), op.n = 1;
    return emit_checked(op);
  }
  if (!has("red") || !need(3, 4)) return unsupported();
  bool negated = false, popc = has("popc");
  op.aux = popc ? 2 : has("and") ? 3 : has("or") ? 4 : 0;
  if (!op.aux) return unsupported();
  next_type();
  op.d = popc ? dest(at(0), 4) : pred_dest(at(0));
  op.a = source(at(1), Type::kU32);
  if (count() == 4) op.b = source(at(2), Type::kU32), op.n = 1;
  op.c = pred_source(at(count() - 1), &negated);
  op.e = negated ? ~0u : 0;
  return emit_checked(op);
}

bool Decoder::op_membar() {
  for (std::string_view s : {"cta", "gl", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire",
                             "release", "proxy", "alias", "async", "global", "shared::cta",
                             "mbarrier_init", "async::generic", "sync_restrict::shared::cta"})
    has(s);
  return emit_checked(make(&run_fence));
}

bool Decoder::op_griddep() {
  has("launch_dependents"), has("wait");
  return all_used() ? true : unsupported();
}

bool Decoder::op_shfl() {
  bool sync = has("sync");
  if (!need(sync ? 5 : 4, sync ? 5 : 4)) return false;
  uint32_t mode = has("up") ? 0 : has("down") ? 1 : has("bfly") ? 2 : has("idx") ? 3 : 4;
  if (mode > 3 || type_bytes(next_type()) != 4) return unsupported();
  Op op = make(isa_.shuffle(mode));
  op.d = dest(at(0), 4);
  if (at(0).pred_id != ~0u) op.imm = reg_offset(at(0).pred_id);
  op.a = source(at(1), Type::kB32), op.b = source(at(2), Type::kB32),
  op.c = source(at(3), Type::kB32);
  op.aux = sync;
  if (sync) op.e = source(at(4), Type::kB32);
  return emit_checked(op);
}

bool Decoder::op_vote() {
  bool sync = has("sync"), negated = false;
  if (!need(sync ? 3 : 2, sync ? 3 : 2)) return false;
  Op op = make(&run_vote);
  op.imm = has("all") ? 0 : has("any") ? 1 : has("uni") ? 2 : has("ballot") ? 3 : 4;
  if (op.imm > 3) return unsupported();
  next_type();
  op.d = op.imm == 3 ? dest(at(0), 4) : pred_dest(at(0));
  op.a = pred_source(at(1), &negated);
  op.aux = static_cast<uint16_t>(sync | negated << 1);
  if (sync) op.e = source(at(2), Type::kB32);
  return emit_checked(op);
}

bool Decoder::op_activemask() {
  if (!need(1, 1)) return false;
  next_type();
  Op op = make(&run_activemask);
  op.d = dest(at(0), 4);
  return emit_checked(op);
}

bool Decoder::op_match() {
  bool any = has("any"), all = !any && has("all");
  if (!has("sync") || (!any && !all) || !need(3, 3)) return unsupported();
  Type t = next_type();
  Op op = make(&run_match);
  op.imm = all, op.size = static_cast<uint8_t>(type_bytes(t)), op.aux = 1;
  op.d = dest(at(0), 4);
  if (at(0).pred_id != ~0u) op.b = reg_offset(at(0).pred_id);
  op.a = source(at(1), t);
  op.e = source(at(2), Type::kB32);
  return emit_checked(op);
}

bool Decoder::op_redux() {
  if (!has("sync") || !need(3, 3)) return unsupported();
  static constexpr std::string_view kNames[] = {"add", "min", "max", "and", "or", "xor"};
  Op op = make(&run_redux);
  op.imm = -1;
  for (int i = 0; i < 6; ++i)
    if (has(kNames[i])) op.imm = i;
  Type t = next_type();
  if (op.imm < 0 || is_float(t) || type_bytes(t) != 4) return unsupported();
  op.n = is_signed(t), op.aux = 1;
  op.d = dest(at(0), 4), op.a = source(at(1), t), op.e = source(at(2), Type::kB32);
  return emit_checked(op);
}

bool Decoder::op_elect() {
  if (!has("sync") || !need(2, 2)) return unsupported();
  Op op = make(&run_elect);
  op.aux = 1;
  op.d = dest(at(0), 4);
  if (at(0).pred_id != ~0u) op.b = reg_offset(at(0).pred_id);
  op.e = source(at(1), Type::kB32);
  return emit_checked(op);
}

bool Decoder::op_nanosleep() {
  if (!need(1, 1)) return false;
  next_type();
  Op op = make(&run_nanosleep);
  op.a = source(at(0), Type::kU32);
  return emit_checked(op);
}

}  // namespace tendril::softgpu
