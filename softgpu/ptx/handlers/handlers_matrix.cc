// SPDX-License-Identifier: Apache-2.0
// Matrix instructions with fixed fragments: mma.sync in the m16n8 and m8n8 shapes, ldmatrix,
// stmatrix and movmatrix. Sums are formed in double and rounded once. Hardware does not specify the
// order and width of its sums.
#include <cstring>

#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/handlers/lanes.h"
#include "softgpu/ptx/handlers/matrix_elements.h"
#include "softgpu/ptx/memory.h"

namespace tendril::softgpu {
namespace {

struct Shape {
  std::string_view name;
  uint32_t m, n, k;
};
constexpr Shape kShapes[] = {{"m16n8k4", 16, 8, 4},   {"m16n8k8", 16, 8, 8},
                             {"m16n8k16", 16, 8, 16}, {"m16n8k32", 16, 8, 32},
                             {"m8n8k16", 8, 8, 16},   {"m8n8k4", 8, 8, 4}};

// Op::imm is packed from these. The handler unpacks it.
struct Plan {
  uint8_t m, n, k;
  Type d, a, b, c;
};
static_assert(sizeof(Plan) <= 8);

uint32_t per_register(Type t) { return t == Type::kF64 ? 1 : 4 / type_bytes(t); }

// Where a lane's i-th element of each operand lies. Lanes form groups of four; a register holds
// consecutive columns (A) or rows (B).
struct Cell {
  uint32_t row, column;
};
Cell cell_a(uint32_t lane, uint32_t i, uint32_t per, bool tall) {
  uint32_t r = i / per, group = lane / 4, in_group = lane % 4;
  uint32_t down = tall ? (r & 1) * 8 : 0, right = tall ? r >> 1 : r;
  return {group + down, in_group * per + i % per + right * 4 * per};
}
Cell cell_b(uint32_t lane, uint32_t i, uint32_t per) {
  return {lane % 4 * per + i % per + i / per * 4 * per, lane / 4};
}
Cell cell_c(uint32_t lane, uint32_t i) { return {lane / 4 + (i >> 1) * 8, lane % 4 * 2 + (i & 1)}; }

uint8_t* element_at(Warp& w, const uint32_t* registers, Type t, uint32_t lane, uint32_t i) {
  uint32_t per = per_register(t), stride = t == Type::kF64 ? 8 : 4;
  return w.regs + registers[i / per] + lane * stride + i % per * type_bytes(t);
}

Event run_mma(const Op& op, Warp& w, uint32_t m) {
  if (!meet(op, w, m, kEverybody)) return Event::kSplits;
  Plan p;
  std::memcpy(&p, &op.imm, sizeof p);
  const uint32_t na = p.m * p.k / 32u, nb = p.k * p.n / 32u, nc = p.m * p.n / 32u;
  const uint32_t ra = na / per_register(p.a), rb = nb / per_register(p.b);
  const uint32_t *d = op.list, *a = d + nc / per_register(p.d), *b = a + ra, *c = b + rb;
  double x[16][32], y[32][8], z[16][8];
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t i = 0; i < na; ++i) {
      Cell q = cell_a(lane, i, per_register(p.a), p.m == 16);
      x[q.row][q.column] = load_element(p.a, element_at(w, a, p.a, lane, i));
    }
    for (uint32_t i = 0; i < nb; ++i) {
      Cell q = cell_b(lane, i, per_register(p.b));
      y[q.row][q.column] = load_element(p.b, element_at(w, b, p.b, lane, i));
    }
    for (uint32_t i = 0; i < nc; ++i) {
      Cell q = cell_c(lane, i);
      z[q.row][q.column] = load_element(p.c, element_at(w, c, p.c, lane, i));
    }
  }
  for (uint32_t row = 0; row < p.m; ++row)
    for (uint32_t column = 0; column < p.n; ++column)
      for (uint32_t k = 0; k < p.k; ++k) z[row][column] += x[row][k] * y[k][column];
  each_active(m, [&](int lane) {
    for (uint32_t i = 0; i < nc; ++i) {
      Cell q = cell_c(static_cast<uint32_t>(lane), i);
      uint8_t* to = element_at(w, d, p.d, static_cast<uint32_t>(lane), i);
      store_element(p.d, to, z[q.row][q.column], op.aux & 1);
    }
  });
  return Event::kNext;
}

