// SPDX-License-Identifier: Apache-2.0
// See direct_choice.h.
#include "worker/cuda/memory/direct_choice.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/fd.h"

namespace tendril::worker::cuda {
namespace {

// As between networks: within so much the way that spares processors and memory is taken.
constexpr double kAlike = 0.9;

double gain(uint64_t direct_ns, uint64_t card_ns, uint64_t gpu_ns) {
  // In a long copy the next piece comes while the GPU fetches the last one.
  return direct_ns == 0 ? 0 : double(std::max(card_ns, gpu_ns)) / double(direct_ns);
}

size_t parts_in_common(const std::string& one, const std::string& other) {
  size_t parts = 0, at = 0;
  while (at < one.size() && at < other.size() && one[at] == other[at]) {
    ++at;
    const bool ends = at == one.size() || one[at] == '/';
    if (ends && (at == other.size() || other[at] == '/')) ++parts;
  }
  return parts;
}

}  // namespace

DirectMode direct_mode(const char* setting) {
  if (setting == nullptr) return DirectMode::kAuto;
  if (strcmp(setting, "on") == 0) return DirectMode::kOn;
  return strcmp(setting, "auto") == 0 ? DirectMode::kAuto : DirectMode::kOff;
}

DirectPlan plan_direct(const DirectFacts& facts) {
  DirectPlan plan;
  plan.by_dma_buf = facts.gives_dma_buf;
  plan.by_peer_module = facts.has_peer_module;
  plan.flushes = facts.ordering < CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
  if (!facts.gpu_can)
    plan.why_not = "the GPU or its driver has no GPUDirect";
  else if (!plan.by_dma_buf && !plan.by_peer_module)
    plan.why_not = "neither a dma-buf nor nvidia-peermem";
  else if (plan.flushes && !facts.can_flush)
    plan.why_not = "this GPU cannot tell when a card's writes are in";
  return plan;
}

DirectChoice choose_direct(const DirectTrial& trial, DirectMode mode) {
  DirectChoice choice;
  choice.gain_to_device =
      gain(trial.card_to_device_ns, trial.card_in_host_ns, trial.gpu_from_host_ns);
  choice.gain_to_host = gain(trial.card_to_host_ns, trial.card_in_host_ns, trial.gpu_to_host_ns);
  const double least = mode == DirectMode::kOn ? 0 : kAlike;
  choice.to_device = mode != DirectMode::kOff && choice.gain_to_device > least;
  choice.to_host = mode != DirectMode::kOff && choice.gain_to_host > least;
  return choice;
}

PciPlace read_pci_place(const std::string& device) {
  PciPlace place;
  char path[PATH_MAX];
  if (realpath(device.c_str(), path) == nullptr) return place;
  place.path = path;
  const base::Fd file(open((place.path + "/numa_node").c_str(), O_RDONLY | O_CLOEXEC));
  char text[16] = {};
  if (file.valid() && read(file.get(), text, sizeof text - 1) > 0)
    place.node = int(strtol(text, nullptr, 10));
  return place;
}

// "/sys/devices/pci0000:00" is a root; what follows is a bridge as long as both are below it.
Closeness closeness(const PciPlace& gpu, const PciPlace& card) {
  constexpr size_t kRootParts = 3;
  if (gpu.path.empty() || card.path.empty()) return Closeness::kUnknown;
  const size_t parts = parts_in_common(gpu.path, card.path);
  if (parts > kRootParts) return Closeness::kSwitch;
  if (parts == kRootParts) return Closeness::kRoot;
  return gpu.node == card.node ? Closeness::kNode : Closeness::kFar;
}

const char* text_of(Closeness closeness) {
  switch (closeness) {
    case Closeness::kSwitch:
      return "same PCIe switch";
    case Closeness::kRoot:
      return "same PCIe root";
    case Closeness::kNode:
      return "same memory node";
    case Closeness::kFar:
      return "other memory node";
    case Closeness::kUnknown:
      return "unknown distance";
  }
  return "";
}

std::vector<size_t> nearest_first(const PciPlace& gpu, const std::vector<PciPlace>& cards) {
  std::vector<size_t> order(cards.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t one, size_t other) {
    return closeness(gpu, cards[one]) < closeness(gpu, cards[other]);
  });
  return order;
}

std::vector<DirectPart> parts_of(uint64_t block, uint64_t block_bytes, uint64_t address,
                                 uint64_t bytes) {
  std::vector<DirectPart> parts;
  const uint64_t offset = address - block;
  if (address < block || bytes == 0 || offset > block_bytes || bytes > block_bytes - offset)
    return parts;
  for (uint64_t at = offset / kDirectPartBytes * kDirectPartBytes; at < offset + bytes;
       at += kDirectPartBytes)
    parts.push_back({block + at, std::min(kDirectPartBytes, block_bytes - at)});
  return parts;
}

}  // namespace tendril::worker::cuda
