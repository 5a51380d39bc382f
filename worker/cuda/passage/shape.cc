// SPDX-License-Identifier: Apache-2.0
// See shape.h.
#include "worker/cuda/passage/shape.h"

#include <algorithm>

namespace tendril::worker::cuda {

bool measure(const PassageShape& shape, uint64_t* bytes, uint64_t* span) {
  using Wide = unsigned __int128;
  constexpr uint64_t kMost = uint64_t{1} << 48;  // no memory has more; products of three fit
  const uint64_t numbers[] = {shape.width, shape.height, shape.depth};
  for (const uint64_t number : numbers)
    if (number == 0 || number > kMost) return false;
  if (shape.pitch > kMost || shape.slice > kMost) return false;
  if (shape.height > 1 && shape.pitch < shape.width) return false;
  const Wide slice = Wide{shape.height - 1} * shape.pitch + shape.width;
  if (slice > kMost || (shape.depth > 1 && shape.slice < slice)) return false;
  const Wide all = Wide{shape.depth - 1} * shape.slice + slice;
  if (all > kMost) return false;
  *span = static_cast<uint64_t>(all);
  *bytes = shape.width * shape.height * shape.depth;  // not more than the span
  return true;
}

PassagePart part_at(const PassageShape& shape, uint64_t at, uint64_t most) {
  const uint64_t in_slice = shape.width * shape.height;
  const bool rows_touch = shape.height == 1 || shape.pitch == shape.width;
  const bool slices_touch = shape.depth == 1 || shape.slice == in_slice;
  if (rows_touch && slices_touch)
    return {shape.address + at, std::min(most, in_slice * shape.depth - at), 1};
  const uint64_t z = at / in_slice, left = at % in_slice;
  const uint64_t y = left / shape.width, x = left % shape.width;
  PassagePart part;
  part.address = shape.address + z * shape.slice + y * shape.pitch + x;
  part.width = std::min(most, shape.width - x);
  if (x == 0 && part.width == shape.width)
    part.rows = std::min(shape.height - y, most / shape.width);
  return part;
}

}  // namespace tendril::worker::cuda
