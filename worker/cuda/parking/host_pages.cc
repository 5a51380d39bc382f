// SPDX-License-Identifier: Apache-2.0
// See host_pages.h.
#include "worker/cuda/parking/host_pages.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/page_blocks.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kWindowLeast = 4ull << 30;  // addresses cost nothing
// The kernel gives pages of 2 MiB only where they lie on multiples of that.
constexpr uint64_t kHugePage = 2u << 20;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, of Linux 5.14

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

bool HostPages::open_window(uint64_t bytes) {
  const uint64_t size = base::rounded_up(std::max(bytes, kWindowLeast), kHugePage);
  void* const memory = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  madvise(memory, size + kHugePage, MADV_HUGEPAGE);
  const auto from = reinterpret_cast<uint64_t>(memory);
  windows_.push_back({from, size + kHugePage});
  holes_.add(base::rounded_up(from, kHugePage), size);
  return true;
}

uint8_t* HostPages::take(uint64_t bytes) {
  uint64_t address = 0;
  if (!holes_.take(bytes, &address) && (!open_window(bytes) || !holes_.take(bytes, &address)))
    return nullptr;
  used_end_ = std::max(used_end_, address + bytes);
  return static_cast<uint8_t*>(pointer(address));
}

void HostPages::give_back(const uint8_t* at, uint64_t bytes) {
  holes_.add(reinterpret_cast<uint64_t>(at), bytes);
}

void HostPages::trim() {
  holes_.for_each([this](uint64_t start, uint64_t bytes) {
    if (start < used_end_)
      madvise(pointer(start), std::min(bytes, used_end_ - start), MADV_DONTNEED);
  });
}

void HostPages::drop() {
  for (const Window& window : windows_) munmap(pointer(window.base), window.bytes);
  windows_.clear();
  holes_.clear();
  used_end_ = 0;
}

bool HostPages::prepare(uint8_t* at, uint64_t bytes) {
  // An older kernel does not know this. Then the copy makes the pages, somewhat slower.
  return madvise(at, bytes, kPopulateWrite) == 0 || (errno != ENOMEM && errno != EFAULT);
}

}  // namespace tendril::worker::cuda
