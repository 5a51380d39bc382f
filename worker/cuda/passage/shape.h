// SPDX-License-Identifier: Apache-2.0
// The memory of one end of a copy that travels over a passage: rows with gaps, or none. Pure.
#pragma once

#include <cstdint>

namespace tendril::worker::cuda {

struct PassageShape {
  uint64_t address = 0;
  uint64_t width = 0, height = 1, depth = 1;  // bytes, rows, slices
  uint64_t pitch = 0, slice = 0;              // bytes from a row, a slice, to the next
};

// A part of it that one call of the driver copies: `rows` rows of `width` bytes.
struct PassagePart {
  uint64_t address = 0, width = 0, rows = 1;
  uint64_t bytes() const { return width * rows; }
};

// False: it is empty, its rows overlap, or its numbers are beyond any memory. *bytes: of all rows;
// *span: from the first byte to the last.
bool measure(const PassageShape& shape, uint64_t* bytes, uint64_t* span);
// The part that begins after `at` bytes of the rows, of at most `most` bytes. `at` is inside.
PassagePart part_at(const PassageShape& shape, uint64_t at, uint64_t most);

}  // namespace tendril::worker::cuda
