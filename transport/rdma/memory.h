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

// The program's memory, and that of its GPUs at the worker's end.
class ProgramMemory final : public KnownMemory,
                            public PinnedMemory,
                            public CardPort,
                            public std::enable_shared_from_this<ProgramMemory> {
 public:
  explicit ProgramMemory(std::shared_ptr<Device> device)
      : name_(device->facts().name), device_(std::move(device)) {}
  ~ProgramMemory() override;
  // kUnsupported: a fork would take it from the card. kExhausted: it cannot be locked.
  base::Status add(void* memory, size_t bytes) override;
  void remove(const void* memory) override;
  std::vector<std::shared_ptr<CardPort>> card_ports() override;

  std::string name() const override { return name_; }
  base::Status add_device(const DeviceRange& range) override;
  void remove_device(uint64_t address) override { remove(reinterpret_cast<void*>(address)); }
  base::Result<uint64_t> move(uint64_t from, uint64_t to, uint64_t bytes) override;

  const Region* hold(const void* at, size_t bytes) override;
  void let_go(const Region* region) override;
  // Regions and the device go at once; a region that somebody holds goes with `let_go`. So the card
  // may be taken away while the session runs on.
  void retire() override;

 private:
  struct Entry {
    uint64_t begin = 0, end = 0;
    uint32_t holders = 0;
    std::unique_ptr<Region> region;
    Entry* next = nullptr;
  };
  // Takes those that nobody holds out of the list, and the device when none is left. With the lock.
  Entry* take_free(std::shared_ptr<Device>* device);
  static void drop(Entry* entries);
  base::Status keep(uint64_t begin, uint64_t bytes, std::unique_ptr<Region> region);
  // Null: retired.
  std::shared_ptr<Device> device();

  const std::string name_;
  base::Lock lock_;
  std::shared_ptr<Device> device_;  // guarded by lock_; null: retired, and all regions are gone
  bool retired_ = false;            // guarded by lock_
  Entry* entries_ = nullptr;        // guarded by lock_
};

}  // namespace tendril::transport::rdma
