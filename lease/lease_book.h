// SPDX-License-Identifier: Apache-2.0
// Admission: which slices of which GPUs are promised. A promise is never exceeded: per GPU the
// shares sum to at most one GPU and the memory quotas to at most the usable memory. Pure arithmetic
// without clock, lock or I/O; the daemon calls it under its own lock. A quota includes what its
// processes' contexts and code cost; usable memory is the GPU's total less the contexts of idle
// warm workers (daemon/README.md). lease/placement.h chooses the GPUs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "lease/placement.h"
#include "wire/control.h"

namespace tendril::lease {

struct GpuCapacity {
  uint64_t memory_usable_bytes = 0;
  uint64_t context_bytes = 0;  // of a process that has allocated nothing
  uint64_t code_bytes = 0;     // kept back per process for what no call asks for in bytes
  uint32_t processors = 0;     // SMs; 0: not known
  uint64_t process_bytes() const { return context_bytes + code_bytes; }
};

class LeaseBook {
 public:
  LeaseBook(std::string host, std::vector<GpuCapacity> gpus);

  // All slices, each on a GPU of its own, or none. A refusal names what does not fit.
  base::Result<std::vector<wire::SliceGrant>> grant(uint64_t lease_id,
                                                    const wire::LeaseRequest& request);
  // Gives each slice of the lease this share instead, or none of them. Its memory stays what it is.
  base::Result<std::vector<wire::SliceGrant>> change(uint64_t lease_id, uint32_t share_millionths);
  // Gives the slices back. Unknown ids are passed over.
  void release(uint64_t lease_id);

  static base::Status check(const wire::LeaseTerms& terms);

  size_t gpu_count() const { return gpus_.size(); }
  const GpuRoom& room(uint32_t gpu) const { return rooms_[gpu]; }
  uint32_t share_used(uint32_t gpu) const { return rooms_[gpu].share_promised_millionths; }
  uint64_t memory_promised(uint32_t gpu) const { return rooms_[gpu].memory_promised_bytes; }
  uint64_t memory_usable(uint32_t gpu) const { return rooms_[gpu].memory_usable_bytes; }
  uint64_t context_bytes(uint32_t gpu) const { return gpus_[gpu].context_bytes; }
  uint32_t processors(uint32_t gpu) const { return gpus_[gpu].processors; }
  // SMs for the packed lease's slice, by its place among the slices. 0: unknown, or an odd number.
  // Always pairs, because the vendor's service gives no less. Large slices may get one pair less
  // than their share rounded up, so that all together have no more than there are: two tenants on
  // one SM keep each other waiting. Slices of which a pair is more than one part in 25 never do.
  // The service puts many small slices onto the same SMs anyway (ten of a tenth, on an H200).
  uint32_t packed_processors(uint64_t lease_id, size_t slice) const;
  uint64_t process_bytes(uint32_t gpu) const { return rooms_[gpu].process_bytes; }

 private:
  struct Held {
    wire::SliceGrant slice;
    uint32_t packed_processors = 0;
  };

  base::Status check(const wire::LeaseRequest& request) const;
  uint32_t processors_for(const wire::SliceGrant& slice) const;
  std::string refusal(const wire::LeaseRequest& request, size_t found) const;

  std::string host_;
  std::vector<GpuCapacity> gpus_;
  std::vector<GpuRoom> rooms_;               // by GPU
  std::vector<uint32_t> packed_processors_;  // promised, by GPU
  std::map<uint64_t, std::vector<Held>> leases_;
};

}  // namespace tendril::lease
