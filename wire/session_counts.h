// SPDX-License-Identifier: Apache-2.0
// What a session has done so far, for people (tendril top, metrics). Its worker counts in a page
// that it shares with tendrild (turn_page.h). tendrild reads the page now and then. No decision
// depends on it, because a worker may write there what it likes.
#pragma once

#include <atomic>
#include <cstdint>

namespace tendril::wire {

struct alignas(64) SessionCounts {
  // By the executor's thread.
  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> launches{0};   // of kernels and graphs
  std::atomic<uint64_t> transfers{0};  // copies, fills and other work of streams but launches
  std::atomic<uint64_t> lane_bytes_in{0};
  std::atomic<uint32_t> counts_work{0};  // 1: launches and transfers are counted here
  // By the thread that sends a frame, with the sender's lock.
  alignas(64) std::atomic<uint64_t> replies{0};
  std::atomic<uint64_t> lane_bytes_out{0};
  // By any thread.
  std::atomic<uint64_t> bulk_bytes_in{0}, bulk_bytes_out{0};
  // Of these, moved between a GPU's memory and a network card that reaches it (GPUDirect).
  std::atomic<uint64_t> device_bytes_in{0}, device_bytes_out{0};
  std::atomic<uint64_t> awaited_ns{0};  // time in which a reply was due
  // Replies that are due now. It may be negative for a moment.
  std::atomic<int32_t> replies_due{0};
};

// For counters that one thread writes at a time. This is cheaper than an atomic addition.
inline void count_alone(std::atomic<uint64_t>& counter, uint64_t more) {
  counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace tendril::wire
