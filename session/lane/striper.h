// SPDX-License-Identifier: Apache-2.0
// Sends one range of memory as chunks over several bulk channels at once: the caller and one helper
// thread per further channel take chunks in turn. Used by both ends of a session, from any number
// of threads. Helpers start with the first range worth them.
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

inline constexpr int kPumpMs = 2;  // a blocked sender looks at what else there is to do this often

struct ChunkPlan {
  uint64_t chunk_bytes = 0;
  uint32_t pieces = 0;  // as in wire::ChunkHeader
};
// How `bytes` are cut for that many channels (0: they ride in the lane).
ChunkPlan plan_chunks(uint64_t bytes, size_t channels);

class Striper {
 public:
  Striper() = default;
  ~Striper() { stop(); }
  void add(transport::Channel* channel);
  // Called by a sending thread that makes no progress, every kPumpMs, with no lock of the session
  // held but that channel's.
  void when_stuck(void* argument, void (*call)(void*)) {
    stuck_argument_ = argument, stuck_ = call;
  }
  size_t channels() const { return lines_.size(); }

  // Sends data[begin, end) as chunks of `transfer` whose offsets are shift + position. Returns when
  // the memory may be reused.
  base::Status send(uint64_t transfer, const uint8_t* data, uint64_t begin, uint64_t end,
                    const ChunkPlan& plan, uint64_t shift = 0);
  // After the channels were shut down: ends the helpers.
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
  void start_helpers();
  void help();

  std::vector<std::unique_ptr<Line>> lines_;
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
