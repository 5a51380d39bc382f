// SPDX-License-Identifier: Apache-2.0
// The line of progress that `tendril run` shows on a terminal while the program attaches or uploads
// for long (wire/progress_page.h). A thread of its own draws it and takes it away. Without a
// terminal there is no page, no thread and no line.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "base/fd.h"
#include "wire/progress_page.h"

namespace tendril::cli {

class Progress {
 public:
  // `wanted` false: nothing happens.
  explicit Progress(bool wanted);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // For TENDRIL_PROGRESS; empty: there is no page.
  std::string address() const;
  // Draws from now on. Call it when the child is there: a fork must not copy a thread. `servers`:
  // where the program attaches.
  void start(std::string servers);
  // Takes the line away, and draws no more.
  void stop();
  // Prints a line of `run` itself on stderr, where no progress stands.
  void say(const std::string& text);

 private:
  void draw_all(const std::string& servers);
  // With the lock held.
  void draw(const std::string& text);
  void clear();
  // Waits for a tick, or until the line is unwanted.
  void wait_tick() const;

  base::Fd file_;
  wire::ProgressPage* page_ = nullptr;
  std::mutex mutex_;  // of the terminal
  std::string drawn_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// stderr is a terminal that can take a line away, and this is its foreground.
bool terminal_shows_progress();

}  // namespace tendril::cli
