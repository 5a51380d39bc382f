// SPDX-License-Identifier: Apache-2.0
// See host_store.h.
#include "worker/cuda/parking/host_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/thread.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kStorePieceBytes = 8u << 20;
// A thread copies 5 to 10 GB/s between pinned memory and new pages; a card's link has 25 to 55.
constexpr size_t kStoreThreadsMax = 6;

}  // namespace

void HostStore::cut(const Range& range, uint8_t* data, std::vector<Piece>* pieces) {
  for (uint64_t at = 0; at < range.bytes; at += kStorePieceBytes) {
    pieces->push_back({range.address + at, data + at, std::min(kStorePieceBytes, range.bytes - at),
                       range.context});
  }
}

// Unpinned memory will do if there is none in staging: slower, and nothing else.
CUresult HostStore::copy_piece(const Piece& piece, const Block& block, CUstream stream,
                               bool to_host) {
  uint8_t* const through = block.data != nullptr ? block.data : piece.data;
  if (!to_host && through != piece.data) memcpy(through, piece.data, piece.bytes);
  CUresult result =
      to_host ? driver_->cuMemcpyDtoHAsync_v2(through, piece.address, piece.bytes, stream)
              : driver_->cuMemcpyHtoDAsync_v2(piece.address, through, piece.bytes, stream);
  if (result == CUDA_SUCCESS) result = driver_->cuStreamSynchronize(stream);
  if (result == CUDA_SUCCESS && to_host && through != piece.data)
    memcpy(piece.data, through, piece.bytes);
  return result;
}

void HostStore::work(Job* job) {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  Block block;
  const auto leave = [&] {
    if (stream != nullptr) driver_->cuStreamDestroy_v2(stream);
    stream = nullptr;
    staging_->give_back(block);
    block = Block();
  };
  for (size_t i = job->next++; i < job->pieces.size() && job->failure == CUDA_SUCCESS;
       i = job->next++) {
    const Piece& piece = job->pieces[i];
    CUresult result = CUDA_SUCCESS;
    if (piece.context != context) {
      leave();
      result = driver_->cuCtxSetCurrent(piece.context);
      context = piece.context;
      if (result == CUDA_SUCCESS) result = driver_->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      if (result == CUDA_SUCCESS) block = staging_->take(kStorePieceBytes);
    }
    if (result == CUDA_SUCCESS) result = copy_piece(piece, block, stream, job->to_host);
    if (result != CUDA_SUCCESS) job->failure = result;
  }
  leave();
}

CUresult HostStore::copy(std::vector<Piece> pieces, bool to_host) {
  Job job{this, std::move(pieces), to_host};
  const size_t threads =
      std::min({kStoreThreadsMax, static_cast<size_t>(base::usable_cpus()), job.pieces.size()});
  base::Thread helpers[kStoreThreadsMax];
  const auto enter = [](void* argument) {
    Job* const job = static_cast<Job*>(argument);
    job->store->work(job);
  };
  for (size_t i = 1; i < threads; ++i)
    if (!helpers[i].start("tendril-park", enter, &job)) break;  // then fewer do it
  work(&job);
  for (base::Thread& helper : helpers) helper.join();
  return static_cast<CUresult>(job.failure.load());
}

CUresult HostStore::save(const std::vector<Range>& ranges) {
  std::vector<Piece> pieces;
  for (const Range& range : ranges) {
    void* memory = mmap(nullptr, range.bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      drop(ranges);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    madvise(memory, range.bytes, MADV_HUGEPAGE);  // faults of small pages cost as much as the copy
    saved_[range.address] = {static_cast<uint8_t*>(memory), range.bytes};
    cut(range, static_cast<uint8_t*>(memory), &pieces);
  }
  const CUresult result = copy(std::move(pieces), true);
  if (result != CUDA_SUCCESS) drop(ranges);
  return result;
}

CUresult HostStore::load(const std::vector<Range>& ranges) {
  std::vector<Piece> pieces;
  for (const Range& range : ranges) {
    const uint8_t* const data = find(range.address, range.bytes);
    if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    cut(range, const_cast<uint8_t*>(data), &pieces);
  }
  return copy(std::move(pieces), false);
}

const uint8_t* HostStore::find(uint64_t address, uint64_t bytes) const {
  auto at = saved_.upper_bound(address);
  if (at == saved_.begin()) return nullptr;
  --at;
  const uint64_t offset = address - at->first;
  if (offset > at->second.bytes || bytes > at->second.bytes - offset) return nullptr;
  return at->second.data + offset;
}

void HostStore::drop(const std::vector<Range>& ranges) {
  for (const Range& range : ranges) {
    const auto saved = saved_.find(range.address);
    if (saved == saved_.end()) continue;
    munmap(saved->second.data, saved->second.bytes);
    saved_.erase(saved);
  }
}

void HostStore::drop() {
  for (const auto& [address, saved] : saved_) munmap(saved.data, saved.bytes);
  saved_.clear();
}

}  // namespace tendril::worker::cuda
