// SPDX-License-Identifier: Apache-2.0
// Records of ended leases that no scheduler has stored yet, in a file, so that they outlive this
// process: leases that the server lent by itself, and the last sums of the pool's. Not synced to
// the disk: a crash of the machine may cost the last ones. One owner calls at a time (Sessions,
// under its lock); one process at a time has the file.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "wire/pool.h"

namespace tendril::daemon {

// The records in such a file that are not marked as stored, with the boot that ended each. What is
// damaged or cut off, and all behind it, is left out.
std::vector<wire::BookEntry> read_ended(const std::string& bytes);

class EndedFile {
 public:
  // In TENDRIL_STATE, else the state folder of this user. Servers and pools have files of their
  // own: `server` is what the pool knows it by, `pools` its addresses.
  static std::string default_path(const std::string& server, const std::vector<std::string>& pools);
  // kRefused: another process has it.
  static base::Result<std::unique_ptr<EndedFile>> open(const std::string& path, uint64_t boot);

  // What earlier processes left, once.
  std::vector<wire::BookEntry> take() { return std::move(left_); }
  // From now on the file has these, with their numbers of this boot.
  void begin(const std::deque<wire::BookEntry>& entries);
  void add(const wire::BookEntry& entry);
  // A scheduler has stored all up to this number; `all`: nothing is left.
  void stored(uint64_t ended_number, bool all);

 private:
  EndedFile(base::Fd file, uint64_t boot) : file_(std::move(file)), boot_(boot) {}
  void append(const wire::PoolReport& frame);

  const base::Fd file_;
  const uint64_t boot_;
  uint64_t bytes_ = 0;
  std::vector<wire::BookEntry> left_;
};

}  // namespace tendril::daemon
