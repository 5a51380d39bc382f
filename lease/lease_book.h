// SPDX-License-Identifier: Apache-2.0
// Admission: which slices of which GPUs are promised. A promise is never exceeded: per GPU the
// shares sum to at most one GPU and the memory quotas to at most the usable memory. Pure arithmetic
// without clock, lock or I/O; the daemon calls it under its own lock. Memory policy
// (daemon/README.md): a slice's quota includes what its processes' contexts and code cost; usable
// memory is the GPU's total less the contexts of idle warm workers. While anybody is on a GPU it is
// either packed or not.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/control.h"

namespace tendril::lease {

struct GpuCapacity {
  uint64_t memory_usable_bytes = 0;
  uint64_t context_bytes = 0;  // of a process that has allocated nothing
  uint64_t code_bytes = 0;     // of one that runs: what is not asked for by a number of bytes
  uint32_t processors = 0;     // 0: not known
  uint64_t process_bytes() const { return context_bytes + code_bytes; }
};

class LeaseBook {
 public:
  LeaseBook(std::string host, std::vector<GpuCapacity> gpus);

  // All slices, each on a GPU of its own, or none. A refusal names what does not fit. Among GPUs
  // with room the fullest is taken, so that whole GPUs stay free for those who need them.
  base::Result<std::vector<wire::SliceGrant>> grant(uint64_t lease_id,
                                                    const wire::LeaseRequest& request);
  // Gives each slice of the lease this share instead, or none of them. Its memory stays what it is.
  base::Result<std::vector<wire::SliceGrant>> change(uint64_t lease_id, uint32_t share_millionths);
  // Gives the slices back. Unknown ids are passed over.
  void release(uint64_t lease_id);

  static base::Status check(const wire::LeaseTerms& terms);

  size_t gpu_count() const { return gpus_.size(); }
  uint32_t share_used(uint32_t gpu) const { return used_[gpu].share_millionths; }
  uint64_t memory_promised(uint32_t gpu) const { return used_[gpu].memory_bytes; }
  uint64_t memory_usable(uint32_t gpu) const { return gpus_[gpu].memory_usable_bytes; }
  uint64_t context_bytes(uint32_t gpu) const { return gpus_[gpu].context_bytes; }
  uint32_t processors(uint32_t gpu) const { return gpus_[gpu].processors; }
  // How many of its GPU's processors the packed lease's slice is to have, by its place among the
  // slices. 0: their number is not known, or odd. Pairs, as the service gives no less. Large slices
  // have one less now and then, so that all together have no more than there are: processors that
  // two tenants have keep both waiting. Not so slices of which that is more than one part in 25:
  // they have no less than their share, and the service puts many small ones onto the same
  // processors anyway (ten of a tenth, on an H200).
  uint32_t packed_processors(uint64_t lease_id, size_t slice) const;
  uint64_t process_bytes(uint32_t gpu) const { return gpus_[gpu].process_bytes(); }

 private:
  struct Used {
    uint32_t share_millionths = 0;
    uint64_t memory_bytes = 0;
    bool packed = false;  // of those who are on it
    uint32_t packed_processors = 0;
  };

  struct Held {
    wire::SliceGrant slice;
    uint32_t packed_processors = 0;
  };

  base::Status check(const wire::LeaseRequest& request) const;
  // What the slice would be there; or why there can never be one.
  base::Result<wire::SliceGrant> slice_on(uint32_t gpu, const wire::SliceSpec& spec) const;
  bool fits(const wire::SliceGrant& slice) const;
  uint32_t processors_for(const wire::SliceGrant& slice) const;
  std::string refusal(const wire::LeaseRequest& request, size_t found) const;

  std::string host_;
  std::vector<GpuCapacity> gpus_;
  std::vector<Used> used_;
  std::map<uint64_t, std::vector<Held>> leases_;
};

}  // namespace tendril::lease
