// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: records from arbitrary bytes, as a file of somebody else. What is read must be
// in order and within limits, and must give sums that make sense.
#include "plan/page.h"
#include "plan/use.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace tendril::plan;  // NOLINT
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  RecordReader reader;
  // Two files, parted by a zero byte.
  const size_t cut = text.find('\0');
  const bool read = reader.add(text.substr(0, cut)).ok();
  if (read && cut != std::string_view::npos)
    static_cast<void>(reader.add(text.substr(cut + 1)).ok());
  const auto records = reader.finish();
  if (!records.ok()) return 0;
  for (const Holder& holder : records.value().holders) {
    if (holder.to_s <= holder.from_s) __builtin_trap();
    for (size_t i = 1; i < holder.samples.size(); ++i)
      if (holder.samples[i].at_s <= holder.samples[i - 1].at_s) __builtin_trap();
  }
  const Use use = use_of(records.value());
  if (use.all.busy_gpu_s > use.all.held_gpu_s * 1.001) __builtin_trap();
  if (use.points.size() > kMostPoints + 1) __builtin_trap();
  Report report;
  report.use = use;
  report.measured = records.value().measured;
  const std::string page = report_html(report);
  if (page.find("<script") != std::string::npos) __builtin_trap();
  return 0;
}
