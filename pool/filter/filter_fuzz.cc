// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: a filter from arbitrary bytes, as any client may send it. What is read must
// give an answer; an error must name a column.
#include "pool/filter/filter.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace tendril::pool;  // NOLINT
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  GpuFacts gpu;
  gpu.model = text.substr(0, 40);
  gpu.memory_bytes = 1u << 30;
  gpu.driver = version_of(text);
  gpu.labels["a"] = "b";
  gpu.transports = {"tcp"};
  UserFacts who;
  who.user = text.substr(0, 40);
  who.groups = {"a", "b"};
  for (const Filter::Subject subject : {Filter::Subject::kGpu, Filter::Subject::kUser}) {
    const auto filter = Filter::parse(text, subject);
    if (!filter.ok()) {
      if (filter.status().message().find("column ") != 0) __builtin_trap();
      continue;
    }
    const bool gpu_matches = filter.value().matches(gpu);
    if (gpu_matches && !filter.value().could_match(gpu)) __builtin_trap();
    const bool who_matches = filter.value().matches(who);
    // A filter is about GPUs or about users.
    if (!filter.value().matches_everything() && gpu_matches && who_matches) __builtin_trap();
  }
  return 0;
}
