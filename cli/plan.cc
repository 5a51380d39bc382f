// SPDX-License-Identifier: Apache-2.0
// `tendril plan`: reads records of a cluster and says how many GPUs would have done the same work.
#include <stdio.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/complain.h"
#include "config/quantity.h"
#include "config/text.h"
#include "observe/record_file.h"
#include "plan/network.h"
#include "plan/page.h"
#include "plan/parked_replay.h"

namespace tendril::cli {
namespace {

constexpr size_t kRecordBytesMax = size_t{1} << 30;  // of one file

base::Status read_plan_options(const PlanOptions& options, plan::LadderOptions* ladder) {
  for (const double card_gb : options.cards_gb)
    ladder->cards_bytes.push_back(static_cast<uint64_t>(card_gb * 1e9));
  const auto wait_s = config::parse_duration(options.wait);
  if (!wait_s.ok())
    return base::Status(base::Code::kInvalid, "--wait: " + wait_s.status().message());
  ladder->limit_s = static_cast<double>(wait_s.value());
  const auto idle_s = config::parse_duration(options.idle);
  if (!idle_s.ok())
    return base::Status(base::Code::kInvalid, "--idle: " + idle_s.status().message());
  ladder->idle_before_move_s = static_cast<int64_t>(idle_s.value());
  if (options.assume_active.empty()) return {};
  const auto active = config::parse_fraction(options.assume_active);
  if (!active.ok())
    return base::Status(base::Code::kInvalid, "--assume-active: " + active.status().message());
  ladder->assumed_active = static_cast<double>(active.value()) / config::kWholeGpu;
  return {};
}

// Rows of `tendril observe`, or a text.
base::Status add_file(const std::string& file, plan::RecordReader* reader) {
  base::Status status;
  if (observe::is_record_file(file)) {
    status = observe::read_record_file(file, [reader](const observe::RecordRow& row) {
      const std::string job = row.job.empty() || row.container.empty()
                                  ? row.job + row.container
                                  : row.job + " in " + row.container;
      plan::UseRow use;
      use.at_s = row.at_s;
      use.server = row.server;
      use.gpu = row.gpu;
      use.user = row.user;
      use.job = job;
      if (row.busy_millionths >= 0) use.busy = static_cast<double>(row.busy_millionths) / 1e6;
      use.memory_bytes = static_cast<uint64_t>(std::max<int64_t>(0, row.memory_bytes));
      return reader->add_row(use);
    });
  } else {
    const auto text = config::read_file(file, kRecordBytesMax);
    if (!text.ok()) return text.status();
    status = reader->add(text.value());
  }
  return status.ok() ? status : base::Status(status.code(), file + ": " + status.message());
}

constexpr double kWakeLimit_s = 3;

// Empty: the records do not say when holders worked.
std::string parked_text(const PlanOptions& options, const plan::Records& records,
                        const plan::LadderOptions& ladder) {
  std::string text;
  for (const uint64_t card_bytes : ladder.cards_bytes) {
    if (!records.measured) return "";
    plan::ParkedSettings settings;
    settings.card_bytes = card_bytes;
    settings.idle_s = static_cast<double>(ladder.idle_before_move_s);
    settings.pressure_idle_s = std::min(settings.pressure_idle_s, settings.idle_s);
    if (options.turn_s > 0) settings.turn_s = options.turn_s;
    settings.link_bytes_per_s = options.link_gb_per_s * 1e9;
    settings.seed = ladder.seed;
    text += plan::parked_text(records, settings, kWakeLimit_s, options.parked_cards);
  }
  return text;
}

int print(const std::string& output) {
  fwrite(output.data(), 1, output.size(), stdout);
  return ferror(stdout) == 0 ? 0 : kFailed;
}

int plan_network(const PlanOptions& options) {
  if (options.files.size() != 1 || (options.format != "text" && options.format != "json")) {
    return complain(kUsage, base::Status(base::Code::kInvalid,
                                         "--network reads one file, and prints text or json"));
  }
  const auto text = config::read_file(options.files[0], kRecordBytesMax);
  if (!text.ok()) return complain(kFailed, text.status());
  const auto costs = plan::read_program_costs(text.value());
  if (!costs.ok()) return complain(kFailed, options.files[0] + ": " + costs.status().message());
  std::vector<plan::NetworkLine> lines;
  for (const double gigabits : options.gigabits) {
    for (const double delay_us : options.delays_us) lines.push_back({gigabits, delay_us});
  }
  return print(options.format == "json" ? plan::network_json(costs.value(), lines)
                                        : plan::network_text(costs.value(), lines));
}

}  // namespace

int plan_gpus(const PlanOptions& options) {
  if (options.network) return plan_network(options);
  plan::LadderOptions ladder;
  if (const base::Status status = read_plan_options(options, &ladder); !status.ok())
    return complain(kUsage, status);
  plan::RecordReader reader;
  for (const std::string& file : options.files) {
    if (const base::Status status = add_file(file, &reader); !status.ok())
      return complain(kFailed, status);
  }
  const auto records = reader.finish();
  if (!records.ok()) return complain(kFailed, records.status());
  if (options.parked) {
    const std::string text = parked_text(options, records.value(), ladder);
    if (text.empty()) {
      return complain(kUsage, base::Status(base::Code::kInvalid,
                                           "--parked needs records of memory and work; these say "
                                           "only what was asked for"));
    }
    return print(text);
  }
  const plan::Report report = plan::report_on(records.value(), ladder, options.files);
  std::string output;
  if (options.format == "json")
    output = plan::report_json(report);
  else if (options.format == "html")
    output = plan::report_html(report);
  else if (options.format == "svg")
    output = plan::report_svg(report);
  else
    output = plan::report_text(report);
  return print(output);
}

}  // namespace tendril::cli
