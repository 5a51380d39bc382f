// SPDX-License-Identifier: Apache-2.0
// See placement.h.
#include "lease/placement.h"

#include "config/quantity.h"

namespace tendril::lease {
namespace {

using base::Code;
using base::Status;
using config::format_size;
using config::kWholeGpu;

// Drivers hand out memory in pages of this size. If a quota is not a multiple of it, its last part
// is useless.
constexpr uint64_t kPageBytes = 2u << 20;

std::string place_name(const GpuRoom& room, const std::string& host) {
  return "GPU " + std::to_string(room.index) + " of host " + host;
}

// `whole` times `part` divided by `of`, without overflow.
uint64_t part_of(uint64_t whole, uint64_t part, uint64_t of) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(whole) * part / of);
}

}  // namespace

GpuRoom room_of(const wire::GpuRecord& gpu) {
  GpuRoom room;
  room.index = gpu.index;
  room.share_promised_millionths = std::min(gpu.share_used_millionths, kWholeGpu);
  room.memory_usable_bytes = gpu.memory_usable_bytes;
  room.memory_promised_bytes = std::min(gpu.memory_promised_bytes, gpu.memory_usable_bytes);
  room.process_bytes = gpu.process_bytes;
  room.packed = gpu.packed;
  return room;
}

void describe(const GpuRoom& room, wire::GpuRecord* gpu) {
  gpu->share_used_millionths = room.share_promised_millionths;
  gpu->memory_usable_bytes = room.memory_usable_bytes;
  gpu->memory_promised_bytes = room.memory_promised_bytes;
  gpu->process_bytes = room.process_bytes;
  gpu->packed = room.packed;
}

base::Result<wire::SliceGrant> slice_on(const GpuRoom& room, const wire::SliceSpec& spec,
                                        const std::string& host) {
  wire::SliceGrant slice;
  slice.gpu_index = room.index;
  slice.share_millionths = spec.share_millionths;
  slice.memory_bytes = spec.memory_bytes;
  slice.packed = spec.packed;
  if (spec.memory_bytes == 0) {
    slice.memory_bytes = part_of(room.memory_usable_bytes, spec.share_millionths, kWholeGpu);
    if (spec.share_millionths != kWholeGpu) slice.memory_bytes -= slice.memory_bytes % kPageBytes;
  }
  if (spec.share_millionths == 0 && room.memory_usable_bytes != 0) {
    const uint64_t memory_bytes = std::min(spec.memory_bytes, room.memory_usable_bytes);
    const uint64_t share = part_of(memory_bytes, kWholeGpu, room.memory_usable_bytes);
    slice.share_millionths = static_cast<uint32_t>(std::max<uint64_t>(share, 1));
  }
  if (room.process_bytes > UINT64_MAX - kPageBytes ||
      slice.memory_bytes < room.process_bytes + kPageBytes) {
    return Status(Code::kRefused,
                  "a slice of " + config::format_slice(spec.share_millionths, spec.memory_bytes) +
                      " has " + format_size(slice.memory_bytes) + " on " + place_name(room, host) +
                      ", but a process needs " + format_size(room.process_bytes + kPageBytes) +
                      " there before it allocates anything; ask for more");
  }
  if (slice.memory_bytes > room.memory_usable_bytes) {
    return Status(Code::kRefused,
                  "a slice of " + config::format_slice(spec.share_millionths, spec.memory_bytes) +
                      " does not fit on " + place_name(room, host) +
                      " even when nobody uses it: it lends " +
                      format_size(room.memory_usable_bytes) + "; ask for less, or add a server");
  }
  return slice;
}

bool fits(const GpuRoom& room, const wire::SliceGrant& slice) {
  return (room.share_promised_millionths == 0 || room.packed == slice.packed) &&
         slice.share_millionths <= kWholeGpu - room.share_promised_millionths &&
         slice.memory_bytes <= room.memory_usable_bytes - room.memory_promised_bytes;
}

Placement place(const std::vector<GpuRoom>& gpus, const wire::SliceSpec& spec, size_t wanted,
                const std::string& host) {
  // first: how much of the GPU is already promised
  using Candidate = std::pair<uint32_t, wire::SliceGrant>;
  Placement placement;
  std::vector<Candidate> candidates;
  uint64_t largest_bytes = 0;
  for (const GpuRoom& room : gpus) {
    base::Result<wire::SliceGrant> slice = slice_on(room, spec, host);
    if (slice.ok()) {
      ++placement.possible;
      if (fits(room, *slice)) candidates.emplace_back(room.share_promised_millionths, *slice);
    } else if (placement.nearest.ok() || room.memory_usable_bytes > largest_bytes) {
      placement.nearest = slice.status();
      largest_bytes = room.memory_usable_bytes;
    }
  }
  placement.room = candidates.size();
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& one, const Candidate& other) { return one.first > other.first; });
  if (candidates.size() > wanted) candidates.resize(wanted);
  for (const Candidate& candidate : candidates) placement.chosen.push_back(candidate.second);
  std::sort(placement.chosen.begin(), placement.chosen.end(),
            [](const auto& one, const auto& other) { return one.gpu_index < other.gpu_index; });
  return placement;
}

Status shortage(const Filling& filling, size_t servers, uint32_t wanted) {
  if (filling.missing == wanted && servers == 1 && !filling.refusals.empty())
    return filling.refusals[0];
  std::string text = std::to_string(wanted - filling.missing) + " of " + std::to_string(wanted) +
                     " slices found: ";
  if (filling.refusals.empty())
    return Status(Code::kRefused, text + "the servers named have no more GPUs with room");
  for (size_t i = 0; i < filling.refusals.size(); ++i)
    text += (i == 0 ? "" : "; ") + filling.refusals[i].message();
  return Status(filling.refusals.back().code(), text);
}

}  // namespace tendril::lease
