// SPDX-License-Identifier: Apache-2.0
// See progress.h.
#include "client/core/progress.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

namespace tendril::client::core {

constinit std::atomic<wire::ProgressPage*> g_progress{nullptr};

namespace {

constexpr long kClearMs = 50;  // run takes its line away within a tenth of this

// Only memory that nobody can shrink: a look at it must not fail.
wire::ProgressPage* map_page(const char* path) {
  const base::Fd file(open(path, O_RDWR | O_CLOEXEC));
  struct stat found;
  if (!file.valid() || fstat(file.get(), &found) != 0 ||
      found.st_size < static_cast<off_t>(sizeof(wire::ProgressPage)))
    return nullptr;
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return nullptr;
  void* const memory =
      mmap(nullptr, sizeof(wire::ProgressPage), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const page = static_cast<wire::ProgressPage*>(memory);
  if (page->magic.load(std::memory_order_relaxed) == wire::kProgressMagic) return page;
  munmap(memory, sizeof(wire::ProgressPage));
  return nullptr;
}

void clear_line(wire::ProgressPage* page) {
  uint32_t stands = wire::kLineStands;
  if (!page->line.compare_exchange_strong(stands, wire::kLineUnwanted) &&
      stands != wire::kLineUnwanted)
    return;
  auto* const word = reinterpret_cast<uint32_t*>(&page->line);
  syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  const timespec limit = {0, kClearMs * 1'000'000};
  syscall(SYS_futex, word, FUTEX_WAIT, wire::kLineUnwanted, &limit, nullptr, 0);
}

}  // namespace

void find_progress() {
  if (g_progress.load(std::memory_order_acquire) != nullptr) return;
  const char* const path = getenv("TENDRIL_PROGRESS");
  if (path != nullptr && *path == '/') g_progress.store(map_page(path), std::memory_order_release);
}

void clear_progress() {
  if (wire::ProgressPage* const page = g_progress.load(std::memory_order_acquire)) clear_line(page);
}

AttachProgress::AttachProgress() {
  find_progress();
  if (wire::ProgressPage* const page = g_progress.load(std::memory_order_acquire))
    page->attaching.fetch_add(1);
}

AttachProgress::~AttachProgress() {
  wire::ProgressPage* const page = g_progress.load(std::memory_order_acquire);
  if (page == nullptr) return;
  page->attaching.fetch_sub(1);
  clear_line(page);
}

void upload_ended_on(wire::ProgressPage* page, uint64_t ns) {
  page->upload_ns.fetch_add(ns, std::memory_order_relaxed);
  page->uploading.fetch_sub(1);
  clear_line(page);
}

}  // namespace tendril::client::core
