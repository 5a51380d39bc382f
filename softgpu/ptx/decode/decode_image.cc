// SPDX-License-Identifier: Apache-2.0
// Decoding of texture and surface instructions. Objects only: an image that is named (.texref,
// .surfref) is refused by name and line. So are gradients, depth comparison, offsets, samples and
// formatted stores.
#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/handlers/image_ops.h"

namespace tendril::softgpu {
namespace {

struct Shape {
  std::string_view name;
  Geometry geometry;
  uint8_t coordinates;
};
constexpr Shape kShapes[] = {{"1d", Geometry::k1D, 1},
                             {"2d", Geometry::k2D, 2},
                             {"3d", Geometry::k3D, 3},
                             {"a1d", Geometry::k1DLayered, 2},
                             {"a2d", Geometry::k2DLayered, 3},
                             {"cube", Geometry::kCube, 3},
                             {"acube", Geometry::kCubeLayered, 4}};

bool layered(Geometry g) {
  return g == Geometry::k1DLayered || g == Geometry::k2DLayered || g == Geometry::kCubeLayered;
}

}  // namespace

bool Decoder::image_shape(ImageOp& i) {
  for (const Shape& s : kShapes) {
    if (!has(s.name)) continue;
    i.geometry = s.geometry, i.coordinates = s.coordinates;
    return true;
  }
  return false;
}

// The handle goes into Op::a, the coordinates to the end of `list`. Vectors of coordinates may be
// longer than the geometry needs.
bool Decoder::image_address(const Operand& o, const ImageOp& i, Op& op,
                            std::vector<uint32_t>& list) {
  if (o.kind != Operand::Kind::kReg || is_pred(o) || reg_bytes(o.id) != 8 || o.inside_count != 1)
    return unsupported();
  op.a = reg_offset(o.id);
  const Operand& c = f_.elements[o.inside];
  const bool vector = c.kind == Operand::Kind::kVector;
  if ((vector ? c.count : 1) < i.coordinates) return fail("too few coordinates");
  for (uint32_t k = 0; k < i.coordinates; ++k) {
    const bool integer = !i.float_coordinates || (k == 0 && layered(i.geometry));
    list.push_back(source(vector ? *element(c, k) : c, integer ? Type::kB32 : Type::kF32));
  }
  return error_.empty();
}

// tex{.base,.level}.geom.v4.dtype.ctype d, [a, c]{, level}; tld4.comp.2d.v4.dtype.f32 d, [a, c]
bool Decoder::op_tex() {
  const bool gather = parts_[0] == "tld4";
  if (!need(2, 3)) return false;
  Op op = make(gather ? &run_tld4 : &run_tex);
  ImageOp i;
  static constexpr std::string_view kComponents[] = {"r", "g", "b", "a"};
  bool chosen = !gather;
  for (uint8_t k = 0; gather && k < 4; ++k)
    if (has(kComponents[k])) i.component = k, chosen = true;
  const bool base = !gather && has("base");
  i.has_level = !gather && !base && has("level");
  if (!chosen || !image_shape(i) || !has("v4") || at(0).kind != Operand::Kind::kVector ||
      at(0).count != 4 || count() != 2u + i.has_level)
    return unsupported();
  if (gather && i.geometry != Geometry::k2D && i.geometry != Geometry::k2DLayered)
    return unsupported();
  const Type t = next_type(), ct = next_type();
  const bool known = t == Type::kF32 || t == Type::kU32 || t == Type::kS32;
  if (!known || (ct != Type::kF32 && ct != Type::kS32)) return unsupported();
  i.float_coordinates = ct == Type::kF32;
  if ((gather || i.geometry >= Geometry::kCube) && !i.float_coordinates) return unsupported();
  std::vector<uint32_t> list;
  if (!image_address(at(1), i, op, list)) return false;
  if (i.has_level) list.push_back(source(at(2), i.float_coordinates ? Type::kF32 : Type::kB32));
  i.values = 4;
  for (uint32_t k = 0; k < 4; ++k) list.push_back(dest(*element(at(0), k), 4));
  op.list = keep_list(std::move(list)).data();
  op.imm = i.pack();
  return emit_checked(op);
}

bool Decoder::take_beyond(ImageOp& i) {
  if (has("trap")) return i.beyond = Beyond::kTrap, true;
  if (has("clamp")) return i.beyond = Beyond::kClamp, true;
  if (has("zero")) return i.beyond = Beyond::kZero, true;
  return false;
}

// suld.b.geom{.vec}.type.beyond d, [a, b]; sust.b.geom{.vec}.type.beyond [a, b], c
bool Decoder::op_surface() {
  const bool load = parts_[0] == "suld";
  if (!need(2, 2)) return false;
  Op op = make(load ? &run_suld : &run_sust);
  ImageOp i;
  skip_cache_hints();
  if (!has("b") || !image_shape(i) || !take_beyond(i)) return unsupported();
  const uint32_t n = has("v2") ? 2 : has("v4") ? 4 : 1;
  const Type t = next_type();
  i.bytes = static_cast<uint8_t>(type_bytes(t));
  if (t == Type::kNone || t == Type::kPred || i.bytes > 8 || i.bytes * n > 16) return unsupported();
  std::vector<uint32_t> list;
  if (!image_address(at(load ? 1 : 0), i, op, list)) return false;
  std::vector<const Operand*> values;
  vector_registers(at(load ? 0 : 1), values);
  if (values.size() != n) return unsupported();
  i.values = static_cast<uint8_t>(n);
  for (const Operand* v : values)
    list.push_back(load ? dest(*v, i.bytes) : source_any(*v, i.bytes, t));
  op.list = keep_list(std::move(list)).data();
  op.imm = i.pack();
  return emit_checked(op);
}

// sured.b.op.geom.type.beyond [a, b], c
bool Decoder::op_surface_reduction() {
  if (!need(2, 2)) return false;
  Op op = make(&run_sured);
  ImageOp i;
  static constexpr std::string_view kNames[] = {"add", "min", "max", "and", "or"};
  bool known = false;
  for (uint8_t k = 0; k < 5; ++k)
    if (has(kNames[k])) i.reduction = static_cast<SurfaceReduction>(k), known = true;
  if (!has("b") || !known || !image_shape(i) || !take_beyond(i)) return unsupported();
  const Type t = next_type();
  i.bytes = static_cast<uint8_t>(type_bytes(t));
  i.is_signed = is_signed(t);
  if (is_float(t) || (i.bytes != 4 && i.bytes != 8)) return unsupported();
  std::vector<uint32_t> list;
  if (!image_address(at(0), i, op, list)) return false;
  i.values = 1;
  list.push_back(source(at(1), t));
  op.list = keep_list(std::move(list)).data();
  op.imm = i.pack();
  return emit_checked(op);
}

// txq.query.b32 d, [a]; suq.query.b32 d, [a]
bool Decoder::op_image_query() {
  if (!need(2, 2) || !has("b32")) return unsupported();
  static constexpr std::string_view kNames[] = {
      "width",       "height",           "depth", "array_size", "num_mipmap_levels",
      "num_samples", "normalized_coords"};
  Op op = make(nullptr);
  for (int64_t k = 0; k < 7; ++k)
    if (has(kNames[k])) op.fn = &run_image_query, op.imm = k;
  const Operand& image = at(1);
  if (image.kind != Operand::Kind::kReg || is_pred(image) || reg_bytes(image.id) != 8)
    return unsupported();
  op.d = dest(at(0), 4), op.a = reg_offset(image.id);
  return emit_checked(op);
}

}  // namespace tendril::softgpu
