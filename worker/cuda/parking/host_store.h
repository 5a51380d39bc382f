// SPDX-License-Identifier: Apache-2.0
// The bytes of device memory that has left its GPU, in this process' memory. Several threads copy
// through pinned staging: one alone is slower than a card's link. parking.h calls this between
// calls of the session, when the GPUs are idle. Executor thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "gpu/cuda/driver.h"
#include "worker/cuda/memory/staging.h"

namespace tendril::worker::cuda {

class HostStore {
 public:
  struct Range {
    uint64_t address = 0, bytes = 0;
    CUcontext context = nullptr;  // in which it is copied
  };

  HostStore(gpu::Driver* driver, Staging* staging) : driver_(driver), staging_(staging) {}
  ~HostStore() { drop(); }
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // Copies these to the host too. Any failure: none of these is kept. Blocks.
  CUresult save(const std::vector<Range>& ranges);
  // Copies some of them back, to where they were. Blocks.
  CUresult load(const std::vector<Range>& ranges);
  // What was saved from there; null if not all of it was.
  const uint8_t* find(uint64_t address, uint64_t bytes) const;
  void drop();
  void drop(const std::vector<Range>& ranges);
  bool empty() const { return saved_.empty(); }

 private:
  struct Saved {
    uint8_t* data = nullptr;
    uint64_t bytes = 0;
  };
  struct Piece {
    uint64_t address = 0;
    uint8_t* data = nullptr;
    uint64_t bytes = 0;
    CUcontext context = nullptr;
  };
  struct Job {
    HostStore* store = nullptr;
    std::vector<Piece> pieces;
    bool to_host = false;
    std::atomic<size_t> next{0};
    std::atomic<int> failure{CUDA_SUCCESS};
  };
  void work(Job* job);
  static void cut(const Range& range, uint8_t* data, std::vector<Piece>* pieces);
  CUresult copy(std::vector<Piece> pieces, bool to_host);
  CUresult copy_piece(const Piece& piece, const Block& block, CUstream stream, bool to_host);

  gpu::Driver* const driver_;
  Staging* const staging_;
  std::map<uint64_t, Saved> saved_;  // by address
};

}  // namespace tendril::worker::cuda
