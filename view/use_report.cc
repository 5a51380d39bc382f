// SPDX-License-Identifier: Apache-2.0
// See use_report.h.
#include "view/use_report.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/quantity.h"
#include "view/json_fields.h"
#include "view/plot.h"
#include "view/table.h"

namespace tendril::view {
namespace {

using base::Result;
using base::Status;
using Json = nlohmann::json;

constexpr double kHourNs = 3600e9, kGbHours = double(1 << 20) / 1e3 / 1e9 / 3600;
constexpr double kBytesOfUnit = double(1 << 20) / 1000;  // of 2^20 bytes for a millisecond
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kSplit = 1'000'000'000'000'000'000;  // 128 bits in two numbers
constexpr size_t kMostBars = 20, kNameBytes = 40;

struct Answer {
  Json json;
  std::vector<std::string> by;
  int64_t step_s = 0;
};

Result<Answer> read_answer(const std::string& text) {
  Answer answer;
  answer.json = Json::parse(text, nullptr, false);
  if (!answer.json.is_object() || !part(answer.json, "rows").is_array())
    return Status(base::Code::kMismatch, "the pool answered with something else than a history");
  for (const Json& name : part(answer.json, "by")) {
    if (name.is_string()) answer.by.push_back(name.get<std::string>());
  }
  answer.step_s = whole(number(answer.json, "step_s"));
  return answer;
}

std::string moment_text(double at_s, bool with_seconds) {
  const time_t at = whole(at_s);
  tm parts = {};
  gmtime_r(&at, &parts);
  char text[40];
  const char* const form = with_seconds ? "%Y-%m-%d %H:%M:%S" : "%Y-%m-%d %H:%M";
  return strftime(text, sizeof text, form, &parts) == 0 ? "" : text;
}

std::string text_in(const Json& row, const std::string& key) {
  const Json& value = part(row, key.c_str());
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string heading(const std::string& name) {
  static const std::pair<const char*, const char*> kHeadings[] = {
      {"user", "User"},           {"account", "Account"}, {"user_class", "Class"},
      {"gpu_class", "GPU class"}, {"server", "Server"},   {"lease", "Lease"}};
  for (const auto& [key, text] : kHeadings) {
    if (name == key) return text;
  }
  return name;
}

std::string shown_name(const std::string& name) {
  return name.empty() ? "-" : base::printable(name, kNameBytes);
}

// What a short program had is not nothing.
std::string amount(double value, int digits) {
  return base::format("%.*f", value > 0 && value < 0.1 ? 4 : digits, value);
}

std::string hours(const Json& row, const char* key) {
  return amount(number(row, key) / kHourNs, 2);
}

std::string percent(double part, double whole) {
  return whole <= 0 ? "-" : base::format("%.1f %%", 100 * part / whole);
}

std::vector<Row> use_cells(const Answer& answer) {
  Row head;
  if (answer.step_s != 0) head.push_back("From (UTC)");
  for (const std::string& name : answer.by) head.push_back(heading(name));
  const bool has_capacity =
      std::all_of(answer.by.begin(), answer.by.end(),
                  [](const std::string& name) { return name == "server" || name == "gpu_class"; });
  if (head.empty()) head.push_back("");
  for (const char* text : {"Leases", "Asked GPU h", "Granted", "Used", "Used %", "Idle",
                           "Mean wait", "Queued GPU h", "Memory GB h", "Used GB h"})
    head.push_back(text);
  if (has_capacity) head.push_back("There GPU h");
  std::vector<Row> rows = {head};
  for (const Json& each : part(answer.json, "rows")) {
    Row row;
    if (answer.step_s != 0) row.push_back(moment_text(number(each, "at"), answer.step_s % 60 != 0));
    for (const std::string& name : answer.by) row.push_back(shown_name(text_in(each, name)));
    if (row.empty()) row.push_back("all");
    const double leases = number(each, "leases");
    row.push_back(base::format("%.0f", leases));
    for (const char* key : {"asked_gpu_ns", "given_gpu_ns", "used_ns"})
      row.push_back(hours(each, key));
    row.push_back(percent(number(each, "used_ns"), number(each, "given_gpu_ns")));
    row.push_back(hours(each, "idle_gpu_ns"));
    row.push_back(leases <= 0 ? "-"
                              : config::format_duration(uint64_t(whole(std::max(
                                    0.0, number(each, "waited_ns") / leases / 1e9 + 0.5)))));
    row.push_back(hours(each, "queued_gpu_ns"));
    for (const char* key : {"memory_held_mib_ms", "memory_used_mib_ms"})
      row.push_back(amount(number(each, key) * kGbHours, 1));
    if (has_capacity) row.push_back(hours(each, "capacity_gpu_ns"));
    rows.push_back(std::move(row));
  }
  return rows;
}

// Sentences about times in which nobody recorded.
std::vector<std::string> gap_lines(const Answer& answer) {
  std::vector<std::string> lines;
  for (const Json& gap : part(answer.json, "gaps")) {
    if (!gap.is_array() || gap.size() != 2 || !gap[0].is_number() || !gap[1].is_number()) continue;
    lines.push_back("No scheduler recorded from " + moment_text(gap[0].get<double>(), true) +
                    " to " + moment_text(gap[1].get<double>(), true) +
                    " UTC. Sums are whole; inside that time they are spread evenly.");
    if (lines.size() < 10) continue;
    lines.push_back("There are " + std::to_string(part(answer.json, "gaps").size()) +
                    " such times in all.");
    break;
  }
  return lines;
}

std::string range_line(const Answer& answer) {
  return "From " + moment_text(number(answer.json, "from_at"), true) + " to " +
         moment_text(number(answer.json, "to_at"), true) + " UTC.";
}

// ---- CSV ----

struct Column {
  const char* name;
  const char* key;
  enum { kCount, kSeconds, kBytes } unit;
};
constexpr Column kColumns[] = {{"leases", "leases", Column::kCount},
                               {"asked_gpu_s", "asked_gpu_ns", Column::kSeconds},
                               {"granted_gpu_s", "given_gpu_ns", Column::kSeconds},
                               {"used_gpu_s", "used_ns", Column::kSeconds},
                               {"idle_gpu_s", "idle_gpu_ns", Column::kSeconds},
                               {"waited_for_turns_s", "gpu_waited_ns", Column::kSeconds},
                               {"held_s", "held_ns", Column::kSeconds},
                               {"idle_s", "idle_ns", Column::kSeconds},
                               {"waited_s", "waited_ns", Column::kSeconds},
                               {"queued_s", "queued_ns", Column::kSeconds},
                               {"queued_gpu_s", "queued_gpu_ns", Column::kSeconds},
                               {"memory_held_byte_s", "memory_held_mib_ms", Column::kBytes},
                               {"memory_used_byte_s", "memory_used_mib_ms", Column::kBytes},
                               {"capacity_gpu_s", "capacity_gpu_ns", Column::kSeconds}};

std::string exact_text(const Column& column, const Json& row) {
  const Json& value = part(row, column.key);
  if (!value.is_number()) return "0";
  // Above 584 years of one GPU in one row, some microseconds are all that is left.
  if (!value.is_number_unsigned()) {
    const double much = std::max(0.0, value.get<double>());
    if (column.unit == Column::kSeconds) return base::format("%.6f", much / double(kSecondNs));
    return base::format("%.0f", column.unit == Column::kBytes ? much * kBytesOfUnit : much);
  }
  const uint64_t whole = value.get<uint64_t>();
  if (column.unit == Column::kCount) return std::to_string(whole);
  if (column.unit == Column::kSeconds)
    return base::format("%llu.%09llu", static_cast<unsigned long long>(whole / kSecondNs),
                        static_cast<unsigned long long>(whole % kSecondNs));
  const auto bytes = static_cast<unsigned __int128>(whole) * (1 << 20) / 1000;
  const auto above = static_cast<unsigned long long>(bytes / kSplit);
  const auto below = static_cast<unsigned long long>(bytes % kSplit);
  return above == 0 ? std::to_string(below) : base::format("%llu%018llu", above, below);
}

std::string csv_cell(const std::string& text) {
  std::string cell = base::printable(text);
  if (!cell.empty() && std::string("=+-@").find(cell[0]) != std::string::npos) cell = "'" + cell;
  std::string quoted = "\"";
  for (const char one : cell) quoted += one == '"' ? std::string("\"\"") : std::string(1, one);
  return quoted + "\"";
}

}  // namespace

Result<std::string> use_table(const std::string& sums_json) {
  auto answer = read_answer(sums_json);
  if (!answer.ok()) return answer.status();
  std::string text = aligned(use_cells(*answer));
  if (part(answer->json, "rows").empty()) text += "Nobody had anything in that time.\n";
  for (const std::string& line : gap_lines(*answer)) text += line + "\n";
  return text;
}

Result<std::string> use_csv(const std::string& sums_json) {
  auto answer = read_answer(sums_json);
  if (!answer.ok()) return answer.status();
  std::string csv = "from_s";
  for (const std::string& name : answer->by) csv += "," + name;
  for (const Column& column : kColumns) csv += std::string(",") + column.name;
  csv += "\n";
  for (const Json& row : part(answer->json, "rows")) {
    csv += base::format("%.0f", number(row, "at"));
    for (const std::string& name : answer->by) csv += "," + csv_cell(text_in(row, name));
    for (const Column& column : kColumns) csv += "," + exact_text(column, row);
    csv += "\n";
  }
  return csv;
}

namespace {

LinePlot plot_over_time(const Answer& steps) {
  LinePlot plot;
  plot.title = "GPUs over time";
  plot.from_s = whole(number(steps.json, "from_at"));
  plot.step_s = double(std::max<int64_t>(1, steps.step_s));
  const auto span_s = number(steps.json, "to_at") - double(plot.from_s);
  const size_t values = size_t(std::clamp(span_s / plot.step_s + 0.999, 1.0, 5000.0));
  static const std::pair<const char*, const char*> kLines[] = {{"used", "used_ns"},
                                                               {"granted", "given_gpu_ns"},
                                                               {"there", "capacity_gpu_ns"},
                                                               {"waited for", "queued_gpu_ns"}};
  for (const auto& [name, key] : kLines) {
    Line line{name, std::vector<double>(values, 0)};
    for (const Json& row : part(steps.json, "rows")) {
      const double at = (number(row, "at") - double(plot.from_s)) / plot.step_s;
      if (at < 0 || at >= double(values)) continue;
      // The last step may be shorter.
      const double rest_s = span_s - double(size_t(at)) * plot.step_s;
      line.values[size_t(at)] =
          number(row, key) / 1e9 / std::max(1.0, std::min(plot.step_s, rest_s));
    }
    plot.lines.push_back(std::move(line));
  }
  for (const Json& gap : part(steps.json, "gaps")) {
    if (gap.is_array() && gap.size() == 2 && gap[0].is_number() && gap[1].is_number())
      plot.gaps.emplace_back(whole(gap[0].get<double>()), whole(gap[1].get<double>()));
  }
  return plot;
}

BarPlot plot_by_name(const Answer& answer) {
  BarPlot plot;
  plot.title = "GPU hours granted, and of them used (darker)";
  std::map<std::string, std::pair<double, double>> sums;
  for (const Json& row : part(answer.json, "rows")) {
    std::string name;
    for (const std::string& by : answer.by) name += (name.empty() ? "" : ", ") + text_in(row, by);
    if (answer.by.empty()) name = "all";
    sums[name].first += number(row, "given_gpu_ns") / kHourNs;
    sums[name].second += number(row, "used_ns") / kHourNs;
  }
  std::vector<std::pair<std::string, std::pair<double, double>>> order;
  for (const auto& each : sums) {
    if (each.second.first > 0) order.push_back(each);
  }
  std::sort(order.begin(), order.end(), [](const auto& one, const auto& other) {
    return one.second.first > other.second.first;
  });
  if (order.size() > kMostBars) order.resize(kMostBars);
  for (const auto& [name, use] : order) {
    plot.bars.push_back(
        {shown_name(name),
         base::format("%.1f, used %s", use.first, percent(use.second, use.first).c_str()),
         use.first, use.second});
  }
  return plot;
}

}  // namespace

Result<std::string> use_html(const std::string& sums_json, const std::string& steps_json) {
  auto answer = read_answer(sums_json);
  if (!answer.ok()) return answer.status();
  auto steps = read_answer(steps_json);
  if (!steps.ok()) return steps.status();
  std::string body = "<p>" + range_line(*answer) + "</p>\n" + line_svg(plot_over_time(*steps));
  body += bar_svg(plot_by_name(*answer)) + html_table(use_cells(*answer));
  for (const std::string& line : gap_lines(*answer)) body += "<p>" + escaped_html(line) + "</p>\n";
  body +=
      "<p>Granted: GPUs that leases had. Used: GPU time in turns. Idle: granted while a lease did "
      "nothing. Queued: GPUs that requests asked for while they waited. Times are GPU hours.</p>\n";
  return html_page("Use of the pool's GPUs", body);
}

}  // namespace tendril::view