bool known_types(const Plan& p) {
  const bool tall = p.m == 16;
  switch (p.a) {
    case Type::kF16:
      return tall && p.b == p.a && (p.k == 8 || p.k == 16) && p.c == p.d &&
             (p.d == Type::kF32 || p.d == Type::kF16);
    case Type::kBF16:
      return tall && p.b == p.a && (p.k == 8 || p.k == 16) && p.c == p.d && p.d == Type::kF32;
    case Type::kTF32:
      return tall && p.b == p.a && (p.k == 4 || p.k == 8) && p.c == p.d && p.d == Type::kF32;
    case Type::kF64:
      return p.b == p.a && (tall ? p.k <= 16 : p.k == 4) && p.c == p.d && p.d == Type::kF64;
    case Type::kE4M3:
    case Type::kE5M2:
      return tall && (p.b == Type::kE4M3 || p.b == Type::kE5M2) && p.k == 32 && p.c == p.d &&
             p.d == Type::kF32;
    case Type::kU8:
    case Type::kS8:
      return (p.b == Type::kU8 || p.b == Type::kS8) && p.k >= 16 && p.c == p.d && p.d == Type::kS32;
    default:
      return false;
  }
}

}  // namespace

bool Decoder::op_mma() {
  if (!has("sync") || !has("aligned") || !need(4, 4)) return unsupported();
  Plan p{};
  for (const Shape& s : kShapes)
    if (has(s.name))
      p.m = static_cast<uint8_t>(s.m), p.n = static_cast<uint8_t>(s.n),
      p.k = static_cast<uint8_t>(s.k);
  if (!p.m || !has("row") || !has("col")) return unsupported();
  Op op = make(&run_mma);
  op.aux = has("satfinite");
  p.d = next_type(), p.a = next_type(), p.b = next_type(), p.c = next_type();
  if (!known_types(p)) return unsupported();
  const uint32_t elements[4] = {p.m * p.n / 32u, p.m * p.k / 32u, p.k * p.n / 32u, p.m * p.n / 32u};
  const Type types[4] = {p.d, p.a, p.b, p.c};
  std::vector<uint32_t> list;
  for (uint32_t i = 0; i < 4; ++i) {
    const Operand& v = at(i);
    const uint32_t width = types[i] == Type::kF64 ? 8 : 4;
    // A vector of one register may be written without braces.
    const bool single = v.kind != Operand::Kind::kVector;
    if ((single ? 1 : v.count) * per_register(types[i]) != elements[i])
      return fail("wrong number of registers in '" + std::string(current_->opcode) + "'");
    for (uint32_t k = 0; k < (single ? 1 : v.count); ++k) {
      const Operand& e = single ? v : *element(v, k);
      list.push_back(i ? source_any(e, width, width == 8 ? Type::kF64 : Type::kB32)
                       : dest(e, width));
    }
  }
  std::memcpy(&op.imm, &p, sizeof p);
  op.list = keep_list(std::move(list)).data();
  return emit_checked(op);
}

