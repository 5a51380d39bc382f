// SPDX-License-Identifier: Apache-2.0
// See copy_job.h.
#include "worker/cuda/parking/copy_job.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/thread.h"
#include "worker/cuda/parking/host_pages.h"

namespace tendril::worker::cuda {
namespace {

// To warm pages through staging, an H200's server copies 24, 34 and 45 GB/s with 4, 6 and 10
// threads; its link has 55 (docs/decisions/0032).
constexpr size_t kThreadsMax = 12;
// Pieces that are copied each way before one is chosen.
constexpr size_t kTriesMost = 4;

}  // namespace

void CopyJob::enter(void* argument) {
  CopyJob* const job = static_cast<CopyJob*>(argument);
  Hand hand;
  for (;;) {
    size_t number = 0;
    {
      std::unique_lock<std::mutex> hold(job->mutex_);
      number = job->next_ready(&hold, true);
    }
    if (number == job->pieces_.size()) break;
    job->copy(job->pieces_[number], &hand);
  }
  job->let_go(&hand);
}

// The end: there is none, or not now.
size_t CopyJob::next_ready(std::unique_lock<std::mutex>* hold, bool wait) {
  if (wait) {
    changed_.wait(*hold, [this] { return next_ < open_ || all_open_ || failure_ != CUDA_SUCCESS; });
  }
  return next_ < open_ && failure_ == CUDA_SUCCESS ? next_++ : pieces_.size();
}

CUresult CopyJob::run(size_t lots, const Step& before, const Step& after) {
  left_.assign(lots, 0);
  for (const Piece& piece : pieces_) ++left_[piece.lot];
  const size_t threads =
      std::min({kThreadsMax, static_cast<size_t>(base::usable_cpus()), pieces_.size()});
  base::Thread helpers[kThreadsMax];
  for (size_t i = 1; i < threads; ++i)
    if (!helpers[i].start("tendril-park", enter, this)) break;  // then fewer do it
  CUresult refused = CUDA_SUCCESS;
  const auto guarded = [&](size_t lot) {
    refused = before ? before(lot) : CUDA_SUCCESS;
    return refused;
  };
  lead(lots, guarded, after);
  for (base::Thread& helper : helpers) helper.join();
  return failure_ != CUDA_SUCCESS ? failure_ : refused;
}

// Steps before lots go first, because the other threads wait for them.
void CopyJob::lead(size_t lots, const Step& before, const Step& after) {
  Hand hand;
  size_t opened = 0, end = 0;
  for (size_t done = 0; done < lots;) {
    if (opened < lots) {
      if (before(opened) != CUDA_SUCCESS) {
        lots = opened;
      } else {
        while (end < pieces_.size() && pieces_[end].lot == opened) ++end;
        ++opened;
      }
      open(end, opened == lots);
      continue;
    }
    std::unique_lock<std::mutex> hold(mutex_);
    if (failure_ != CUDA_SUCCESS) break;
    if (left_[done] == 0) {
      hold.unlock();
      const CUresult result = after ? after(done) : CUDA_SUCCESS;
      ++done;
      if (result != CUDA_SUCCESS) fail(result);
      continue;
    }
    const size_t number = next_ready(&hold, false);
    if (number == pieces_.size()) {
      changed_.wait(hold, [&] { return left_[done] == 0 || failure_ != CUDA_SUCCESS; });
      continue;
    }
    hold.unlock();
    copy(pieces_[number], &hand);
  }
  let_go(&hand);
}

void CopyJob::open(size_t pieces, bool all) {
  const std::lock_guard<std::mutex> hold(mutex_);
  open_ = pieces;
  all_open_ = all;
  changed_.notify_all();
}

void CopyJob::fail(CUresult failure) {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (failure_ == CUDA_SUCCESS) failure_ = failure;
  changed_.notify_all();
}

bool CopyJob::goes_straight() {
  const std::lock_guard<std::mutex> hold(mutex_);
  Way &staged = ways_[0], &straight = ways_[1];
  bool result = straight.begun < staged.begun;
  if (std::min(staged.begun, straight.begun) >= kTriesMost && staged.bytes != 0 &&
      straight.bytes != 0) {
    result = static_cast<double>(straight.spent_ns) / static_cast<double>(straight.bytes) <
             static_cast<double>(staged.spent_ns) / static_cast<double>(staged.bytes);
  }
  ++ways_[result ? 1 : 0].begun;
  return result;
}

void CopyJob::copy(const Piece& piece, Hand* hand) {
  CUresult result = enter_context(piece.context, hand);
  const bool straight = goes_straight();
  const uint64_t began_ns = base::now_ns();
  if (result == CUDA_SUCCESS) {
    result =
        piece.data != nullptr ? try_to_copy(piece, straight, hand) : copy_with_file(piece, hand);
  }
  if (result != CUDA_SUCCESS) return fail(result);
  if (progress_ && !progress_(piece.bytes)) return fail(CUDA_ERROR_NOT_READY);
  const uint64_t spent_ns = base::now_ns() - began_ns;
  const std::lock_guard<std::mutex> hold(mutex_);
  Way& way = ways_[straight ? 1 : 0];
  way.bytes += piece.bytes;
  way.spent_ns += spent_ns;
  if (--left_[piece.lot] == 0) changed_.notify_all();
}

// If there is no staging, a copy goes straight: slower, and nothing else. New pages are made while
// the GPU copies.
CUresult CopyJob::try_to_copy(const Piece& piece, bool straight, Hand* hand) {
  if (!straight && hand->block.data == nullptr) hand->block = staging_->take(kPieceBytesMax);
  uint8_t* const through = straight || hand->block.data == nullptr ? piece.data : hand->block.data;
  const bool staged = through != piece.data;
  CUresult result = CUDA_SUCCESS;
  if (!to_host_) {
    if (staged) memcpy(through, piece.data, piece.bytes);
    result = driver_->cuMemcpyHtoDAsync_v2(piece.address, through, piece.bytes, hand->stream);
  } else {
    if (piece.fresh && !staged && !HostPages::prepare(piece.data, piece.bytes))
      return CUDA_ERROR_OUT_OF_MEMORY;
    result = driver_->cuMemcpyDtoHAsync_v2(through, piece.address, piece.bytes, hand->stream);
    if (piece.fresh && staged && !HostPages::prepare(piece.data, piece.bytes))
      result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult waited = driver_->cuStreamSynchronize(hand->stream);
  if (result == CUDA_SUCCESS) result = waited;
  if (result == CUDA_SUCCESS && to_host_ && staged) memcpy(piece.data, through, piece.bytes);
  return result;
}

CUresult CopyJob::copy_with_file(const Piece& piece, Hand* hand) {
  if (hand->block.data == nullptr) hand->block = staging_->take(kPieceBytesMax);
  if (hand->block.data == nullptr) hand->own.resize(kPieceBytesMax);
  uint8_t* const data = hand->block.data != nullptr ? hand->block.data : hand->own.data();
  if (!to_host_ && !file_->read(piece.offset, data, piece.bytes, *piece.seal))
    return CUDA_ERROR_OPERATING_SYSTEM;
  CUresult result =
      to_host_ ? driver_->cuMemcpyDtoHAsync_v2(data, piece.address, piece.bytes, hand->stream)
               : driver_->cuMemcpyHtoDAsync_v2(piece.address, data, piece.bytes, hand->stream);
  const CUresult waited = driver_->cuStreamSynchronize(hand->stream);
  if (result == CUDA_SUCCESS) result = waited;
  if (result == CUDA_SUCCESS && to_host_ &&
      !file_->write(piece.offset, data, piece.bytes, piece.seal))
    result = CUDA_ERROR_OPERATING_SYSTEM;
  return result;
}

CUresult CopyJob::enter_context(CUcontext context, Hand* hand) {
  if (hand->context == context) return CUDA_SUCCESS;
  let_go(hand);
  CUresult result = driver_->cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS)
    result = driver_->cuStreamCreate(&hand->stream, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) hand->context = context;
  return result;
}

void CopyJob::let_go(Hand* hand) {
  if (hand->stream != nullptr) driver_->cuStreamDestroy_v2(hand->stream);
  staging_->give_back(hand->block);
  *hand = Hand();
}

}  // namespace tendril::worker::cuda
