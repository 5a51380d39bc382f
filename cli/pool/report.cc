// SPDX-License-Identifier: Apache-2.0
// `tendril report`: who had how much of a pool's GPUs, from its history.
#include <stdio.h>
#include <time.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/pool/ask.h"
#include "config/quantity.h"
#include "pool/policy/calendar.h"
#include "view/use_report.h"

namespace tendril::cli {

using base::Result;
using base::Status;

namespace {

constexpr int kLeastTimeoutMs = 60'000;  // a month of minutes takes the pool seconds
constexpr int kPlotPoints = 280;

// "7d" (ago), "2026-11-01", "2026-11-01 08:00", "now"; UTC.
Result<int64_t> read_moment(const char* option, const std::string& text, int64_t now_s) {
  if (text == "now") return now_s;
  const auto ago_s = config::parse_duration(text);
  if (ago_s.ok()) return now_s - int64_t(ago_s.value());
  auto moment = pool::parse_moment(text, 0, pool::Zone());
  if (moment.ok()) return moment;
  return Status(base::Code::kInvalid, std::string(option) + " " + text +
                                          ": write a date (2026-11-01, or \"2026-11-01 08:00\", "
                                          "UTC), a time ago (7d), or now");
}

// Splits at commas. "hour" and "day" are steps of the range; the others are names.
std::string words_of(const std::string& by, int64_t* step_s) {
  std::string names;
  for (size_t at = 0; at <= by.size() && !by.empty();) {
    const size_t comma = std::min(by.find(',', at), by.size());
    const std::string word = by.substr(at, comma - at);
    at = comma + 1;
    if (word == "hour")
      *step_s = 3600;
    else if (word == "day")
      *step_s = 86'400;
    else
      names += (names.empty() ? "" : ",") + word;
  }
  return names;
}

wire::PoolCommand question(int64_t from_s, int64_t to_s, const std::string& rest) {
  wire::PoolCommand command;
  command.verb = "history";
  command.arguments = {"from=" + std::to_string(from_s), "to=" + std::to_string(to_s), rest};
  return command;
}

}  // namespace

int report_use(const ReportOptions& options) {
  const auto now_s = static_cast<int64_t>(time(nullptr));
  const auto from_s = read_moment("--from", options.from, now_s);
  if (!from_s.ok()) return complain(kUsage, from_s.status());
  const auto to_s = read_moment("--to", options.to, now_s);
  if (!to_s.ok()) return complain(kUsage, to_s.status());
  int64_t step_s = 0;
  const std::string names = words_of(options.by, &step_s);
  auto asked = reach_to_administer(options);
  if (!asked.ok()) return complain(kFailed, asked.status());
  const int timeout_ms = std::max(options.timeout_ms, kLeastTimeoutMs);
  wire::PoolCommand command =
      question(from_s.value(), to_s.value(), "step=" + std::to_string(step_s));
  if (!names.empty()) command.arguments.push_back("by=" + names);
  auto sums = ask_pool(*asked, command, timeout_ms);
  if (!sums.ok()) return complain(kFailed, sums.status());
  Result<std::string> text = *sums + "\n";
  if (options.format == "html") {
    auto steps = ask_pool(
        *asked, question(from_s.value(), to_s.value(), "points=" + std::to_string(kPlotPoints)),
        timeout_ms);
    if (!steps.ok()) return complain(kFailed, steps.status());
    text = view::use_html(*sums, *steps);
  } else if (options.format == "csv") {
    text = view::use_csv(*sums);
  } else if (options.format == "table") {
    text = view::use_table(*sums);
  }
  if (!text.ok()) return complain(kFailed, text.status());
  fputs(text->c_str(), stdout);
  return ferror(stdout) == 0 ? 0 : kFailed;
}

}  // namespace tendril::cli
