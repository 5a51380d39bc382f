// SPDX-License-Identifier: Apache-2.0
// Sends one range of memory as chunks over several bulk channels at once. The caller and one helper
// thread for each further channel take chunks in turn. Both ends of a session use it, from any
// number of threads. The helpers start with the first range that is large enough.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/lock.h"
#include "base/thread.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace tendril::session {

inline constexpr int kPumpMs = 2;  // a blocked sender checks for other work this often

struct ChunkPlan {
  uint64_t chunk_bytes = 0;
  uint32_t pieces = 0;  // as in wire::ChunkHeader
};
// How to cut `bytes` for that many channels. 0 channels: the chunks travel on the command lane.
ChunkPlan plan_chunks(uint64_t bytes, size_t channels);

class DeviceReader;

// A range in a GPU's memory, which cards read, and `reader` where they do not.
struct DeviceSource {
  DeviceReader* reader;
  std::atomic<uint64_t> by_cards{0};  // bytes
  std::atomic<bool> failed{false};    // the reader could not; other bytes were sent for these
};

class Striper {
 public:
  Striper() = default;
  ~Striper() { stop(); }
  void add(transport::Channel* channel);
  // A sending thread that makes no progress calls this every kPumpMs. It holds no lock of the
  // session except that channel's.
  void when_stuck(void* argument, void (*call)(void*)) {
    stuck_argument_ = argument, stuck_ = call;
  }
  // Whoever wants to know how far it is: each chunk is added here when it was sent.
  void count_into(std::atomic<uint64_t>* sent_bytes) { sent_bytes_ = sent_bytes; }
  void count(uint64_t bytes) {
    if (sent_bytes_ != nullptr) sent_bytes_->fetch_add(bytes, std::memory_order_relaxed);
  }
  size_t channels() const { return lines_.size(); }

  // Sends data[begin, end) as chunks of `transfer`. A chunk's offset is shift + position. Returns
  // when the memory may be reused. With a `device`, `data` is an address there.
  base::Status send(uint64_t transfer, const uint8_t* data, uint64_t begin, uint64_t end,
                    const ChunkPlan& plan, uint64_t shift = 0, DeviceSource* device = nullptr);
  // Ends the helpers. Call it after the channels were shut down.
  void stop();
  void abandon_after_fork();

 private:
  struct Line {
    transport::Channel* channel = nullptr;
    base::Lock lock;
    base::Thread helper;
  };
  struct Job {
    uint64_t transfer, end, shift;
    const uint8_t* data;
    DeviceSource* device;
    ChunkPlan plan;
    std::atomic<uint64_t> at{0};
    std::atomic<uint32_t> helpers{0};
    std::atomic<bool> failed{false};
    base::Lock failure_lock;
    base::Status failure;
    Job* next = nullptr;
  };
  void work(Job* job, bool caller);
  base::Status send_chunk(const Job& job, uint64_t offset, uint64_t bytes, bool caller);
  base::Status send_parts(Line* line, const iovec* parts, bool caller);
  base::Status send_from_device(Line* line, const Job& job, uint64_t offset, uint64_t bytes,
                                bool caller);
  void stuck(bool caller) {
    if (caller && stuck_ != nullptr) stuck_(stuck_argument_);
  }
  void start_helpers();
  void help();

  std::vector<std::unique_ptr<Line>> lines_;
  std::atomic<uint64_t>* sent_bytes_ = nullptr;
  void* stuck_argument_ = nullptr;
  void (*stuck_)(void*) = nullptr;
  std::atomic<uint32_t> rotate_{0};
  base::Lock jobs_lock_;
  Job* jobs_ = nullptr;
  base::Event job_event_;
  base::Event done_event_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> started_{false};
  base::Lock start_lock_;
};

}  // namespace tendril::session
