// SPDX-License-Identifier: Apache-2.0
// Decoding of moves, loads, stores, conversions, address conversion, atomics and asynchronous
// copies.
#include <algorithm>

#include "softgpu/ptx/decode/decoder.h"

namespace tendril::softgpu {

bool Decoder::op_nothing() { return true; }

bool Decoder::move_vector(Type t) {
  const Operand &d = at(0), &s = at(1);
  const Operand& v = s.kind == Operand::Kind::kVector ? s : d;
  if (!v.count || type_bytes(t) % v.count) return fail("vector of wrong length");
  uint32_t bytes = type_bytes(t) / v.count;
  bool unpack = d.kind == Operand::Kind::kVector;
  if (bytes < 1 || (unpack && s.kind == Operand::Kind::kVector)) return unsupported();
  Op op = make(unpack ? &run_unpack : &run_pack);
  op.n = static_cast<uint8_t>(v.count), op.size = static_cast<uint8_t>(bytes);
  std::vector<uint32_t> list;
  Type te = bytes == 1 ? Type::kB8 : bytes == 2 ? Type::kB16 : bytes == 4 ? Type::kB32 : Type::kB64;
  for (uint32_t i = 0; i < v.count; ++i) {
    const Operand& e = *element(v, i);
    list.push_back(unpack ? dest(e, bytes) : source(e, te));
  }
  if (unpack)
    op.a = source(s, t);
  else
    op.d = dest(d, type_bytes(t));
  op.list = keep_list(std::move(list)).data();
  return emit_checked(op);
}

// mov.v4.u16 {d...}, {a...}: through temporaries, because both sides may name the same registers.
bool Decoder::move_elements(uint32_t n) {
  Type t = next_type();
  const uint32_t bytes = std::max(type_bytes(t), 2u);
  if (at(0).count != n || at(1).count != n) return fail("vector of wrong length");
  std::vector<uint32_t> between;
  for (int pass = 0; pass < 2; ++pass) {
    for (uint32_t i = 0; i < n; ++i) {
      Op op = make(isa_.mov(bytes));
      if (!pass) between.push_back(temp(bytes));
      op.d = pass ? dest(*element(at(0), i), bytes) : between[i];
      op.a = pass ? between[i] : source_any(*element(at(1), i), bytes, t);
      if (!emit_checked(op)) return false;
    }
  }
  return true;
}

bool Decoder::op_mov() {
  if (!need(2, 2)) return false;
  if (const uint32_t n = has("v2") ? 2 : has("v4") ? 4 : has("v8") ? 8 : 0) return move_elements(n);
  Type t = next_type();
  const Operand &d = at(0), &s = at(1);
  Op op;
  if (d.kind == Operand::Kind::kVector || s.kind == Operand::Kind::kVector) return move_vector(t);
  if (t == Type::kPred) {
    bool negated = false;
    op = make(isa_.predicate(Alu::kAdd));
    op.d = pred_dest(d), op.a = pred_source(s, &negated);
    op.aux = negated;
    return emit_checked(op);
  }
  if (s.kind == Operand::Kind::kSpecial) {
    op = make(&run_special);
    op.d = dest(d, type_bytes(t)), op.imm = s.special,
    op.size = static_cast<uint8_t>(type_bytes(t));
    return op.size < 4 ? unsupported() : emit_checked(op);
  }
  uint32_t bytes = std::max(type_bytes(t), 2u);
  op = make(isa_.mov(bytes));
  op.d = dest(d, bytes), op.a = source_any(s, bytes, t);
  return emit_checked(op);
}

// Op::a and Op::imm from [base + offset]; a bare symbol or number is a constant base.
bool Decoder::address(const Operand& in, Op& op, MemSpace space) {
  Operand o = in;
  if (!resolve_name(o)) return false;
  op.aux = static_cast<uint16_t>((op.aux & ~0x71) | static_cast<uint16_t>(space) << 4);
  switch (o.kind) {
    case Operand::Kind::kReg:
      if (is_pred(o) || reg_bytes(o.id) < 4) return fail("bad address register");
      op.a = reg_offset(o.id);
      op.aux = static_cast<uint16_t>(op.aux | (reg_bytes(o.id) == 4));
      op.imm = o.offset;
      return true;
    case Operand::Kind::kInt:
      op.a = 0, op.imm = static_cast<int64_t>(o.value);
      return true;
    case Operand::Kind::kVar: {
      bool windowed = space == MemSpace::kGeneric &&
                      (o.var->space == Space::kShared || o.var->space == Space::kLocal);
      op.imm = o.offset;
      o.offset = 0;
      op.a = symbol_address(o, 8);
      if (windowed)
        op.imm +=
            static_cast<int64_t>(o.var->space == Space::kShared ? kSharedWindow : kLocalWindow);
      return error_.empty();
    }
    default:
      return fail("bad address operand");
  }
}

bool Decoder::take_space(MemSpace* s, const Operand* a) {
  *s = MemSpace::kGeneric;
  if (has("global"))
    *s = MemSpace::kGlobal;
  else if (has("shared") || has("shared::cta") || has("shared::cluster"))
    *s = MemSpace::kShared;
  else if (has("local"))
    *s = MemSpace::kLocal;
  else if (has("const"))
    *s = MemSpace::kGlobal;
  else if (has("param") || has("param::entry") || has("param::func")) {
    bool kernel = a->kind == Operand::Kind::kVar ? a->var->is_kernel_param : f_.is_entry;
    *s = kernel ? MemSpace::kParamKernel : MemSpace::kParamFrame;
  }
  return true;
}

bool Decoder::vector_registers(const Operand& o, std::vector<const Operand*>& regs) {
  if (o.kind != Operand::Kind::kVector) {
    regs.push_back(&o);
    return true;
  }
  for (uint32_t i = 0; i < o.count; ++i) regs.push_back(element(o, i));
  return true;
}

// Kernel parameters are the same for every lane. So a load from a fixed offset is a move from a
// lane array that is filled at launch.
bool Decoder::load_param_constant(const Operand& a, Type t,
                                  const std::vector<const Operand*>& regs) {
  for (size_t i = 0; i < regs.size(); ++i) {
    const Operand& r = *regs[i];
    if (r.kind != Operand::Kind::kReg || is_pred(r))
      return fail("destination of 'ld.param' must be a register");
    uint32_t bytes = reg_bytes(r.id);
    if (bytes < type_bytes(t))
      return fail("destination '" + std::string(r.name) + "' is too narrow");
    int64_t offset = a.var->offset + a.offset + static_cast<int64_t>(i * type_bytes(t));
    Op op = make(isa_.mov(bytes));
    op.d = reg_offset(r.id);
    op.a = launch_constant(
        {0, bytes, DecodedFunction::kParamFix, type_bytes(t), is_signed(t), offset});
    if (!emit_checked(op)) return false;
  }
  return true;
}

bool Decoder::op_ld() {
  if (!need(2, 3)) return false;
  MemSpace space;
  take_space(&space, &at(1));
  bool ordered = has("acquire") || has("volatile") || has("relaxed") || has("mmio");
  has("weak"), has("nc");
  for (std::string_view s : {"cta", "gpu", "sys", "cluster"}) has(s);
  skip_cache_hints();
  uint32_t vec = has("v2") ? 2 : has("v4") ? 4 : has("v8") ? 8 : 1;
  Type t = next_type();
  std::vector<const Operand*> regs;
  vector_registers(at(0), regs);
  if (t == Type::kNone || t == Type::kPred || regs.size() != vec) return unsupported();
  if (!all_used()) return unsupported();
  const Operand& a = at(1);
  if (space == MemSpace::kParamKernel && a.kind == Operand::Kind::kVar)
    return load_param_constant(a, t, regs);
  uint32_t bytes = 0;
  for (const Operand* r : regs)
    if (r->kind == Operand::Kind::kReg) bytes = reg_bytes(r->id);
  if (!bytes) bytes = std::max(type_bytes(t), 2u);
  Op op = make(isa_.load(space, type_bytes(t), bytes, is_signed(t), vec));
  op.aux = ordered ? 2 : 0;
  std::vector<uint32_t> list;
  for (const Operand* r : regs) list.push_back(dest(*r, bytes));
  op.d = list[0];
  if (vec > 1) op.list = keep_list(std::move(list)).data();
  return error_.empty() && address(a, op, space) && emit_checked(op);
}

bool Decoder::op_st() {
  if (!need(2, 3)) return false;
  MemSpace space;
  take_space(&space, &at(0));
  bool ordered = has("release") || has("volatile") || has("relaxed") || has("mmio");
  has("weak");
  for (std::string_view s : {"cta", "gpu", "sys", "cluster"}) has(s);
  skip_cache_hints();
  uint32_t vec = has("v2") ? 2 : has("v4") ? 4 : has("v8") ? 8 : 1;
  Type t = next_type();
  std::vector<const Operand*> regs;
  vector_registers(at(1), regs);
  if (t == Type::kNone || t == Type::kPred || regs.size() != vec || !all_used())
    return unsupported();
  uint32_t bytes = 0;
  for (const Operand* r : regs) bytes = std::max(bytes, source_bytes(*r));
  bytes = std::max({bytes, type_bytes(t), 2u});
  Op op = make(isa_.store(space, type_bytes(t), bytes, vec));
  op.aux = ordered ? 2 : 0;
  std::vector<uint32_t> list;
  for (const Operand* r : regs) list.push_back(source_any(*r, bytes, t));
  op.d = list[0];
  if (vec > 1) op.list = keep_list(std::move(list)).data();
  return error_.empty() && address(at(0), op, space) && emit_checked(op);
}

namespace {
bool is_pair(Type t) {
  return t == Type::kF16x2 || t == Type::kBF16x2 || t == Type::kE4M3x2 || t == Type::kE5M2x2;
}
}  // namespace

// Two numbers in and two out, such as between f16x2 and the eight-bit floats.
bool Decoder::convert_pair(CvtMode m) {
  if (!need(2, 2)) return false;
  Op op = make(isa_.cvt(m));
  op.imm = static_cast<int64_t>(encode_cvt(m));
  op.d = dest(at(0), type_bytes(m.to)), op.a = source(at(1), m.from);
  return emit_checked(op);
}

bool Decoder::op_cvt() {
  if (parts_.size() > 1 && parts_[1] == "pack") return op_cvt_pack();
  if (!need(2, 3)) return false;
  CvtMode m;
  for (auto [name, round] : {std::pair<std::string_view, Round>{"rni", kRoundNearest},
                             {"rzi", kRoundZero},
                             {"rmi", kRoundDown},
                             {"rpi", kRoundUp}}) {
    if (!has(name)) continue;
    m.integral = true;
    m.round = round;
  }
  const bool rounded = has_rounding();
  if (!m.integral) m.round = take_round();
  m.ftz = has("ftz"), m.sat = has("sat"), m.finite = has("satfinite"), m.relu = has("relu");
  m.to = next_type(), m.from = next_type();
  if (m.to == Type::kNone || m.from == Type::kNone) return unsupported();
  if (is_float(m.to) && !is_float(m.from) && !rounded)
    return fail("rounding modifier missing in '" + std::string(current_->opcode) + "'");
  if (is_pair(m.to) && is_pair(m.from)) return convert_pair(m);
  const bool two = is_pair(m.to);
  if (!need(two ? 3 : 2, two ? 3 : 2)) return false;
  // A literal or a special register has the width of the source type.
  uint32_t source_width =
      std::max(source_bytes(at(1)) ? source_bytes(at(1)) : type_bytes(m.from), 2u);
  const Operand& d = at(0);
  uint32_t width = d.kind == Operand::Kind::kReg && !is_pred(d) ? reg_bytes(d.id)
                                                                : std::max(type_bytes(m.to), 2u);
  if (width < type_bytes(m.to) || source_width < type_bytes(m.from))
    return fail("register of 'cvt' is too narrow");
  CvtMode keyed = m;
  keyed.dest_bytes = width | source_width << 8;
  Op op = make(isa_.cvt(keyed));
  m.dest_bytes = width;
  op.imm = static_cast<int64_t>(encode_cvt(m));
  op.n = static_cast<uint8_t>(source_width), op.size = static_cast<uint8_t>(width);
  op.d = dest(d, width);
  op.a = source_any(at(1), source_width, m.from);
  if (two) op.b = source_any(at(2), source_width, m.from);
  return emit_checked(op);
}

// cvt.pack.sat.convertType.abType{.cType} d, a, b{, c}
bool Decoder::op_cvt_pack() {
  has("pack");
  if (!has("sat") || !need(3, 4)) return unsupported();
  Op op = make(&run_cvt_pack);
  static constexpr std::pair<std::string_view, uint8_t> kTypes[] = {
      {"s16", 16}, {"u16", 16}, {"s8", 8}, {"u8", 8}, {"s4", 4}, {"u4", 4}, {"s2", 2}, {"u2", 2}};
  for (auto [name, bits] : kTypes)
    if (!op.size && has(name)) op.size = bits, op.n = name[0] == 's';
  const Type from = next_type();
  bool has_c = has("b32");
  if (from != Type::kS32 || !op.size) return unsupported();
  op.d = dest(at(0), 4), op.a = source(at(1), Type::kS32), op.b = source(at(2), Type::kS32);
  if (has_c && !need(4, 4)) return false;
  if (has_c) op.c = source(at(3), Type::kB32);
  return emit_checked(op);
}

bool Decoder::op_cvta() {
  if (!need(2, 2)) return false;
  bool to = has("to");
  uint64_t window = 0;
  if (has("shared") || has("shared::cta") || has("shared::cluster"))
    window = kSharedWindow;
  else if (has("local"))
    window = kLocalWindow;
  else if (has("param") || has("param::entry"))
    window = kParamWindow;
  else if (!has("global") && !has("const"))
    return unsupported();
  Type t = next_type();
  if (type_bytes(t) != 8) return unsupported();
  Op op = make(window ? &run_cvta : isa_.mov(8));
  op.aux = to, op.imm = static_cast<int64_t>(window), op.size = 8;
  op.d = dest(at(0), 8), op.a = source(at(1), t);
  return emit_checked(op);
}

bool Decoder::op_isspacep() {
  if (!need(2, 2)) return false;
  Op op = make(&run_isspacep);
  if (has("const"))
    op.imm =
        100;  // constants live in global memory here, and generic pointers to them count as global
  else if (has("global"))
    op.imm = static_cast<int64_t>(MemSpace::kGlobal);
  else if (has("shared") || has("shared::cta") || has("shared::cluster"))
    op.imm = static_cast<int64_t>(MemSpace::kShared);
  else if (has("local"))
    op.imm = static_cast<int64_t>(MemSpace::kLocal);
  else if (has("param") || has("param::entry"))
    op.imm = static_cast<int64_t>(MemSpace::kParamKernel);
  op.d = pred_dest(at(0)), op.a = source(at(1), Type::kB64);
  return emit_checked(op);
}

bool Decoder::op_atom() {
  bool red = parts_[0] == "red";
  static constexpr std::pair<std::string_view, AtomOp> kNames[] = {
      {"add", AtomOp::kAdd},   {"min", AtomOp::kMin}, {"max", AtomOp::kMax}, {"inc", AtomOp::kInc},
      {"dec", AtomOp::kDec},   {"and", AtomOp::kAnd}, {"or", AtomOp::kOr},   {"xor", AtomOp::kXor},
      {"exch", AtomOp::kExch}, {"cas", AtomOp::kCas}};
  const Operand& target = at(red ? 0 : 1);
  if (!need(2, 5)) return false;
  MemSpace space;
  take_space(&space, &target);
  for (std::string_view s :
       {"relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys", "cluster", "noftz"})
    has(s);
  skip_cache_hints();
  for (auto& [name, atom] : kNames) {
    if (!has(name)) continue;
    Type t = next_type();
    Op op = make(atom_handler(atom, t));
    uint32_t values = atom == AtomOp::kCas ? 2 : 1, first = red ? 1 : 2;
    if (!need(first + values, first + values)) return false;
    op.d = red ? 0 : dest(at(0), type_bytes(t));
    op.b = source(at(first), t);
    if (values == 2) op.c = source(at(first + 1), t);
    return address(target, op, space) && emit_checked(op);
  }
  return unsupported();
}

// Asynchronous copies complete at once. Waits and commits have nothing left to do.
bool Decoder::op_cp_async() {
  if (!has("async")) return unsupported();
  const bool bulk = has("bulk");
  if (bulk) has("read");
  if (has("commit_group") || has("wait_group") || (!bulk && has("wait_all")))
    return all_used() ? true : unsupported();
  if (bulk) return op_bulk_copy();
  if (has("mbarrier")) return op_async_arrive();
  skip_cache_hints();
  if (!has("shared") && !has("shared::cta")) return unsupported();
  if (!has("global") || !need(3, 5) || at(2).kind != Operand::Kind::kInt) return unsupported();
  Op op = make(&run_cp_async);
  op.size = static_cast<uint8_t>(at(2).value);
  if (op.size != 4 && op.size != 8 && op.size != 16) return unsupported();
  // Op::a the global address, Op::b the shared one (aux bit 2: 32 bits wide), Op::c the bytes to
  // copy.
  Op shared;
  if (!address(at(0), shared, MemSpace::kShared) || !address(at(1), op, MemSpace::kGlobal))
    return false;
  op.b = shared.a;
  op.e = static_cast<uint32_t>(shared.imm);
  if (shared.aux & 1) op.aux |= 4;
  op.c = count() > 3 && source_bytes(at(3)) != 8 ? source(at(3), Type::kU32) : constant(op.size, 4);
  return emit_checked(op);
}

}  // namespace tendril::softgpu
