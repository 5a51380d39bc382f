// SPDX-License-Identifier: Apache-2.0
// See work_estimates.h.
#include "worker/core/work_estimates.h"

#include <algorithm>

namespace tendril::worker {
namespace {

// Estimates rise faster than they fall, because a low estimate lets too much work pass.
constexpr float kUp = 0.5f, kDown = 0.25f;
constexpr float kJumpMax =
    16;  // bounds the effect of one measurement, which may have been disturbed
constexpr float kLeastNs = 500;  // every launch takes at least this

}  // namespace

const WorkEstimates::Place* WorkEstimates::find(uint64_t kind) const {
  for (const Place& place : sets_[set_of(kind)].places) {
    if (place.tag == tag_of(kind) && place.ns != 0) return &place;
  }
  return nullptr;
}

uint64_t WorkEstimates::of(const WorkKind& kind) const {
  const Place* place = find(kind.number);
  if (place == nullptr) place = find(kind.family);
  return place != nullptr ? static_cast<uint64_t>(place->ns) : kUnknown;
}

WorkEstimates::Place* WorkEstimates::place_of(uint64_t kind) {
  Place* empty = nullptr;
  for (Place& place : sets_[set_of(kind)].places) {
    if (place.tag == tag_of(kind)) return &place;
    if (place.ns == 0) empty = &place;
  }
  Place* place = empty != nullptr ? empty : &sets_[set_of(kind)].places[next_victim_++ % kWays];
  *place = {tag_of(kind), 0};
  return place;
}

void WorkEstimates::Batch::add(const WorkKind& kind) {
  ++pieces_;
  for (uint32_t i = 0; i < kinds_; ++i) {
    if (shares_[i].kind.number != kind.number) continue;
    ++shares_[i].count;
    return;
  }
  if (kinds_ < kKindsMax) shares_[kinds_++] = {kind, 1};
}

void WorkEstimates::learn(const Batch& batch, uint64_t most_ns, bool certain) {
  float expected_ns = 0;
  uint32_t attributed = 0, unknown = 0;
  for (uint32_t i = 0; i < batch.kinds_; ++i) {
    const Batch::Share& share = batch.shares_[i];
    const float each_ns = place_of(share.kind.number)->ns;
    expected_ns += each_ns * static_cast<float>(share.count);
    attributed += share.count;
    if (each_ns == 0) unknown += share.count;
  }
  if (attributed == 0) return;
  const float known_part = static_cast<float>(attributed) / static_cast<float>(batch.pieces_);
  const float took_ns = static_cast<float>(most_ns) * known_part;
  // left_ns is for pieces that were never measured. ratio tells the others how far the whole
  // estimate was off.
  const float left_ns = std::max(took_ns - expected_ns, 0.0f);
  const float ratio = unknown != 0 || expected_ns == 0
                          ? 1
                          : std::clamp(took_ns / expected_ns, 1 / kJumpMax, kJumpMax);
  for (uint32_t i = 0; i < batch.kinds_; ++i) {
    Place* place = place_of(batch.shares_[i].kind.number);
    if (place->ns == 0) {
      place->ns = std::max(left_ns / static_cast<float>(unknown), kLeastNs);
    } else if (ratio < 1 || (ratio > 1 && certain)) {
      place->ns = std::max(place->ns * (1 + (ratio - 1) * (ratio > 1 ? kUp : kDown)), kLeastNs);
    }
    const float ns = place->ns;
    place_of(batch.shares_[i].kind.family)->ns = ns;
  }
}

}  // namespace tendril::worker
