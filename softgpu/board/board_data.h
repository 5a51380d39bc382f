// SPDX-License-Identifier: Apache-2.0
// The memory that the processes on one board share: plain data, guarded by one robust lock. Only
// files of this folder include it. A change of layout needs a new kLayout, so that an old file is
// refused and not misread.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "softgpu/board/settings.h"
#include "softgpu/board/slicer.h"

namespace tendril::softgpu {

inline constexpr uint64_t kMagic = 0x44524f4254465354;
inline constexpr uint32_t kLayout = 4;
inline constexpr unsigned kMaxProcesses = 2048, kMaxJobs = 8192;
inline constexpr unsigned kBuckets = 17;  // sixteen complete ones, and the current one
inline constexpr int64_t kBucketNs = 62'500'000;
inline constexpr size_t kLiveTextBytes = 8192;

// Busy time of the last second, for utilisation as NVML means it.
struct BusyWindow {
  int64_t bucket[kBuckets];  // number of the bucket; its busy time has the same index
  int64_t busy_ns[kBuckets];
};

// What one process has on one device.
struct Usage {
  uint64_t memory_bytes;
  int64_t busy_ns;
  uint32_t contexts;
  uint32_t running;
};

struct ProcessRecord {
  uint32_t used;
  int32_t pid;
  uint32_t seat;      // breaks ties between processes at one instant of a simulated clock
  uint32_t on_clock;  // has joined the clock
  // What holds a simulated clock: threads of the program that run, work that is being executed,
  // ends of work that the process has not seen.
  uint32_t host_holds, task_holds, unseen;
  // Of the task holds: work that runs for so long that it must be waiting for something.
  uint32_t lapsed;
  // Asked in vain and gave up its hold. Gets it back with the next end of its work.
  uint32_t polling;
  // Asked in vain since work of its began to be executed or ended on the clock.
  uint32_t quiet;
  int64_t active_ms;
  std::atomic<uint32_t> doorbell;
  Usage usage[kMaxDevices];
};

inline uint32_t holds_of(const ProcessRecord& process) {
  return process.host_holds + process.task_holds - process.lapsed + process.unseen;
}

struct DeviceRecord {
  uint64_t memory_bytes;
  int64_t busy_ns;
  uint32_t running;  // works under way in real time
  int64_t running_since_ns;
  uint64_t ecc_errors;
  BusyWindow window;
  int64_t copy_free_ns[2];
  int64_t next_end_ns;  // of the ring
  SliceRing ring;
};

enum class Engine : uint32_t { kCompute, kCopyIn, kCopyOut, kTimer };
enum class JobState : uint32_t { kFree, kArrived, kQueued, kTimed, kDone };

struct Job {
  JobState state;
  Engine engine;
  uint32_t process;
  int32_t device;
  uint32_t next;  // of the same context on the ring
  uint64_t context;
  uint64_t order;
  uint64_t cookie;
  int64_t cost_ns;
  int64_t end_ns;
  uint64_t done_order;
};

struct BoardData {
  uint64_t magic;
  uint32_t layout;
  uint32_t bytes;
  pthread_mutex_t lock;
  Settings settings;
  int64_t now_ns;     // of a simulated clock
  int64_t epoch_ns;   // the host's clock when a paced clock started
  uint32_t holds;     // sum over all processes
  uint32_t on_clock;  // processes that have ever joined the clock
  uint32_t seats;
  uint32_t jobs_high, processes_high;  // indices from here on have never been used
  uint32_t arrived;
  std::atomic<uint32_t>
      changing;  // not zero: the holder of the lock is changing the rings or their jobs
  uint64_t done_count;
  int64_t looked_ns;  // when a process last looked for dead and silent ones
  std::atomic<uint64_t> live_generation;
  char live_text[kLiveTextBytes];
  ProcessRecord processes[kMaxProcesses];
  DeviceRecord devices[kMaxDevices];
  Job jobs[kMaxJobs];
};

}  // namespace tendril::softgpu
