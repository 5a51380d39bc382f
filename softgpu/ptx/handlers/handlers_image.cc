// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces, lane by lane. Sampling follows the appendix "Texture Fetching" of the CUDA
// programming guide: linear filters weigh with eight bits of fraction, and coordinates below half a
// texel reach over the edge. Rounding a weight to the nearest is our own choice. These follow an
// H200: corners have whole 256ths too, borders in their formats, filters of 8 and 16 bits, and what
// lies outside.
#include <atomic>
#include <cmath>
#include <cstring>

#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/handlers/image_ops.h"
#include "softgpu/ptx/handlers/lanes.h"

namespace tendril::softgpu {
namespace {

using Edge = Image::Edge;
using Texel = Image::Texel;

constexpr uint32_t kWeightSteps = 256;

const Image* find_image(const Warp& w, uint64_t handle) {
  const ImageTable* images = w.block->launch->request->images;
  if (!images) return nullptr;
  const auto found = images->find(handle);
  return found == images->end() ? nullptr : &found->second;
}

uint32_t texel_bytes(Texel t) {
  return t == Texel::kU8 || t == Texel::kS8                         ? 1
         : t == Texel::kU16 || t == Texel::kS16 || t == Texel::kF16 ? 2
                                                                    : 4;
}

// Whether the value read is a number to filter, and not an integer.
bool reads_floats(const Image& image) {
  switch (image.texel) {
    case Texel::kF16:
    case Texel::kF32:
      return true;
    case Texel::kU32:
    case Texel::kS32:
      return false;
    default:
      return !image.raw;
  }
}

// The largest value of an unsigned texel that is read as a number from 0 to 1. 0 for others.
uint32_t unsigned_top(const Image& image) {
  if (image.raw) return 0;
  return image.texel == Texel::kU8 ? 0xFF : image.texel == Texel::kU16 ? 0xFFFF : 0;
}

float from_srgb(float v) { return v <= 0.04045f ? v / 12.92f : powf((v + 0.055f) / 1.055f, 2.4f); }

// Four channels: floats, or integers widened to 32 bits. A channel that the texel lacks is zero;
// the last one is one.
struct Color {
  float number[4] = {0, 0, 0, 1};
  uint32_t integer[4] = {0, 0, 0, 1};
};

void take_channel(const Image& image, uint32_t c, uint32_t bits, Color* out) {
  const int32_t wide = static_cast<int32_t>(bits);
  switch (image.texel) {
    case Texel::kU8:
      out->number[c] = static_cast<float>(bits) / 255.0f;
      if (image.srgb && c < 3) out->number[c] = from_srgb(out->number[c]);
      break;
    case Texel::kU16:
      out->number[c] = static_cast<float>(bits) / 65535.0f;
      break;
    case Texel::kS8:
      bits = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(wide)));
      out->number[c] = std::max(static_cast<float>(static_cast<int32_t>(bits)) / 127.0f, -1.0f);
      break;
    case Texel::kS16:
      bits = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(wide)));
      out->number[c] = std::max(static_cast<float>(static_cast<int32_t>(bits)) / 32767.0f, -1.0f);
      break;
    case Texel::kF16:
      out->number[c] = half_to_float(static_cast<uint16_t>(bits));
      break;
    default:
      out->number[c] = bit_cast_to<float>(bits);
      break;
  }
  out->integer[c] = bits;
}

// A place in an image: texels, and the slice, layer or face. Outside there is the border, or
// nothing (zeros).
constexpr int64_t kBorder = -1, kNothing = -2;
struct Place {
  int64_t x = 0, y = 0, z = 0;
};

Color border_of(const Image& image) {
  Color out;
  const uint32_t top = unsigned_top(image);
  for (uint32_t c = 0; c < 4; ++c) {
    out.number[c] = image.border[c];
    out.integer[c] = bit_cast_to<uint32_t>(image.border[c]);
    if (!top) continue;  // else it has only values that texels can have
    const float whole = std::fmin(std::fmax(image.border[c], 0.0f), 1.0f) * static_cast<float>(top);
    out.integer[c] = static_cast<uint32_t>(std::lrint(whole));
    out.number[c] = static_cast<float>(out.integer[c]) / static_cast<float>(top);
  }
  return out;
}

