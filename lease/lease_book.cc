// SPDX-License-Identifier: Apache-2.0
// See lease_book.h.
#include "lease/lease_book.h"

#include <algorithm>

#include "base/check.h"
#include "config/quantity.h"
#include "wire/assignment.h"

namespace tendril::lease {
namespace {

using base::Code;
using base::Status;

// Drivers hand memory out in pages of this size; a quota that ends inside one could not be used to
// its end.
constexpr uint64_t kPageBytes = 2u << 20;
constexpr uint64_t kPackedLessPart =
    25;  // a packed slice may have less than its share by one such part of it

std::string describe(const wire::SliceSpec& spec) {
  std::string text;
  if (spec.share_millionths != 0) text = config::format_fraction(spec.share_millionths) + " GPU";
  if (spec.memory_bytes != 0)
    text += (text.empty() ? "" : " with ") + config::format_size(spec.memory_bytes);
  return text;
}

}  // namespace

LeaseBook::LeaseBook(std::string host, std::vector<GpuCapacity> gpus)
    : host_(std::move(host)), gpus_(std::move(gpus)), used_(gpus_.size()) {}

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
  if (spec.share_millionths > config::kWholeGpu) {
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

base::Result<wire::SliceGrant> LeaseBook::slice_on(uint32_t gpu,
                                                   const wire::SliceSpec& spec) const {
  const GpuCapacity& capacity = gpus_[gpu];
  wire::SliceGrant slice;
  slice.gpu_index = gpu;
  slice.share_millionths = spec.share_millionths;
  slice.memory_bytes = spec.memory_bytes;
  slice.packed = spec.packed;
  if (spec.memory_bytes == 0) {
    const auto part = static_cast<__uint128_t>(capacity.memory_usable_bytes) *
                      spec.share_millionths / config::kWholeGpu;
    slice.memory_bytes = static_cast<uint64_t>(part);
    if (spec.share_millionths != config::kWholeGpu)
      slice.memory_bytes -= slice.memory_bytes % kPageBytes;
  }
  if (spec.share_millionths == 0 && capacity.memory_usable_bytes != 0) {
    const auto part = static_cast<__uint128_t>(spec.memory_bytes) * config::kWholeGpu /
                      capacity.memory_usable_bytes;
    slice.share_millionths =
        static_cast<uint32_t>(std::clamp<__uint128_t>(part, 1, config::kWholeGpu));
  }
  if (slice.memory_bytes < capacity.process_bytes() + kPageBytes) {
    return Status(Code::kRefused, "a slice of " + describe(spec) + " has " +
                                      config::format_size(slice.memory_bytes) + " on GPU " +
                                      std::to_string(gpu) + " of host " + host_ +
                                      ", but a process needs " +
                                      config::format_size(capacity.process_bytes() + kPageBytes) +
                                      " there before it allocates anything; ask for more");
  }
  if (slice.memory_bytes > capacity.memory_usable_bytes) {
    return Status(Code::kRefused, "a slice of " + describe(spec) + " does not fit on GPU " +
                                      std::to_string(gpu) + " of host " + host_ +
                                      " even when nobody uses it: it lends " +
                                      config::format_size(capacity.memory_usable_bytes) +
                                      "; ask for less, or add a server");
  }
  return slice;
}

bool LeaseBook::fits(const wire::SliceGrant& slice) const {
  const Used& used = used_[slice.gpu_index];
  const uint64_t usable = gpus_[slice.gpu_index].memory_usable_bytes;
  return (used.share_millionths == 0 || used.packed == slice.packed) &&
         slice.share_millionths <= config::kWholeGpu - used.share_millionths &&
         slice.memory_bytes <= usable - used.memory_bytes;
}

// The pairs that are promised grow with the shares that are promised, rounded up once and not for
// each of them.
uint32_t LeaseBook::processors_for(const wire::SliceGrant& slice) const {
  const Used& used = used_[slice.gpu_index];
  const uint64_t processors = gpus_[slice.gpu_index].processors;
  if (!slice.packed || processors == 0 || processors % 2 != 0) return 0;
  const auto pairs_up = [processors](uint64_t share) {
    return (processors * share + 2 * config::kWholeGpu - 1) / (2 * config::kWholeGpu) * 2;
  };
  const uint64_t most = pairs_up(slice.share_millionths), less = most > 2 ? most - 2 : most;
  const uint64_t exactly = processors * slice.share_millionths;  // in millionths of one
  const bool may_be_less = less * config::kWholeGpu >= exactly - exactly / kPackedLessPart;
  const uint64_t all = pairs_up(uint64_t{used.share_millionths} + slice.share_millionths);
  const bool enough = used.packed_processors + less >= all;
  return static_cast<uint32_t>(may_be_less && enough ? less : most);
}

uint32_t LeaseBook::packed_processors(uint64_t lease_id, size_t slice) const {
  const auto found = leases_.find(lease_id);
  return found == leases_.end() ? 0 : found->second[slice].packed_processors;
}

std::string LeaseBook::refusal(const wire::LeaseRequest& request, size_t found) const {
  std::string text = "host " + host_ + " cannot grant " + std::to_string(request.count) + " x " +
                     describe(request.slice) + " now (room for " + std::to_string(found) + "): ";
  for (uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    if (gpu != 0) text += "; ";
    text += "GPU " + std::to_string(gpu) + " has " +
            config::format_fraction(config::kWholeGpu - used_[gpu].share_millionths) +
            " of 1.00 and " +
            config::format_size(gpus_[gpu].memory_usable_bytes - used_[gpu].memory_bytes) + " of " +
            config::format_size(gpus_[gpu].memory_usable_bytes) + " free";
    if (used_[gpu].share_millionths != 0 && used_[gpu].packed != request.slice.packed)
      text += used_[gpu].packed ? " for packed slices only" : " for slices that are not packed";
  }
  return text + ". 'tendril ls' shows who holds the rest";
}

base::Result<std::vector<wire::SliceGrant>> LeaseBook::grant(uint64_t lease_id,
                                                             const wire::LeaseRequest& request) {
  TENDRIL_CHECK(leases_.count(lease_id) == 0);
  const Status valid = check(request);
  if (!valid.ok()) return valid;
  std::vector<wire::SliceGrant> candidates;
  size_t possible = 0;
  Status why_not;
  uint64_t most_bytes = 0;
  for (uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    base::Result<wire::SliceGrant> slice = slice_on(gpu, request.slice);
    if (slice.ok()) {
      ++possible;
      if (fits(*slice)) candidates.push_back(*slice);
    } else if (why_not.ok() ||
               gpus_[gpu].memory_usable_bytes > most_bytes) {  // the one that is nearest to it
      why_not = slice.status();
      most_bytes = gpus_[gpu].memory_usable_bytes;
    }
  }
  if (possible < request.count) return why_not;
  if (candidates.size() < request.count)
    return Status(Code::kRefused, refusal(request, candidates.size()));
  std::stable_sort(candidates.begin(), candidates.end(), [this](const auto& a, const auto& b) {
    return used_[a.gpu_index].share_millionths > used_[b.gpu_index].share_millionths;
  });
  candidates.resize(request.count);
  std::sort(candidates.begin(), candidates.end(),
            [](const auto& a, const auto& b) { return a.gpu_index < b.gpu_index; });
  std::vector<Held>& held = leases_[lease_id];
  for (const wire::SliceGrant& slice : candidates) {
    Used& used = used_[slice.gpu_index];
    held.push_back({slice, processors_for(slice)});
    used.packed_processors += held.back().packed_processors;
    used.share_millionths += slice.share_millionths;
    used.memory_bytes += slice.memory_bytes;
    used.packed = slice.packed;
  }
  return candidates;
}

base::Result<std::vector<wire::SliceGrant>> LeaseBook::change(uint64_t lease_id,
                                                              uint32_t share_millionths) {
  const auto found = leases_.find(lease_id);
  TENDRIL_CHECK(found != leases_.end());
  if (share_millionths == 0 || share_millionths > config::kWholeGpu)
    return Status(Code::kInvalid, "a slice is more than nothing and at most one whole GPU");
  for (const auto& [slice, processors] : found->second) {
    const uint32_t others = used_[slice.gpu_index].share_millionths - slice.share_millionths;
    if (slice.packed) {
      return Status(Code::kRefused,
                    "lease " + std::to_string(lease_id) + " is packed: its share of GPU " +
                        std::to_string(slice.gpu_index) +
                        "'s processors was fixed when its processes started; take a new lease");
    }
    if (share_millionths <= config::kWholeGpu - others) continue;
    return Status(Code::kRefused,
                  "lease " + std::to_string(lease_id) + " cannot have " +
                      config::format_fraction(share_millionths) + " of GPU " +
                      std::to_string(slice.gpu_index) + " of host " + host_ + ": others hold " +
                      config::format_fraction(others) +
                      " of it. 'tendril ls' shows who; lower theirs first, or ask for "
                      "at most " +
                      config::format_fraction(config::kWholeGpu - others));
  }
  std::vector<wire::SliceGrant> changed;
  for (auto& [slice, processors] : found->second) {
    used_[slice.gpu_index].share_millionths += share_millionths - slice.share_millionths;
    slice.share_millionths = share_millionths;
    changed.push_back(slice);
  }
  return changed;
}

void LeaseBook::release(uint64_t lease_id) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  for (const auto& [slice, processors] : found->second) {
    Used& used = used_[slice.gpu_index];
    used.share_millionths -= slice.share_millionths;
    used.memory_bytes -= slice.memory_bytes;
    used.packed_processors -= processors;
  }
  leases_.erase(found);
}

}  // namespace tendril::lease
