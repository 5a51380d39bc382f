// SPDX-License-Identifier: Apache-2.0
// The parsed form of a PTX module. parser.cc produces it, decoder*.cc read it. Names are views into
// the module's own copy of the text, so a Module must outlive everything that points into it.
// Immutable after parsing. No execution state lives here.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "softgpu/engine.h"

namespace tendril::softgpu {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU16x2,
  kS16x2,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBF16,
  kBF16x2,
  kE4M3,
  kE5M2,
  kE4M3x2,
  kE5M2x2,
  kTF32,
  kF32,
  kF64,
};

uint32_t type_bytes(Type t);  // predicates count as 4
struct Operand;
// The bits of an immediate as an operand of type `t`: floats are rounded to it, integers are taken
// as bit patterns.
uint64_t literal_bits(const Operand& o, Type t);
Type type_from_name(std::string_view name);  // without the dot; kNone when unknown
inline bool is_float(Type t) { return t >= Type::kF16; }
inline bool is_signed(Type t) { return t >= Type::kS8 && t <= Type::kS64; }

enum class Space : uint8_t { kGeneric, kReg, kLocal, kShared, kGlobal, kConst, kParam };

// Generic 64-bit addresses carry their window in the top byte. All four values make the address
// non-canonical on x86-64 and lie outside any 48- or 52-bit device range. So no host or device
// pointer falls into a window.
inline constexpr uint64_t kSharedWindow = 0x5Eull << 56;
inline constexpr uint64_t kLocalWindow = 0x5Cull << 56;
inline constexpr uint64_t kParamWindow = 0x5Aull << 56;
inline constexpr uint64_t kFunctionWindow = 0x58ull << 56;  // + 16 * function index; never loadable

struct Variable {
  std::string_view name;
  Space space = Space::kGlobal;
  Type type = Type::kB32;
  uint8_t vec = 1;  // .v2 / .v4
  bool is_array = false, is_extern = false, is_kernel_param = false;
  uint32_t align = 1;
  uint64_t bytes = 0;           // 0 for `extern x[]`
  uint32_t reg_count = 0;       // for %r<N>: N; plain register: 0
  uint32_t offset = 0;          // in its function's local or parameter block
  uint32_t global_index = ~0u;  // index into Module::globals
  uint32_t line = 0;
  uint32_t reg_base = ~0u;  // plain registers: first id
};

// These types have a namespace of their own. The driver half has classes with the same names, and
// both are linked into one library.
inline namespace ptx {
struct Function;
}  // namespace ptx

struct Operand {
  enum class Kind : uint8_t {
    kNone,
    kReg,
    kSpecial,
    kInt,
    kFloat,
    kVar,
    kFunction,
    kName,
    kVector,
    kSink
  };
  Kind kind = Kind::kNone;
  bool negated = false;  // !p
  bool minus = false;    // -r, in vmad only
  bool address = false;  // written in brackets
  uint8_t special = 0;   // SpecialReg
  uint32_t id = 0;     // register id; function index; kVector: first element in Function::elements
  uint32_t count = 0;  // kVector: elements
  uint32_t inside = 0, inside_count = 0;  // [image, more...]: the others, in Function::elements
  uint32_t pred_id = ~0u;                 // `d|p`: the second destination, a register id
  uint64_t value = 0;                     // integer or bits of a double
  int64_t offset = 0;                     // address or symbol offset
  const Variable* var = nullptr;
  std::string_view name;      // kName: label, or something declared later
  std::string_view selector;  // r.b3, r.h1, r.b7531: parts of a register, in video instructions
};

struct Instruction {
  std::string_view opcode;  // with all suffixes
  uint32_t line = 0;
  uint32_t scope = 0;
  uint32_t pred = ~0u;  // register id of the guard
  bool pred_negated = false;
  uint32_t first = 0, count = 0;  // operands, in Function::operands
};

struct Register {
  Type type;
};

struct BranchTable {
  std::vector<std::string_view> labels;
};

inline namespace ptx {
struct Function {
  std::string_view name;
  bool is_entry = false, has_body = false, is_extern = false, noreturn = false;
  uint32_t index = 0, line = 0;
  std::vector<const Variable*> params, returns;
  uint32_t param_bytes = 0;  // device functions: returns, inputs and call-site .param variables
  uint32_t local_bytes = 0;
  uint32_t max_threads = 0;
  std::vector<Register> registers;
  std::vector<Instruction> code;
  std::vector<Operand> operands, elements;
  std::vector<uint32_t> scope_parent;                // [0] is the body
  std::unordered_map<std::string, uint32_t> labels;  // "scope:name" -> instruction index
  std::unordered_map<std::string, BranchTable> tables;
  std::vector<const Variable*> shared_used;  // every shared variable named in the body
  std::vector<uint32_t> functions_used;
  bool indirect_calls = false;
};
}  // namespace ptx

enum SpecialReg : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kTidW,
  kNtidX,
  kNtidY,
  kNtidZ,
  kNtidW,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kCtaidW,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kNctaidW,
  kLaneid,
  kWarpid,
  kNwarpid,
  kSmid,
  kNsmid,
  kGridid,
  kClock,
  kClockHi,
  kClock64,
  kGlobaltimer,
  kGlobaltimerLo,
  kGlobaltimerHi,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kDynamicSmem,
  kTotalSmem,
  kEnvreg0,
  kEnvreg31 = kEnvreg0 + 31,
  kPm0,
  kPm7 = kPm0 + 7,
  kWarpSize,
  kZeroSpecial,
  kOneSpecial,
  kReservedSmemBegin,
  kSpecialCount,
};

inline namespace ptx {
struct Module {
  std::string text;
  uint32_t version = 0, target = 0, address_bytes = 8;
  std::deque<Variable> variables;
  std::deque<Function> functions;
  std::unordered_map<std::string_view, Variable*> symbols;
  std::unordered_map<std::string_view, uint32_t> function_index;
  std::vector<GlobalInfo> globals;
  bool function_address_in_data = false;
};
}  // namespace ptx

}  // namespace tendril::softgpu
