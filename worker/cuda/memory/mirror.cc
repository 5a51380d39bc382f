// SPDX-License-Identifier: Apache-2.0
// See mirror.h, and handlers of the mirror lines of api/cuda/memory.spec.
#include "worker/cuda/memory/mirror.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/cuda_handlers.gen.h"
#include "base/text.h"
#include "worker/cuda/executor/scope.h"

namespace tendril::worker::cuda {
namespace {

// The limit of one session, for the copies and again for the shadows.
uint64_t total_max() {
  static const uint64_t bytes = uint64_t{base::env_u32("TENDRIL_HOST_COPIES_MB", 16384)} << 20;
  return bytes;
}
constexpr uint64_t kLeftMax = uint64_t{1} << 30;  // for destroyed mirrors that graphs may name
constexpr uint64_t kReplyMax = 512u << 10;

template <typename Word>
void store(uint8_t* to, const uint8_t* from) {
  Word value;
  std::memcpy(&value, from, sizeof value);
  __atomic_store_n(reinterpret_cast<Word*>(to), value, __ATOMIC_RELEASE);
}

// Stores the bytes [first, last) of a word of `size` bytes (8, or less at the ends of a range). It
// uses the smallest aligned store that holds them. So a kernel that polls them never sees half of
// them, and what the GPU meanwhile writes beside them stays.
void store_at_once(uint8_t* memory, const uint8_t* word, uint64_t size, uint64_t first,
                   uint64_t last) {
  uint64_t width = 1;
  const auto begin = reinterpret_cast<uint64_t>(memory);
  while (((begin + first) & ~(width - 1)) + width < begin + last) width *= 2;
  const uint64_t at = ((begin + first) & ~(width - 1)) - begin;
  if (at >= size || width > size - at)
    std::memcpy(memory + first, word + first, last - first);
  else if (width == 8)
    store<uint64_t>(memory + at, word + at);
  else if (width == 4)
    store<uint32_t>(memory + at, word + at);
  else if (width == 2)
    store<uint16_t>(memory + at, word + at);
  else
    store<uint8_t>(memory + at, word + at);
}

// True: the driver keeps this address for later, for example for allocations of a capture. Such
// addresses are mapped in this process and cannot be read.
bool is_reserved(uint64_t address) {
  static const int file = memfd_create("tendril-probe", MFD_CLOEXEC);
  unsigned char resident = 0;
  if (file < 0 || mincore(reinterpret_cast<void*>(address & ~uint64_t{4095}), 1, &resident) != 0)
    return false;
  // A direct system call. A sanitizer that intercepts pwrite would report a read of this address.
  return syscall(SYS_pwrite64, file, address, 1, 0) < 0;
}

// Zeroes a range. Whole pages are given back instead of written, because a client may name
// gigabytes that it never touches.
void clear(uint8_t* at, uint64_t bytes) {
  constexpr uint64_t kPage = 4096;
  const uint64_t head = (0 - reinterpret_cast<uint64_t>(at)) & (kPage - 1);
  const uint64_t whole = bytes > head ? (bytes - head) & ~(kPage - 1) : 0;
  if (whole == 0 || madvise(at + head, whole, MADV_DONTNEED) != 0) {
    std::memset(at, 0, bytes);
    return;
  }
  std::memset(at, 0, head);
  std::memset(at + head + whole, 0, bytes - head - whole);
}

}  // namespace

CUresult Mirrors::create(gpu::Driver* driver, uint64_t base, uint64_t bytes, bool written) {
  Mirror* known = find(base);
  if (known != nullptr && known->shadow != nullptr && known->base == base &&
      known->bytes == bytes) {
    std::lock_guard<std::mutex> hold(mutex_);
    known->written |= written;
    return CUDA_SUCCESS;
  }
  if (known != nullptr) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  const uint64_t first = base & ~(kPage - 1), end = (base + bytes + kPage - 1) & ~(kPage - 1);
  if (bytes == 0 || end <= first || !take(bytes, 2)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!pinned_.take(end - first)) {
    give_back(bytes, 2);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  make_way(first, end);
  // NOREPLACE refuses an address that the worker itself uses, instead of mapping over it.
  void* at = mmap(reinterpret_cast<void*>(first), end - first, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (at == MAP_FAILED || reinterpret_cast<uint64_t>(at) != first) {
    if (at != MAP_FAILED) munmap(at, end - first);
    give_back(bytes, 2);
    pinned_.give_back(end - first);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const CUresult result = driver->cuMemHostRegister_v2(
      at, end - first, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  void* shadow = result == CUDA_SUCCESS ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                        : MAP_FAILED;
  if (shadow == MAP_FAILED) {
    if (result == CUDA_SUCCESS) driver->cuMemHostUnregister(at);
    leave(first, end);
    give_back(bytes, 2);
    pinned_.give_back(end - first);
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
  }
  put(base, {base, bytes, first, end - first, reinterpret_cast<uint8_t*>(base),
             static_cast<uint8_t*>(shadow), written, false, false, false});
  return CUDA_SUCCESS;
}

bool Mirrors::take(uint64_t bytes, unsigned copies) {
  if (bytes > total_max() - total_ || !host_.take(bytes * copies)) return false;
  total_ += bytes;
  return true;
}

void Mirrors::give_back(uint64_t bytes, unsigned copies) {
  total_ -= bytes;
  host_.give_back(bytes * copies);
}

// The place of part `base / kPart`. Null: there are too many parts, or the range crosses the end of
// a part.
uint8_t* Mirrors::part_of(uint64_t base, uint64_t bytes) {
  const uint64_t number = base / kPart;
  if ((base + bytes - 1) / kPart != number) return nullptr;
  auto it = parts_.find(number);
  if (it != parts_.end()) return it->second;
  if (parts_.size() == kPartsMax) return nullptr;
  void* part = mmap(nullptr, kPart, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (part == MAP_FAILED) return nullptr;
  parts_[number] = static_cast<uint8_t*>(part);
  return static_cast<uint8_t*>(part);
}

CUresult Mirrors::create_pageable(uint64_t base, uint64_t bytes, bool written) {
  if (bytes == 0 || base + bytes < base || bytes > total_max()) return CUDA_ERROR_INVALID_VALUE;
  uint64_t taken_in = 0;
  for (auto& [at, old] : all_) {
    if (at >= base + bytes || at + old.bytes <= base) continue;
    if (!old.pageable || at < base || at + old.bytes > base + bytes)
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    taken_in += old.bytes;
  }
  uint8_t* part = part_of(base, bytes);
  if (part == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!take(bytes - taken_in, 2)) return CUDA_ERROR_OUT_OF_MEMORY;
  uint8_t* memory = part + base % kPart;
  const uint64_t first = base & ~(kPage - 1), end = (base + bytes + kPage - 1) & ~(kPage - 1);
  void* shadow = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shadow == MAP_FAILED ||
      mprotect(part + first % kPart, end - first, PROT_READ | PROT_WRITE) != 0) {
    if (shadow != MAP_FAILED) munmap(shadow, bytes);
    give_back(bytes - taken_in, 2);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Mirror made = {base,    bytes, first, end - first, memory, static_cast<uint8_t*>(shadow),
                 written, true,  false, false};
  std::lock_guard<std::mutex> hold(mutex_);
  uint64_t done = base;  // bytes that were not mirrored before are zero on both sides
  for (auto it = all_.lower_bound(base); it != all_.end() && it->first < base + bytes;
       it = all_.erase(it)) {
    const Mirror& old = it->second;
    clear(memory + (done - base), old.base - done);
    std::memcpy(made.shadow + (old.base - base), old.shadow, old.bytes);
    munmap(old.shadow, old.bytes);
    made.written |= old.written;
    done = old.base + old.bytes;
  }
  clear(memory + (done - base), base + bytes - done);
  all_[base] = made;
  return CUDA_SUCCESS;
}

uint64_t Mirrors::place_of(uint64_t address) const {
  auto after = all_.upper_bound(address);
  if (after == all_.begin()) return address;
  const Mirror& mirror = std::prev(after)->second;
  const uint64_t offset = address - mirror.base;
  return offset < mirror.bytes ? reinterpret_cast<uint64_t>(mirror.memory) + offset : address;
}

uint64_t Mirrors::address_of(uint64_t place) const {
  for (const auto& [number, part] : parts_) {
    const uint64_t offset = place - reinterpret_cast<uint64_t>(part);
    if (offset < kPart) return number * kPart + offset;
  }
  return place;
}

CUresult Mirrors::share(gpu::Driver* driver, uint64_t base, uint64_t bytes) {
  if (base % kPage != 0 || bytes % kPage != 0 || find(base) != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (!host_.take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!pinned_.take(bytes)) {
    host_.give_back(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  make_way(base, base + bytes);
  if (!window_.map(base, bytes)) {
    const bool full = errno == ENOMEM;
    unpin_shared(bytes);
    return full ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
  }
  const CUresult result =
      driver->cuMemHostRegister_v2(reinterpret_cast<void*>(base), bytes,
                                   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (result == CUDA_SUCCESS) {
    put(base, {base, bytes, base, bytes, reinterpret_cast<uint8_t*>(base), nullptr, false, false,
               false, false});
    return result;
  }
  window_.unmap(base, bytes, false);
  unpin_shared(bytes);
  return result;
}

void Mirrors::unpin_shared(uint64_t bytes) {
  host_.give_back(bytes);
  pinned_.give_back(bytes);
}

CUresult Mirrors::adopt(uint64_t base, uint64_t bytes) {
  const Mirror* known = find(base);
  if (known != nullptr)
    return known->drivers && known->bytes == bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0 || !take(bytes, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* shadow = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shadow == MAP_FAILED) {
    give_back(bytes, 1);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Mirror made;
  made.base = base;
  made.bytes = bytes;
  made.memory = reinterpret_cast<uint8_t*>(base);
  made.shadow = static_cast<uint8_t*>(shadow);
  made.written = made.drivers = true;
  put(base, made);
  return CUDA_SUCCESS;
}

bool is_managed(gpu::Driver* driver, uint64_t address) {
  uint32_t managed = 0;
  return driver->cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) ==
             CUDA_SUCCESS &&
         managed != 0;
}

void Mirrors::drop_lost(gpu::Driver* driver) {
  for (auto it = all_.begin(); it != all_.end();) {
    const Mirror& mirror = (it++)->second;
    if (mirror.drivers && !is_managed(driver, mirror.base)) destroy(driver, mirror.base);
  }
}

void Mirrors::unmap(uint64_t first, uint64_t end) {
  munmap(reinterpret_cast<void*>(first), end - first);
}

template <typename Part>
void Mirrors::take_out(Places* places, uint64_t first, uint64_t end, Part&& part) {
  auto it = places->upper_bound(first);
  if (it != places->begin()) --it;
  while (it != places->end() && it->first < end) {
    const auto [begin, bytes] = *it;
    const uint64_t from = std::max(first, begin), to = std::min(end, begin + bytes);
    if (from >= to) {
      ++it;
      continue;
    }
    part(from, to);
    it = places->erase(it);
    if (begin < from) (*places)[begin] = from - begin;
    if (to < begin + bytes) (*places)[to] = begin + bytes - to;
  }
}

void Mirrors::destroy(gpu::Driver* driver, uint64_t base) {
  auto it = all_.find(base);
  if (it == all_.end()) return;
  const Mirror mirror = it->second;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    all_.erase(it);
  }
  if (mirror.shadow != nullptr) {
    munmap(mirror.shadow, mirror.bytes);
    give_back(mirror.bytes, mirror.drivers ? 1 : 2);
  }
  // What graphs name stays mapped, but holds no memory until a graph writes it.
  if (mirror.pageable) clear(mirror.memory, mirror.bytes);
  // Pageable memory stays mapped, because nodes may still name it, and other ranges share its first
  // and last page.
  if (!mirror.pageable && !mirror.drivers) {
    driver->cuMemHostUnregister(reinterpret_cast<void*>(mirror.mapped));
    pinned_.give_back(mirror.mapped_bytes);
    if (mirror.shadow == nullptr) host_.give_back(mirror.bytes);
    if (mirror.in_graph && mirror.shadow != nullptr)
      madvise(reinterpret_cast<void*>(mirror.mapped), mirror.mapped_bytes, MADV_DONTNEED);
    left_[mirror.mapped] = mirror.mapped_bytes;
    uint64_t left_bytes = 0;
    for (const auto& [begin, bytes] : left_) left_bytes += bytes;
    if (!mirror.in_graph || left_bytes > kLeftMax)
      take_out(&left_, mirror.mapped, mirror.mapped + mirror.mapped_bytes,
               [this](uint64_t from, uint64_t to) { leave(from, to); });
  }
}

void Mirrors::vacate(uint64_t first, uint64_t end) { take_out(&occupied_, first, end, unmap); }

void Mirrors::make_way(uint64_t first, uint64_t end) {
  take_out(&left_, first, end, unmap);
  vacate(first, end);
}

void Mirrors::leave(uint64_t first, uint64_t end) {
  void* const at = reinterpret_cast<void*>(first);
  const ClientRoom room = room_for_clients();
  if (first < room.begin || end > room.end ||
      mmap(at, end - first, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0) != at) {
    unmap(first, end);
    return;
  }
  auto next = occupied_.lower_bound(first);
  if (next != occupied_.end() && next->first == end) {
    end += next->second;
    next = occupied_.erase(next);
  }
  if (next != occupied_.begin() && std::prev(next)->first + std::prev(next)->second == first) {
    --next;
    first = next->first;
  }
  occupied_[first] = end - first;
}

bool Mirrors::occupy(uint64_t first, uint64_t bytes) {
  const auto next = occupied_.upper_bound(first);
  if (next != occupied_.begin()) {
    const auto& [begin, length] = *std::prev(next);
    if (first + bytes <= begin + length) return true;
  }
  void* const wanted = reinterpret_cast<void*>(first);
  void* const got = mmap(wanted, bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got != MAP_FAILED && got != wanted) munmap(got, bytes);
  if (got == wanted) occupied_[first] = bytes;
  return got == wanted;
}

bool Mirrors::occupies(uint64_t address) const {
  const auto next = occupied_.upper_bound(address);
  if (next == occupied_.begin()) return false;
  const auto& [begin, bytes] = *std::prev(next);
  return address - begin < bytes;
}

void Mirrors::destroy_all(gpu::Driver* driver) {
  while (!all_.empty()) destroy(driver, all_.begin()->first);
  make_way(0, UINT64_MAX);
  for (const auto& [number, part] : parts_) munmap(part, kPart);
  parts_.clear();
}

bool Mirrors::name_in_graph(uint64_t address, uint64_t bytes) {
  Mirror* mirror = find(address);
  if (mirror == nullptr || bytes > mirror->bytes - (address - mirror->base)) return false;
  mirror->in_graph = true;
  return true;
}

Mirrors::Mirror* Mirrors::find(uint64_t address) {
  auto after = all_.upper_bound(address);
  if (after == all_.begin()) return nullptr;
  Mirror& mirror = std::prev(after)->second;
  return address - mirror.base < mirror.bytes ? &mirror : nullptr;
}

CUresult Mirrors::push(uint64_t address, const wire::Bytes& data) {
  std::lock_guard<std::mutex> hold(mutex_);
  Mirror* mirror = find(address);
  if (mirror == nullptr || mirror->shadow == nullptr ||
      data.count > mirror->bytes - (address - mirror->base))
    return CUDA_ERROR_INVALID_VALUE;
  uint8_t* memory = mirror->memory + (address - mirror->base);
  uint8_t* shadow = mirror->shadow + (address - mirror->base);
  for (uint64_t i = 0, size = 0; i < data.count; i += size) {
    size = std::min(data.count - i, sizeof(uint64_t) - (address + i) % sizeof(uint64_t));
    if (std::memcmp(&data[i], shadow + i, size) == 0) continue;
    alignas(8) uint8_t word[sizeof(uint64_t)];
    std::memcpy(word, memory + i, size);
    uint64_t first = size, last = 0;
    for (uint64_t b = 0; b < size; ++b) {
      if (data[i + b] == shadow[i + b]) continue;
      if (word[b] != shadow[i + b] && word[b] != data[i + b]) {
        both_ = address + i + b;  // the GPU has written it since the last fetch, so its value stays
        continue;
      }
      word[b] = shadow[i + b] = data[i + b];
      first = std::min(first, b);
      last = b + 1;
    }
    if (first < last) store_at_once(memory + i, word, size, first, last);
  }
  return CUDA_SUCCESS;
}

// Calls `changed(mirror, offset, bytes)` for each page that differs, until that returns false.
// True: it was stopped so, and the next call continues there.
template <typename Changed>
bool Mirrors::scan(Changed&& changed) {
  for (auto& [base, mirror] : all_) {
    if (!mirror.written || base + mirror.bytes <= resume_) continue;
    for (uint64_t at = resume_ > base ? resume_ - base : 0; at < mirror.bytes; at += kPage) {
      const uint64_t bytes = mirror.bytes - at < kPage ? mirror.bytes - at : kPage;
      if (std::memcmp(mirror.memory + at, mirror.shadow + at, bytes) == 0 ||
          changed(mirror, at, bytes))
        continue;
      resume_ = base + at;
      return true;
    }
  }
  resume_ = 0;
  return false;
}

void Mirrors::fetch(Written* written) {
  std::lock_guard<std::mutex> hold(mutex_);
  written->both = std::exchange(both_, 0);
  written->more = scan([&](Mirror& mirror, uint64_t at, uint64_t bytes) {
    if (bytes > kReplyMax - written->data.size()) return false;
    // The reply is taken from the shadow, because the GPU may go on writing to the memory.
    std::memcpy(mirror.shadow + at, mirror.memory + at, bytes);
    written->data.insert(written->data.end(), mirror.shadow + at, mirror.shadow + at + bytes);
    written->offsets.insert(written->offsets.end(), {mirror.base + at, bytes});
    return true;
  });
}

bool Mirrors::any_written(bool on_executor) {
  std::lock_guard<std::mutex> hold(mutex_);
  for (const auto& [base, mirror] : all_) {
    if (!mirror.written) continue;
    if (mirror.drivers && !on_executor) return true;
    if (std::memcmp(mirror.memory, mirror.shadow, mirror.bytes) != 0) return true;
  }
  return false;
}

uint64_t bytes_spanned(size_t x, size_t y, size_t z, size_t pitch, size_t height,
                       const CUDA_MEMCPY3D& parameters) {
  if (parameters.WidthInBytes == 0 || parameters.Height == 0 || parameters.Depth == 0) return 0;
  using Wide = unsigned __int128;
  const Wide row = Wide{x} + parameters.WidthInBytes, rows = Wide{y} + parameters.Height,
             slices = Wide{z} + parameters.Depth;
  const Wide pitch_used = pitch != 0 ? Wide{pitch} : row,
             height_used = height != 0 ? Wide{height} : rows;
  constexpr Wide kSane = Wide{1} << 48;  // beyond any address; products of three need 144 bits
  if (row > kSane || rows > kSane || slices > kSane || pitch_used > kSane || height_used > kSane)
    return UINT64_MAX;
  const Wide rows_spanned = (slices - 1) * height_used + rows - 1;
  if (rows_spanned > kSane) return UINT64_MAX;
  const Wide bytes = rows_spanned * pitch_used + row;
  return bytes > kSane ? UINT64_MAX : static_cast<uint64_t>(bytes);
}

bool is_workers_own(Executor& executor, CUdeviceptr address, uint64_t bytes) {
  if (const Mirrors::Mirror* mirror = executor.mirrors().find(address))
    return bytes > mirror->bytes - (address - mirror->base);
  uint32_t type = 0;
  gpu::Driver& driver = executor.driver();
  const CUresult known =
      driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  if (known != CUDA_SUCCESS) return executor.mirrors().occupies(address) || !is_reserved(address);
  if (type == CU_MEMORYTYPE_DEVICE) return false;
  return !is_managed(&driver, address);
}

CUresult handle(Executor& executor, const wire::cuda::mirror_create_request& request,
                wire::cuda::mirror_create_reply&) {
  if (request.pageable != 0)
    return executor.mirrors().create_pageable(request.address, request.bytes, request.written != 0);
  return executor.mirrors().create(&executor.driver(), request.address, request.bytes,
                                   request.written != 0);
}

CUresult handle(Executor& executor, const wire::cuda::mirror_share_request& request,
                wire::cuda::mirror_share_reply&) {
  return executor.mirrors().share(&executor.driver(), request.address, request.bytes);
}

CUresult handle(Executor& executor, const wire::cuda::mirror_destroy_request& request) {
  // No wait is needed, because the client has waited for the work that used the mirror. A wait here
  // would also keep the client's host functions from being answered.
  executor.mirrors().destroy(&executor.driver(), request.address);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::mirror_push_request& request) {
  return executor.mirrors().push(request.address, request.data);
}

CUresult handle(Executor& executor, const wire::cuda::mirror_fetch_request&,
                wire::cuda::mirror_fetch_reply& reply) {
  Scope scope(executor);
  Mirrors::Written written;
  executor.mirrors().fetch(&written);
  uint64_t* offsets = scope.scratch<uint64_t>(written.offsets.size());
  uint8_t* data = scope.scratch<uint8_t>(written.data.size());
  if (!scope.ok()) return scope.error();
  std::copy(written.offsets.begin(), written.offsets.end(), offsets);
  std::copy(written.data.begin(), written.data.end(), data);
  reply.offsets = {offsets, written.offsets.size()};
  reply.data = {data, written.data.size()};
  reply.more = written.more;
  reply.both = written.both;
  return CUDA_SUCCESS;
}

}  // namespace tendril::worker::cuda
