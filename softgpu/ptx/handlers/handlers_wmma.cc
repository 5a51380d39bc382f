// SPDX-License-Identifier: Apache-2.0
// The warp matrix instructions with opaque fragments: wmma.load, wmma.mma, wmma.store. This engine
// chooses which lane holds which element: element e, counted row by row, is number e % per_lane of
// lane e / per_lane. Programs must not rely on it.
#include <cstring>

#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/handlers/lanes.h"
#include "softgpu/ptx/handlers/matrix_elements.h"
#include "softgpu/ptx/memory.h"

namespace tendril::softgpu {
namespace {

struct Shape {
  std::string_view name;
  uint8_t m, n, k;
};
constexpr Shape kShapes[] = {{"m16n16k16", 16, 16, 16},
                             {"m32n8k16", 32, 8, 16},
                             {"m8n32k16", 8, 32, 16},
                             {"m16n16k8", 16, 16, 8},
                             {"m8n8k4", 8, 8, 4}};

// One fragment: its matrix, and how many registers the ISA gives it. Halves of A and B fill twice
// the registers they need.
struct Fragment {
  Type type = Type::kNone;
  uint8_t rows = 0, columns = 0, registers = 0;
};
uint32_t elements_per_lane(const Fragment& f) { return f.rows * f.columns / 32u; }

uint8_t* element_of(Warp& w, const uint32_t* registers, const Fragment& f, uint32_t e) {
  const uint32_t lane = e / elements_per_lane(f), i = e % elements_per_lane(f),
                 bytes = type_bytes(f.type);
  const uint32_t width = f.type == Type::kF64 ? 8 : 4, per = width / bytes;
  return w.regs + registers[i / per] + lane * width + i % per * bytes;
}

// Memory access of a fragment. Op::list: stride's frame offset or 0, column-major flag, Fragment,
// then the registers.
struct Access {
  Fragment fragment;
  bool by_column = false;
  uint32_t stride = 0;
};
constexpr uint32_t kAccessWords = 4;

Access access_of(const Op& op, Warp& w) {
  Access a;
  a.by_column = op.list[1];
  std::memcpy(static_cast<void*>(&a.fragment), op.list + 2, sizeof a.fragment);
  static_assert(sizeof(Fragment) <= 8);
  a.stride = op.list[0] ? lanes<uint32_t>(w, op.list[0])[__builtin_ctz(w.mask)]
                        : (a.by_column ? a.fragment.rows : a.fragment.columns);
  return a;
}

// Store: Op::n is 1.
Event run_fragment_access(const Op& op, Warp& w, uint32_t m) {
  if (!meet(op, w, m, kEverybody)) return Event::kSplits;
  const Access a = access_of(op, w);
  const uint32_t bytes = type_bytes(a.fragment.type),
                 first = static_cast<uint32_t>(__builtin_ctz(m));
  const uint64_t base =
      (op.aux & 1 ? lanes<uint32_t>(w, op.a)[first] : lanes<uint64_t>(w, op.a)[first]) +
      static_cast<uint64_t>(op.imm);
  for (uint32_t e = 0; e < 32 * elements_per_lane(a.fragment); ++e) {
    const uint32_t row = e / a.fragment.columns, column = e % a.fragment.columns;
    const uint64_t index = a.by_column ? static_cast<uint64_t>(column) * a.stride + row
                                       : static_cast<uint64_t>(row) * a.stride + column;
    const uint64_t address = base + index * bytes;
    bool global = false;
    uint8_t* p = translate(w, static_cast<MemSpace>(op.aux >> 4 & 7), address, bytes,
                           static_cast<int>(first), &global);
    if (address & (bytes - 1)) return raise(w, Fault::kMisaligned, "misaligned address", address);
    if (!p) return raise(w, Fault::kIllegalAddress, "illegal address", address);
    uint8_t* r = element_of(w, op.list + kAccessWords, a.fragment, e);
    if (op.n)
      std::memcpy(p, r, bytes);
    else
      std::memcpy(r, p, bytes);
    if (global) (op.n ? w.block->bytes_written : w.block->bytes_read) += bytes;
  }
  return Event::kNext;
}

// Op::list: four Fragments (d, a, b, c) of two words each, then their registers.
Event run_fragment_mma(const Op& op, Warp& w, uint32_t m) {
  if (!meet(op, w, m, kEverybody)) return Event::kSplits;
  Fragment f[4];
  for (int i = 0; i < 4; ++i) std::memcpy(static_cast<void*>(&f[i]), op.list + 2 * i, sizeof f[i]);
  const uint32_t* registers[4] = {op.list + 8};
  for (int i = 1; i < 4; ++i) registers[i] = registers[i - 1] + f[i - 1].registers;
  double result[32 * 32 / 4];
  for (uint32_t row = 0; row < f[0].rows; ++row) {
    for (uint32_t column = 0; column < f[0].columns; ++column) {
      const uint32_t e = row * f[0].columns + column;
      double sum = load_element(f[3].type, element_of(w, registers[3], f[3], e));
      for (uint32_t k = 0; k < f[1].columns; ++k)
        sum +=
            load_element(f[1].type, element_of(w, registers[1], f[1], row * f[1].columns + k)) *
            load_element(f[2].type, element_of(w, registers[2], f[2], k * f[2].columns + column));
      result[e] = sum;
    }
  }
  for (uint32_t e = 0; e < static_cast<uint32_t>(f[0].rows) * f[0].columns; ++e)
    store_element(f[0].type, element_of(w, registers[0], f[0], e), result[e], op.aux & 1);
  return Event::kNext;
}

uint8_t registers_of(Type t, uint8_t rows, uint8_t columns, char role) {
  const uint32_t bytes = type_bytes(t), elements = rows * columns / 32u;
  if (t == Type::kF16 && (role == 'a' || role == 'b')) return 8;
  return static_cast<uint8_t>(t == Type::kF64 ? elements : elements * bytes / 4);
}

bool fragment(const Shape& s, char role, Type t, Fragment* f) {
  f->type = t;
  f->rows = role == 'b' ? s.k : s.m;
  f->columns = role == 'a' ? s.k : s.n;
  const bool small = s.k == 4, short_k = s.k == 8, accumulator = role == 'c' || role == 'd';
  switch (t) {
    case Type::kF16:
      if (s.k != 16) return false;
      break;
    case Type::kBF16:
    case Type::kU8:
    case Type::kS8:
      if (s.k != 16 || accumulator) return false;
      break;
    case Type::kTF32:
      if (!short_k || accumulator) return false;
      break;
    case Type::kF64:
      if (!small) return false;
      break;
    case Type::kF32:
      if (!accumulator || small) return false;
      break;
    case Type::kS32:
      if (!accumulator || s.k != 16) return false;
      break;
    default:
      return false;
  }
  f->registers = registers_of(t, f->rows, f->columns, role);
  return f->registers > 0;
}

void push_fragment(std::vector<uint32_t>& list, const Fragment& f) {
  uint32_t words[2] = {};
  std::memcpy(words, &f, sizeof f);
  list.insert(list.end(), {words[0], words[1]});
}

}  // namespace

bool Decoder::fragment_registers(const Operand& o, uint32_t n, bool wide, bool is_dest,
                                 std::vector<uint32_t>& list) {
  std::vector<const Operand*> registers;
  vector_registers(o, registers);
  if (registers.size() != n)
    return fail("wrong number of registers in '" + std::string(current_->opcode) + "'");
  const uint32_t bytes = wide ? 8 : 4;
  for (const Operand* r : registers)
    list.push_back(is_dest ? dest(*r, bytes)
                           : source_any(*r, bytes, wide ? Type::kF64 : Type::kB32));
  return error_.empty();
}

bool Decoder::fragment_access(bool store, uint32_t shape_index) {
  const char role = has("a") ? 'a' : has("b") ? 'b' : has("c") ? 'c' : has("d") ? 'd' : 0;
  const bool row = has("row"), column = !row && has("col");
  const Operand& target = at(store ? 0 : 1);
  MemSpace space;
  take_space(&space, &target);
  Fragment f;
  if (!role || (!row && !column) || !fragment(kShapes[shape_index], role, next_type(), &f) ||
      !need(2, 3))
    return unsupported();
  Op op = make(&run_fragment_access);
  op.n = store;
  std::vector<uint32_t> list = {count() > 2 ? source(at(2), Type::kU32) : 0, column};
  if (count() > 2 && !list[0]) return fail("stride of 'wmma' must not be zero");
  push_fragment(list, f);
  if (!fragment_registers(at(store ? 1 : 0), f.registers, f.type == Type::kF64, !store, list))
    return false;
  op.list = keep_list(std::move(list)).data();
  return address(target, op, space) && emit_checked(op);
}

bool Decoder::op_wmma() {
  if (!has("sync") || !has("aligned")) return unsupported();
  uint32_t shape = ~0u;
  for (uint32_t i = 0; i < std::size(kShapes); ++i)
    if (has(kShapes[i].name)) shape = i;
  if (shape == ~0u) return unsupported();
  if (has("load")) return fragment_access(false, shape);
  if (has("store")) return fragment_access(true, shape);
  if (!has("mma") || !need(4, 4)) return unsupported();
  // A fragment does not remember how it was loaded, so the layouts only have to be named.
  for (int i = 0; i < 2; ++i)
    if (!has("row") && !has("col")) return unsupported();
  has("rn");
  Op op = make(&run_fragment_mma);
  op.aux = has("satfinite");
  Type t[4] = {next_type(), next_type(), next_type(), next_type()};
  if (t[2] == Type::kNone)
    t[3] = t[1], t[1] = t[2] = Type::kF16;  // only d and c are named when a and b are halves
  std::vector<uint32_t> list;
  Fragment f[4];
  for (uint32_t i = 0; i < 4; ++i) {
    if (!fragment(kShapes[shape], "dabc"[i], t[i], &f[i])) return unsupported();
    push_fragment(list, f[i]);
  }
  for (uint32_t i = 0; i < 4; ++i)
    if (!fragment_registers(at(i), f[i].registers, f[i].type == Type::kF64, i == 0, list))
      return false;
  op.list = keep_list(std::move(list)).data();
  return emit_checked(op);
}

}  // namespace tendril::softgpu
