// SPDX-License-Identifier: Apache-2.0
// Copies of device memory in this process' memory, or in a file: of what has left its GPU, and of
// what is there and may leave soon. A copy that is as its memory is not made again. parking.h calls
// this between calls of the session, when the GPUs are idle. Executor thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/cuda/driver.h"
#include "worker/cuda/memory/staging.h"
#include "worker/cuda/parking/copy_job.h"
#include "worker/cuda/parking/host_pages.h"

namespace tendril::worker::cuda {

class HostStore {
 public:
  struct Range {
    uint64_t address = 0, bytes = 0;  // whole pages of a GPU, at most kRangeBytesMax
    CUcontext context = nullptr;      // in which it is copied
  };
  static constexpr uint64_t kRangeBytesMax = 64u << 20;
  using Lot = std::vector<Range>;
  using Step = CopyJob::Step;

  HostStore(gpu::Driver* driver, Staging* staging) : driver_(driver), staging_(staging) {}
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // From now on copies go to this file, until `drop`. What was copied before is forgotten.
  void use_file(std::unique_ptr<ParkFile> file);
  bool in_file() const { return file_ != nullptr; }
  // Hears of each piece that is copied from now on, and may end the copying (CopyJob). May be null.
  void watch(CopyJob::Progress progress) { progress_ = std::move(progress); }
  // Copies these to the host, but what is there already, and forgets the copies of all else.
  // `begin` and `saved` (may be null) come before and after each lot, in order, while others are
  // copied. Blocks. Returns the first failure.
  CUresult save(const std::vector<Lot>& lots, const Step& begin, const Step& saved);
  // Copies these back. `make` comes before each lot, and `loaded` after it. If `make` fails, what
  // came before is loaded. The copies stay. Blocks. Returns the first failure.
  CUresult load(const std::vector<Lot>& lots, const Step& make, const Step& loaded);
  // Whether copies in memory have all that this memory holds, or held when it left.
  bool has(uint64_t address, uint64_t bytes) const;
  // visit(offset, data, bytes) for each piece of that, in order.
  template <typename Visit>
  void read(uint64_t address, uint64_t bytes, Visit&& visit) const {
    for (uint64_t at = 0; at < bytes;) {
      uint64_t size = 0;
      const uint8_t* const data = find(address + at, &size);
      if (data == nullptr) return;
      size = std::min(size, bytes - at);
      visit(at, data, size);
      at += size;
    }
  }
  bool has(const Lot& lot) const;

  // Copies of this, or of anything, are not as their memory any more.
  void wrote(uint64_t address, uint64_t bytes);
  void wrote();
  // Some copy is as its memory.
  bool any_current() const { return any_current_; }
  void drop();
  // What was to be copied to the host since this was asked last.
  uint64_t take_copied_bytes() {
    const uint64_t bytes = copied_bytes_;
    copied_bytes_ = 0;
    return bytes;
  }

 private:
  struct Copy {
    uint8_t* data = nullptr;  // null: in the file, at `offset`
    uint64_t bytes = 0, offset = 0;
    std::vector<ParkFile::Seal> seals;  // of its pieces there
    bool current = false;               // as its memory
    bool fresh = true;                  // never filled
  };
  // From there to the end of its copy; null: no copy has it.
  const uint8_t* find(uint64_t address, uint64_t* bytes) const;
  bool make_room(const std::vector<Lot>& lots);
  void lay_out(const std::vector<Lot>& lots);
  static void add(const Range& range, Copy* copy, size_t lot, CopyJob* job);
  void note_current(const Lot& lot);

  gpu::Driver* const driver_;
  Staging* const staging_;
  HostPages pages_;
  CopyJob::Progress progress_;
  std::unique_ptr<ParkFile> file_;
  std::map<uint64_t, Copy> copies_;  // by address of the memory
  bool any_current_ = false;
  uint64_t copied_bytes_ = 0;
};

}  // namespace tendril::worker::cuda
