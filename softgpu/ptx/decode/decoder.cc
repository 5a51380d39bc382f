// SPDX-License-Identifier: Apache-2.0
// Decoder infrastructure: suffixes, operands, constants, register layout and the opcode table.
#include "softgpu/ptx/decode/decoder.h"

#include <algorithm>
#include <cstring>

namespace tendril::softgpu {
namespace {

constexpr uint32_t kZeroBytes =
    512;  // the frame begins with zeros: offset 0 means "no operand" and reads as 0

uint32_t align64(uint32_t v) { return (v + 63) & ~63u; }

}  // namespace

const std::vector<Decoder::Entry>& Decoder::entries() {
  // structure: table
  using D = Decoder;
  static const std::vector<Entry> table = {
      {"add", &D::op_add},
      {"sub", &D::op_sub},
      {"mul", &D::op_mul},
      {"mad", &D::op_mad},
      {"mul24", &D::op_mul24},
      {"mad24", &D::op_mad24},
      {"fma", &D::op_fma},
      {"div", &D::op_div},
      {"rem", &D::op_rem},
      {"abs", &D::op_abs_neg},
      {"neg", &D::op_abs_neg},
      {"min", &D::op_minmax},
      {"max", &D::op_minmax},
      {"popc", &D::op_bits},
      {"clz", &D::op_bits},
      {"bfind", &D::op_bits},
      {"brev", &D::op_bits},
      {"bfe", &D::op_bfe},
      {"bfi", &D::op_bfi},
      {"bmsk", &D::op_bmsk},
      {"szext", &D::op_szext},
      {"fns", &D::op_fns},
      {"and", &D::op_logic},
      {"or", &D::op_logic},
      {"xor", &D::op_logic},
      {"not", &D::op_logic},
      {"cnot", &D::op_logic},
      {"shl", &D::op_shift},
      {"shr", &D::op_shift},
      {"shf", &D::op_shf},
      {"lop3", &D::op_lop3},
      {"prmt", &D::op_prmt},
      {"dp4a", &D::op_dp},
      {"dp2a", &D::op_dp},
      {"sad", &D::op_sad},
      {"addc", &D::op_addc},
      {"subc", &D::op_addc},
      {"madc", &D::op_madc},
      {"rcp", &D::op_unary_float},
      {"sqrt", &D::op_unary_float},
      {"rsqrt", &D::op_unary_float},
      {"sin", &D::op_unary_float},
      {"cos", &D::op_unary_float},
      {"ex2", &D::op_unary_float},
      {"lg2", &D::op_unary_float},
      {"tanh", &D::op_unary_float},
      {"copysign", &D::op_copysign},
      {"testp", &D::op_testp},
      {"setp", &D::op_setp},
      {"set", &D::op_set},
      {"selp", &D::op_selp},
      {"slct", &D::op_slct},
      {"mov", &D::op_mov},
      {"ld", &D::op_ld},
      {"ldu", &D::op_ld},
      {"st", &D::op_st},
      {"cvt", &D::op_cvt},
      {"cvta", &D::op_cvta},
      {"isspacep", &D::op_isspacep},
      {"atom", &D::op_atom},
      {"red", &D::op_atom},
      {"prefetch", &D::op_nothing},
      {"prefetchu", &D::op_nothing},
      {"applypriority", &D::op_nothing},
      {"discard", &D::op_nothing},
      {"createpolicy", &D::op_nothing},
      {"pmevent", &D::op_nothing},
      {"cp", &D::op_cp_async},
      {"bra", &D::op_bra},
      {"brx", &D::op_brx},
      {"call", &D::op_call},
      {"ret", &D::op_ret},
      {"exit", &D::op_exit},
      {"trap", &D::op_trap},
      {"brkpt", &D::op_trap},
      {"bar", &D::op_bar},
      {"barrier", &D::op_bar},
      {"membar", &D::op_membar},
      {"fence", &D::op_membar},
      {"shfl", &D::op_shfl},
      {"vote", &D::op_vote},
      {"activemask", &D::op_activemask},
      {"match", &D::op_match},
      {"redux", &D::op_redux},
      {"nanosleep", &D::op_nanosleep},
      {"elect", &D::op_elect},
      {"mma", &D::op_mma},
      {"ldmatrix", &D::op_ldmatrix},
      {"stmatrix", &D::op_ldmatrix},
      {"movmatrix", &D::op_movmatrix},
      {"mbarrier", &D::op_mbarrier},
      {"griddepcontrol", &D::op_griddep},
      {"setmaxnreg", &D::op_nothing},
      {"wmma", &D::op_wmma},
      {"tex", &D::op_tex},
      {"tld4", &D::op_tex},
      {"suld", &D::op_surface},
      {"sust", &D::op_surface},
      {"sured", &D::op_surface_reduction},
      {"txq", &D::op_image_query},
      {"suq", &D::op_image_query},
  };
  return table;
}

bool Decoder::fail(const std::string& what) {
  if (error_.empty())
    error_ = "line " + std::to_string(current_ ? current_->line : f_.line) + ": " + what + " in '" +
             std::string(f_.name) + "'";
  return false;
}

bool Decoder::unsupported() {
  return fail("unsupported instruction '" + std::string(current_->opcode) + "'");
}

void Decoder::split(std::string_view opcode) {
  parts_.clear();
  used_ = 1;
  while (true) {
    size_t dot = opcode.find('.');
    parts_.push_back(opcode.substr(0, dot));
    if (dot == std::string_view::npos || parts_.size() >= 31) return;
    opcode.remove_prefix(dot + 1);
  }
}

bool Decoder::has(std::string_view suffix) {
  for (size_t i = 1; i < parts_.size(); ++i) {
    if (parts_[i] != suffix || (used_ >> i & 1)) continue;
    used_ |= 1u << i;
    return true;
  }
  return false;
}

bool Decoder::has_prefix(std::string_view prefix) {
  for (size_t i = 1; i < parts_.size(); ++i) {
    if (parts_[i].substr(0, prefix.size()) != prefix || (used_ >> i & 1)) continue;
    used_ |= 1u << i;
    return true;
  }
  return false;
}

Type Decoder::next_type() {
  for (size_t i = 1; i < parts_.size(); ++i) {
    if (used_ >> i & 1) continue;
    if (Type t = type_from_name(parts_[i]); t != Type::kNone) {
      used_ |= 1u << i;
      return t;
    }
  }
  return Type::kNone;
}

bool Decoder::all_used() const { return used_ == (1u << parts_.size()) - 1; }

bool Decoder::has_rounding() const {
  for (std::string_view mode : {"rn", "rz", "rm", "rp", "rna"})
    if (std::find(parts_.begin() + 1, parts_.end(), mode) != parts_.end()) return true;
  return false;
}

Round Decoder::take_round() {
  if (has("rz")) return kRoundZero;
  if (has("rm")) return kRoundDown;
  if (has("rp")) return kRoundUp;
  if (has("rna")) return kRoundAway;
  has("rn");
  return kRoundNearest;
}

FloatMode Decoder::take_float_mode(uint16_t* aux) {
  FloatMode m;
  m.round = take_round();
  m.ftz = has("ftz");
  m.sat = has("sat");
  m.relu = has("relu");
  *aux = static_cast<uint16_t>(m.ftz | m.sat << 1 | m.relu << 2 | m.round << 8);
  return m;
}

void Decoder::skip_cache_hints() {
  while (has_prefix("L1::") || has_prefix("L2::") || has("ca") || has("cg") || has("cs") ||
         has("lu") || has("cv") || has("wb") || has("wt") || has("unified") || has("L2") ||
         has("cache_hint")) {
  }
}

const Operand& Decoder::at(uint32_t i) const {
  static const Operand kMissing;
  return i < current_->count ? f_.operands[current_->first + i] : kMissing;
}

bool Decoder::need(uint32_t low, uint32_t high) {
  if (count() >= low && count() <= high) return true;
  return fail("'" + std::string(current_->opcode) + "' has " + std::to_string(count()) +
              " operands");
}

uint32_t Decoder::reg_bytes(uint32_t id) const {
  return std::max(type_bytes(f_.registers[id].type), 2u);
}
bool Decoder::is_pred(const Operand& o) const {
  return o.kind == Operand::Kind::kReg && f_.registers[o.id].type == Type::kPred;
}

void Decoder::layout_registers() {
  top_ = kZeroBytes;
  offsets_.resize(f_.registers.size());
  for (size_t i = 0; i < offsets_.size(); ++i) {
    if (f_.registers[i].type != Type::kPred) continue;
    offsets_[i] = top_;
    top_ += 4;
  }
  top_ = align64(top_);
  for (size_t i = 0; i < offsets_.size(); ++i) {
    if (f_.registers[i].type == Type::kPred) continue;
    offsets_[i] = top_;
    top_ += 32 * reg_bytes(static_cast<uint32_t>(i));
  }
  out_.constant_base = top_;
}

uint32_t Decoder::temp(uint32_t bytes) {
  uint32_t at = top_;
  top_ = align64(top_ + 32 * std::max(bytes, 2u));
  out_.constants.resize(top_ - out_.constant_base);
  return at;
}

uint32_t Decoder::constant(uint64_t bits, uint32_t bytes) {
  bytes = std::max(bytes, 2u);
  if (bytes < 8) bits &= (1ull << bytes * 8) - 1;
  if (!bits) return 0;
  auto [it, fresh] = constants_.try_emplace({bits, bytes}, 0);
  if (!fresh) return it->second;
  it->second = temp(bytes);
  uint8_t* p = out_.constants.data() + (it->second - out_.constant_base);
  for (int i = 0; i < 32; ++i) std::memcpy(p + i * bytes, &bits, bytes);
  return it->second;
}

uint32_t Decoder::launch_constant(DecodedFunction::Fix fix) {
  for (const DecodedFunction::Fix& f : out_.fixes)
    if (f.bytes == fix.bytes && f.global_index == fix.global_index && f.addend == fix.addend &&
        f.param_bytes == fix.param_bytes && f.param_signed == fix.param_signed)
      return f.offset;
  fix.offset = temp(fix.bytes);
  out_.fixes.push_back(fix);
  return fix.offset;
}

bool Decoder::resolve_name(Operand& o) {
  if (o.kind != Operand::Kind::kName) return true;
  if (auto it = m_.symbols.find(o.name); it != m_.symbols.end()) {
    o.kind = Operand::Kind::kVar, o.var = it->second;
  } else if (auto fn = m_.function_index.find(o.name); fn != m_.function_index.end()) {
    o.kind = Operand::Kind::kFunction, o.id = fn->second;
  } else {
    return fail("unknown symbol '" + std::string(o.name.substr(0, 60)) + "'");
  }
  return true;
}

// A lane array holding the address of a symbol plus its offset.
uint32_t Decoder::symbol_address(const Operand& o, uint32_t bytes) {
  uint64_t off = static_cast<uint64_t>(o.offset);
  if (o.kind == Operand::Kind::kFunction) return constant(kFunctionWindow + 16ull * o.id, bytes);
  const Variable& v = *o.var;
  switch (v.space) {
    case Space::kShared: {
      auto it = shared_.find(&v);
      if (it == shared_.end()) return fail("shared variable has no place"), 0;
      return constant(it->second + off, bytes);
    }
    case Space::kLocal: {
      if (f_.is_entry) return constant(v.offset + off, bytes);
      Op op = make(&run_local_address);
      op.d = temp(bytes), op.imm = static_cast<int64_t>(v.offset + off),
      op.size = static_cast<uint8_t>(bytes);
      emit(op);
      return op.d;
    }
    case Space::kGlobal:
    case Space::kConst:
      if (v.global_index == ~0u)
        return fail("unresolved external variable '" + std::string(v.name) + "'"), 0;
      return launch_constant({0, bytes, v.global_index, 0, false, o.offset});
    default:
      return constant(v.offset + off, bytes);
  }
}

uint32_t Decoder::source_bytes(const Operand& o) const {
  if (o.kind == Operand::Kind::kReg) return reg_bytes(o.id);
  if (o.kind == Operand::Kind::kSpecial)
    return o.special == kClock64 || o.special == kGlobaltimer ? 8 : 4;
  return 0;
}

// `register + constant`, which the assembler accepts wherever a value may stand.
uint32_t Decoder::sum(const Operand& o, uint32_t bytes) {
  Op op = make(isa_.alu(Alu::kAdd, bytes == 8 ? Type::kU64 : bytes == 4 ? Type::kU32 : Type::kU16));
  op.d = temp(bytes), op.a = reg_offset(o.id);
  op.b = constant(static_cast<uint64_t>(o.offset), bytes);
  emit(op);
  return op.d;
}

// `bytes` is the width the handler reads.
uint32_t Decoder::source_any(const Operand& in, uint32_t bytes, Type t) {
  Operand o = in;
  bytes = std::max(bytes, 2u);
  if (!resolve_name(o)) return 0;
  switch (o.kind) {
    case Operand::Kind::kReg:
      if (is_pred(o)) return fail("predicate '" + std::string(o.name) + "' used as a number"), 0;
      if (reg_bytes(o.id) != bytes)
        return fail("operand '" + std::string(o.name) + "' of '" + std::string(current_->opcode) +
                    "' has the wrong size"),
               0;
      return o.offset ? sum(o, bytes) : reg_offset(o.id);
    case Operand::Kind::kInt:
    case Operand::Kind::kFloat:
      return constant(literal_bits(o, t), bytes);
    case Operand::Kind::kSpecial: {
      if (bytes < 4) return fail("special register is too wide for this operand"), 0;
      Op op = make(&run_special);
      op.d = temp(bytes), op.imm = o.special, op.size = static_cast<uint8_t>(bytes);
      emit(op);
      return op.d;
    }
    case Operand::Kind::kVar:
    case Operand::Kind::kFunction:
      return symbol_address(o, bytes);
    default:
      return fail("bad operand of '" + std::string(current_->opcode) + "'"), 0;
  }
}

uint32_t Decoder::source(const Operand& o, Type t) { return source_any(o, type_bytes(t), t); }

uint32_t Decoder::pred_source(const Operand& o, bool* negated) {
  *negated = o.negated;
  if (o.kind == Operand::Kind::kInt) return constant(o.value ? ~0u : 0, 4);
  if (!is_pred(o)) return fail("operand '" + std::string(o.name) + "' must be a predicate"), 0;
  return reg_offset(o.id);
}

uint32_t Decoder::dest(const Operand& o, uint32_t bytes) {
  bytes = std::max(bytes, 2u);
  if (o.kind == Operand::Kind::kSink) return temp(bytes);
  if (o.kind != Operand::Kind::kReg || is_pred(o))
    return fail("destination of '" + std::string(current_->opcode) + "' must be a register"), 0;
  if (reg_bytes(o.id) != bytes)
    return fail("destination '" + std::string(o.name) + "' of '" + std::string(current_->opcode) +
                "' has the wrong size"),
           0;
  return reg_offset(o.id);
}

uint32_t Decoder::pred_dest(const Operand& o) {
  if (o.kind == Operand::Kind::kSink) return temp(4);
  if (!is_pred(o))
    return fail("destination of '" + std::string(current_->opcode) + "' must be a predicate"), 0;
  return reg_offset(o.id);
}

const std::vector<uint32_t>& Decoder::keep_list(std::vector<uint32_t> v) {
  out_.lists.push_back(std::move(v));
  return out_.lists.back();
}

Op Decoder::make(Handler h) {
  Op op;
  op.fn = h;
  op.source = current_ ? static_cast<uint32_t>(current_ - f_.code.data()) : 0;
  if (current_ && current_->pred != ~0u) {
    op.pred = reg_offset(current_->pred);
    op.pred_xor = current_->pred_negated ? ~0u : 0;
  }
  return op;
}

bool Decoder::emit(const Op& op) {
  out_.ops.push_back(op);
  return error_.empty();
}

// The usual end of a decode method: there must be a handler, and every suffix must have been
// understood.
bool Decoder::emit_checked(Op op) {
  if (!error_.empty()) return false;
  if (!op.fn || !all_used()) return unsupported();
  return emit(op);
}

bool Decoder::instruction(const Instruction& i) {
  current_ = &i;
  split(i.opcode);
  for (uint32_t k = 0; k < i.count && parts_[0][0] != 'v'; ++k)
    if (at(k).minus || !at(k).selector.empty())
      return fail("only video instructions take parts of a register");
  for (const Entry& e : entries())
    if (e.name == parts_[0]) return (this->*e.method)() && error_.empty();
  return parts_[0][0] == 'v' ? op_video() : unsupported();
}

void Decoder::finish() {
  for (const Pending& b : branches_)
    out_.ops[b.op].target = out_.ops.data() + op_of_[b.instruction];
  for (auto& [list, targets] : tables_)
    for (size_t i = 0; i < targets.size(); ++i) out_.lists[list][i] = op_of_[targets[i]];
  out_.source = &f_;
  out_.param_base = top_;
  out_.param_stride = (f_.param_bytes + 15) & ~15u;
  out_.frame_bytes = align64(top_ + 32 * out_.param_stride);
  auto formals = [&](const std::vector<const Variable*>& from, std::vector<Formal>& to) {
    for (const Variable* v : from) {
      if (v->space != Space::kReg)
        to.push_back({kInBlock, v->offset, static_cast<uint32_t>(v->bytes)});
      for (uint32_t i = 0; v->space == Space::kReg && i < v->vec; ++i)
        to.push_back({v->type == Type::kPred ? kInPredicate : kInRegister,
                      reg_offset(v->reg_base + i), reg_bytes(v->reg_base + i)});
    }
  };
  if (!f_.is_entry) formals(f_.params, out_.params), formals(f_.returns, out_.returns);
}

bool Decoder::decode() {
  layout_registers();
  for (const Instruction& i : f_.code) {
    op_of_.push_back(static_cast<uint32_t>(out_.ops.size()));
    if (!instruction(i)) return false;
    if (top_ > (64u << 20)) return fail("function needs too many registers");
  }
  op_of_.push_back(static_cast<uint32_t>(out_.ops.size()));
  // Control may reach the end of a body. That means return.
  current_ = nullptr;
  Op last = make(&run_ret);
  last.source = f_.code.empty() ? 0 : static_cast<uint32_t>(f_.code.size() - 1);
  emit(last);
  finish();
  return error_.empty();
}

}  // namespace tendril::softgpu