Color texel_at(const Image& image, const Image::Level& level, const Place& p) {
  if (p.x < 0 || p.y < 0 || p.z < 0) {
    const bool nothing = p.x == kNothing || p.y == kNothing || p.z == kNothing;
    if (!image.linear_memory && !nothing) return border_of(image);
    Color none;
    none.number[3] = 0, none.integer[3] = 0;
    return none;
  }
  const uint32_t size = texel_bytes(image.texel);
  const uint8_t* at = level.bytes + static_cast<uint64_t>(p.z) * level.slice +
                      static_cast<uint64_t>(p.y) * level.pitch +
                      static_cast<uint64_t>(p.x) * size * image.channels;
  Color out;
  for (uint32_t c = 0; c < image.channels; ++c) {
    uint32_t bits = 0;
    std::memcpy(&bits, at + c * size, size);
    take_channel(image, c, bits, &out);
  }
  return out;
}

int64_t modulo(int64_t i, int64_t n) { return ((i % n) + n) % n; }

int64_t over_edge(int64_t i, int64_t n, Edge edge) {
  if (i >= 0 && i < n) return i;
  switch (edge) {
    case Edge::kWrap:
      return modulo(i, n);
    case Edge::kMirror: {
      const int64_t j = modulo(i, 2 * n);
      return j < n ? j : 2 * n - 1 - j;
    }
    case Edge::kClamp:
      return i < 0 ? 0 : n - 1;
    default:
      return kBorder;
  }
}

// The two texels on both sides of a coordinate along one axis, and how much the second one counts.
struct Span {
  int64_t low = 0, high = 0;
  uint32_t weight = 0;  // in 256ths
};

// How an axis is sampled.
struct Axis {
  Edge edge = Edge::kClamp;
  bool normalized = false, filtered = false;
};

Axis axis_of(const Image& image, uint32_t which, bool filtered) {
  Axis a{image.edge[which], image.normalized, filtered};
  const bool repeats = a.edge == Edge::kWrap || a.edge == Edge::kMirror;
  if (image.linear_memory)
    a.edge = Edge::kBorder;
  else if (repeats && !image.normalized)
    a.edge = Edge::kClamp;
  return a;
}

Span span_of(float coordinate, uint32_t size, const Axis& axis) {
  const double n = size, period = axis.edge == Edge::kMirror ? 2 * n : n, far = 1ll << 40;
  double x = coordinate != coordinate ? 0 : coordinate;
  if (axis.normalized) x *= n;
  if (axis.edge == Edge::kWrap || axis.edge == Edge::kMirror)
    x = std::isinf(x) ? 0 : x - std::floor(x / period) * period;
  x = x < -far ? -far : x > far ? far : x;
  Span s;
  if (!axis.filtered) {
    s.low = s.high = over_edge(static_cast<int64_t>(std::floor(x)), size, axis.edge);
    return s;
  }
  const int64_t fixed = static_cast<int64_t>(std::floor((x - 0.5) * kWeightSteps + 0.5));
  const int64_t low = fixed >> 8;
  s.low = over_edge(low, size, axis.edge), s.high = over_edge(low + 1, size, axis.edge);
  s.weight = static_cast<uint32_t>(fixed & (kWeightSteps - 1));
  return s;
}

// No address mode applies to integer coordinates.
Span integer_span(int32_t i, uint32_t size) {
  Span s;
  s.low = s.high = i >= 0 && static_cast<uint32_t>(i) < size ? i : kNothing;
  return s;
}

// Where one lane looks: three spans, and the level.
struct Sample {
  Span x, y, z;
};

// How much each of eight corners counts, in 256ths. Axis by axis the weight is divided between the
// near side and the far side, in whole 256ths. Bit 0 of a corner is the far side along x, bit 1
// along y, bit 2 along z.
struct Weights {
  uint32_t of[8] = {kWeightSteps};
};

