// SPDX-License-Identifier: Apache-2.0
// See lease_book.h.
#include "lease/lease_book.h"

#include <algorithm>

#include "base/check.h"
#include "base/page_blocks.h"
#include "config/quantity.h"
#include "wire/assignment.h"

namespace tendril::lease {
namespace {

using base::Code;
using base::Status;

using config::format_fraction;
using config::format_size;
using config::kWholeGpu;

// A packed slice may have less than its share, by at most one part in this many.
constexpr uint64_t kPackedLessPart = 25;

std::string describe(const wire::SliceSpec& spec) {
  return config::format_slice(spec.share_millionths, spec.memory_bytes);
}

}  // namespace

LeaseBook::LeaseBook(std::string host, std::vector<GpuCapacity> gpus)
    : host_(std::move(host)), gpus_(std::move(gpus)), packed_processors_(gpus_.size()) {
  for (const GpuCapacity& capacity : gpus_) {
    GpuRoom room;
    room.index = static_cast<uint32_t>(rooms_.size());
    room.memory_usable_bytes = capacity.memory_usable_bytes;
    room.process_bytes = capacity.process_bytes();
    rooms_.push_back(room);
  }
}

Status LeaseBook::check(const wire::LeaseTerms& terms) {
  const bool known =
      terms.policy == wire::SharePolicy::kLend || terms.policy == wire::SharePolicy::kCap;
  if (!known)
    return Status(Code::kInvalid,
                  "this server does not know what the lease asks for beyond its share");
  if (terms.priority >= -wire::kPriorityMax && terms.priority <= wire::kPriorityMax)
    return Status();
  return Status(Code::kInvalid, "a priority is a number from " +
                                    std::to_string(-wire::kPriorityMax) + " to " +
                                    std::to_string(wire::kPriorityMax));
}

Status LeaseBook::check(const wire::LeaseRequest& request) const {
  const wire::SliceSpec& spec = request.slice;
  if (request.count == 0 || request.count > wire::kSlicesMax) {
    return Status(Code::kInvalid, "a lease has 1 to " + std::to_string(wire::kSlicesMax) +
                                      " slices, not " + std::to_string(request.count));
  }
  if (spec.share_millionths == 0 && spec.memory_bytes == 0) {
    return Status(Code::kInvalid, "a slice needs a share or an amount of memory");
  }
  if (spec.share_millionths > kWholeGpu) {
    return Status(Code::kInvalid, "a slice is at most one whole GPU");
  }
  const Status terms = check(request.terms);
  if (!terms.ok()) return terms;
  if (request.count > gpus_.size()) {
    return Status(Code::kRefused,
                  "host " + host_ + " has " + std::to_string(gpus_.size()) + " GPU" +
                      (gpus_.size() == 1 ? "" : "s") + ", asked for " +
                      std::to_string(request.count) +
                      " slices on different GPUs; ask for fewer or add another server");
  }
  return Status();
}

// Rounds the sum of the promised shares up to whole pairs once, instead of each share.
uint32_t LeaseBook::processors_for(const wire::SliceGrant& slice) const {
  const uint64_t promised = rooms_[slice.gpu_index].share_promised_millionths;
  const uint64_t processors = gpus_[slice.gpu_index].processors;
  if (!slice.packed || processors == 0 || processors % 2 != 0) return 0;
  const auto pairs_up = [processors](uint64_t share) {
    return (processors * share + 2 * kWholeGpu - 1) / (2 * kWholeGpu) * 2;
  };
  const uint64_t most = pairs_up(slice.share_millionths), less = most > 2 ? most - 2 : most;
  const uint64_t exactly = processors * slice.share_millionths;  // in millionths of an SM
  const bool may_be_less = less * kWholeGpu >= exactly - exactly / kPackedLessPart;
  const uint64_t all = pairs_up(promised + slice.share_millionths);
  const bool enough = packed_processors_[slice.gpu_index] + less >= all;
  return static_cast<uint32_t>(may_be_less && enough ? less : most);
}

uint32_t LeaseBook::packed_processors(uint64_t lease_id, size_t slice) const {
  const auto found = leases_.find(lease_id);
  return found == leases_.end() ? 0 : found->second[slice].packed_processors;
}

std::string LeaseBook::refusal(const wire::LeaseRequest& request, size_t found,
                               const std::vector<GpuRoom>& rooms) const {
  std::string text = "host " + host_ + " cannot grant " + std::to_string(request.count) + " x " +
                     describe(request.slice) + " now (room for " + std::to_string(found) + "): ";
  for (const GpuRoom& room : rooms) {
    if (room.index != 0) text += "; ";
    text += "GPU " + std::to_string(room.index) + " has " +
            format_fraction(kWholeGpu - room.share_promised_millionths) + " of 1.00 and " +
            format_size(room.memory_usable_bytes - room.memory_promised_bytes) + " of " +
            format_size(room.memory_usable_bytes) + " free";
    if (room.share_promised_millionths != 0 && room.packed != request.slice.packed)
      text += room.packed ? " for packed slices only" : " for slices that are not packed";
  }
  if (!awaiting_.empty()) text += ". Room is kept for parked leases that want their slices back";
  return text + ". 'tendril ls' shows who holds the rest";
}

base::Result<std::vector<wire::SliceGrant>> LeaseBook::grant(uint64_t lease_id,
                                                             const wire::LeaseRequest& request) {
  TENDRIL_CHECK(leases_.count(lease_id) == 0);
  const Status valid = check(request);
  if (!valid.ok()) return valid;
  const std::vector<GpuRoom> rooms = rooms_for(request.terms.priority);
  Placement placement = place(rooms, request.slice, request.count, host_);
  if (placement.possible < request.count) return placement.nearest;
  if (placement.room < request.count)
    return Status(Code::kRefused, refusal(request, placement.room, rooms));
  take(lease_id, placement.chosen);
  return std::move(placement.chosen);
}

void LeaseBook::take(uint64_t lease_id, const std::vector<wire::SliceGrant>& slices) {
  std::vector<Held>& held = leases_[lease_id];
  for (const wire::SliceGrant& slice : slices) {
    GpuRoom& room = rooms_[slice.gpu_index];
    held.push_back({slice, processors_for(slice), false, 0});
    packed_processors_[slice.gpu_index] += held.back().packed_processors;
    room.share_promised_millionths += slice.share_millionths;
    room.memory_promised_bytes += slice.memory_bytes;
    room.packed = slice.packed;
  }
}

base::Result<wire::SliceGrant> LeaseBook::check_one(const wire::SliceGrant& wanted) const {
  const std::string gpu = "GPU " + std::to_string(wanted.gpu_index) + " of host " + host_;
  if (wanted.gpu_index >= gpus_.size()) {
    return Status(Code::kInvalid,
                  gpu + " does not exist; the server lends " + std::to_string(gpus_.size()));
  }
  wire::SliceSpec spec;
  spec.share_millionths = wanted.share_millionths;
  spec.memory_bytes = wanted.memory_bytes;
  spec.packed = wanted.packed;
  if (spec.share_millionths > kWholeGpu || (spec.share_millionths == 0 && spec.memory_bytes == 0))
    return Status(Code::kInvalid, "a slice of " + gpu + " needs memory, or a share of at most 1");
  const GpuRoom room = rooms_for(-wire::kPriorityMax)[wanted.gpu_index];
  auto slice = slice_on(room, spec, host_);
  if (!slice.ok()) return Status(Code::kInvalid, slice.status().message());
  if (fits(room, *slice)) return slice;
  return Status(Code::kRefused,
                gpu + " has no room for " + describe(spec) + " now: it has " +
                    format_fraction(kWholeGpu - room.share_promised_millionths) + " of 1.00 and " +
                    format_size(room.memory_usable_bytes - room.memory_promised_bytes) + " of " +
                    format_size(room.memory_usable_bytes) + " free" +
                    (room.share_promised_millionths == 0 || room.packed == wanted.packed ? ""
                     : room.packed ? " for packed slices only"
                                   : " for slices that are not packed"));
}

base::Result<std::vector<wire::SliceGrant>> LeaseBook::grant_these(
    uint64_t lease_id, const std::vector<wire::SliceGrant>& slices) {
  TENDRIL_CHECK(leases_.count(lease_id) == 0);
  if (slices.empty() || slices.size() > wire::kSlicesMax) {
    return Status(Code::kInvalid, "a lease has 1 to " + std::to_string(wire::kSlicesMax) +
                                      " slices on a server, not " + std::to_string(slices.size()));
  }
  std::vector<wire::SliceGrant> granted;
  std::vector<bool> used(gpus_.size());
  for (const wire::SliceGrant& wanted : slices) {
    auto slice = check_one(wanted);
    if (!slice.ok()) return slice.status();
    if (used[slice->gpu_index]) {
      return Status(Code::kInvalid, "GPU " + std::to_string(slice->gpu_index) + " of host " +
                                        host_ + " is named twice; each slice has a GPU of its own");
    }
    used[slice->gpu_index] = true;
    granted.push_back(slice.take());
  }
  take(lease_id, granted);
  return granted;
}

Status LeaseBook::check_share(uint64_t lease_id, const wire::SliceGrant& slice,
                              uint32_t share_millionths) const {
  const uint32_t others =
      rooms_for(-wire::kPriorityMax)[slice.gpu_index].share_promised_millionths -
      slice.share_millionths;
  if (share_millionths <= kWholeGpu - others) return Status();
  return Status(Code::kRefused,
                "lease " + std::to_string(lease_id) + " cannot have " +
                    format_fraction(share_millionths) + " of GPU " +
                    std::to_string(slice.gpu_index) + " of host " + host_ + ": others hold " +
                    format_fraction(others) +
                    " of it. 'tendril ls' shows who; lower theirs first, or ask for "
                    "at most " +
                    format_fraction(kWholeGpu - others));
}

Status LeaseBook::check_memory(uint64_t lease_id, const wire::SliceGrant& slice,
                               uint64_t memory_bytes) const {
  const GpuRoom room = rooms_for(-wire::kPriorityMax)[slice.gpu_index];
  const uint64_t others = room.memory_promised_bytes - slice.memory_bytes;
  const uint64_t most = room.memory_usable_bytes - std::min(others, room.memory_usable_bytes);
  const std::string who = "lease " + std::to_string(lease_id) + " cannot have " +
                          format_size(memory_bytes) + " on GPU " + std::to_string(slice.gpu_index) +
                          " of host " + host_ + ": ";
  if (memory_bytes < room.process_bytes + base::kGpuPageBytes) {
    return Status(Code::kInvalid, who + "a process needs " +
                                      format_size(room.process_bytes + base::kGpuPageBytes) +
                                      " there before it allocates anything; ask for more");
  }
  // A lease that the book has overcommitted, since a warm worker took memory, may still shrink.
  if (memory_bytes <= std::max(most, slice.memory_bytes)) return Status();
  return Status(Code::kRefused, who + "others hold " + format_size(others) + " of " +
                                    format_size(room.memory_usable_bytes) +
                                    ". 'tendril ls' shows who; lower theirs first, or ask for at "
                                    "most " +
                                    format_size(most));
}

base::Result<std::vector<wire::SliceGrant>> LeaseBook::change(uint64_t lease_id,
                                                              uint32_t share_millionths,
                                                              uint64_t memory_bytes) {
  const auto found = leases_.find(lease_id);
  TENDRIL_CHECK(found != leases_.end());
  if (share_millionths > kWholeGpu || (share_millionths == 0 && memory_bytes == 0))
    return Status(Code::kInvalid, "a slice is more than nothing and at most one whole GPU");
  for (const Held& held : found->second) {
    const wire::SliceGrant& slice = held.slice;
    if (held.parked) {
      return Status(Code::kRefused, "lease " + std::to_string(lease_id) +
                                        " is parked, and holds nothing that could change; wake it "
                                        "first (tendril lease wake " +
                                        std::to_string(lease_id) + ")");
    }
    if (slice.packed) {
      return Status(Code::kRefused,
                    "lease " + std::to_string(lease_id) + " is packed: its share of GPU " +
                        std::to_string(slice.gpu_index) +
                        "'s processors and memory was fixed when its processes started; take a "
                        "new lease");
    }
    Status fits;
    if (share_millionths != 0) fits = check_share(lease_id, slice, share_millionths);
    if (fits.ok() && memory_bytes != 0) fits = check_memory(lease_id, slice, memory_bytes);
    if (!fits.ok()) return fits;
  }
  std::vector<wire::SliceGrant> changed;
  for (Held& held : found->second) {
    wire::SliceGrant& slice = held.slice;
    GpuRoom& room = rooms_[slice.gpu_index];
    if (share_millionths != 0) {
      room.share_promised_millionths += share_millionths - slice.share_millionths;
      slice.share_millionths = share_millionths;
    }
    if (memory_bytes != 0) {
      room.memory_promised_bytes += memory_bytes - slice.memory_bytes;
      slice.memory_bytes = memory_bytes;
    }
    changed.push_back(slice);
  }
  return changed;
}

void LeaseBook::release(uint64_t lease_id) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  for (const Held& held : found->second) {
    GpuRoom& room = rooms_[held.slice.gpu_index];
    room.share_promised_millionths -= held.slice.share_millionths - held.share_away();
    room.memory_promised_bytes -= held.slice.memory_bytes - held.memory_away();
    packed_processors_[held.slice.gpu_index] -= held.packed_processors;
  }
  leases_.erase(found);
  awaiting_.erase(
      std::remove_if(awaiting_.begin(), awaiting_.end(),
                     [lease_id](const Awaiting& one) { return one.lease_id == lease_id; }),
      awaiting_.end());
}

