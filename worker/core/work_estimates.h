// SPDX-License-Identifier: Apache-2.0
// How long pieces of work take on the GPU, learned from how long earlier ones of the same kind
// took: what the gate goes by when it decides how much may be unfinished at a time. A guess that is
// wrong costs accuracy for a turn, nothing else. Bounded: a client that makes up kinds without end
// only makes the gate forget. Executor thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tendril::worker {

// What makes two pieces alike: what is run (an id, an opcode), and how much of it.
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

  // Nanoseconds that a piece of this kind is expected to take: as the last of its kind, or else the
  // last of its family (the same function, of another size). kUnknown: none has been measured.
  uint64_t of(const WorkKind& kind) const;

  // What was submitted to one stream in a row, between two measurements.
  class Batch {
   public:
    void add(const WorkKind& kind);
    uint32_t pieces() const { return pieces_; }
    void clear() { kinds_ = pieces_ = 0; }

   private:
    friend class WorkEstimates;
    static constexpr uint32_t kKindsMax = 4;  // those beyond are counted and learn nothing
    struct Share {
      WorkKind kind;
      uint32_t count;
    };
    Share shares_[kKindsMax];
    uint32_t kinds_ = 0;
    uint32_t pieces_ = 0;
  };

  // The batch took at most `most_ns` and, where `certain`, hardly less.
  void learn(const Batch& batch, uint64_t most_ns, bool certain);

 private:
  // Sets of four places each, as in a cache: kinds that share a set push each other out when there
  // are more of them. As many places as a large program has kernels and shapes.
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
