// SPDX-License-Identifier: Apache-2.0
// Memory that cards may touch: blocks of a channel's own, and the program's, which it pinned. A
// forked child does not get the blocks, because a copy on write would part the parent from its
// card.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/rdma/line.h"
#include "transport/registry.h"

namespace tendril::transport::rdma {

// Pages with their registration. The destructor ends both.
class RegisteredBlock {
 public:
  RegisteredBlock() = default;
  ~RegisteredBlock();
  RegisteredBlock(const RegisteredBlock&) = delete;
  RegisteredBlock& operator=(const RegisteredBlock&) = delete;
  // kExhausted: no memory, or it cannot be locked.
  base::Status open(Device* device, uint64_t bytes, Rights rights);
  uint8_t* data() const { return data_; }
  uint32_t local_key() const { return region_->local_key; }
  Remote remote(uint64_t offset = 0) const {
    return {reinterpret_cast<uint64_t>(data_) + offset, region_->remote_key};
  }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
  int owner_ = 0;  // the process
  std::unique_ptr<Region> region_;
};

// The program's memory.
class ProgramMemory final : public KnownMemory, public PinnedMemory {
 public:
  explicit ProgramMemory(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~ProgramMemory() override;
  // kUnsupported: a fork would take it from the card. kExhausted: it cannot be locked.
  base::Status add(void* memory, size_t bytes) override;
  void remove(const void* memory) override;
  const Region* hold(const void* at, size_t bytes) override;
  void let_go(const Region* region) override;
  void retire() override { retired_.store(true, std::memory_order_relaxed); }

 private:
  struct Entry {
    uint64_t begin = 0, end = 0;
    uint32_t holders = 0;
    std::unique_ptr<Region> region;
    Entry* next = nullptr;
  };
  const std::shared_ptr<Device> device_;
  std::atomic<bool> retired_{false};
  base::Lock lock_;
  Entry* entries_ = nullptr;
};

}  // namespace tendril::transport::rdma
