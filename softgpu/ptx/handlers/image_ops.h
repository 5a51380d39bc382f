// SPDX-License-Identifier: Apache-2.0
// What an instruction on a texture or surface asks for. decode_image.cc writes it into Op::imm,
// handlers_image.cc reads it. Op::a is the handle (64 bits). Op::list holds the registers of the
// coordinates, of the level if there is one, then of the values.
#pragma once

#include <bit>
#include <cstdint>

namespace tendril::softgpu {

enum class Geometry : uint8_t { k1D, k2D, k3D, k1DLayered, k2DLayered, kCube, kCubeLayered };
enum class Beyond : uint8_t { kTrap, kClamp, kZero };  // how a surface access outside behaves
enum class ImageQuery : uint8_t {
  kWidth,
  kHeight,
  kDepth,
  kLayers,
  kLevels,
  kSamples,
  kNormalized
};
enum class SurfaceReduction : uint8_t { kAdd, kMin, kMax, kAnd, kOr };

struct ImageOp {
  Geometry geometry = Geometry::k1D;
  uint8_t coordinates = 1, values = 0;
  uint8_t float_coordinates : 1 = 0, has_level : 1 = 0, is_signed : 1 = 0;
  uint8_t component = 0;  // tld4: which channel
  Beyond beyond = Beyond::kTrap;
  uint8_t bytes = 0;  // of one element of a surface access
  SurfaceReduction reduction = SurfaceReduction::kAdd;

  int64_t pack() const { return std::bit_cast<int64_t>(*this); }
  static ImageOp unpack(int64_t v) { return std::bit_cast<ImageOp>(v); }
};
static_assert(sizeof(ImageOp) == sizeof(int64_t));

}  // namespace tendril::softgpu
