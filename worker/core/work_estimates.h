// SPDX-License-Identifier: Apache-2.0
// Estimates how long pieces of work take on the GPU, from the times of earlier pieces of the same
// kind. The gate uses this to decide how much work may be unfinished at a time. A wrong estimate
// costs accuracy for one turn, nothing else. Memory is bounded: a client that invents kinds without
// end only makes the gate forget. Executor thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tendril::worker {

// Two pieces are alike if they run the same thing (an id, an opcode) with the same size.
struct WorkKind {
  uint64_t number = 0, family = 0;
};

inline uint64_t mixed_number(uint64_t what, uint64_t size) {
  uint64_t mixed = (what ^ (size * 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
  mixed ^= mixed >> 29;
  return mixed * 0x94d049bb133111ebu;
}
inline WorkKind work_kind(uint64_t what, uint64_t size) {
  return {mixed_number(what, size), mixed_number(what, 0)};
}

class WorkEstimates {
 public:
  static constexpr uint64_t kUnknown = 0;

  // Nanoseconds that a piece of this kind is expected to take. Learned from its kind, or else from
  // its family (the same function with any size). kUnknown: neither has been measured.
  uint64_t of(const WorkKind& kind) const;

  // The pieces submitted to one stream between two measurements.
  class Batch {
   public:
    void add(const WorkKind& kind);
    uint32_t pieces() const { return pieces_; }
    void clear() { kinds_ = pieces_ = 0; }

   private:
    friend class WorkEstimates;
    static constexpr uint32_t kKindsMax = 4;  // further kinds are counted, but not learned
    struct Share {
      WorkKind kind;
      uint32_t count;
    };
    Share shares_[kKindsMax];
    uint32_t kinds_ = 0;
    uint32_t pieces_ = 0;
  };

  // The batch took at most `most_ns`. `certain`: it took hardly less.
  void learn(const Batch& batch, uint64_t most_ns, bool certain);

 private:
  // Sets of four places each, as in a cache. If more than four kinds share a set, they replace each
  // other. There are as many places as a large program has kernels and shapes.
  static constexpr size_t kSets = 2048, kWays = 4;
  struct Place {
    uint32_t tag = 0;
    float ns = 0;  // 0: unknown
  };
  struct alignas(kWays * sizeof(Place)) Set {
    Place places[kWays];
  };
  static size_t set_of(uint64_t kind) { return kind % kSets; }
  static uint32_t tag_of(uint64_t kind) { return static_cast<uint32_t>(kind >> 32); }
  const Place* find(uint64_t kind) const;
  Place* place_of(uint64_t kind);
  std::unique_ptr<Set[]> sets_ = std::make_unique<Set[]>(kSets);
  uint32_t next_victim_ = 0;
};

}  // namespace tendril::worker