namespace {

// 8 x 8 halves each. Every lane holds two neighbours of a row of each (Op::size: of a column).
struct Tiles {
  uint16_t cell[4][8][8] = {};
  uint16_t& at(const Op& op, int k, int lane, int second) {
    const int row = lane / 4, column = lane % 4 * 2 + second;
    return op.size ? cell[k][column][row] : cell[k][row][column];
  }
};

// Lane i names row i % 8 of matrix i / 8.
template <class F>
Event each_row(const Op& op, Warp& w, uint32_t m, F move) {
  for (uint32_t lane = 0; lane < 8u * op.n; ++lane) {
    if (!(m >> lane & 1)) continue;
    uint64_t address =
        (op.aux & 1 ? lanes<uint32_t>(w, op.a)[lane] : lanes<uint64_t>(w, op.a)[lane]) +
        static_cast<uint64_t>(op.imm);
    bool global = false;
    uint8_t* p = translate(w, static_cast<MemSpace>(op.aux >> 4 & 7), address, 16,
                           static_cast<int>(lane), &global);
    if (address & 15)
      return raise(w, Fault::kMisaligned, "misaligned address", address, static_cast<int>(lane));
    if (!p)
      return raise(w, Fault::kIllegalAddress, "illegal address", address, static_cast<int>(lane));
    move(p, lane / 8, lane % 8);
  }
  return Event::kNext;
}

Event run_ldmatrix(const Op& op, Warp& w, uint32_t m) {
  if (!meet(op, w, m, kEverybody)) return Event::kSplits;
  Tiles t;
  Event e = each_row(
      op, w, m, [&](uint8_t* p, uint32_t k, uint32_t row) { std::memcpy(t.cell[k][row], p, 16); });
  if (e != Event::kNext) return e;
  each_active(m, [&](int i) {
    for (int k = 0; k < op.n; ++k)
      lanes<uint32_t>(w, op.list[k])[i] =
          static_cast<uint32_t>(t.at(op, k, i, 1)) << 16 | t.at(op, k, i, 0);
  });
  return Event::kNext;
}

void gather_tiles(const Op& op, Warp& w, Tiles& t, bool turned) {
  Op view = op;
  view.size = turned;
  for (int i = 0; i < 32; ++i) {
    for (int k = 0; k < op.n; ++k) {
      const uint32_t v = lanes<uint32_t>(w, op.list[k])[i];
      t.at(view, k, i, 0) = static_cast<uint16_t>(v),
                       t.at(view, k, i, 1) = static_cast<uint16_t>(v >> 16);
    }
  }
}

Event run_stmatrix(const Op& op, Warp& w, uint32_t m) {
  if (!meet(op, w, m, kEverybody)) return Event::kSplits;
  Tiles t;
  gather_tiles(op, w, t, op.size);
  return each_row(
      op, w, m, [&](uint8_t* p, uint32_t k, uint32_t row) { std::memcpy(p, t.cell[k][row], 16); });
}

Event run_movmatrix(const Op& op, Warp& w, uint32_t m) {
  if (!meet(op, w, m, kEverybody)) return Event::kSplits;
  Tiles t;
  gather_tiles(op, w, t, false);
  Op turned = op;
  turned.size = 1;
  each_active(m, [&](int i) {
    lanes<uint32_t>(w, op.d)[i] =
        static_cast<uint32_t>(t.at(turned, 0, i, 1)) << 16 | t.at(turned, 0, i, 0);
  });
  return Event::kNext;
}

}  // namespace

bool Decoder::op_movmatrix() {
  if (!has("sync") || !has("aligned") || !has("m8n8") || !has("trans") || !need(2, 2))
    return unsupported();
  if (next_type() != Type::kB16) return unsupported();
  Op op = make(&run_movmatrix);
  op.n = 1;
  op.d = dest(at(0), 4);
  op.list = keep_list({source(at(1), Type::kB32)}).data();
  return emit_checked(op);
}

bool Decoder::op_ldmatrix() {
  const bool store = parts_[0] == "stmatrix";
  if (!has("sync") || !has("aligned") || !has("m8n8") || !need(2, 2)) return unsupported();
  Op op = make(store ? &run_stmatrix : &run_ldmatrix);
  op.n = has("x4") ? 4 : has("x2") ? 2 : has("x1") ? 1 : 0;
  op.size = has("trans");
  MemSpace space;
  const Operand& memory = at(store ? 0 : 1);
  take_space(&space, &memory);
  if (next_type() != Type::kB16 || !op.n) return unsupported();
  std::vector<uint32_t> list;
  if (!fragment_registers(at(store ? 1 : 0), op.n, false, !store, list)) return false;
  op.list = keep_list(std::move(list)).data();
  return address(memory, op, space) && emit_checked(op);
}

}  // namespace tendril::softgpu
