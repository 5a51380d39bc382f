// SPDX-License-Identifier: Apache-2.0
// See memory.h.
#include "transport/rdma/memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "transport/rdma/loop.h"

namespace tendril::transport::rdma {

using base::Code;
using base::Locked;
using base::Result;
using base::Status;

RegisteredBlock::~RegisteredBlock() {
  region_.reset();
  // A forked child may have something else there.
  if (data_ != nullptr && owner_ == getpid()) munmap(data_, bytes_);
}

Status RegisteredBlock::open(Device* device, uint64_t bytes, Rights rights) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return base::errno_status(Code::kExhausted, "getting memory for RDMA", errno);
  data_ = static_cast<uint8_t*>(memory);
  bytes_ = bytes;
  owner_ = getpid();
  madvise(memory, bytes, MADV_DONTFORK);
  Result<std::unique_ptr<Region>> region = device->register_memory(memory, bytes, rights);
  if (!region.ok()) return region.status();
  region_ = region.take();
  return Status();
}

namespace {
Status left() { return Status(Code::kUnsupported, "this session has left RDMA"); }
}  // namespace

ProgramMemory::~ProgramMemory() { drop(entries_); }

void ProgramMemory::drop(Entry* entries) {
  while (entries != nullptr) {
    Entry* const next = entries->next;
    delete entries;
    entries = next;
  }
}

ProgramMemory::Entry* ProgramMemory::take_free(std::shared_ptr<Device>* device) {
  Entry* free = nullptr;
  for (Entry** link = &entries_; *link != nullptr;) {
    Entry* const entry = *link;
    if (entry->holders != 0) {
      link = &entry->next;
      continue;
    }
    *link = entry->next;
    entry->next = free;
    free = entry;
  }
  if (entries_ == nullptr) *device = std::move(device_);
  return free;
}

void ProgramMemory::retire() {
  std::shared_ptr<Device> device;  // outlives its regions
  Entry* free = nullptr;
  {
    Locked locked(lock_);
    retired_ = true;
    free = take_free(&device);
  }
  drop(free);
}

std::shared_ptr<Device> ProgramMemory::device() {
  Locked locked(lock_);
  return retired_ ? nullptr : device_;
}

Status ProgramMemory::add(void* memory, size_t bytes) {
  const std::shared_ptr<Device> device = this->device();
  if (device == nullptr) return left();
  if (!device->facts().fork_keeps_memory) {
    return Status(Code::kUnsupported,
                  "this kernel takes pinned memory from the card when the program forks (5.12 and "
                  "newer do not), so copies go through blocks of Tendril's own");
  }
  Result<std::unique_ptr<Region>> region =
      device->register_memory(memory, bytes, Rights::kPeerReads);
  if (!region.ok()) return region.status();
  return keep(reinterpret_cast<uint64_t>(memory), bytes, region.take());
}

Status ProgramMemory::keep(uint64_t begin, uint64_t bytes, std::unique_ptr<Region> region) {
  auto* entry = new (std::nothrow) Entry;
  if (entry == nullptr) return Status(Code::kExhausted, "no memory");
  entry->begin = begin;
  entry->end = begin + bytes;
  entry->region = std::move(region);
  {
    Locked locked(lock_);
    if (!retired_) {
      entry->next = entries_;
      entries_ = entry;
      return Status();
    }
  }
  delete entry;
  return left();
}

std::vector<std::shared_ptr<CardPort>> ProgramMemory::card_ports() {
  if (device() == nullptr) return {};
  return {shared_from_this()};
}

Status ProgramMemory::add_device(const DeviceRange& range) {
  const std::shared_ptr<Device> device = this->device();
  if (device == nullptr) return left();
  Result<std::unique_ptr<Region>> region = device->register_device(range);
  return region.ok() ? keep(range.address, range.bytes, region.take()) : region.status();
}

Result<uint64_t> ProgramMemory::move(uint64_t from, uint64_t to, uint64_t bytes) {
  const std::shared_ptr<Device> device = this->device();
  if (device == nullptr) return left();
  const Region* const source = hold(reinterpret_cast<void*>(from), bytes);
  const Region* const target = hold(reinterpret_cast<void*>(to), bytes);
  Result<uint64_t> took =
      source != nullptr && target != nullptr
          ? move_by_card(device.get(), {from, source->remote_key}, {to, target->local_key}, bytes)
          : Result<uint64_t>(Status(Code::kInvalid, "the card does not know that memory"));
  if (source != nullptr) let_go(source);
  if (target != nullptr) let_go(target);
  return took;
}

void ProgramMemory::remove(const void* memory) {
  Entry* found = nullptr;
  for (;;) {
    {
      Locked locked(lock_);
      Entry** link = &entries_;
      while (*link != nullptr && (*link)->begin != reinterpret_cast<uint64_t>(memory))
        link = &(*link)->next;
      if (*link == nullptr) return;
      if ((*link)->holders == 0) {
        found = *link;
        *link = found->next;
      }
    }
    if (found != nullptr) break;
    usleep(100);
  }
  delete found;
}

const Region* ProgramMemory::hold(const void* at, size_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(at);
  Locked locked(lock_);
  for (Entry* entry = entries_; entry != nullptr; entry = entry->next) {
    if (begin < entry->begin || begin >= entry->end || bytes > entry->end - begin) continue;
    ++entry->holders;
    return entry->region.get();
  }
  return nullptr;
}

void ProgramMemory::let_go(const Region* region) {
  std::shared_ptr<Device> device;
  Entry* free = nullptr;
  {
    Locked locked(lock_);
    for (Entry* entry = entries_; entry != nullptr; entry = entry->next)
      if (entry->region.get() == region) --entry->holders;
    if (retired_) free = take_free(&device);
  }
  drop(free);
}

}  // namespace tendril::transport::rdma
