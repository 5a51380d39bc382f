// SPDX-License-Identifier: Apache-2.0
// See ledger.h.
#include "worker/cuda/passage/ledger.h"

#include <algorithm>

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kResultMost = 999;  // CUDA_ERROR_UNKNOWN, the driver's last

int passage_result(uint64_t value) {
  return static_cast<int>(std::clamp<uint64_t>(value, 1, kResultMost));
}

}  // namespace

bool is_sound(const PassageFrame& frame) {
  switch (frame.says) {
    case PassageSays::kData:
      return frame.bytes != 0 && frame.bytes <= kPassagePieceBytes;
    case PassageSays::kReady:
    case PassageSays::kDone:
    case PassageSays::kTell:
    case PassageSays::kFail:
    case PassageSays::kLeft:
      return frame.bytes == 0;
  }
  return false;
}

const PassageHalf* PassageLedger::find(uint64_t operation) const {
  const auto found = halves_.find(operation);
  return found != halves_.end() ? &found->second : nullptr;
}

void PassageLedger::say(uint64_t operation, PassageSays says, uint64_t value, Steps* steps) const {
  Step step = {Step::Kind::kSay, operation};
  step.frame = {says, 0, operation, value};
  steps->push_back(step);
}

void PassageLedger::break_rules(uint64_t operation, Steps* steps) {
  steps->push_back({Step::Kind::kBreak, operation});
}

void PassageLedger::end(Halves::iterator at, int result, Steps* steps) {
  Step step = {Step::Kind::kEnd, at->first};
  step.result = result;
  halves_.erase(at);
  steps->push_back(step);
}

bool PassageLedger::add(uint64_t operation, PassageRole role, uint64_t bytes, Steps* steps) {
  if (halves_.size() >= kHalvesMax) return false;
  const auto [at, fresh] = halves_.try_emplace(operation);
  if (!fresh) return false;
  at->second.role = role;
  at->second.bytes = bytes;
  at->second.here = role == PassageRole::kAwait;
  const auto early = early_.find(operation);
  if (early == early_.end()) return true;
  const PassageFrame frame = {early->second.says, 0, operation, early->second.value};
  early_.erase(early);
  apply(at, frame, steps);
  return true;
}

void PassageLedger::arrived(uint64_t operation, Steps* steps) {
  const auto at = halves_.find(operation);
  if (at == halves_.end() || at->second.here) return;
  at->second.here = true;
  if (at->second.role == PassageRole::kReceive)
    say(operation, PassageSays::kReady, at->second.bytes, steps);
  go_on(at, steps);
}

void PassageLedger::go_on(Halves::iterator at, Steps* steps) {
  PassageHalf& half = at->second;
  const uint64_t operation = at->first;
  switch (half.role) {
    case PassageRole::kSend:
      if (!half.here || !half.there || half.moving) return;
      half.moving = true;
      steps->push_back({Step::Kind::kMove, operation});
      return;
    case PassageRole::kTell:
      if (!half.here) return;
      say(operation, PassageSays::kTell, 0, steps);
      return end(at, 0, steps);
    case PassageRole::kAwait:
      if (half.there) end(at, 0, steps);
      return;
    case PassageRole::kReceive:
      return;
  }
}

bool PassageLedger::next_piece(uint64_t operation, uint64_t most, uint64_t* at, uint64_t* bytes) {
  const auto found = halves_.find(operation);
  if (found == halves_.end() || !found->second.moving) return false;
  PassageHalf& half = found->second;
  *at = half.begun;
  *bytes = std::min(most, half.bytes - half.begun);
  half.begun += *bytes;
  return *bytes != 0;
}

void PassageLedger::moved(uint64_t operation, uint64_t bytes, Steps* steps) {
  const auto at = halves_.find(operation);
  if (at == halves_.end()) return;
  PassageHalf& half = at->second;
  half.moved += bytes;
  if (half.role != PassageRole::kReceive || half.moved < half.bytes) return;
  say(operation, PassageSays::kDone, 0, steps);
  end(at, 0, steps);
}

void PassageLedger::again(uint64_t operation, uint64_t bytes) {
  const auto at = halves_.find(operation);
  if (at != halves_.end()) at->second.moved -= std::min(at->second.moved, bytes);
}

void PassageLedger::fail(uint64_t operation, int result, Steps* steps) {
  const auto at = halves_.find(operation);
  if (at == halves_.end()) return;
  say(operation, PassageSays::kFail, static_cast<uint64_t>(result), steps);
  end(at, result, steps);
}

void PassageLedger::heard(const PassageFrame& frame, Steps* steps) {
  const auto at = halves_.find(frame.operation);
  if (at != halves_.end()) return apply(at, frame, steps);
  switch (frame.says) {
    case PassageSays::kReady:
    case PassageSays::kTell:
    case PassageSays::kFail:
      if (early_.size() >= kHalvesMax) early_.erase(early_.begin());  // the oldest
      early_[frame.operation] = {frame.says, frame.value};
      return;
    case PassageSays::kData:  // of one that has failed here
    case PassageSays::kDone:
    case PassageSays::kLeft:
      return;
  }
}

void PassageLedger::apply(Halves::iterator at, const PassageFrame& frame, Steps* steps) {
  PassageHalf& half = at->second;
  const bool sends = half.role == PassageRole::kSend, takes = half.role == PassageRole::kReceive;
  switch (frame.says) {
    case PassageSays::kReady:
      if (!sends || half.there || frame.value != half.bytes) break;
      half.there = true;
      return go_on(at, steps);
    case PassageSays::kData: {
      // Each line brings its pieces in its own time. Together they are what this end asked for.
      if (!takes || !half.here || frame.value > half.bytes) break;
      if (frame.bytes > half.bytes - frame.value || frame.bytes > half.bytes - half.begun) break;
      half.begun += frame.bytes;
      Step step = {Step::Kind::kMove, at->first};
      step.frame = frame;
      steps->push_back(step);
      return;
    }
    case PassageSays::kDone:
      if (!sends || half.moved != half.bytes) break;
      return end(at, 0, steps);
    case PassageSays::kTell:
      if (half.role != PassageRole::kAwait) break;
      half.there = true;
      return go_on(at, steps);
    case PassageSays::kFail:
      return end(at, passage_result(frame.value), steps);
    case PassageSays::kLeft:
      break;
  }
  break_rules(at->first, steps);
}

void PassageLedger::lose(int result, Steps* steps) {
  while (!halves_.empty()) end(halves_.begin(), result, steps);
  early_.clear();
}

}  // namespace tendril::worker::cuda
