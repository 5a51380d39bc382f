// SPDX-License-Identifier: Apache-2.0
// `tendril serve --learn-filter FILE`: which system calls of workers are on no list
// (worker/process/allowed/). Each new name becomes a line of the file, which `--filter` takes.
// Supervisor's thread.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tendril::daemon {

class LearnedCalls {
 public:
  // Names that are in the file already stay.
  static base::Result<std::shared_ptr<LearnedCalls>> open(const std::string& path);
  // A name that is no name of a system call is passed over: a worker says it.
  void add(const std::string& name);

 private:
  base::Fd file_;
  std::set<std::string> known_;
};

}  // namespace tendril::daemon
