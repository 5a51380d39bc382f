// SPDX-License-Identifier: Apache-2.0
// Every address that the program may pass to a call or to a kernel: device memory, pinned,
// registered and managed host memory, mapped virtual ranges. One instance per process, because
// addressing is unified. Thread-safe. It knows devices by index and contexts by handle only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "api/cuda_abi.gen.h"
#include "base/page_blocks.h"
#include "softgpu/driver/memory/arena.h"

namespace tendril::softgpu {

// Where device addresses lie.
struct AddressPlan {
  uint64_t devices;       // the first of device 0
  uint64_t stride;        // from one device to the next
  uint64_t virtual_base;  // where cuMemAddressReserve places ranges if the program names no address
  uint64_t end;
  // pages in use are reserved in this process, too; addresses that are taken are not used
  bool in_process;
  bool contains(uint64_t address) const { return address >= devices && address < end; }
};
// Beyond the 47 bits of a host process, so that touching a device address by mistake faults at
// once.
inline constexpr AddressPlan kBeyondProcesses = {0x3'0000'0000'0000, 1ull << 40, 0x3'8000'0000'0000,
                                                 UINT64_MAX, false};
// As with NVIDIA's driver: addresses that something else may have, in this process or in a
// client's. Below executables and the room that workers leave for clients
// (worker/core/client_room.h), above the window of pinned memory (transport/host_window.h).
inline constexpr AddressPlan kWithinProcesses = {0x4800'0000'0000, 1ull << 36, 0x4c00'0000'0000,
                                                 0x4d00'0000'0000, true};
const AddressPlan& address_plan();

enum class MemoryKind : uint8_t {
  kDevice,
  kPool,
  kModule,
  kHost,
  kManaged,
  kRegistered,
  kMapped,
  kImported
};

struct Allocation {
  uint64_t base = 0;
  uint64_t bytes = 0;     // as asked for
  uint64_t reserved = 0;  // as taken from the arena
  uint64_t charged = 0;   // of the device's memory, for this alone
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  CUcontext context = nullptr;
  unsigned flags = 0;
  uint64_t id = 0;  // CU_POINTER_ATTRIBUTE_BUFFER_ID
  CUmemoryPool pool = nullptr;
  uint64_t handle = 0;  // kMapped: the generic allocation handle
  uint64_t host = 0;    // kRegistered on a page boundary, kImported: where the bytes are
  bool sync_memops = false;
  std::optional<base::PageBlocks::Place> place = std::nullopt;  // it shares a page

  bool on_device() const {
    return kind == MemoryKind::kDevice || kind == MemoryKind::kPool ||
           kind == MemoryKind::kModule || kind == MemoryKind::kMapped ||
           kind == MemoryKind::kImported;
  }
  bool pinned_host() const { return kind == MemoryKind::kHost || kind == MemoryKind::kRegistered; }
};

// An address range that the program reserved. `valid[d]` is what device d may touch.
struct Reservation {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint8_t* host = nullptr;
  bool held = false;  // base is an address of this process and reserved there
  std::map<int, std::vector<uint8_t>> valid;
  ~Reservation();
};

class MemoryMap {
 public:
  static MemoryMap& instance();

  // Device memory. 0 if the device is full.
  uint64_t allocate_device(int device, uint64_t bytes, MemoryKind kind, CUcontext context,
                           CUmemoryPool pool = nullptr);
  // The same for memory that the caller charges: of a pool, of a module.
  uint64_t allocate_uncharged(int device, uint64_t bytes, MemoryKind kind, CUcontext context,
                              CUmemoryPool pool = nullptr);
  // Pinned or managed host memory: equal addresses on both sides.
  uint64_t allocate_host(uint64_t bytes, MemoryKind kind, int device, CUcontext context,
                         unsigned flags);
  CUresult register_host(uint64_t address, uint64_t bytes, int device, CUcontext context,
                         unsigned flags);
  // Adds a range whose memory the caller manages (mapped virtual memory, imported memory).
  void add(const Allocation& allocation);
  // Removes the allocation that starts at `address` if it is one of `kinds`.
  std::optional<Allocation> remove(uint64_t address, std::initializer_list<MemoryKind> kinds);
  void free(const Allocation& allocation);
  void free_context(CUcontext context);