// ---- parked leases ----

bool LeaseBook::is_parked(uint64_t lease_id) const {
  const auto found = leases_.find(lease_id);
  return found != leases_.end() && !found->second.empty() && found->second[0].parked;
}

bool LeaseBook::awaits(uint64_t lease_id) const {
  return std::any_of(awaiting_.begin(), awaiting_.end(),
                     [lease_id](const Awaiting& one) { return one.lease_id == lease_id; });
}

Status LeaseBook::may_park(uint64_t lease_id) const {
  const auto found = leases_.find(lease_id);
  TENDRIL_CHECK(found != leases_.end());
  for (const Held& held : found->second) {
    if (!held.slice.packed) continue;
    return Status(Code::kRefused,
                  "lease " + std::to_string(lease_id) +
                      " is packed: its processors and memory were fixed when its processes "
                      "started, so it cannot be parked; end it, or let it run");
  }
  return Status();
}

void LeaseBook::park(uint64_t lease_id, const std::vector<uint64_t>& stays_bytes) {
  const auto found = leases_.find(lease_id);
  TENDRIL_CHECK(found != leases_.end() && stays_bytes.size() == found->second.size() &&
                !is_parked(lease_id));
  for (size_t i = 0; i < stays_bytes.size(); ++i) {
    Held& held = found->second[i];
    held.parked = true;
    held.stays_bytes = std::min(stays_bytes[i], held.slice.memory_bytes);
    GpuRoom& room = rooms_[held.slice.gpu_index];
    room.share_promised_millionths -= held.share_away();
    room.memory_promised_bytes -= held.memory_away();
  }
}

