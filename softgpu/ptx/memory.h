// SPDX-License-Identifier: Apache-2.0
// Address translation for one lane: from state space and address to a host pointer, or null where
// hardware would fault. Every handler that touches memory uses it. handlers_mem.cc has the fast
// paths for whole warps.
#pragma once

#include <cstdint>

#include "softgpu/ptx/exec.h"
#include "softgpu/ptx/handlers/handlers_isa.h"

namespace tendril::softgpu {

// In memory.cc: whether exact checking allows an access; what is near an address that faulted.
bool in_block(const MemoryView& view, uint64_t address, uint64_t bytes);
std::string explain_address(const MemoryView& view, uint64_t address);

static inline uint8_t* in_region(const MemoryRegion& r, uint64_t address, uint32_t size) {
  uint64_t o = address - r.base;
  if (o >= r.bytes || size > r.bytes - o) return nullptr;
  if (r.valid_pages && !(page_valid(r.valid_pages + o / kPageBytes) &&
                         page_valid(r.valid_pages + (o + size - 1) / kPageBytes)))
    return nullptr;
  return r.host + o;
}

static inline uint8_t* global_pointer(const Block& b, uint64_t address, uint32_t size) {
  const MemoryView& view = *b.launch->request->memory;
  if (view.exact && !in_block(view, address, size)) return nullptr;
  for (const MemoryRegion& r : view.regions)
    if (uint8_t* p = in_region(r, address, size)) return p;
  return nullptr;
}

static inline uint8_t* shared_pointer(const Block& b, uint64_t address, uint32_t size) {
  return address < b.shared_bytes && size <= b.shared_bytes - address ? b.shared + address
                                                                      : nullptr;
}

static inline uint8_t* local_pointer(Warp& w, uint64_t address, uint32_t size, int lane) {
  if (address >= w.local_stride || size > w.local_stride - address) return nullptr;
  return w.local.data() + static_cast<size_t>(lane) * w.local_stride + address;
}

static inline uint8_t* kernel_param_pointer(const Block& b, uint64_t address, uint32_t size) {
  uint64_t n = b.launch->params.size();
  if (address >> 56 == kParamWindow >> 56) address -= kParamWindow;
  return address < n && size <= n - address
             ? const_cast<uint8_t*>(b.launch->params.data()) + address
             : nullptr;
}

// `global` tells the traffic counters whether the address is in device memory.
static inline uint8_t* translate(Warp& w, MemSpace s, uint64_t address, uint32_t size, int lane,
                                 bool* global) {
  *global = false;
  Block& b = *w.block;
  switch (s) {
    case MemSpace::kShared:
      return shared_pointer(
          b, address >> 56 == kSharedWindow >> 56 ? address - kSharedWindow : address, size);
    case MemSpace::kLocal:
      return local_pointer(
          w, address >> 56 == kLocalWindow >> 56 ? address - kLocalWindow : address, size, lane);
    case MemSpace::kParamKernel:
      return kernel_param_pointer(b, address, size);
    case MemSpace::kParamFrame: {
      const DecodedFunction& f = *w.frame->function;
      if (address >= f.param_stride || size > f.param_stride - address) return nullptr;
      return w.regs + f.param_base + static_cast<size_t>(lane) * f.param_stride + address;
    }
    case MemSpace::kGeneric:
      switch (address >> 56) {
        case kSharedWindow >> 56:
          return shared_pointer(b, address - kSharedWindow, size);
        case kLocalWindow >> 56:
          return local_pointer(w, address - kLocalWindow, size, lane);
        case kParamWindow >> 56:
          return kernel_param_pointer(b, address, size);
        default:
          break;
      }
      [[fallthrough]];
    default:
      *global = true;
      return global_pointer(b, address, size);
  }
}

}  // namespace tendril::softgpu
