// SPDX-License-Identifier: Apache-2.0
// Makes the files that parked memory goes to. A disk may take seconds to give a large file its
// room, so a thread of its own does it, and whoever wants files holds no lock meanwhile.
// sessions_park.cc uses it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace tendril::daemon {

class ParkFiles {
 public:
  using Files = std::vector<base::Fd>;  // of the sizes that were asked for, in their order
  using Done = std::function<void(base::Result<Files>)>;

  ParkFiles() = default;
  ~ParkFiles() { stop(); }
  ParkFiles(const ParkFiles&) = delete;
  ParkFiles& operator=(const ParkFiles&) = delete;

  // `done` is called on the thread: with files that have no name and all their room, or with
  // kRefused, which says how much the folder did not give. Never before this returns.
  void make(const std::string& folder, const std::vector<uint64_t>& sizes, Done done);
  // What has not begun is forgotten. Blocks until the thread has ended.
  void stop();

 private:
  struct Wish {
    std::string folder;
    std::vector<uint64_t> sizes;
    Done done;
  };
  static base::Result<Files> made(const Wish& wish);
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Wish> wishes_;  // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  std::thread thread_;       // guarded by mutex_; begins with the first wish
};

}  // namespace tendril::daemon
