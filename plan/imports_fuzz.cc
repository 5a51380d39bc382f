// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: what Prometheus and Slurm may have said. The first byte chooses; texts of Slurm
// get a head, so that their lines are reached. What is read must be within limits.
#include <string>

#include "plan/use.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace tendril::plan;  // NOLINT
  if (bytes == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  std::string text;
  switch (data[0] % 4) {
    case 0:
      text = "JobID|User|Submit|Start|End|AllocTRES|NTasks|TRESUsageInAve|TRESUsageInTot\n" + rest;
      break;
    case 1:
      text = rest;
      break;
    case 2:
      text = R"({"data":{"resultType":"matrix","result":[)" + rest;
      break;
    default:
      text = R"({"data":{"resultType":"matrix","result":[{"metric":{"__name__":)"
             R"("DCGM_FI_DEV_GPU_UTIL","UUID":"1"},"values":[)" +
             rest;
  }
  RecordReader reader;
  const tendril::base::Status status = reader.add(text);
  if (!status.ok() && status.message().empty()) __builtin_trap();
  const auto records = reader.finish();
  if (!records.ok()) return 0;
  for (const Holder& holder : records.value().holders) {
    if (holder.to_s <= holder.from_s || holder.gpus == 0 || holder.mean_busy > 1) __builtin_trap();
    for (size_t i = 1; i < holder.samples.size(); ++i)
      if (holder.samples[i].at_s <= holder.samples[i - 1].at_s) __builtin_trap();
  }
  const Use use = use_of(records.value());
  if (use.all.busy_gpu_s > use.all.known_gpu_s * 1.001) __builtin_trap();
  return 0;
}
