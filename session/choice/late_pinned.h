// SPDX-License-Identifier: Apache-2.0
// The program's pinned memory, while nobody knows yet whether a fabric will move it: remembers what
// there is, and tells the fabric when it comes. Any thread.
#pragma once

#include <map>
#include <memory>

#include "base/lock.h"
#include "transport/registry.h"

namespace tendril::session {

class LatePinned final : public transport::PinnedMemory {
 public:
  base::Status add(void* memory, size_t bytes) override;
  void remove(const void* memory) override;
  std::vector<std::shared_ptr<transport::CardPort>> card_ports() override;
  // From now on `pinned` has it; null: nobody will want it. Once.
  void settle(std::shared_ptr<transport::PinnedMemory> pinned);

 private:
  base::Lock lock_;
  bool settled_ = false;
  std::shared_ptr<transport::PinnedMemory> pinned_;
  std::map<const void*, size_t> waiting_;
};

}  // namespace tendril::session
