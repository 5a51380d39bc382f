// SPDX-License-Identifier: Apache-2.0
// What the decoder asks of the handler files that are compiled once per instruction set. Each
// function returns null if there is no handler for the combination. Then the decoder reports the
// instruction as unsupported.
#pragma once

#include <cstdint>

#include "softgpu/ptx/exec.h"
#include "softgpu/ptx/handlers/numeric.h"

namespace tendril::softgpu {

enum class Alu : uint8_t {
  kAdd,
  kSub,
  kMulLo,
  kMulHi,
  kMulWide,
  kMadLo,
  kMadHi,
  kMadWide,
  kMul24Lo,
  kMul24Hi,
  kMad24Lo,
  kMad24Hi,
  kSad,
  kDiv,
  kRem,
  kAbs,
  kNeg,
  kMin,
  kMax,
  kPopc,
  kClz,
  kBfind,
  kBfindShift,
  kBrev,
  kBfe,
  kBfi,
  kBmskClamp,
  kBmskWrap,
  kFns,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kShl,
  kShr,
  kShfLeftClamp,
  kShfLeftWrap,
  kShfRightClamp,
  kShfRightWrap,
  kLop3,
  kPrmt,
  kDp4a,
  kDp2aLo,
  kDp2aHi,
  kAddSat,
  kSubSat,
  kMadHiSat,
  kMad24HiSat,
  kAddCc,
  kAddc,
  kAddcCc,
  kSubCc,
  kSubc,
  kSubcCc,
  kMadLoCc,
  kMadHiCc,
  kMadcLo,
  kMadcHi,
  kMadcLoCc,
  kMadcHiCc,
  kSzextClamp,
  kSzextWrap,
  kMinRelu,
  kMaxRelu,
  kSlct,
  kSlctF,
  kSlctFtz,
};

enum class Falu : uint8_t {
  kAdd,
  kSub,
  kMul,
  kFma,
  kDiv,
  kDivApprox,
  kRcp,
  kSqrt,
  kRsqrt,
  kSin,
  kCos,
  kEx2,
  kLg2,
  kTanh,
  kMin,
  kMax,
  kMinNan,
  kMaxNan,
  kMinXorsign,
  kMaxXorsign,
  kMinNanXorsign,
  kMaxNanXorsign,
  kAbs,
  kNeg,
  kCopysign,
  kFmaRelu,
  kSlct,
  kMov,
};

enum class Cmp : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan
};
enum class BoolOp : uint8_t { kNone, kAnd, kOr, kXor };
enum class TestP : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };

struct FloatMode {
  bool ftz = false, sat = false, relu = false;
  Round round = kRoundNearest;
};

struct CvtMode {
  Type to = Type::kNone, from = Type::kNone;
  Round round = kRoundNearest;
  bool integral = false;  // .rni .rzi .rmi .rpi
  bool sat = false, ftz = false, relu = false;
  bool finite = false;      // .satfinite: overflow gives the largest number
  uint32_t dest_bytes = 0;  // of the register, may exceed the type
};

enum class MemSpace : uint8_t { kGlobal, kShared, kLocal, kGeneric, kParamFrame, kParamKernel };

struct IsaTable {
  Handler (*alu)(Alu op, Type t);
  Handler (*falu)(Falu op, Type t, FloatMode mode);
  Handler (*setp)(Cmp c, Type t, bool ftz);            // Op::aux: BoolOp, bit 4: c negated
  Handler (*set)(Cmp c, Type t, Type dest, bool ftz);  // like setp, result in a register
  Handler (*selp)(uint32_t bytes);
  Handler (*mov)(uint32_t bytes);
  Handler (*testp)(TestP p, Type t);
  Handler (*predicate)(Alu op);  // and, or, xor, not, kAdd = mov on predicates
  Handler (*cvt)(CvtMode m);
  // Op: a = address register (32 or 64 bits by Op::aux bit 0), imm = offset, list/n = registers,
  // size = bytes per element.
  Handler (*load)(MemSpace s, uint32_t bytes, uint32_t reg_bytes, bool is_signed, uint32_t vec);
  Handler (*store)(MemSpace s, uint32_t bytes, uint32_t reg_bytes, uint32_t vec);
  Handler (*shuffle)(uint32_t mode);  // 0 up, 1 down, 2 bfly, 3 idx
};

namespace isa_base {
const IsaTable& table();
}
namespace isa_avx2 {
const IsaTable& table();
}

}  // namespace tendril::softgpu