Weights weights_of(const Sample& s) {
  Weights w;
  const Span* axes[3] = {&s.x, &s.y, &s.z};
  for (unsigned axis = 0; axis < 3; ++axis) {
    const unsigned far_side = 1u << axis;
    for (unsigned near = 0; near < far_side; ++near) {
      const uint32_t part = (w.of[near] * axes[axis]->weight + kWeightSteps / 2) / kWeightSteps;
      w.of[near | far_side] = part;
      w.of[near] -= part;
    }
  }
  return w;
}

// Corners without weight are not read. Unsigned normalised texels are summed in 65535ths, and the
// sum is rounded to a whole number of them.
Color blend(const Image& image, const Image::Level& level, const Sample& s) {
  const bool point = s.x.weight == 0 && s.y.weight == 0 && s.z.weight == 0;
  if (point) return texel_at(image, level, {s.x.low, s.y.low, s.z.low});
  const uint32_t top = image.srgb ? 0 : unsigned_top(image);
  const double step = top ? 65535 / top : 0, scale = top ? 65535 : 1;
  double sum[4] = {};
  const Weights weights = weights_of(s);
  for (unsigned corner = 0; corner < 8; ++corner) {
    const bool hx = corner & 1, hy = corner & 2, hz = corner & 4;
    if (weights.of[corner] == 0) continue;
    const double weight = static_cast<double>(weights.of[corner]) / kWeightSteps;
    const Color c = texel_at(
        image, level, {hx ? s.x.high : s.x.low, hy ? s.y.high : s.y.low, hz ? s.z.high : s.z.low});
    for (uint32_t k = 0; k < 4; ++k) {
      const bool whole = top && k < image.channels;
      sum[k] += weight * (whole ? step * c.integer[k] : scale * static_cast<double>(c.number[k]));
    }
  }
  Color out;
  for (int k = 0; k < 4; ++k) {
    const double v = top ? std::floor(sum[k] + 0.5) / scale : sum[k];
    out.number[k] = static_cast<float>(v);
  }
  return out;
}

// Face of a cube and the coordinates on it, from 0 to 1.
uint32_t cube_face(const float v[3], float* u, float* t) {
  const float ax = std::fabs(v[0]), ay = std::fabs(v[1]), az = std::fabs(v[2]);
  float m, s, r;
  uint32_t face;
  if (ax >= ay && ax >= az)
    face = v[0] < 0, m = ax, s = v[0] < 0 ? v[2] : -v[2], r = -v[1];
  else if (ay >= az)
    face = 2 + (v[1] < 0), m = ay, s = v[0], r = v[1] < 0 ? -v[2] : v[2];
  else
    face = 4 + (v[2] < 0), m = az, s = v[2] < 0 ? -v[0] : v[0], r = -v[1];
  *u = m == 0 ? 0.5f : (s / m + 1) / 2, *t = m == 0 ? 0.5f : (r / m + 1) / 2;
  return face;
}

Span layer_of(uint32_t layer, uint32_t layers) {
  Span s;
  s.low = s.high = layer < layers ? layer : layers - 1;
  return s;
}

struct Coordinates {
  uint32_t bits[4];
  float as_float(uint32_t i) const { return bit_cast_to<float>(bits[i]); }
};

Sample cube_sample(const Image& image, const Image::Level& level, const ImageOp& o,
                   const Coordinates& c, bool filtered) {
  const uint32_t first = o.geometry == Geometry::kCubeLayered;
  const float v[3] = {c.as_float(first), c.as_float(first + 1), c.as_float(first + 2)};
  float u, t;
  const uint32_t face = cube_face(v, &u, &t), cubes = std::max(level.depth / 6, 1u);
  const uint32_t cube = first ? std::min(c.bits[0], cubes - 1) : 0;
  const Axis axis{Edge::kClamp, true, filtered};
  (void)image;
  return {span_of(u, level.width, axis), span_of(t, level.height, axis),
          layer_of(6 * cube + face, level.depth)};
}

