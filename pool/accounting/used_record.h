// SPDX-License-Identifier: Apache-2.0
// The record of one lease on one server that has ended: what was asked, given, used and waited for.
// The store keeps it as a JSON object under used/, where other programs may read it. Times are
// whole nanoseconds, so sums are exact. The text comes from a store that may be damaged, so reading
// is bounded and says false for anything else. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tendril::pool {

// What can be summed, over leases and over hours.
struct UsedSums {
  uint64_t leases = 0;         // that began
  uint64_t waited_ns = 0;      // from the request to the grant; zero for leases of the server's own
  uint64_t held_ns = 0;        // from the grant to the end
  uint64_t idle_ns = 0;        // of that: nothing was submitted and nothing copied
  uint64_t used_ns = 0;        // GPU time had in turns
  uint64_t gpu_waited_ns = 0;  // with work in hand and without a turn
  uint64_t asked_gpu_ns = 0;   // GPUs that were asked for, times held_ns
  uint64_t given_gpu_ns = 0;   // GPUs that it had, over the time; less after a shrink
  uint64_t idle_gpu_ns = 0;    // of that: while it was idle
  // Memory that it was given and had in use, over the time: 2^20 bytes times milliseconds.
  uint64_t memory_held_mib_ms = 0, memory_used_mib_ms = 0;
  // Of requests, granted later or not: time in the queue, and GPUs asked for times that.
  uint64_t queued_ns = 0, queued_gpu_ns = 0;
  uint64_t capacity_gpu_ns = 0;  // of servers: GPUs over the time in which they reported

  void add(const UsedSums& other);
  bool operator==(const UsedSums&) const = default;
};

// All of them by the names that JSON, CSV and the store use.
inline constexpr std::pair<const char*, uint64_t UsedSums::*> kSumFields[] = {
    {"leases", &UsedSums::leases},
    {"waited_ns", &UsedSums::waited_ns},
    {"held_ns", &UsedSums::held_ns},
    {"idle_ns", &UsedSums::idle_ns},
    {"used_ns", &UsedSums::used_ns},
    {"gpu_waited_ns", &UsedSums::gpu_waited_ns},
    {"asked_gpu_ns", &UsedSums::asked_gpu_ns},
    {"given_gpu_ns", &UsedSums::given_gpu_ns},
    {"idle_gpu_ns", &UsedSums::idle_gpu_ns},
    {"memory_held_mib_ms", &UsedSums::memory_held_mib_ms},
    {"memory_used_mib_ms", &UsedSums::memory_used_mib_ms},
    {"queued_ns", &UsedSums::queued_ns},
    {"queued_gpu_ns", &UsedSums::queued_gpu_ns},
    {"capacity_gpu_ns", &UsedSums::capacity_gpu_ns}};
// Records of a lease have these; the others are of no lease that ended.
inline constexpr size_t kLeaseSumFields = 11;

struct UsedRecord {
  uint64_t lease = 0, server_lease = 0;  // the pool's number and the server's
  std::string server, owner_id, owner, account, user_class, gpu_class, program, host;
  uint32_t asked_slices = 0;  // over all servers
  uint64_t asked_share_millionths = 0, asked_memory_bytes = 0, asked_longest_s = 0;  // of each
  std::vector<uint32_t> gpus;
  uint64_t share_millionths = 0, memory_bytes = 0;         // together, at the end
  int64_t submitted_at = 0, granted_at = 0, ended_at = 0;  // wall seconds
  UsedSums sums;
  bool attached = false, local = false;
  bool exact = false;  // the server's own last sums; false: it was lost before it gave them
  std::string why;
};

std::string used_json(const UsedRecord& record);
bool read_used(const std::string& json, UsedRecord* record);
// The same end has the same key, whoever records it.
std::string used_key(const std::string& server, uint64_t boot, uint64_t server_lease,
                     uint64_t pool_lease);
// Whether the pool keeps this record no longer. `keep_s` 0: for ever.
bool is_old(const UsedRecord& record, int64_t now_s, uint64_t keep_s);

namespace keys {
inline const std::string kUsed = "used/";
}  // namespace keys

inline constexpr size_t kUsedBytesMax = 64u << 10;

}  // namespace tendril::pool
