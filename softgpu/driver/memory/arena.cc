// SPDX-License-Identifier: Apache-2.0
// First fit by address over a map of holes, so that addresses repeat from run to run. See arena.h.

#include "softgpu/driver/memory/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#endif

namespace tendril::softgpu {

bool take_addresses(uint64_t address, uint64_t bytes) {
  void* const wanted = reinterpret_cast<void*>(address);
  void* const got = mmap(wanted, bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got != MAP_FAILED && got != wanted) munmap(got, bytes);
  return got == wanted;
}

Arena::~Arena() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
  if (file_ >= 0) close(file_);
}

bool Arena::commit() {
  if (memory_ != nullptr) return true;
  bytes_ = round_up(bytes_, kPageBytes);
  // Reserves more, so that the memory can start on a page of 2 MiB. Then validity pages are also
  // pages of the host.
  int protection = PROT_READ | PROT_WRITE;
  if (base_ != 0) {
    file_ = memfd_create("tendril-softgpu-test-device", MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(bytes_)) != 0) return false;
  }
  void* wide = mmap(nullptr, bytes_ + kPageBytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (wide == MAP_FAILED) return false;
  uint64_t start = reinterpret_cast<uint64_t>(wide);
  uint64_t aligned = round_up(start, kPageBytes);
  int flags = file_ >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory = mmap(reinterpret_cast<void*>(aligned), bytes_, protection,
                      flags | MAP_FIXED | MAP_NORESERVE, file_, 0);
  if (memory == MAP_FAILED) return false;
  if (aligned > start) munmap(wide, aligned - start);
  uint64_t end = start + bytes_ + kPageBytes;
  if (end > aligned + bytes_)
    munmap(reinterpret_cast<void*>(aligned + bytes_), end - aligned - bytes_);
  memory_ = static_cast<uint8_t*>(memory);
  if (base_ == 0) base_ = aligned;
  holes_[0] = bytes_;
  users_.assign(bytes_ / kPageBytes, 0);
  valid_.assign(bytes_ / kPageBytes, 0);
  return true;
}

uint64_t Arena::allocate(uint64_t bytes, uint64_t align) {
  if (!commit() || bytes == 0 || bytes > bytes_) return 0;
  bytes = round_up(bytes, kAllocationAlign);
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    uint64_t offset = round_up(hole->first, align);
    uint64_t end = hole->first + hole->second;
    if (offset > end || end - offset < bytes) continue;
    if (in_process_ && !find_addresses(&offset, bytes, align, end)) continue;
    uint64_t before = offset - hole->first;
    uint64_t after = end - offset - bytes;
    if (before == 0) {
      holes_.erase(hole);
    } else {
      hole->second = before;
    }
    if (after != 0) holes_[offset + bytes] = after;
    count_pages(offset, bytes, 1);
    return base_ + offset;
  }
  return 0;
}

// Takes the pages of [*offset, *offset + bytes) that are not in use yet. If that fails, it takes
// those of the next such range before `end`. False: there is none.
bool Arena::find_addresses(uint64_t* offset, uint64_t bytes, uint64_t align, uint64_t end) const {
  for (; *offset < end && end - *offset >= bytes;) {
    const uint64_t first = *offset / kPageBytes, last = (*offset + bytes - 1) / kPageBytes;
    uint64_t page = first;
    while (page <= last && (users_[page] != 0 || take_addresses(address_of(page), kPageBytes)))
      ++page;
    if (page > last) return true;
    for (uint64_t taken = first; taken < page; ++taken)
      if (users_[taken] == 0) munmap(reinterpret_cast<void*>(address_of(taken)), kPageBytes);
    *offset = round_up((page + 1) * kPageBytes, align);
  }
  return false;
}

void Arena::free(uint64_t address, uint64_t bytes) {
  uint64_t offset = address - base_;
  bytes = round_up(bytes, kAllocationAlign);
  count_pages(offset, bytes, -1);
  auto next = holes_.lower_bound(offset);
  uint64_t start = offset, size = bytes;
  if (next != holes_.end() && next->first == offset + bytes) {
    size += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  holes_[start] = size;
}

MemoryRegion Arena::region() const { return {base_, bytes_, memory_, valid_.data()}; }

uint64_t Arena::largest_hole() const {
  uint64_t largest = 0;
  for (const auto& [offset, bytes] : holes_) largest = bytes > largest ? bytes : largest;
  return memory_ == nullptr ? bytes_ : largest;
}

void Arena::count_pages(uint64_t offset, uint64_t bytes, int step) {
  uint64_t first_empty = 0, empty = 0;
  auto give_back = [&] {
    if (empty != 0)
      madvise(memory_ + first_empty * kPageBytes, empty * kPageBytes,
              file_ >= 0 ? MADV_REMOVE : MADV_DONTNEED);
    empty = 0;
  };
  for (uint64_t page = offset / kPageBytes; page <= (offset + bytes - 1) / kPageBytes; ++page) {
    users_[page] += step;
    set_page_valid(&valid_[page], users_[page] != 0);
    if (users_[page] == 0) {
      if (in_process_) munmap(reinterpret_cast<void*>(address_of(page)), kPageBytes);
      if (empty++ == 0) first_empty = page;
    } else {
      give_back();
    }
  }
  give_back();
}

}  // namespace tendril::softgpu
