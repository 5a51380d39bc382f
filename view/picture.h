// SPDX-License-Identifier: Apache-2.0
// All that a page shows of a pool, or of a lone server, at one moment: plain values. The pool's
// scheduler and the daemon make one a second while somebody looks; dashboard/ compares it with the
// one before. So what has not changed must be equal: moments are wall seconds, never ages.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace tendril::view {

inline constexpr int64_t kNoMoment = std::numeric_limits<int64_t>::min();
inline constexpr uint64_t kNoAmount = std::numeric_limits<uint64_t>::max();

// A part of one GPU that a lease has.
struct PictureSlice {
  std::string server;
  uint32_t gpu = 0;
  uint32_t share_millionths = 0;
  uint64_t memory_bytes = 0;
  bool operator==(const PictureSlice&) const = default;
};

// What a lease has used so far, over all its slices. The sums only grow.
struct PictureUse {
  uint64_t age_ns = 0;   // of these sums
  uint64_t used_ns = 0;  // GPU time in turns
  uint64_t waited_ns = 0, idle_ns = 0;
  uint64_t memory_used_bytes = 0, memory_parked_bytes = 0;  // of it, in its server's memory
  uint64_t calls = 0, round_trips = 0, awaited_ns = 0;      // awaited: a reply was due
  uint64_t bytes_in = 0, bytes_out = 0;                     // to the server, from it
  bool counts_calls = false;                                // the six above are known
  bool measured = true;                                     // `used_ns` and `waited_ns` are known
  bool operator==(const PictureUse&) const = default;
};

struct PictureLease {
  uint64_t id = 0;
  std::string state;  // "granted", "running", "ending"
  std::string owner_id, owner, account, user_class, gpu_class, program, host;
  std::string links;  // "sealed(tcp), shm"; empty: not known
  std::vector<PictureSlice> slices;
  PictureUse use;
  uint32_t processes = 0;
  int32_t priority = 0;
  bool capped = false;               // never more than its share
  std::string standing = "granted";  // or "parking", "parked", "waking", "returning"
  int64_t standing_since_at = kNoMoment;
  uint64_t parks = kNoAmount;  // so far; kNoAmount: not known
  bool local = false, paused = false, shrunk = false, reclaimed = false;
  int64_t granted_at = kNoMoment, ends_at = kNoMoment;
  int64_t idle_since_at = kNoMoment;  // kNoMoment: it works, or it is not known
  uint64_t queued_s = 0;              // how long it waited for its grant
  bool operator==(const PictureLease&) const = default;
};

struct PictureGpu {
  uint32_t index = 0;
  std::string model, gpu_class;
  std::string type;  // of an OpenCL device: "cpu", "accelerator"; empty: "gpu"
  uint64_t memory_bytes = 0, memory_promised_bytes = 0, memory_used_bytes = 0;
  uint64_t given_millionths = 0;
  bool packed = false;
  int32_t utilization_percent = -1, temperature_c = -1, power_mw = -1;  // -1: not known
  bool operator==(const PictureGpu&) const = default;
};

struct PictureWindow {  // of maintenance
  int64_t from_at = 0, to_at = 0;
  std::string why;
  bool operator==(const PictureWindow&) const = default;
};

struct PictureServer {
  std::string name, endpoint;
  std::string state;  // "up", "joining", "silent"
  int64_t silent_since_at = kNoMoment;
  bool draining = false;
  std::string drain_why, version, driver;
  std::vector<std::string> labels, transports;
  std::vector<PictureWindow> maintenance;
  uint64_t leases = 0;
  std::vector<PictureGpu> gpus;
  bool operator==(const PictureServer&) const = default;
};

struct PictureRequest {  // that waits
  uint64_t id = 0;
  uint32_t place = 0, of = 0;  // 0: not known yet
  std::string queue, state, owner_id, owner, account, user_class, program, host, filter;
  uint32_t slices = 0;
  uint64_t share_millionths = 0, memory_bytes = 0;
  std::string reason, numbers, start_why;
  int64_t submitted_at = kNoMoment, start_from_at = kNoMoment, start_to_at = kNoMoment,
          reclaimed_at = kNoMoment;
  bool promised = false;  // start_to_at is; else it is an estimate
  bool present = true;
  bool held = false;  // somebody keeps it from starting; `numbers` says who and why
  bool operator==(const PictureRequest&) const = default;
};

struct PictureAmounts {  // of one class, in millionths of a GPU
  uint64_t quota = 0, limit = kNoAmount, used = 0, lent = 0;
  bool operator==(const PictureAmounts&) const = default;
};
struct PictureAccount {
  std::string name, parent;
  double weight = 1;
  std::map<std::string, PictureAmounts> classes;
  uint64_t waiting = 0;
  double usage_gpu_s = 0;  // decayed, as fair share counts it
  bool operator==(const PictureAccount&) const = default;
};

struct PictureClass {
  std::string name;
  uint64_t gpus_millionths = 0, given_millionths = 0, unused_millionths = 0;
  bool operator==(const PictureClass&) const = default;
};

struct PictureHead {
  bool is_pool = false;
  std::string name, scheduler, version;  // a lone server: its name
  uint64_t term = 0, policy_revision = 0;
  bool planning = true;
  std::string planning_why, store_trouble;
  std::vector<PictureClass> classes;
  bool operator==(const PictureHead&) const = default;
};

struct Picture {
  int64_t at = 0;  // wall seconds
  PictureHead head;
  std::vector<PictureServer> servers;
  std::vector<PictureLease> leases;
  std::vector<PictureRequest> queue;
  std::vector<PictureAccount> accounts;
};

}  // namespace tendril::view
