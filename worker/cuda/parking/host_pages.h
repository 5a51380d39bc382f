// SPDX-License-Identifier: Apache-2.0
// Host memory for copies of device memory: large windows of addresses, whose pages come with their
// first use and stay for the next. A new page costs the kernel more time than a copy into an old
// one. Not pinned, because that would take memory of the GPUs (docs/decisions/0020).
// host_store.h uses it. Executor thread; `prepare`: any.
#pragma once

#include <cstdint>
#include <vector>

#include "base/holes.h"

namespace tendril::worker::cuda {

class HostPages {
 public:
  HostPages() = default;
  ~HostPages() { drop(); }
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  // `bytes`: whole pages of a GPU. Null: there are no addresses.
  uint8_t* take(uint64_t bytes);
  // The pages stay.
  void give_back(const uint8_t* at, uint64_t bytes);
  // Gives the system all pages that are not taken.
  void trim();
  // Gives the system everything.
  void drop();

  // Has the kernel make these pages now. False: it has none left.
  static bool prepare(uint8_t* at, uint64_t bytes);

 private:
  struct Window {
    uint64_t base, bytes;
  };
  bool open_window(uint64_t bytes);

  std::vector<Window> windows_;
  base::Holes<> holes_;
  uint64_t used_end_ = 0;  // beyond it nothing was ever taken
};

}  // namespace tendril::worker::cuda
