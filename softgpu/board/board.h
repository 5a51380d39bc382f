// SPDX-License-Identifier: Apache-2.0
// The board: what a machine's test devices have in common between processes, as a real GPU has by
// being one piece of hardware. Memory in use, processes and busy time per device, knobs that change
// while programs run, and the clock (timeline.h). It is a file that TENDRIL_SOFTGPU_BOARD names,
// mapped by everybody; without that variable each process has a board of its own. A process that
// dies in any way is noticed by the lock that it held on a byte of the file, and what it had is
// given back by whoever looks next. Any thread.
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
  uint64_t memory_bytes = 0;
  int64_t busy_ns = 0;
  unsigned utilization_percent = 0;  // of the last second
  uint64_t ecc_errors = 0;
  std::vector<ProcessView> processes;
};

class Board {
 public:
  // The one that the environment names. It is made, with the settings of whoever comes first, when
  // it is not there.
  static Board& instance();
  // An empty path makes a private one. Null with a complaint when the file cannot be used.
  static std::unique_ptr<Board> open(const std::string& path, const Settings& settings,
                                     std::string* complaint);
  ~Board();
  Board(const Board&) = delete;

  // Those of the board, which may differ from what this process' environment asks for.
  const Settings& settings() const;
  // Startup knobs of this process and then the live ones of the board.
  Faults faults() const;
  uint64_t live_generation() const;
  std::string live_text() const;
  // Adds statements, or replaces all of them. False with a complaint when one does not parse or
  // they are too many.
  bool change_live(const std::string& text, bool replace, std::string* complaint);

  // Makes this process visible. Called once, by the driver; the look-alike of NVML and the tool
  // only watch.
  void join();
  // In a forked child: lets go of the file without taking the parent's place away.
  void abandon_after_fork();

  // False when the device, or what the knobs leave of it, is full.
  bool charge(int device, uint64_t bytes, uint64_t limit_bytes);
  void discharge(int device, uint64_t bytes);
  uint64_t memory_used(int device);
  void count_contexts(int device, int step);
  // Around work that runs in real time.
  void begin_work(int device);
  void end_work(int device);
  void count_ecc_error(int device);

  DeviceView view(int device);
  // Clears what dead processes have left. Others do that when they need memory or the clock.
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

// The board's lock. Whoever gets it from a process that died with it repairs what that one left
// half done.
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