Sample sample_of(const Image& image, const Image::Level& level, const ImageOp& o,
                 const Coordinates& c, bool filtered) {
  if (o.geometry >= Geometry::kCube) return cube_sample(image, level, o, c, filtered);
  const bool layers = o.geometry == Geometry::k1DLayered || o.geometry == Geometry::k2DLayered;
  const uint32_t first = layers ? 1 : 0;
  const uint32_t extent[3] = {level.width, level.height, level.depth};
  Span span[3];
  for (uint32_t k = 0; first + k < o.coordinates; ++k) {
    const Axis axis = axis_of(image, k, filtered);
    span[k] = o.float_coordinates
                  ? span_of(c.as_float(first + k), extent[k], axis)
                  : integer_span(static_cast<int32_t>(c.bits[first + k]), extent[k]);
  }
  // A filter treats an image of one axis as a row of a flat image, seen from its upper edge: half
  // of the weight comes from over the edge.
  if (o.geometry == Geometry::k1D && filtered && image.edge[1] == Edge::kBorder &&
      !image.linear_memory)
    span[1] = span_of(0, 1, axis_of(image, 1, filtered));
  if (layers) span[2] = layer_of(c.bits[0], level.depth);
  return {span[0], span[1], span[2]};
}

Color sample_level(const Image& image, size_t index, const ImageOp& o, const Coordinates& c) {
  const Image::Level& level = image.levels[index];
  const bool filtered = image.filtered && reads_floats(image) && o.float_coordinates;
  return blend(image, level, sample_of(image, level, o, c, filtered));
}

Color sample(const Image& image, const ImageOp& o, const Coordinates& c, uint32_t level_bits) {
  const double top = static_cast<double>(image.levels.size()) - 1;
  if (!o.has_level || top == 0) return sample_level(image, 0, o, c);
  double level = o.float_coordinates ? static_cast<double>(bit_cast_to<float>(level_bits))
                                     : static_cast<double>(static_cast<int32_t>(level_bits));
  if (o.float_coordinates)
    level = std::fmin(
        std::fmax(level + static_cast<double>(image.bias), static_cast<double>(image.lowest_level)),
        static_cast<double>(image.highest_level));
  level = level > 0 ? std::fmin(level, top) : 0;
  if (!image.between_levels || !reads_floats(image))
    return sample_level(image, static_cast<size_t>(level + 0.5), o, c);
  const double fixed = std::floor(level * kWeightSteps + 0.5) / kWeightSteps;
  const size_t low = static_cast<size_t>(fixed);
  const double weight = fixed - static_cast<double>(low);
  Color a = sample_level(image, low, o, c);
  if (weight == 0) return a;
  const Color b = sample_level(image, low + 1, o, c);
  for (int k = 0; k < 4; ++k)
    a.number[k] = static_cast<float>((1 - weight) * static_cast<double>(a.number[k]) +
                                     weight * static_cast<double>(b.number[k]));
  return a;
}

Coordinates coordinates_of(const Op& op, const ImageOp& o, const Warp& w, int lane) {
  Coordinates c = {};
  for (uint32_t k = 0; k < o.coordinates; ++k) c.bits[k] = lanes<uint32_t>(w, op.list[k])[lane];
  return c;
}

// Calls f(lane, image) for each active lane. A lane with an invalid handle ends the launch.
template <class F>
Event each_image(const Op& op, Warp& w, uint32_t m, bool surface, F f) {
  const uint64_t* handles = lanes<uint64_t>(w, op.a);
  const Image* image = nullptr;
  uint64_t last = 0;
  for (uint32_t left = m; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    if (!image || handles[lane] != last) {
      last = handles[lane];
      image = find_image(w, last);
      if (!image || image->surface != surface)
        return raise(w, Fault::kIllegalAddress,
                     surface ? "no such surface object" : "no such texture object", last, lane);
    }
    const Event e = f(lane, *image);
    if (e != Event::kNext) return e;
  }
  return Event::kNext;
}

// The byte of a surface where [x, x + bytes) begins, or null if the access has no effect.
struct SurfacePlace {
  uint8_t* at = nullptr;
  Event event = Event::kNext;
};

// Brings `v` into [0, limit). False if that is not allowed.
bool bring_inside(int64_t* v, int64_t limit, Beyond beyond) {
  if (*v >= 0 && *v < limit) return true;
  if (beyond != Beyond::kClamp) return false;
  *v = *v < 0 ? 0 : limit - 1;
  return true;
}

