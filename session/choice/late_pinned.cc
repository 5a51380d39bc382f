// SPDX-License-Identifier: Apache-2.0
// See late_pinned.h.
#include "session/choice/late_pinned.h"

namespace tendril::session {

using base::Code;
using base::Locked;
using base::Status;

Status LatePinned::add(void* memory, size_t bytes) {
  Locked locked(lock_);
  if (pinned_ != nullptr) return pinned_->add(memory, bytes);
  if (settled_) return Status(Code::kUnsupported, "connections carry this session's data");
  waiting_[memory] = bytes;
  return Status();
}

void LatePinned::remove(const void* memory) {
  std::shared_ptr<transport::PinnedMemory> pinned;
  {
    Locked locked(lock_);
    waiting_.erase(memory);
    pinned = pinned_;
  }
  if (pinned != nullptr) pinned->remove(memory);
}

std::vector<std::shared_ptr<transport::CardPort>> LatePinned::card_ports() {
  std::shared_ptr<transport::PinnedMemory> pinned;
  {
    Locked locked(lock_);
    pinned = pinned_;
  }
  return pinned != nullptr ? pinned->card_ports()
                           : std::vector<std::shared_ptr<transport::CardPort>>();
}

void LatePinned::settle(std::shared_ptr<transport::PinnedMemory> pinned) {
  Locked locked(lock_);
  settled_ = true;
  pinned_ = std::move(pinned);
  // What cannot be registered is copied.
  for (const auto& [memory, bytes] : waiting_) {
    if (pinned_ != nullptr) (void)pinned_->add(const_cast<void*>(memory), bytes);
  }
  waiting_.clear();
}

}  // namespace tendril::session
