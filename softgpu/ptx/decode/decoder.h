// SPDX-License-Identifier: Apache-2.0
// Turns the body of one function, as one kernel uses it, into Ops. program.cc calls it under its
// lock, on the thread that first needs the kernel. Nothing is executed here. The methods are spread
// over decoder.cc (operands, constants) and the decode_*.cc files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "softgpu/ptx/exec.h"
#include "softgpu/ptx/handlers/handlers_isa.h"
#include "softgpu/ptx/text/ast.h"

namespace tendril::softgpu {

struct ImageOp;

class Decoder {
 public:
  Decoder(const Module& m, const Function& f, DecodedKernel& k, DecodedFunction& out,
          const std::unordered_map<const Variable*, uint32_t>& shared_offsets)
      : m_(m), f_(f), kernel_(k), out_(out), shared_(shared_offsets), isa_(isa_table()) {}
  bool decode();
  const std::string& error() const { return error_; }

 private:
  using Method = bool (Decoder::*)();
  struct Entry {
    std::string_view name;
    Method method;
  };
  static const std::vector<Entry>& entries();

  // The suffixes of one instruction. has() marks a suffix as understood. An instruction with a
  // suffix that nobody understood is unsupported.
  void split(std::string_view opcode);
  bool has(std::string_view suffix);
  bool has_prefix(std::string_view prefix);
  Type next_type();
  bool all_used() const;
  bool has_rounding() const;
  Round take_round();
  FloatMode take_float_mode(uint16_t* aux);
  void skip_cache_hints();

  bool fail(const std::string& what);
  bool unsupported();
  bool instruction(const Instruction& i);
  void layout_registers();
  void finish();

  const Operand& at(uint32_t i) const;
  uint32_t count() const { return current_->count; }
  bool need(uint32_t low, uint32_t high);
  uint32_t reg_bytes(uint32_t id) const;
  uint32_t reg_offset(uint32_t id) const { return offsets_[id]; }
  bool is_pred(const Operand& o) const;
  uint32_t constant(uint64_t bits, uint32_t bytes);
  uint32_t launch_constant(DecodedFunction::Fix fix);
  uint32_t temp(uint32_t bytes);
  uint32_t source(const Operand& o, Type t);
  uint32_t source_bytes(const Operand& o) const;
  uint32_t sum(const Operand& o, uint32_t bytes);
  uint32_t source_any(const Operand& o, uint32_t bytes, Type t);
  uint32_t symbol_address(const Operand& o, uint32_t bytes);
  uint32_t pred_source(const Operand& o, bool* negated);
  uint32_t dest(const Operand& o, uint32_t bytes);
  uint32_t pred_dest(const Operand& o);
  const std::vector<uint32_t>& keep_list(std::vector<uint32_t> v);
  Op make(Handler h);
  bool emit(const Op& op);
  bool emit_checked(Op op);
  bool resolve_name(Operand& o);
  const Operand* element(const Operand& v, uint32_t i) const { return &f_.elements[v.id + i]; }

  // decode_arith.cc
  bool op_add();
  bool op_sub();
  bool op_mul();
  bool op_mad();
  bool op_mul24();
  bool op_mad24();
  bool op_fma();
  bool op_div();
  bool op_rem();
  bool op_abs_neg();
  bool op_minmax();
  bool op_bits();
  bool op_bfe();
  bool op_bfi();
  bool op_bmsk();
  bool op_fns();
  bool op_logic();
  bool op_shift();
  bool op_shf();
  bool op_lop3();
  bool op_prmt();
  bool op_dp();
  bool op_sad();
  bool op_addc();
  bool op_madc();
  bool op_unary_float();
  bool op_copysign();
  bool op_testp();
  bool op_setp();
  bool op_set();
  bool op_selp();
  bool op_slct();
  bool op_szext();
  bool binary(Alu op, Type t, Type tb);
  bool float_op(Falu op, Type t, uint32_t sources);
  bool comparison(Op& op, Type t, bool is_set);
  bool packed_add_sub(Alu op);

  // decode_memory.cc
  bool op_mov();
  bool op_ld();
  bool op_st();
  bool op_cvt();
  bool op_cvta();
  bool op_isspacep();
  bool op_atom();
  bool op_nothing();
  bool op_cvt_pack();
  bool convert_pair(CvtMode m);
  bool op_cp_async();
  bool op_mapa();
  bool move_vector(Type t);
  bool move_elements(uint32_t n);
  bool address(const Operand& o, Op& op, MemSpace space);
  bool load_param_constant(const Operand& a, Type t, const std::vector<const Operand*>& regs);
  bool take_space(MemSpace* s, const Operand* address);
  bool vector_registers(const Operand& o, std::vector<const Operand*>& regs);

  // decode_control.cc
  bool op_bra();
  bool op_brx();
  bool op_call();
  bool op_ret();
  bool op_exit();
  bool op_trap();
  bool op_bar();
  bool op_membar();
  bool op_shfl();
  bool op_vote();
  bool op_activemask();
  bool op_match();
  bool op_redux();
  bool op_nanosleep();
  bool op_elect();
  bool op_mma();
  bool op_wmma();
  bool op_ldmatrix();
  bool op_movmatrix();
  bool op_video();
  bool fragment_registers(const Operand& o, uint32_t n, bool wide, bool is_dest,
                          std::vector<uint32_t>& list);
  bool fragment_access(bool store, uint32_t shape_index);

