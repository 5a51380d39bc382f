// SPDX-License-Identifier: Apache-2.0
// What Slurm accounts of jobs: the output of `sacct --parsable2`, a table with '|' between columns.
// Untrusted. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tendril::plan {

struct SlurmJob {
  std::string id, user;
  uint32_t gpus = 0;  // 0: it had none
  int64_t ready_s = 0, from_s = 0, to_s = 0;
  double mean_busy = -1;      // part of its GPUs' time; negative: not accounted
  uint64_t memory_bytes = 0;  // of each GPU; 0: not accounted
};

inline constexpr uint32_t kMostGpusOfJob = 100'000;

// Columns JobID, Start, End and AllocTRES; optional User, Account, Submit, Eligible, NTasks,
// TRESUsageInAve, TRESUsageInTot. Steps ("12.0") may be among the jobs; they tell what their job
// used. Jobs that have not ended end with the last moment in the table. An error names the line
// and what is expected.
base::Result<std::vector<SlurmJob>> read_slurm(std::string_view text);

// Whether its first line is that of such a table.
bool is_slurm(std::string_view text);

}  // namespace tendril::plan
