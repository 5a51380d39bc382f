// SPDX-License-Identifier: Apache-2.0
// Host memory at the GPU for copies: pinned blocks and the events that say when the GPU is done with one, both reused. Any thread; the
// lock is held briefly and never across the driver's waits. Whoever uses a block or an event has it as a Loan, and what is lent comes
// back when the Loan ends: no other code gives anything back.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <vector>

#include "gpu/driver.h"

namespace tendril::worker::cuda {

class Loan;

class Staging {
 public:
  explicit Staging(gpu::Driver* driver) : driver_(driver) {}

  // A block of at least `bytes` (0: none) and an event without timing, for the current context, which is `context`. Loan::ok tells
  // whether there was memory.
  Loan lend(CUcontext context, uint64_t bytes);

  // The context that pinned the blocks is gone: forget them.
  void forget();
  void forget_events(CUcontext context);

 private:
  friend class Loan;
  struct Block {
    uint8_t* data = nullptr;
    uint64_t bytes = 0;  // capacity, a power of two
  };
  struct Spare {
    CUcontext context;
    CUevent event;
  };
  Block take(uint64_t bytes);
  CUevent take_event(CUcontext context);
  void give_back(const Block& block);
  void give_back_event(CUcontext context, CUevent event);

  gpu::Driver* driver_;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::vector<Block> free_[48];  // by log2 of the size
  std::vector<Spare> events_;
};

class Loan {
 public:
  Loan() = default;
  Loan(Loan&& other) noexcept { *this = static_cast<Loan&&>(other); }
  Loan& operator=(Loan&& other) noexcept;
  ~Loan() { end(); }

  bool ok() const { return event_ != nullptr && (data_ != nullptr || wanted_ == 0); }
  uint8_t* data() const { return data_; }
  CUevent event() const { return event_; }
  CUcontext context() const { return context_; }
  void forget_event() { event_ = nullptr; }
  // Gives it back now.
  void end();

 private:
  friend class Staging;
  Staging* from_ = nullptr;
  CUcontext context_ = nullptr;
  CUevent event_ = nullptr;
  uint8_t* data_ = nullptr;
  uint64_t capacity_ = 0, wanted_ = 0;
};

}  // namespace tendril::worker::cuda