  // decode_mbarrier.cc
  bool op_mbarrier();
  bool op_async_arrive();
  bool op_bulk_copy();
  bool mbarrier_arrive(Op op, bool expects);
  bool mbarrier_wait(Op op);
  bool mbarrier_change(Op op);
  void skip_memory_model();

  // decode_image.cc
  bool op_tex();
  bool op_surface();
  bool op_surface_reduction();
  bool op_image_query();
  bool image_shape(ImageOp& i);
  bool image_address(const Operand& o, const ImageOp& i, Op& op, std::vector<uint32_t>& list);
  bool take_beyond(ImageOp& i);

  bool op_griddep();
  bool find_label(std::string_view name, uint32_t scope, uint32_t* index);
  const BranchTable* find_table(std::string_view name, uint32_t scope);
  bool call_operands(const Operand* returns, const Operand* arguments, const Function* callee,
                     std::vector<uint32_t>& list);
  bool call_value(const Operand& o, std::vector<uint32_t>& list, bool is_return);
  bool call_builtin(std::string_view name, const Operand* returns, const Operand* arguments,
                    bool* found);

  const Module& m_;
  const Function& f_;
  DecodedKernel& kernel_;
  DecodedFunction& out_;
  const std::unordered_map<const Variable*, uint32_t>& shared_;
  const IsaTable& isa_;
  std::string error_;
  const Instruction* current_ = nullptr;
  std::vector<std::string_view> parts_;
  uint32_t used_ = 0;
  std::vector<uint32_t> offsets_;  // by register id
  uint32_t top_ = 0;               // end of the frame so far
  std::map<std::pair<uint64_t, uint32_t>, uint32_t> constants_;
  struct Pending {
    uint32_t op, instruction;
  };
  std::vector<Pending> branches_;
  std::vector<std::pair<size_t, std::vector<uint32_t>>> tables_;  // brx: index into out_.lists
  std::vector<uint32_t> op_of_;                                   // instruction index -> op index
};

// Handlers without an instruction-set variant (handlers_control.cc, handlers_warp.cc,
// handlers_atomic.cc, device_calls.cc).
Event run_special(const Op&, Warp&, uint32_t);  // imm: SpecialReg, size: bytes
Event run_local_address(const Op&, Warp&, uint32_t);
Event run_pack(const Op&, Warp&, uint32_t);      // d <- list, n elements of size bytes
Event run_unpack(const Op&, Warp&, uint32_t);    // list <- a
Event run_cvta(const Op&, Warp&, uint32_t);      // imm: window, aux: 1 = to, size: bytes
Event run_isspacep(const Op&, Warp&, uint32_t);  // imm: MemSpace
Event run_bra(const Op&, Warp&, uint32_t);
Event run_brx(const Op&, Warp&, uint32_t);
Event run_call(const Op&, Warp&, uint32_t);  // aux 1: indirect through a; list: see call_operands
Event run_ret(const Op&, Warp&, uint32_t);
Event run_exit(const Op&, Warp&, uint32_t);
Event run_trap(const Op&, Warp&, uint32_t);
Event run_bar(const Op&, Warp&, uint32_t);  // a: id, b: count; aux 0 sync 1 arrive 2.. red
Event run_warp_sync(const Op&, Warp&, uint32_t);
Event run_fence(const Op&, Warp&, uint32_t);
Event run_vote(const Op&, Warp&, uint32_t);
Event run_activemask(const Op&, Warp&, uint32_t);
Event run_match(const Op&, Warp&, uint32_t);
Event run_redux(const Op&, Warp&, uint32_t);
Event run_elect(const Op&, Warp&, uint32_t);
Event run_nanosleep(const Op&, Warp&, uint32_t);
Event run_printf(const Op&, Warp&, uint32_t);
Event run_assertfail(const Op&, Warp&, uint32_t);
Event run_malloc(const Op&, Warp&, uint32_t);
Event run_free(const Op&, Warp&, uint32_t);
Event run_set_conditional(const Op&, Warp&, uint32_t);
Event run_graph_launch(const Op&, Warp&, uint32_t);
enum class MbarrierStep : uint8_t {
  kInit,
  kInvalidate,
  kArrive,
  kDrop,
  kExpect,
  kComplete,
  kTest,
  kTry,
  kPendingCount
};
Event run_mbarrier(const Op&, Warp&,
                   uint32_t);  // n: MbarrierStep, b: count, state or parity, c: bytes
Event run_bulk_copy(const Op&, Warp&, uint32_t);  // c: bytes, n: it has an mbarrier
// Op::imm: an ImageOp. Exception: queries.
Event run_tex(const Op&, Warp&, uint32_t);
Event run_tld4(const Op&, Warp&, uint32_t);
Event run_suld(const Op&, Warp&, uint32_t);
Event run_sust(const Op&, Warp&, uint32_t);
Event run_sured(const Op&, Warp&, uint32_t);
Event run_image_query(const Op&, Warp&, uint32_t);  // imm: ImageQuery
Event run_cvt_pack(const Op&, Warp&, uint32_t);     // size: bits, n: signed
Event run_cp_async(const Op&, Warp&, uint32_t);

enum class AtomOp : uint8_t { kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor, kExch, kCas };
Handler atom_handler(AtomOp op, Type t);  // aux as for loads; d result (0 none), b, c operands
uint64_t encode_cvt(const CvtMode& m);

}  // namespace tendril::softgpu
