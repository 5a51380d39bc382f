// SPDX-License-Identifier: Apache-2.0
// GPUDirect's rules: whether a GPU and a card may be tried, which card first, and which way of
// copying is taken after it was measured. Pure functions; `read_pci_place` reads small files.
// direct.h asks them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/cuda/driver.h"

namespace tendril::worker::cuda {

// TENDRIL_GPUDIRECT, which `tendril serve --gpudirect` sets.
enum class DirectMode : uint8_t {
  kOff,
  kAuto,  // where it was tried, and is not slower
  kOn,    // where it was tried
};
DirectMode direct_mode(const char* setting);  // null: auto

// What driver and kernel say.
struct DirectFacts {
  bool gpu_can = false;          // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
  bool gives_dma_buf = false;    // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, and the call
  bool has_peer_module = false;  // nvidia-peermem is loaded
  int ordering = 0;              // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING
  bool can_flush = false;        // the call, and CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST
};
struct DirectPlan {
  std::string why_not;                              // empty: it may be tried
  bool by_dma_buf = false, by_peer_module = false;  // in this order
  bool flushes = false;  // what a card wrote is for the GPU after a flush only
};
DirectPlan plan_direct(const DirectFacts& facts);

// What a trial measured, of the same bytes: by the card alone; by the card between places in host
// memory; by the GPU from and to host memory.
struct DirectTrial {
  uint64_t card_to_device_ns = 0, card_to_host_ns = 0;
  uint64_t card_in_host_ns = 0;
  uint64_t gpu_from_host_ns = 0, gpu_to_host_ns = 0;
};
struct DirectChoice {
  bool to_device = false, to_host = false;
  // How many times as fast as staging.
  double gain_to_device = 0, gain_to_host = 0;
};
DirectChoice choose_direct(const DirectTrial& trial, DirectMode mode);

// Where a device is plugged in.
struct PciPlace {
  std::string path;  // "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"; empty: unknown
  int node = -1;     // of the host's memory; -1: there is only one
};
PciPlace read_pci_place(const std::string& device);  // "/sys/bus/pci/devices/0000:01:00.0"

// Between a GPU and a card, the nearest first.
enum class Closeness : uint8_t { kSwitch, kRoot, kNode, kFar, kUnknown };
Closeness closeness(const PciPlace& gpu, const PciPlace& card);
const char* text_of(Closeness closeness);
// In which order to try cards: positions in `cards`, the nearest first.
std::vector<size_t> nearest_first(const PciPlace& gpu, const std::vector<PciPlace>& cards);

// Blocks of device memory are registered in such parts, at multiples of it from their beginning.
inline constexpr uint64_t kDirectPartBytes = 1ull << 30;
inline constexpr size_t kDirectPartsMost = 64;
// A registration takes about as long as staging this. Shorter copies go by cards where an earlier
// one has registered the memory.
inline constexpr uint64_t kRegistersFrom = 1u << 20;

struct DirectPart {
  uint64_t begin = 0, bytes = 0;
};
// The parts of a block that hold a range of it. Empty: the range is not inside.
std::vector<DirectPart> parts_of(uint64_t block, uint64_t block_bytes, uint64_t address,
                                 uint64_t bytes);

}  // namespace tendril::worker::cuda
