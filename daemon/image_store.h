// SPDX-License-Identifier: Apache-2.0
// Keeps images of device code for clients, so that none sends again what this server has. Only the
// daemon reads and writes the folder; workers get and give descriptors. Each owner has a part of
// their own, so nobody learns from an answer what another one has, and can take no more disk than
// that part may. Images on an administrator's list are common to all. The reader checks what it
// gets (worker/core/code_store.h). Any thread; a thread of its own does the work, because a
// disk may be slow.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/result.h"
#include "wire/assignment.h"

namespace tendril::daemon {

struct ImageOptions {
  // A folder, "off", or empty for the default: the value of TENDRIL_MODULE_STORE, else a folder in
  // this user's cache.
  std::string folder;
  uint64_t bytes_max = 0;            // 0: TENDRIL_MODULE_STORE_MB, or 4 GB
  uint64_t bytes_per_owner_max = 0;  // 0: a quarter of that
  std::string known;                 // a file with hashes of images that all may share
};

class ImageStore {
 public:
  // Null: nothing is kept; the log says why. A list that cannot be read is an error.
  static base::Result<std::unique_ptr<ImageStore>> open(const ImageOptions& options);
  ~ImageStore();

  // Called on the store's thread, or at once. A descriptor is for reading.
  using Answer = std::function<void(wire::ExportAnswer answer, base::Fd image)>;
  // `record`: as in kFindImage. kUnknown: it is not here, or not of that length.
  void find(const std::string& owner, const wire::ExportRecord& record, Answer answer);
  // `memory` must be sealed. kFull: it is not kept.
  void keep(const std::string& owner, const wire::ExportRecord& record, base::Fd memory,
            Answer answer);

 private:
  struct Work {
    std::string owner, hash;
    uint64_t bytes = 0;
    base::Fd memory;  // not valid: find
    Answer answer;
  };
  ImageStore(std::string folder, const ImageOptions& options);
  base::Status prepare(const std::string& known);
  void add(Work work);
  void run();
  base::Fd find_now(const Work& work) const;
  bool keep_now(const Work& work);
  std::string part_of(const Work& work) const;
  void evict();

  const std::string folder_;
  uint64_t bytes_max_, bytes_per_owner_max_;
  std::string key_;              // makes names of parts that tell nobody whose they are
  std::set<std::string> known_;  // hashes
  bool full_told_ = false;       // the store's thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;                   // guarded by mutex_
  std::map<std::string, uint32_t> waiting_;  // guarded by mutex_: of each owner
  bool stopping_ = false;                    // guarded by mutex_
  std::thread thread_;
};

}  // namespace tendril::daemon
