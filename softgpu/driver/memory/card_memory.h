// SPDX-License-Identifier: Apache-2.0
// What things take of a device's memory beyond the bytes that a program asks for. With the knob
// `costs=card` it is what was measured on a card (docs/decisions/0020-what-a-driver-takes.md):
// small blocks share pages of 2 MiB, pools grow by 32 MiB, local memory is there for every thread
// that the device can hold, each stream has a channel, and instances of graphs and pinned host
// memory take some as well. With `costs=bytes` only bytes count. Any
// thread.
#pragma once

#include <cstdint>

#include "api/cuda_abi.gen.h"
#include "base/graph_cost.h"
#include "base/page_blocks.h"

namespace tendril::softgpu {

bool costs_as_card();

// Memory that the program has no address of: arrays, the variables of a module.
struct HiddenMemory {
  enum class Kind : uint8_t { kArray, kModule };
  int device = -1;  // -1: nothing was taken
  Kind kind = Kind::kArray;
  uint64_t charged = 0;                // when it shares no page
  base::PageBlocks::Place place = {};  // when it does
};
// False: the device is full.
bool take_hidden(int device, HiddenMemory::Kind kind, uint64_t bytes, HiddenMemory* out);
void give_back_hidden(const HiddenMemory& memory);

// What an array of these rows takes: with `costs=card` whole tiles.
uint64_t array_cost(uint64_t row_bytes, uint64_t rows, uint64_t slices);
// What a pool or the graphs of a device hold when they need `bytes`.
uint64_t pool_cost(uint64_t bytes);
// Local memory of a context whose threads have `bytes` each, beyond what every context has.
uint64_t local_cost(uint64_t bytes);
uint64_t stream_cost(uint64_t streams);
// Of all instances of graphs in a context, which `bytes` was measured for.
uint64_t graph_cost(uint64_t bytes);
// Host memory was pinned, or is not any more: the device's tables of pages grow and shrink. False:
// the device is full.
bool pin_host(int device, uint64_t bytes);
void unpin_host(int device, uint64_t bytes);

// Charges or discharges the difference. False: the device is full, and nothing has changed.
bool change_charge(int device, uint64_t before, uint64_t after);

}  // namespace tendril::softgpu