void LeaseBook::await(uint64_t lease_id, int32_t priority) {
  TENDRIL_CHECK(is_parked(lease_id));
  if (awaits(lease_id)) return;
  const auto behind =
      std::find_if(awaiting_.begin(), awaiting_.end(),
                   [priority](const Awaiting& one) { return one.priority < priority; });
  awaiting_.insert(behind, {lease_id, priority});
}

// Clamped: the rest must come from leases that end, and no more can be kept than there is.
void LeaseBook::keep_for(uint64_t lease_id, std::vector<GpuRoom>* rooms) const {
  for (const Held& held : leases_.at(lease_id)) {
    GpuRoom& room = (*rooms)[held.slice.gpu_index];
    if (room.share_promised_millionths == 0) room.packed = false;
    room.share_promised_millionths =
        std::min(kWholeGpu, room.share_promised_millionths + held.share_away());
    const uint64_t most = std::max(room.memory_usable_bytes, room.memory_promised_bytes);
    room.memory_promised_bytes += std::min(most - room.memory_promised_bytes, held.memory_away());
  }
}

std::vector<GpuRoom> LeaseBook::rooms_for(int32_t priority) const {
  std::vector<GpuRoom> rooms = rooms_;
  for (const Awaiting& one : awaiting_) {
    if (one.priority >= priority) keep_for(one.lease_id, &rooms);
  }
  return rooms;
}

