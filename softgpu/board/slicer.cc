// SPDX-License-Identifier: Apache-2.0
// See slicer.h.

#include "softgpu/board/slicer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tendril::softgpu {
namespace {

// Gives the turn to the share at `current`.
void begin_turn(SliceRing& ring, bool changes) {
  ring.slice_left_ns = ring.shares[ring.current].slice_ns;
  ring.switch_left_ns = changes ? ring.switch_ns : 0;
}

void run_share(Share& share, int64_t ns) {
  share.left_ns -= ns;
  share.ran_ns += ns;
}

// Skips whole rounds in which no job ends and `to_ns` is not passed. The current share is at the
// start of its slice.
bool skip_rounds(SliceRing& ring, int64_t to_ns) {
  int64_t round = 0, rounds = INT64_MAX;
  for (uint32_t i = 0; i < ring.count; ++i) {
    const Share& share = ring.shares[i];
    round += share.slice_ns + ring.switch_ns;
    rounds = std::min(rounds, (share.left_ns - 1) / share.slice_ns);
  }
  rounds = std::min(rounds, (to_ns - ring.at_ns) / round);
  if (rounds <= 0) return false;
  for (uint32_t i = 0; i < ring.count; ++i)
    run_share(ring.shares[i], rounds * ring.shares[i].slice_ns);
  ring.at_ns += rounds * round;
  return true;
}

}  // namespace

uint32_t find_share(const SliceRing& ring, uint64_t context) {
  for (uint32_t i = 0; i < ring.count; ++i)
    if (ring.shares[i].context == context) return i;
  return kMaxShares;
}

bool add_share(SliceRing& ring, const Share& share) {
  if (ring.count == kMaxShares) return false;
  if (ring.count == 0) {
    ring.shares[0] = share;
    ring.count = 1;
    ring.current = 0;
    begin_turn(ring, ring.last_context != 0 && ring.last_context != share.context);
    return true;
  }
  // A context that was alone has not been counting its slice.
  if (ring.count == 1 && ring.switch_left_ns == 0) ring.slice_left_ns = ring.shares[0].slice_ns;
  memmove(&ring.shares[ring.current + 1], &ring.shares[ring.current],
          (ring.count - ring.current) * sizeof(Share));
  ring.shares[ring.current] = share;
  ++ring.current;
  ++ring.count;
  return true;
}

void remove_share(SliceRing& ring, uint32_t index) {
  const bool had_turn = index == ring.current;
  if (had_turn) ring.last_context = ring.shares[index].context;
  memmove(&ring.shares[index], &ring.shares[index + 1], (ring.count - index - 1) * sizeof(Share));
  --ring.count;
  if (index < ring.current) --ring.current;
  if (ring.count == 0) return;
  if (ring.current == ring.count) ring.current = 0;
  if (had_turn) begin_turn(ring, true);
}

uint32_t run_until(SliceRing& ring, int64_t to_ns) {
  while (ring.count != 0 && ring.at_ns < to_ns) {
    if (ring.switch_left_ns > 0) {
      int64_t step = std::min(ring.switch_left_ns, to_ns - ring.at_ns);
      ring.switch_left_ns -= step;
      ring.at_ns += step;
      continue;
    }
    Share& share = ring.shares[ring.current];
    if (ring.count > 1 && ring.slice_left_ns == share.slice_ns && skip_rounds(ring, to_ns))
      continue;
    int64_t step = std::min(share.left_ns, to_ns - ring.at_ns);
    if (ring.count > 1) step = std::min(step, ring.slice_left_ns);
    run_share(share, step);
    ring.at_ns += step;
    ring.last_context = share.context;
    if (ring.count > 1) ring.slice_left_ns -= step;
    const bool over = ring.count > 1 && ring.slice_left_ns == 0;
    if (share.left_ns == 0) return ring.current;
    if (!over) continue;
    ring.current = (ring.current + 1) % ring.count;
    begin_turn(ring, true);
  }
  if (ring.count == 0) ring.at_ns = std::max(ring.at_ns, to_ns);
  return kMaxShares;
}

int64_t next_end_ns(const SliceRing& ring) {
  if (ring.count == 0) return kNever;
  static thread_local SliceRing copy;
  memcpy(static_cast<void*>(&copy), &ring, offsetof(SliceRing, shares));
  memcpy(static_cast<void*>(copy.shares), ring.shares, ring.count * sizeof(Share));
  run_until(copy, kNever - 1);
  return copy.at_ns;
}

}  // namespace tendril::softgpu
