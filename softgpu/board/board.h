// SPDX-License-Identifier: Apache-2.0
// The board: what a machine's test devices share between processes. A real GPU is one piece of
// hardware; the board stands for that. It holds memory in use, processes and busy time per device,
// knobs that change while programs run, and the clock (timeline.h). TENDRIL_SOFTGPU_BOARD names its
// file, which every process maps. Without that variable each process has a board of its own. A
// process that dies is noticed by its lock on a byte of the file. Whoever looks next gives back
// what it had. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "softgpu/board/settings.h"

namespace tendril::softgpu {

struct BoardData;

struct ProcessView {
  int pid = 0;
  uint64_t memory_bytes = 0;
  int64_t busy_ns = 0;
  unsigned contexts = 0;
};

struct DeviceView {
  int64_t now_ns = 0;  // on the clock of busy time
  uint64_t memory_bytes = 0;
  int64_t busy_ns = 0;
  unsigned utilization_percent = 0;  // of the last second
  uint64_t ecc_errors = 0;
  std::vector<ProcessView> processes;
};

class Board {
 public:
  // The board that the environment names. If it is not there, it is made with the settings of this
  // process.
  static Board& instance();
  // An empty path makes a private one. Null with a complaint if the file cannot be used.
  static std::unique_ptr<Board> open(const std::string& path, const Settings& settings,
                                     std::string* complaint);
  ~Board();
  Board(const Board&) = delete;

  // The board's settings, which may differ from this process' environment.
  const Settings& settings() const;
  // First the startup knobs of this process, then the live ones of the board.
  Faults faults() const;
  uint64_t live_generation() const;
  std::string live_text() const;
  // Adds statements, or replaces all of them. False with a complaint if one does not parse or they
  // are too many.
  bool change_live(const std::string& text, bool replace, std::string* complaint);

  // Makes this process visible. The driver calls it once. The look-alike of NVML and the tool only
  // watch.
  void join();
  // In a forked child: lets go of the file and leaves the parent's place alone.
  void abandon_after_fork();

  // False if the device is full. Knobs may have made it smaller.
  bool charge(int device, uint64_t bytes, uint64_t limit_bytes);
  void discharge(int device, uint64_t bytes);
  uint64_t memory_used(int device);
  void count_contexts(int device, int step);
  // Around work that runs in real time.
  void begin_work(int device);
  void end_work(int device);
  void count_ecc_error(int device);

  DeviceView view(int device);
  // Clears what dead processes have left. Others call it when they need memory or the clock.
  void reap();

  BoardData& data() { return *data_; }
  bool shared() const { return file_ >= 0; }
  uint32_t slot() const { return slot_; }
  // For holders of the lock (timeline.cc).
  void reap_locked();
  void repair_locked();

 private:
  Board() = default;
  bool alive(uint32_t slot) const;
  void drop_process(uint32_t slot);

  BoardData* data_ = nullptr;
  int file_ = -1;
  uint32_t slot_ = UINT32_MAX;
  std::string startup_text_;
};

// The board's lock. If its holder died, the next one repairs what was left half done.
class BoardLock {
 public:
  explicit BoardLock(Board& board);
  ~BoardLock();
  BoardLock(const BoardLock&) = delete;

 private:
  Board& board_;
};

int64_t host_now_ns();

}  // namespace tendril::softgpu