LeaseBook::Lack LeaseBook::lack(uint64_t lease_id, uint32_t gpu) const {
  Lack lack;
  if (!awaits(lease_id)) return lack;
  uint64_t share = rooms_[gpu].share_promised_millionths;
  uint64_t memory = rooms_[gpu].memory_promised_bytes;
  bool concerned = false;
  for (const Awaiting& one : awaiting_) {
    for (const Held& held : leases_.at(one.lease_id)) {
      if (held.slice.gpu_index != gpu) continue;
      share += held.share_away();
      memory += held.memory_away();
      concerned |= one.lease_id == lease_id;
    }
    if (one.lease_id == lease_id) break;
  }
  if (!concerned) return lack;
  if (share > kWholeGpu) lack.share_millionths = static_cast<uint32_t>(share - kWholeGpu);
  const uint64_t usable = rooms_[gpu].memory_usable_bytes;
  if (memory > usable) lack.memory_bytes = memory - usable;
  return lack;
}

std::vector<uint64_t> LeaseBook::wake() {
  std::vector<uint64_t> woken;
  std::vector<Awaiting> still;
  std::vector<GpuRoom> ahead = rooms_;  // as if those ahead that still wait had woken
  for (const Awaiting& one : awaiting_) {
    std::vector<Held>& lease = leases_.at(one.lease_id);
    const bool has_room = std::all_of(lease.begin(), lease.end(), [&](const Held& held) {
      wire::SliceGrant away = held.slice;
      away.memory_bytes = held.memory_away();
      return fits(ahead[held.slice.gpu_index], away);
    });
    keep_for(one.lease_id, &ahead);
    if (!has_room) {
      still.push_back(one);
      continue;
    }
    for (Held& held : lease) {
      GpuRoom& room = rooms_[held.slice.gpu_index];
      if (room.share_promised_millionths == 0) room.packed = false;
      room.share_promised_millionths += held.share_away();
      room.memory_promised_bytes += held.memory_away();
      held.parked = false;
      held.stays_bytes = 0;
    }
    woken.push_back(one.lease_id);
  }
  awaiting_ = std::move(still);
  return woken;
}

}  // namespace tendril::lease
