// SPDX-License-Identifier: Apache-2.0
// Where a part of a memory object lies in the program's memory. Pure.
#pragma once

#include <cstdint>

namespace tendril::client::opencl {

// Rows and slices may have gaps.
struct HostPlace {
  uint8_t* first = nullptr;
  uint64_t row_bytes = 0, rows = 1, slices = 1;
  uint64_t row_pitch = 0, slice_pitch = 0;

  uint64_t bytes() const { return row_bytes * rows * slices; }
  bool has_gaps() const {
    return (rows > 1 && row_pitch != row_bytes) || (slices > 1 && slice_pitch != row_bytes * rows);
  }
  template <typename Visit>
  void each_row(Visit&& visit) const {
    uint64_t packed = 0;
    for (uint64_t slice = 0; slice < slices; ++slice)
      for (uint64_t row = 0; row < rows; ++row, packed += row_bytes)
        visit(first + slice * slice_pitch + row * row_pitch, packed);
  }
};

inline HostPlace linear_place(const void* address, uint64_t bytes) {
  HostPlace place;
  place.first = const_cast<uint8_t*>(static_cast<const uint8_t*>(address));
  place.row_bytes = place.row_pitch = place.slice_pitch = bytes;
  return place;
}

}  // namespace tendril::client::opencl
