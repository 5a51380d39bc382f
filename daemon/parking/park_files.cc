// SPDX-License-Identifier: Apache-2.0
// See park_files.h.
#include "daemon/parking/park_files.h"

#include <errno.h>
#include <fcntl.h>

#include <utility>

#include "config/quantity.h"

namespace tendril::daemon {

void ParkFiles::make(const std::string& folder, const std::vector<uint64_t>& sizes, Done done) {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (stopping_) return;
  wishes_.push_back({folder, sizes, std::move(done)});
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_one();
}

void ParkFiles::stop() {
  std::thread thread;
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    stopping_ = true;
    thread = std::move(thread_);
    changed_.notify_one();
  }
  if (thread.joinable()) thread.join();
}

void ParkFiles::run() {
  for (;;) {
    Wish wish;
    {
      std::unique_lock<std::mutex> hold(mutex_);
      changed_.wait(hold, [this] { return stopping_ || !wishes_.empty(); });
      if (stopping_) return;
      wish = std::move(wishes_.front());
      wishes_.pop_front();
    }
    wish.done(made(wish));
  }
}

// The disk gives the room at once, so that a full one is found out before anything has left a GPU.
base::Result<ParkFiles::Files> ParkFiles::made(const Wish& wish) {
  Files files;
  for (const uint64_t size : wish.sizes) {
    base::Fd file(open(wish.folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!file.valid() ||
        (size != 0 && fallocate(file.get(), 0, 0, static_cast<off_t>(size)) != 0)) {
      const int error = errno;  // before the text is made
      const std::string what = "there is no room for a file of " + config::format_size(size) +
                               " in '" + wish.folder + "' (--park-file)";
      return base::errno_status(base::Code::kRefused, what.c_str(), error);
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace tendril::daemon