SurfacePlace surface_place(const Op& op, const ImageOp& o, Warp& w, const Image& image, int lane) {
  const Coordinates c = coordinates_of(op, o, w, lane);
  const Image::Level& level = image.levels[0];
  const bool layers = o.geometry == Geometry::k1DLayered || o.geometry == Geometry::k2DLayered ||
                      o.geometry == Geometry::kCubeLayered;
  auto at = [&](uint32_t k) {
    return static_cast<int64_t>(k < o.coordinates ? static_cast<int32_t>(c.bits[k]) : 0);
  };
  int64_t x = at(layers ? 1 : 0), y = 0, z = 0;
  if (layers)
    y = at(2), z = at(0);
  else
    y = at(1), z = at(2);
  const int64_t bytes = static_cast<int64_t>(o.bytes) * o.values;
  const int64_t row = static_cast<int64_t>(level.width) * texel_bytes(image.texel) * image.channels;
  if (x % bytes)
    return {nullptr, raise(w, Fault::kMisaligned, "misaligned surface access",
                           static_cast<uint64_t>(x), lane)};
  int64_t element = x / bytes;
  // Each of the three brings its own coordinate inside, whatever the others say.
  const bool x_inside = bring_inside(&element, row / bytes, o.beyond);
  const bool y_inside = bring_inside(&y, level.height, o.beyond);
  const bool z_inside = bring_inside(&z, level.depth, o.beyond);
  if (x_inside && y_inside && z_inside)
    return {level.bytes + static_cast<uint64_t>(z) * level.slice +
                static_cast<uint64_t>(y) * level.pitch + element * bytes,
            Event::kNext};
  if (o.beyond == Beyond::kTrap)
    return {nullptr,
            raise(w, Fault::kTrap, "access outside a surface", static_cast<uint64_t>(x), lane)};
  return {};
}

template <class T>
T reduced(SurfaceReduction r, T a, T b) {
  switch (r) {
    case SurfaceReduction::kAdd:
      return static_cast<T>(a + b);
    case SurfaceReduction::kMin:
      return a < b ? a : b;
    case SurfaceReduction::kMax:
      return a > b ? a : b;
    case SurfaceReduction::kAnd:
      return a & b;
    default:
      return a | b;
  }
}

template <class U, class S>
void reduce_at(uint8_t* at, const ImageOp& o, U value) {
  std::atomic_ref<U> place(*reinterpret_cast<U*>(at));
  U old = place.load(), wanted;
  do {
    const bool by_sign = o.is_signed && (o.reduction == SurfaceReduction::kMin ||
                                         o.reduction == SurfaceReduction::kMax);
    wanted = by_sign
                 ? static_cast<U>(reduced(o.reduction, static_cast<S>(old), static_cast<S>(value)))
                 : reduced(o.reduction, old, value);
  } while (!place.compare_exchange_weak(old, wanted));
}

}  // namespace

Event run_tex(const Op& op, Warp& w, uint32_t m) {
  const ImageOp o = ImageOp::unpack(op.imm);
  const uint32_t* values = op.list + o.coordinates + o.has_level;
  return each_image(op, w, m, false, [&](int lane, const Image& image) {
    const uint32_t level = o.has_level ? lanes<uint32_t>(w, op.list[o.coordinates])[lane] : 0;
    const Color c = sample(image, o, coordinates_of(op, o, w, lane), level);
    const bool floats = reads_floats(image);
    for (int k = 0; k < 4; ++k)
      lanes<uint32_t>(w, values[k])[lane] =
          floats ? bit_cast_to<uint32_t>(c.number[k]) : c.integer[k];
    w.block->bytes_read += texel_bytes(image.texel) * image.channels;
    return Event::kNext;
  });
}

