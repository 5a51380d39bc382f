// SPDX-License-Identifier: Apache-2.0
// One GPU that several use: how much later each one's work is done than alone. Time goes in steps
// of the records. What a step leaves undone is done later. replay.cc calls it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/records.h"

namespace tendril::plan {

struct SharedJob {
  const std::vector<Sample>* samples = nullptr;  // of its holder
  int64_t from_s = 0, to_s = 0;                  // those of this time are its work
  int64_t begins_s = 0;                          // when `from_s` comes in the replay
  double share = 0;
};

class SharedGpu {
 public:
  // lends: time that one does not want, others get, in proportion to their shares.
  SharedGpu(int64_t step_s, bool lends) : step_s_(step_s), lends_(lends) {}
  void add(const SharedJob& job) { jobs_.push_back(job); }
  // For each job by how many seconds its work is late, as a mean over its work.
  std::vector<double> delays_s();

 private:
  struct Running {
    size_t job = 0, next = 0;  // next: of its samples
    double undone_s = 0;       // GPU seconds
    double served_s = 0;
  };

  int64_t shift_s(size_t job) const { return jobs_[job].begins_s - jobs_[job].from_s; }
  bool demand(Running* running, int64_t now_s);
  void serve(std::vector<Running>* running) const;
  void drain(const Running& running);

  const int64_t step_s_;
  const bool lends_;
  std::vector<SharedJob> jobs_;
  std::vector<double> late_, work_s_;  // late: seconds times GPU seconds
};

}  // namespace tendril::plan
