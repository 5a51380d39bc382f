// SPDX-License-Identifier: Apache-2.0
// The shelf of pinned memory. See staging.h.
#include "softnccl/staging.h"

#include <bit>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "softnccl/driver.h"
#include "softnccl/error.h"

namespace tendril::softnccl {
namespace {

constexpr size_t kSmallest = 4096;

struct Shelf {
  unsigned users = 0;
  std::multimap<size_t, char*> buffers;  // by size, a power of two
};

struct Shelves {
  std::mutex lock;
  std::map<CUcontext, Shelf> of;
};

Shelves& shelves() {
  static Shelves& all = *new Shelves;
  return all;
}

}  // namespace

Staging::Staging(Staging&& other) noexcept { *this = std::move(other); }

Staging& Staging::operator=(Staging&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Staging::~Staging() {
  if (data_ == nullptr) return;
  std::lock_guard guard(shelves().lock);
  shelves().of[context_].buffers.emplace(bytes_, data_);
}

ncclResult_t Staging::take(CUcontext context, size_t bytes, Staging* made) {
  if (bytes == 0) return ncclSuccess;
  Staging taken;
  taken.context_ = context;
  taken.bytes_ = std::bit_ceil(std::max(bytes, kSmallest));
  {
    std::lock_guard guard(shelves().lock);
    auto& buffers = shelves().of[context].buffers;
    auto found = buffers.find(taken.bytes_);
    if (found != buffers.end()) {
      taken.data_ = found->second;
      buffers.erase(found);
    }
  }
  if (taken.data_ == nullptr) {
    RelaxedScope relaxed;
    void* data = nullptr;
    if (ncclResult_t bad =
            driver_error(driver()->host_allocate(&data, taken.bytes_, CU_MEMHOSTALLOC_PORTABLE),
                         "cuMemHostAlloc"))
      return bad;
    taken.data_ = static_cast<char*>(data);
  }
  *made = std::move(taken);
  return ncclSuccess;
}

void begin_staging(CUcontext context) {
  std::lock_guard guard(shelves().lock);
  shelves().of[context].users++;
}

void end_staging(CUcontext context) {
  std::multimap<size_t, char*> free;
  {
    std::lock_guard guard(shelves().lock);
    Shelf& shelf = shelves().of[context];
    if (--shelf.users != 0) return;
    free.swap(shelf.buffers);
    shelves().of.erase(context);
  }
  ContextScope current(context);
  RelaxedScope relaxed;
  for (const auto& [bytes, data] : free) driver()->host_deallocate(data);
}

}  // namespace tendril::softnccl
