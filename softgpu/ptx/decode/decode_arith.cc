// SPDX-License-Identifier: Apache-2.0
// Decoding of arithmetic, logic, comparison and selection.
#include "softgpu/ptx/decode/decoder.h"

namespace tendril::softgpu {
namespace {

bool parse_cmp(std::string_view s, Cmp* c) {
  static constexpr std::pair<std::string_view, Cmp> kNames[] = {
      {"eq", Cmp::kEq},   {"ne", Cmp::kNe},   {"lt", Cmp::kLt},   {"le", Cmp::kLe},
      {"gt", Cmp::kGt},   {"ge", Cmp::kGe},   {"lo", Cmp::kLt},   {"ls", Cmp::kLe},
      {"hi", Cmp::kGt},   {"hs", Cmp::kGe},   {"equ", Cmp::kEqu}, {"neu", Cmp::kNeu},
      {"ltu", Cmp::kLtu}, {"leu", Cmp::kLeu}, {"gtu", Cmp::kGtu}, {"geu", Cmp::kGeu},
      {"num", Cmp::kNum}, {"nan", Cmp::kNan}};
  for (auto& [name, v] : kNames)
    if (name == s) return *c = v, true;
  return false;
}

Type widened(Type t) {
  switch (t) {
    case Type::kU16:
      return Type::kU32;
    case Type::kS16:
      return Type::kS32;
    case Type::kU32:
      return Type::kU64;
    case Type::kS32:
      return Type::kS64;
    default:
      return Type::kNone;
  }
}

Type unsigned_of(uint32_t bytes) {
  return bytes == 8 ? Type::kB64 : bytes == 4 ? Type::kB32 : Type::kB16;
}

}  // namespace

bool Decoder::binary(Alu alu, Type t, Type tb) {
  if (!need(3, 3)) return false;
  Op op = make(isa_.alu(alu, t));
  op.d = dest(at(0), type_bytes(t));
  op.a = source(at(1), t);
  op.b = source(at(2), tb);
  return emit_checked(op);
}

bool Decoder::float_op(Falu falu, Type t, uint32_t sources) {
  if (!need(sources + 1, sources + 1)) return false;
  Op op;
  uint16_t aux = 0;
  FloatMode mode = take_float_mode(&aux);
  op = make(isa_.falu(falu, t, mode));
  op.aux = aux;
  op.d = dest(at(0), type_bytes(t));
  op.a = source(at(1), t);
  if (sources > 1) op.b = source(at(2), t);
  if (sources > 2) op.c = source(at(3), t);
  return emit_checked(op);
}

bool Decoder::op_add() {
  bool cc = has("cc");
  Type t = next_type();
  if (is_float(t)) return float_op(Falu::kAdd, t, 2);
  return binary(cc ? Alu::kAddCc : has("sat") ? Alu::kAddSat : Alu::kAdd, t, t);
}

bool Decoder::op_sub() {
  bool cc = has("cc");
  Type t = next_type();
  if (is_float(t)) return float_op(Falu::kSub, t, 2);
  return binary(cc ? Alu::kSubCc : has("sat") ? Alu::kSubSat : Alu::kSub, t, t);
}

bool Decoder::op_addc() {
  bool add = parts_[0] == "addc", cc = has("cc");
  Type t = next_type();
  return binary(add ? (cc ? Alu::kAddcCc : Alu::kAddc) : (cc ? Alu::kSubcCc : Alu::kSubc), t, t);
}

bool Decoder::op_mul() {
  Type t = next_type();
  if (is_float(t)) return float_op(Falu::kMul, t, 2);
  if (!has("wide")) return binary(has("hi") ? Alu::kMulHi : (has("lo"), Alu::kMulLo), t, t);
  if (!need(3, 3)) return false;
  Op op = make(isa_.alu(Alu::kMulWide, t));
  op.d = dest(at(0), type_bytes(widened(t)));
  op.a = source(at(1), t), op.b = source(at(2), t);
  return emit_checked(op);
}

bool Decoder::op_mad() {
  bool cc = has("cc");
  Type t = next_type();
  if (is_float(t)) return float_op(Falu::kFma, t, 3);
  if (!need(4, 4)) return false;
  bool wide = has("wide"), hi = has("hi"), sat = has("sat");
  has("lo");
  Alu alu = wide ? Alu::kMadWide
            : hi ? (cc    ? Alu::kMadHiCc
                    : sat ? Alu::kMadHiSat
                          : Alu::kMadHi)
                 : (cc ? Alu::kMadLoCc : Alu::kMadLo);
  Type td = wide ? widened(t) : t;
  Op op = make(isa_.alu(alu, t));
  op.aux = is_signed(t);
  op.d = dest(at(0), type_bytes(td));
  op.a = source(at(1), t), op.b = source(at(2), t), op.c = source(at(3), td);
  return emit_checked(op);
}

bool Decoder::op_madc() {
  bool cc = has("cc"), hi = has("hi");
  has("lo");
  Type t = next_type();
  if (!need(4, 4)) return false;
  Op op = make(isa_.alu(
      hi ? (cc ? Alu::kMadcHiCc : Alu::kMadcHi) : (cc ? Alu::kMadcLoCc : Alu::kMadcLo), t));
  op.aux = is_signed(t);
  op.d = dest(at(0), type_bytes(t));
  op.a = source(at(1), t), op.b = source(at(2), t), op.c = source(at(3), t);
  return emit_checked(op);
}

bool Decoder::op_mul24() {
  Type t = next_type();
  return binary(has("hi") ? Alu::kMul24Hi : (has("lo"), Alu::kMul24Lo), t, t);
}

bool Decoder::op_mad24() {
  Type t = next_type();
  if (!need(4, 4)) return false;
  bool hi = has("hi"), sat = hi && has("sat");
  has("lo");
  Op op = make(isa_.alu(sat ? Alu::kMad24HiSat : hi ? Alu::kMad24Hi : Alu::kMad24Lo, t));
  op.d = dest(at(0), 4);
  op.a = source(at(1), t), op.b = source(at(2), t), op.c = source(at(3), t);
  return emit_checked(op);
}

bool Decoder::op_fma() {
  Type t = next_type();
  return is_float(t) ? float_op(Falu::kFma, t, 3) : unsupported();
}

bool Decoder::op_div() {
  Type t = next_type();
  if (!is_float(t)) return binary(Alu::kDiv, t, t);
  const bool approximate = has("approx");
  has("full");
  return float_op(approximate ? Falu::kDivApprox : Falu::kDiv, t, 2);
}

bool Decoder::op_rem() {
  Type t = next_type();
  return binary(Alu::kRem, t, t);
}

bool Decoder::op_abs_neg() {
  bool abs = parts_[0] == "abs";
  Type t = next_type();
  if (is_float(t)) return float_op(abs ? Falu::kAbs : Falu::kNeg, t, 1);
  if (!need(2, 2)) return false;
  Op op = make(isa_.alu(abs ? Alu::kAbs : Alu::kNeg, t));
  op.d = dest(at(0), type_bytes(t)), op.a = source(at(1), t);
  return emit_checked(op);
}

bool Decoder::op_minmax() {
  bool min = parts_[0] == "min";
  Type t = next_type();
  if (is_float(t)) {
    bool nan = has("NaN"), xorsign = has("xorsign") && has("abs");
    Falu f = min ? (nan ? (xorsign ? Falu::kMinNanXorsign : Falu::kMinNan)
                        : (xorsign ? Falu::kMinXorsign : Falu::kMin))
                 : (nan ? (xorsign ? Falu::kMaxNanXorsign : Falu::kMaxNan)
                        : (xorsign ? Falu::kMaxXorsign : Falu::kMax));
    // The assembler turns this into a copy, in which a NaN keeps its bits (seen on hardware;
    // max.NaN and .ftz differ).
    const bool itself = count() == 3 && at(1).kind == Operand::Kind::kReg &&
                        at(2).kind == Operand::Kind::kReg && at(1).id == at(2).id;
    if (f == Falu::kMin && t == Type::kF32 && parts_.size() == 2 && itself) {
      Op op = make(isa_.mov(4));
      op.d = dest(at(0), 4), op.a = source(at(1), t);
      return emit_checked(op);
    }
    return float_op(f, t, 2);
  }
  bool relu = has("relu");
  return binary(min ? (relu ? Alu::kMinRelu : Alu::kMin) : (relu ? Alu::kMaxRelu : Alu::kMax), t,
                t);
}

bool Decoder::op_bits() {
  if (!need(2, 2)) return false;
  std::string_view n = parts_[0];
  bool shift = has("shiftamt");
  Type t = next_type();
  Alu alu = n == "popc"   ? Alu::kPopc
            : n == "clz"  ? Alu::kClz
            : n == "brev" ? Alu::kBrev
            : shift       ? Alu::kBfindShift
                          : Alu::kBfind;
  Op op = make(isa_.alu(alu, t));
  op.d = dest(at(0), n == "brev" ? type_bytes(t) : 4), op.a = source(at(1), t);
  return emit_checked(op);
}

bool Decoder::op_bfe() {
  if (!need(4, 4)) return false;
  Type t = next_type();
  Op op = make(isa_.alu(Alu::kBfe, t));
  op.d = dest(at(0), type_bytes(t)), op.a = source(at(1), t);
  op.b = source(at(2), Type::kU32), op.c = source(at(3), Type::kU32);
  return emit_checked(op);
}

bool Decoder::op_bfi() {
  if (!need(5, 5)) return false;
  Type t = next_type();
  Op op = make(isa_.alu(Alu::kBfi, t));
  op.d = dest(at(0), type_bytes(t)), op.a = source(at(1), t), op.b = source(at(2), t);
  op.c = source(at(3), Type::kU32), op.e = source(at(4), Type::kU32);
  return emit_checked(op);
}

bool Decoder::op_bmsk() {
  bool wrap = has("wrap");
  has("clamp");
  Type t = next_type();
  return binary(wrap ? Alu::kBmskWrap : Alu::kBmskClamp, t, t);
}

bool Decoder::op_szext() {
  bool wrap = has("wrap");
  has("clamp");
  Type t = next_type();
  return binary(wrap ? Alu::kSzextWrap : Alu::kSzextClamp, t, Type::kU32);
}

bool Decoder::op_fns() {
  if (!need(4, 4)) return false;
  Op op = make(isa_.alu(Alu::kFns, next_type()));
  op.d = dest(at(0), 4);
  op.a = source(at(1), Type::kU32), op.b = source(at(2), Type::kU32),
  op.c = source(at(3), Type::kS32);
  return emit_checked(op);
}

bool Decoder::op_logic() {
  std::string_view n = parts_[0];
  Type t = next_type();
  bool one = n == "not" || n == "cnot";
  if (!need(one ? 2 : 3, one ? 2 : 3)) return false;
  Alu alu = n == "and"   ? Alu::kAnd
            : n == "or"  ? Alu::kOr
            : n == "xor" ? Alu::kXor
            : n == "not" ? Alu::kNot
                         : Alu::kCnot;
  Op op;
  if (t == Type::kPred) {
    bool na = false, nb = false;
    op = make(isa_.predicate(alu));
    op.d = pred_dest(at(0)), op.a = pred_source(at(1), &na);
    if (!one) op.b = pred_source(at(2), &nb);
    op.aux = static_cast<uint16_t>(na | nb << 1);
    return emit_checked(op);
  }
  op = make(isa_.alu(alu, t));
  op.d = dest(at(0), type_bytes(t)), op.a = source(at(1), t);
  if (!one) op.b = source(at(2), t);
  return emit_checked(op);
}

bool Decoder::op_shift() {
  Type t = next_type();
  return binary(parts_[0] == "shl" ? Alu::kShl : Alu::kShr, t, Type::kU32);
}

bool Decoder::op_shf() {
  if (!need(4, 4)) return false;
  bool left = has("l"), wrap = has("wrap");
  if (!left) has("r");
  has("clamp");
  Type t = next_type();
  Op op = make(isa_.alu(left ? (wrap ? Alu::kShfLeftWrap : Alu::kShfLeftClamp)
                             : (wrap ? Alu::kShfRightWrap : Alu::kShfRightClamp),
                        t));
  op.d = dest(at(0), 4);
  op.a = source(at(1), Type::kB32), op.b = source(at(2), Type::kB32),
  op.c = source(at(3), Type::kU32);
  return emit_checked(op);
}

bool Decoder::op_lop3() {
  if (!need(5, 5) || at(4).kind != Operand::Kind::kInt) return unsupported();
  Op op = make(isa_.alu(Alu::kLop3, next_type()));
  op.d = dest(at(0), 4);
  op.a = source(at(1), Type::kB32), op.b = source(at(2), Type::kB32),
  op.c = source(at(3), Type::kB32);
  op.imm = static_cast<int64_t>(at(4).value & 0xFF);
  return emit_checked(op);
}

bool Decoder::op_prmt() {
  if (!need(4, 4)) return false;
  Type t = next_type();
  Op op = make(isa_.alu(Alu::kPrmt, t));
  static constexpr std::string_view kModes[] = {"", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  for (uint16_t i = 1; i < 7; ++i)
    if (has(kModes[i])) op.aux = i;
  op.d = dest(at(0), 4);
  op.a = source(at(1), Type::kB32), op.b = source(at(2), Type::kB32),
  op.c = source(at(3), Type::kB32);
  return emit_checked(op);
}

bool Decoder::op_dp() {
  if (!need(4, 4)) return false;
  bool four = parts_[0] == "dp4a", hi = !four && has("hi");
  if (!four && !hi) has("lo");
  Type ta = next_type(), tb = next_type();
  Op op = make(isa_.alu(four ? Alu::kDp4a : hi ? Alu::kDp2aHi : Alu::kDp2aLo, Type::kU32));
  op.aux = static_cast<uint16_t>(is_signed(ta) | is_signed(tb) << 1);
  op.d = dest(at(0), 4);
  op.a = source(at(1), Type::kB32), op.b = source(at(2), Type::kB32),
  op.c = source(at(3), Type::kB32);
  return emit_checked(op);
}

bool Decoder::op_sad() {
  if (!need(4, 4)) return false;
  Type t = next_type();
  Op op = make(isa_.alu(Alu::kSad, t));
  op.d = dest(at(0), type_bytes(t));
  op.a = source(at(1), t), op.b = source(at(2), t), op.c = source(at(3), t);
  return emit_checked(op);
}

bool Decoder::op_unary_float() {
  static constexpr std::pair<std::string_view, Falu> kNames[] = {
      {"rcp", Falu::kRcp}, {"sqrt", Falu::kSqrt}, {"rsqrt", Falu::kRsqrt}, {"sin", Falu::kSin},
      {"cos", Falu::kCos}, {"ex2", Falu::kEx2},   {"lg2", Falu::kLg2},     {"tanh", Falu::kTanh}};
  Falu f = Falu::kRcp;
  for (auto& [name, v] : kNames)
    if (name == parts_[0]) f = v;
  bool approx = has("approx");
  Type t = next_type();
  // Only the approximate double forms are rough. ftz, which they always carry, selects the handler.
  if (t == Type::kF64 && !approx && has("ftz")) return unsupported();
  return float_op(f, t, 1);
}

bool Decoder::op_copysign() {
  Type t = next_type();
  return t == Type::kF32 || t == Type::kF64 ? float_op(Falu::kCopysign, t, 2) : unsupported();
}

bool Decoder::op_testp() {
  if (!need(2, 2)) return false;
  static constexpr std::pair<std::string_view, TestP> kNames[] = {
      {"finite", TestP::kFinite}, {"infinite", TestP::kInfinite},
      {"number", TestP::kNumber}, {"notanumber", TestP::kNotANumber},
      {"normal", TestP::kNormal}, {"subnormal", TestP::kSubnormal}};
  for (auto& [name, v] : kNames) {
    if (!has(name)) continue;
    Type t = next_type();
    Op op = make(isa_.testp(v, t));
    op.d = pred_dest(at(0)), op.a = source(at(1), t);
    return emit_checked(op);
  }
  return unsupported();
}

// The boolean operator and its predicate, common to set and setp.
bool Decoder::comparison(Op& op, Type t, bool) {
  op.a = source(at(1), t), op.b = source(at(2), t);
  if (!(op.aux & 3)) return need(3, 3);
  bool negated = false;
  if (!need(4, 4)) return false;
  op.c = pred_source(at(3), &negated);
  op.aux = static_cast<uint16_t>(op.aux | negated << 4);
  return true;
}

bool Decoder::op_setp() {
  if (!need(3, 4) || parts_.size() < 3) return unsupported();
  Cmp c;
  if (!parse_cmp(parts_[1], &c)) return unsupported();
  used_ |= 2;
  uint16_t aux = has("and") ? 1 : has("or") ? 2 : has("xor") ? 3 : 0;
  bool ftz = has("ftz");
  Type t = next_type();
  Op op = make(isa_.setp(c, t, ftz));
  op.aux = aux;
  op.d = pred_dest(at(0));
  if (at(0).pred_id != ~0u) op.e = reg_offset(at(0).pred_id);
  return comparison(op, t, false) && emit_checked(op);
}

bool Decoder::op_set() {
  if (!need(3, 4) || parts_.size() < 4) return unsupported();
  Cmp c;
  if (!parse_cmp(parts_[1], &c)) return unsupported();
  used_ |= 2;
  uint16_t aux = has("and") ? 1 : has("or") ? 2 : has("xor") ? 3 : 0;
  bool ftz = has("ftz");
  Type td = next_type(), t = next_type();
  Op op = make(isa_.set(c, t, td, ftz));
  op.aux = aux;
  op.n = static_cast<uint8_t>(type_bytes(td));
  op.d = dest(at(0), type_bytes(td));
  op.imm = td == Type::kF32                           ? 0x3F800000
           : td == Type::kF16 || td == Type::kF16x2   ? 0x3C00
           : td == Type::kBF16 || td == Type::kBF16x2 ? 0x3F80
                                                      : 0xFFFFFFFF;
  if (t == Type::kF16x2 || t == Type::kBF16x2) op.aux |= 32;
  return comparison(op, t, true) && emit_checked(op);
}

bool Decoder::op_selp() {
  if (!need(4, 4)) return false;
  Type t = next_type();
  bool negated = false;
  if (t == Type::kPred) {  // not in the ISA; refuse by name
    return unsupported();
  }
  Op op = make(isa_.selp(std::max(type_bytes(t), 2u)));
  op.d = dest(at(0), type_bytes(t)), op.a = source(at(1), t), op.b = source(at(2), t);
  op.c = pred_source(at(3), &negated);
  op.e = negated ? ~0u : 0;
  return emit_checked(op);
}

bool Decoder::op_slct() {
  if (!need(4, 4)) return false;
  const bool ftz = has("ftz");
  Type t = next_type(), tc = next_type();
  Type storage = unsigned_of(type_bytes(t));
  Alu alu = tc != Type::kF32 ? Alu::kSlct : ftz ? Alu::kSlctFtz : Alu::kSlctF;
  Op op = make(isa_.alu(alu, storage));
  op.d = dest(at(0), type_bytes(t));
  op.a = source(at(1), t), op.b = source(at(2), t), op.c = source(at(3), tc);
  return emit_checked(op);
}

}  // namespace tendril::softgpu
