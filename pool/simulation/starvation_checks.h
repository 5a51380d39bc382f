// SPDX-License-Identifier: Apache-2.0
// That nobody starves, whatever fails. Who is overdue is promised a start, within a time that
// follows from who is before it, and starts by then. What the scheduler says is taken at its word
// only for as long as nothing happens that may move a promise; README.md has the bound.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pool/policy/policy.h"
#include "view/picture.h"

namespace tendril::pool::simulation {

class World;

class StarvationChecks {
 public:
  explicit StarvationChecks(World* world) : world_(world) {}

  // `changed_ns`: when something last happened that may move a promise.
  void sweep(const PoolPolicy& policy, int64_t changed_ns);
  void clock_stepped();

  struct Counts {  // of looks at one request
    uint64_t overdue = 0, promised = 0, kept = 0, moved = 0;
    uint64_t most_before = 0;  // overdue, and for the same GPUs
    int64_t unpromised_s = 0;  // that one had no promise, at most
    int64_t longest_s = 0;     // that one was overdue and waited for a place
  };
  const Counts& counts() const { return counts_; }

 private:
  using Gpus = std::set<std::pair<size_t, uint32_t>>;  // server, GPU
  struct Known {
    int64_t age_ns = 0, at_ns = 0;  // its age by its scheduler, at that time
    int64_t told_ns = INT64_MAX;    // starts by then at the latest
  };

  int64_t age_ns(const view::PictureRequest& request, int64_t at);
  Gpus gpus_of(const view::Picture& picture, const view::PictureRequest& request,
               const PoolPolicy& policy);
  int64_t from_at(const view::Picture& picture, const PoolPolicy& policy, const Gpus& gpus,
                  int64_t to_at);
  void look_at(const view::PictureRequest& request, int64_t at, int64_t from_at, uint64_t before,
               int64_t most_s);

  World* const world_;
  Counts counts_;
  int64_t looked_ns_ = 0, stepped_ns_ = 0, changed_ns_ = 0;
  uint64_t term_ = 0;
  std::map<uint64_t, Known> known_;            // of this term
  std::map<uint64_t, int64_t> unpromised_ns_;  // since when nothing is promised
};

}  // namespace tendril::pool::simulation