// One channel of the four texels that a linear filter would weigh, anticlockwise from the lower
// left.
Event run_tld4(const Op& op, Warp& w, uint32_t m) {
  const ImageOp o = ImageOp::unpack(op.imm);
  const uint32_t* values = op.list + o.coordinates;
  return each_image(op, w, m, false, [&](int lane, const Image& image) {
    const Image::Level& level = image.levels[0];
    const Sample s = sample_of(image, level, o, coordinates_of(op, o, w, lane), true);
    const Place corners[4] = {{s.x.low, s.y.high, s.z.low},
                              {s.x.high, s.y.high, s.z.low},
                              {s.x.high, s.y.low, s.z.low},
                              {s.x.low, s.y.low, s.z.low}};
    for (int k = 0; k < 4; ++k) {
      const Color c = texel_at(image, level, corners[k]);
      lanes<uint32_t>(w, values[k])[lane] = reads_floats(image)
                                                ? bit_cast_to<uint32_t>(c.number[o.component])
                                                : c.integer[o.component];
    }
    return Event::kNext;
  });
}

Event run_suld(const Op& op, Warp& w, uint32_t m) {
  const ImageOp o = ImageOp::unpack(op.imm);
  const uint32_t stride = std::max<uint32_t>(o.bytes, 2);
  return each_image(op, w, m, true, [&](int lane, const Image& image) {
    const SurfacePlace place = surface_place(op, o, w, image, lane);
    if (place.event != Event::kNext) return place.event;
    for (uint32_t k = 0; k < o.values; ++k) {
      uint64_t v = 0;
      if (place.at) std::memcpy(&v, place.at + k * o.bytes, o.bytes);
      std::memcpy(w.regs + op.list[o.coordinates + k] + static_cast<size_t>(lane) * stride, &v,
                  stride);
    }
    w.block->bytes_read += static_cast<uint64_t>(o.bytes) * o.values;
    return Event::kNext;
  });
}

Event run_sust(const Op& op, Warp& w, uint32_t m) {
  const ImageOp o = ImageOp::unpack(op.imm);
  const uint32_t stride = std::max<uint32_t>(o.bytes, 2);
  return each_image(op, w, m, true, [&](int lane, const Image& image) {
    const SurfacePlace place = surface_place(op, o, w, image, lane);
    if (place.event != Event::kNext || !place.at) return place.event;
    for (uint32_t k = 0; k < o.values; ++k)
      std::memcpy(place.at + k * o.bytes,
                  w.regs + op.list[o.coordinates + k] + static_cast<size_t>(lane) * stride,
                  o.bytes);
    w.block->bytes_written += static_cast<uint64_t>(o.bytes) * o.values;
    return Event::kNext;
  });
}

Event run_sured(const Op& op, Warp& w, uint32_t m) {
  const ImageOp o = ImageOp::unpack(op.imm);
  return each_image(op, w, m, true, [&](int lane, const Image& image) {
    const SurfacePlace place = surface_place(op, o, w, image, lane);
    if (place.event != Event::kNext || !place.at) return place.event;
    const uint32_t value = op.list[o.coordinates];
    if (o.bytes == 4)
      reduce_at<uint32_t, int32_t>(place.at, o, lanes<uint32_t>(w, value)[lane]);
    else
      reduce_at<uint64_t, int64_t>(place.at, o, lanes<uint64_t>(w, value)[lane]);
    return Event::kNext;
  });
}

Event run_image_query(const Op& op, Warp& w, uint32_t m) {
  const uint64_t* handles = lanes<uint64_t>(w, op.a);
  uint32_t* d = lanes<uint32_t>(w, op.d);
  for (uint32_t left = m; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    const Image* image = find_image(w, handles[lane]);
    if (!image)
      return raise(w, Fault::kIllegalAddress, "no such texture or surface object", handles[lane],
                   lane);
    const Image::Level& level = image->levels[0];
    switch (static_cast<ImageQuery>(op.imm)) {
      case ImageQuery::kWidth:
        d[lane] = level.width;
        break;
      case ImageQuery::kHeight:
        d[lane] = level.height;
        break;
      case ImageQuery::kDepth:
        d[lane] = image->layered ? 1 : level.depth;
        break;
      case ImageQuery::kLayers:
        d[lane] = image->layered ? level.depth : 1;
        break;
      case ImageQuery::kLevels:
        d[lane] = static_cast<uint32_t>(image->levels.size());
        break;
      case ImageQuery::kSamples:
        d[lane] = 1;
        break;
      case ImageQuery::kNormalized:
        d[lane] = image->normalized;
        break;
    }
  }
  return Event::kNext;
}

}  // namespace tendril::softgpu
