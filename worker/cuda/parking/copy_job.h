// SPDX-License-Identifier: Apache-2.0
// Copies many pieces between GPUs and host memory, lot by lot, with several threads: one alone is
// slower than a card's link. The caller's thread leads: it takes the steps before and after each
// lot, and copies in between. host_store.h uses it. The GPUs do nothing else meanwhile.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/cuda/driver.h"
#include "worker/cuda/memory/staging.h"
#include "worker/cuda/parking/park_file.h"

namespace tendril::worker::cuda {

class CopyJob {
 public:
  static constexpr uint64_t kPieceBytesMax = 8u << 20;
  struct Piece {
    uint64_t address = 0;  // on a GPU
    uint8_t* data = nullptr;
    uint64_t bytes = 0;
    CUcontext context = nullptr;
    size_t lot = 0;
    bool fresh = false;  // nobody has used these pages of the host yet
    // Without `data`: where in the file, and what proves it.
    uint64_t offset = 0;
    ParkFile::Seal* seal = nullptr;
  };
  // What is done with the lot of this number, on the caller's thread.
  using Step = std::function<CUresult(size_t lot)>;
  // So many bytes more are copied. False: no more is to be. On any of the threads.
  using Progress = std::function<bool(uint64_t bytes)>;

  // `file` may be null if all pieces have `data`.
  CopyJob(gpu::Driver* driver, Staging* staging, ParkFile* file, bool to_host)
      : driver_(driver), staging_(staging), file_(file), to_host_(to_host) {}

  // May be null.
  void watch(Progress progress) { progress_ = std::move(progress); }
  // In the order of their lots.
  void add(const Piece& piece) { pieces_.push_back(piece); }
  // Copies everything. `before` comes before a lot's first copy, and a failure of it is the end of
  // what is copied. `after` comes after its last copy; then a failure ends the job at once, as that
  // of a copy does, or CUDA_ERROR_NOT_READY because of `watch`. Both may be null. Blocks. Returns
  // the first failure. Any context is current then.
  CUresult run(size_t lots, const Step& before, const Step& after);

 private:
  struct Hand {  // what one thread copies with
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    Block block;
    std::vector<uint8_t> own;  // if staging has none
  };
  static void enter(void* job);
  void lead(size_t lots, const Step& before, const Step& after);
  size_t next_ready(std::unique_lock<std::mutex>* hold, bool wait);
  void copy(const Piece& piece, Hand* hand);
  CUresult try_to_copy(const Piece& piece, bool straight, Hand* hand);
  CUresult copy_with_file(const Piece& piece, Hand* hand);
  bool goes_straight();
  CUresult enter_context(CUcontext context, Hand* hand);
  void let_go(Hand* hand);
  void open(size_t pieces, bool all);
  void fail(CUresult failure);

  gpu::Driver* const driver_;
  Staging* const staging_;
  ParkFile* const file_;
  const bool to_host_;
  Progress progress_;
  std::vector<Piece> pieces_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> left_;         // guarded by mutex_: pieces of each lot that are not copied
  size_t next_ = 0, open_ = 0;       // guarded by mutex_: the next piece; those before may be taken
  bool all_open_ = false;            // guarded by mutex_
  CUresult failure_ = CUDA_SUCCESS;  // guarded by mutex_
  // Through staging, and straight. A card copies to pinned memory faster; where device memory is
  // the host's, staging only copies twice. So the first pieces show which is faster.
  struct Way {
    size_t begun = 0;
    uint64_t bytes = 0, spent_ns = 0;
  } ways_[2];  // guarded by mutex_
};

}  // namespace tendril::worker::cuda