  std::optional<Allocation> find(uint64_t address) const;
  template <typename F>
  bool update(uint64_t address, F change) {
    std::unique_lock guard(lock_);
    auto found = locate(address);
    if (found == allocations_.end()) return false;
    change(const_cast<Allocation&>(found->second));
    return true;
  }
  // Host bytes behind [address, address + bytes), or null if a part is missing.
  uint8_t* resolve(uint64_t address, uint64_t bytes) const;
  // Whether this library gave out the address or knows of it.
  bool known(uint64_t address) const { return find(address).has_value(); }

  // Memory of a device, for all processes. The charge fails if their sum would pass the total.
  bool charge(int device, uint64_t bytes);
  void discharge(int device, uint64_t bytes);
  uint64_t used(int device) const;

  // Virtual ranges.
  uint64_t reserve(uint64_t bytes, uint64_t align, uint64_t wished);
  CUresult unreserve(uint64_t address, uint64_t bytes);
  CUresult map(uint64_t address, uint64_t bytes, int file, uint64_t offset, uint64_t handle,
               int device);
  // `handles_done` receives the handles whose mapping ended.
  CUresult unmap(uint64_t address, uint64_t bytes, std::vector<uint64_t>* handles_done);
  CUresult set_access(uint64_t address, uint64_t bytes, int device, bool allowed);
  int access(uint64_t address, int device) const;
  std::optional<std::pair<uint64_t, uint64_t>> reservation_of(uint64_t address) const;
  // Imported memory, visible to all devices: `bytes` that begin `lead` bytes (less than a page)
  // into what is mapped at `host`. 0: no addresses left.
  uint64_t add_import(uint8_t* host, uint64_t lead, uint64_t bytes, const Allocation& like);

  // Lets kernels of `device` reach the memory of `peer`. Calls are counted, because several
  // contexts may ask.
  void set_peer(int device, int peer, bool allowed);

  // What a kernel on `device` sees. The pointers in it stay valid while the caller holds
  // `execution()` shared.
  std::shared_ptr<const MemoryView> view(int device);
  // Held shared by code that touches device-visible memory asynchronously, and exclusively while a
  // mapping goes away.
  std::shared_mutex& execution() { return execution_; }
  Arena& arena(int device);

 private:
  MemoryMap();
  using Table = std::map<uint64_t, Allocation>;
  Table::const_iterator locate(uint64_t address) const;
  Arena& arena_locked(int device);
  uint64_t allocate(int device, uint64_t bytes, const Allocation& like);
  uint64_t allocate_in_page(int device, uint64_t bytes, const Allocation& like);
  uint64_t add_locked(uint64_t address, uint64_t bytes, uint64_t reserved, const Allocation& like);
  Reservation* reservation_locked(uint64_t address, uint64_t bytes) const;
  void changed() { views_.clear(); }

  mutable std::shared_mutex lock_;
  std::shared_mutex execution_;
  Table allocations_;
  std::map<int, std::unique_ptr<Arena>> arenas_;
  std::unique_ptr<Arena> host_arena_;
  struct SharedPages {
    base::PageBlocks blocks;
    std::map<uint32_t, uint64_t> addresses;  // of the pages
  };
  std::map<int, SharedPages> shared_pages_;  // by device
  std::map<uint64_t, std::shared_ptr<Reservation>> reservations_;
  std::map<std::pair<int, int>, int> peers_;
  std::map<int, std::shared_ptr<const MemoryView>> views_;
  std::vector<MemoryBlock> freed_;  // lately, for the text of a fault; only with exact checking
  uint64_t next_id_ = 1;
};

}  // namespace tendril::softgpu
