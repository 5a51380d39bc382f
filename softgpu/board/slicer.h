// SPDX-License-Identifier: Apache-2.0
// How the contexts of one device share its time. Each context with work has the device for its
// slice, then the next one. A change costs time. A context without work gives up its turn. Hardware
// does the same with its channel groups: a slice of 2,048 us and a change of 200 us give the
// figures that were measured on an H200. Arithmetic over plain data in memory that processes share:
// no clock, no lock, no allocation. The caller holds the board's lock.
#pragma once

#include <cstdint>

namespace tendril::softgpu {

inline constexpr unsigned kMaxShares = 256;  // contexts with work on one device at once
inline constexpr uint32_t kNoJob = UINT32_MAX;
inline constexpr int64_t kNever = INT64_MAX;

// One context with work. Its jobs form a list by index, oldest first; only the oldest runs.
struct Share {
  uint64_t context = 0;
  uint32_t process = 0;
  uint32_t first = kNoJob, last = kNoJob;
  int64_t left_ns = 0;  // of the oldest job
  int64_t slice_ns = 1;
  int64_t ran_ns = 0;  // since it was added; the one that accounts for it takes it and clears this
};

struct SliceRing {
  uint32_t count = 0, current = 0;
  uint64_t last_context = 0;
  int64_t at_ns = 0;          // simulated up to here
  int64_t slice_left_ns = 0;  // of the current share
  int64_t switch_left_ns = 0;
  int64_t switch_ns = 0;
  Share shares[kMaxShares];
};

// Index of a context's share; kMaxShares when it has no work.
uint32_t find_share(const SliceRing& ring, uint64_t context);
// A context that had no work gets some. Its turn is the last of the round. False: the ring is full.
bool add_share(SliceRing& ring, const Share& share);
void remove_share(SliceRing& ring, uint32_t index);

// Runs the device up to `to_ns`, or up to the first end of a share's oldest job, whichever comes
// first. Returns the share whose job has ended (then left_ns is 0), else kMaxShares. Rounds in
// which nothing ends are skipped.
uint32_t run_until(SliceRing& ring, int64_t to_ns);

// When the first job will have ended if no work is added. kNever without work.
int64_t next_end_ns(const SliceRing& ring);

}  // namespace tendril::softgpu
