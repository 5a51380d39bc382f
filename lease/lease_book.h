// SPDX-License-Identifier: Apache-2.0
// Admission: which slices of which GPUs are promised. A promise is never exceeded. Per GPU, the
// shares sum to at most one GPU and the memory quotas to at most the usable memory.
//
// A quota includes what the contexts and code of its processes cost. Usable memory is the GPU's
// total less the contexts of idle warm workers (daemon/README.md). lease/placement.h chooses the
// GPUs. This is pure arithmetic without clock, lock or I/O. The daemon calls it under its own lock.
//
// A parked lease (lease/parking.h) holds no share, and only the memory that cannot leave its GPUs.
// It keeps its place: it wakes on the same GPUs. What a lease that wakes still waits for is kept
// from newcomers, except from those of a higher priority.
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
  uint64_t code_bytes = 0;     // reserved per process for memory that no call asks for in bytes
  uint32_t processors = 0;     // SMs; 0: not known
  uint64_t process_bytes() const { return context_bytes + code_bytes; }
};

class LeaseBook {
 public:
  LeaseBook(std::string host, std::vector<GpuCapacity> gpus);

  // Grants all slices, each on a GPU of its own, or none. A refusal names what does not fit.
  base::Result<std::vector<wire::SliceGrant>> grant(uint64_t lease_id,
                                                    const wire::LeaseRequest& request);
  // Grants these slices, each on the GPU that it names, or none. A share or a memory of 0 follows
  // from the other. A pool's scheduler chose them. It may know less than this book, and is not
  // trusted. kInvalid: they can never be granted.
  base::Result<std::vector<wire::SliceGrant>> grant_these(
      uint64_t lease_id, const std::vector<wire::SliceGrant>& slices);
  // Gives each slice of the lease this share and this memory, or changes none of them. What is 0
  // stays.
  base::Result<std::vector<wire::SliceGrant>> change(uint64_t lease_id, uint32_t share_millionths,
                                                     uint64_t memory_bytes);
  // Gives the slices back. Does nothing for an unknown id.
  void release(uint64_t lease_id);

  // From now on the lease holds no share, and of its memory these bytes, by slice. kRefused: it is
  // packed, and its processors were given out for good.
  base::Status may_park(uint64_t lease_id) const;
  void park(uint64_t lease_id, const std::vector<uint64_t>& stays_bytes);
  // A parked lease wants its slices back. Higher priorities first, then who asked first.
  void await(uint64_t lease_id, int32_t priority);
  // Gives those their slices back for which there is room now, and names them. Nobody takes room
  // for which another one ahead still waits.
  std::vector<uint64_t> wake();
  bool is_parked(uint64_t lease_id) const;
  bool awaits(uint64_t lease_id) const;
  // What the lease lacks on this GPU to wake now, others that wait ahead of it included. Zeros: it
  // does not wait, or has room there.
  struct Lack {
    uint32_t share_millionths = 0;
    uint64_t memory_bytes = 0;
    bool any() const { return share_millionths != 0 || memory_bytes != 0; }
  };
  Lack lack(uint64_t lease_id, uint32_t gpu) const;

  static base::Status check(const wire::LeaseTerms& terms);

  size_t gpu_count() const { return gpus_.size(); }
  const GpuRoom& room(uint32_t gpu) const { return rooms_[gpu]; }
  uint32_t share_used(uint32_t gpu) const { return rooms_[gpu].share_promised_millionths; }
  uint64_t memory_promised(uint32_t gpu) const { return rooms_[gpu].memory_promised_bytes; }
  uint64_t memory_usable(uint32_t gpu) const { return rooms_[gpu].memory_usable_bytes; }
  uint64_t context_bytes(uint32_t gpu) const { return gpus_[gpu].context_bytes; }
  uint32_t processors(uint32_t gpu) const { return gpus_[gpu].processors; }
  // SMs for a slice of a packed lease, by its place among the slices. 0: unknown, or an odd number.
  // The result is even, because the vendor's service gives only pairs. A large slice may get one
  // pair less than its share rounded up. So all slices together have no more SMs than there are:
  // two tenants on one SM keep each other waiting. A slice for which a pair is more than one part
  // in 25 never gets less. The service puts many small slices onto the same SMs anyway (ten of a
  // tenth, on an H200).
  uint32_t packed_processors(uint64_t lease_id, size_t slice) const;
  uint64_t process_bytes(uint32_t gpu) const { return rooms_[gpu].process_bytes; }

 private:
  struct Held {
    wire::SliceGrant slice;
    uint32_t packed_processors = 0;
    bool parked = false;
    uint64_t stays_bytes = 0;  // while it is parked
    uint32_t share_away() const { return parked ? slice.share_millionths : 0; }
    uint64_t memory_away() const { return parked ? slice.memory_bytes - stays_bytes : 0; }
  };
  struct Awaiting {
    uint64_t lease_id = 0;
    int32_t priority = 0;
  };

  base::Status check(const wire::LeaseRequest& request) const;
  // What the slice would be. kRefused: its GPU has no room now.
  base::Result<wire::SliceGrant> check_one(const wire::SliceGrant& wanted) const;
  void take(uint64_t lease_id, const std::vector<wire::SliceGrant>& slices);
  base::Status check_share(uint64_t lease_id, const wire::SliceGrant& slice,
                           uint32_t share_millionths) const;
  base::Status check_memory(uint64_t lease_id, const wire::SliceGrant& slice,
                            uint64_t memory_bytes) const;
  uint32_t processors_for(const wire::SliceGrant& slice) const;
  std::string refusal(const wire::LeaseRequest& request, size_t found,
                      const std::vector<GpuRoom>& rooms) const;
  // As if everybody who waits with this priority or a higher one had woken.
  std::vector<GpuRoom> rooms_for(int32_t priority) const;
  void keep_for(uint64_t lease_id, std::vector<GpuRoom>* rooms) const;

  std::string host_;
  std::vector<GpuCapacity> gpus_;
  std::vector<GpuRoom> rooms_;               // by GPU
  std::vector<uint32_t> packed_processors_;  // promised, by GPU
  std::map<uint64_t, std::vector<Held>> leases_;
  std::vector<Awaiting> awaiting_;  // in the order in which they wake
};

}  // namespace tendril::lease
