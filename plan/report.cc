// SPDX-License-Identifier: Apache-2.0
// See report.h.
#include "plan/report.h"

#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "config/quantity.h"
#include "view/table.h"

namespace tendril::plan {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kGb = 1e9;
constexpr double kHour_s = 3600;

__attribute__((format(printf, 1, 2))) std::string formatted(const char* format, ...) {
  char text[400];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return text;
}

std::string hours_text(double gpu_s) { return formatted("%.1f", gpu_s / kHour_s); }

std::string percent_of(double part, double whole) {
  return whole <= 0 ? "-" : formatted("%.1f %%", 100 * part / whole);
}

std::string card_text(uint64_t bytes) {
  return bytes == 0 ? "any" : formatted("%.0f GB", static_cast<double>(bytes) / kGb);
}

Json outcome_json(const Outcome& outcome) {
  return {{"gpus", outcome.gpus},
          {"mean_wait_s", outcome.mean_wait_s},
          {"p95_wait_s", outcome.p95_wait_s},
          {"longest_wait_s", outcome.most_wait_s},
          {"mean_late_s", outcome.mean_late_s},
          {"p95_late_s", outcome.p95_late_s}};
}

Json rung_json(const Rung& rung) {
  Json json = {{"step", step_name(rung.step)}, {"requests", rung.jobs}};
  if (rung.card_bytes != 0) json["card_bytes"] = rung.card_bytes;
  if (rung.bound_gpus != 0) json["bound_gpus"] = rung.bound_gpus;
  if (rung.packed_gpus != 0) json["packed_gpus"] = rung.packed_gpus;
  json["kind"] = !rung.known    ? "unknown"
                 : rung.assumed ? "simulated on an assumption"
                                : "simulated";
  if (rung.known) {
    json["within_limit"] = rung.reached;
    json["simulated"] = outcome_json(rung.outcome);
    json["moves"] = rung.outcome.moves;
    for (const Outcome& tried : rung.tried) json["tried"].push_back(outcome_json(tried));
  }
  if (!rung.note.empty()) json["note"] = rung.note;
  return json;
}

Json user_json(const UserUse& user) {
  Json json = {{"user", user.user},
               {"holders", user.holders},
               {"held_gpu_s", user.held_gpu_s},
               {"known_gpu_s", user.known_gpu_s},
               {"busy_gpu_s", user.busy_gpu_s},
               {"idle_gpu_s", user.idle_gpu_s},
               {"never_used_gpu_s", user.never_gpu_s}};
  return json;
}

}  // namespace

std::string time_text(double seconds) {
  return config::format_duration(static_cast<uint64_t>(seconds + 0.5));
}

Report report_on(const Records& records, const LadderOptions& options,
                 std::vector<std::string> files) {
  Report report;
  report.files = std::move(files);
  report.rows = records.rows;
  report.holders = records.holders.size();
  report.measured = records.measured;
  report.accounted = records.accounted;
  report.from_s = records.from_s;
  report.to_s = records.to_s;
  report.step_s = records.step_s;
  report.use = use_of(records);
  report.options = options;
  report.ladder = climb(records, options);
  return report;
}

std::vector<std::string> summary_sentences(const Report& report) {
  const Use& use = report.use;
  std::vector<std::string> lines;
  lines.push_back(formatted("%zu rows about %zu holders of GPUs, over %s.", report.rows,
                            report.holders,
                            time_text(static_cast<double>(report.to_s - report.from_s)).c_str()));
  if (!report.measured) {
    lines.push_back(formatted("They asked for %.1f GPUs at once on average, and for %.1f at most.",
                              use.mean_held_gpus, use.most_held_gpus));
    if (!report.accounted) {
      lines.push_back("Nobody measured what they did with them.");
      return lines;
    }
    lines.push_back(
        formatted("Of %s GPU hours it is accounted what the jobs did: %s were work, %s.",
                  hours_text(use.all.known_gpu_s).c_str(), hours_text(use.all.busy_gpu_s).c_str(),
                  percent_of(use.all.busy_gpu_s, use.all.known_gpu_s).c_str()));
    lines.push_back(
        formatted("%zu jobs never used their GPUs, or under %.1f %% of their time: %s GPU hours.",
                  use.never_used, 100 * kHardly, hours_text(use.all.never_gpu_s).c_str()));
    return lines;
  }
  lines.push_back(formatted(
      "%.0f GPUs were held at once on average (%.0f at most). They kept %.1f busy (%.1f at most).",
      use.mean_held_gpus, use.most_held_gpus, use.mean_busy_gpus, use.most_busy_gpus));
  lines.push_back(
      formatted("Of %s GPU hours held, %s were work: %s. In %s of the samples the GPU did nothing.",
                hours_text(use.all.held_gpu_s).c_str(), hours_text(use.all.busy_gpu_s).c_str(),
                percent_of(use.all.busy_gpu_s, use.all.held_gpu_s).c_str(),
                percent_of(use.all.idle_gpu_s, use.all.held_gpu_s).c_str()));
  lines.push_back(
      formatted("%zu holders never used their GPU, or under %.1f %% of their time: %s GPU hours.",
                use.never_used, 100 * kHardly, hours_text(use.all.never_gpu_s).c_str()));
  return lines;
}

Cells ladder_cells(const Report& report) {
  Cells cells = {{"Step", "Card", "Bound", "Packed", "GPUs", "Mean wait", "p95", "Longest",
                  "Work late", "p95 late", "Moves/h"}};
  const double hours = std::max(1.0, static_cast<double>(report.to_s - report.from_s) / kHour_s);
  for (const Rung& rung : report.ladder) {
    const Outcome& found = rung.outcome;
    std::vector<std::string> line = {
        step_name(rung.step), card_text(rung.card_bytes),
        rung.bound_gpus == 0 ? "-" : std::to_string(rung.bound_gpus),
        rung.packed_gpus == 0 ? "-" : std::to_string(rung.packed_gpus)};
    if (rung.known) {
      line.push_back(std::to_string(found.gpus) + (rung.assumed ? "*" : ""));
      for (const double wait_s : {found.mean_wait_s, found.p95_wait_s, found.most_wait_s})
        line.push_back(time_text(wait_s));
      for (const double late_s : {found.mean_late_s, found.p95_late_s})
        line.push_back(report.measured ? time_text(late_s) : "-");
      line.push_back(formatted("%.0f", static_cast<double>(found.moves) / hours));
    } else {
      line.insert(line.end(), 7, "-");
    }
    cells.push_back(line);
  }
  return cells;
}

Cells user_cells(const Report& report) {
  Cells cells = {{"User", "Holders", "Held GPU h", "Busy", "Idle GPU h", "Never used GPU h"}};
  for (const UserUse& user : report.use.users) {
    if (cells.size() > kMostUsers) break;
    cells.push_back({user.user, std::to_string(user.holders), hours_text(user.held_gpu_s),
                     percent_of(user.busy_gpu_s, user.known_gpu_s),
                     report.measured ? hours_text(user.idle_gpu_s) : "-",
                     hours_text(user.never_gpu_s)});
  }
  return cells;
}

std::vector<std::string> ladder_notes(const Report& report) {
  std::vector<std::string> notes = {
      "Bound: with fewer GPUs the work does not fit into the records' time. Computed.",
      "Packed: cards that hold all peaks of memory at once. Nobody waits, nothing is simulated.",
      formatted("GPUs: the fewest with which 95 %% of the requests start within %s. Simulated by "
                "the pool's own scheduler.",
                time_text(report.options.limit_s).c_str()),
      "Work late: what a request's work is done later because others use its GPU. Simulated."};
  bool assumed = false;
  std::set<std::string> said;
  for (const Rung& rung : report.ladder) {
    assumed = assumed || (rung.assumed && rung.known);
    if (!rung.note.empty() && said.insert(step_name(rung.step) + rung.note).second)
      notes.push_back(std::string(step_name(rung.step)) + ": " + rung.note + ".");
  }
  if (assumed)
    notes.push_back(formatted("* Assumed, not recorded: a holder works %.0f %% of its time.",
                              100 * report.options.assumed_active));
  return notes;
}

std::string report_text(const Report& report) {
  std::string text;
  for (const std::string& line : summary_sentences(report)) text += line + "\n";
  text += "\n" + view::aligned(ladder_cells(report)) + "\n";
  for (const std::string& note : ladder_notes(report)) text += note + "\n";
  if (!report.measured && !report.accounted) return text;
  Cells users = user_cells(report);
  for (auto& line : users) line.front() = base::printable(line.front(), 40);
  text += "\nMost held and idle:\n" + view::aligned(users);
  return text;
}

std::string report_json(const Report& report) {
  Json json = {{"files", report.files},         {"rows", report.rows},
               {"holders", report.holders},     {"measured", report.measured},
               {"accounted", report.accounted}, {"from_s", report.from_s},
               {"to_s", report.to_s},           {"step_s", report.step_s}};
  const Use& use = report.use;
  json["use"] = {{"mean_held_gpus", use.mean_held_gpus}, {"most_held_gpus", use.most_held_gpus},
                 {"mean_busy_gpus", use.mean_busy_gpus}, {"most_busy_gpus", use.most_busy_gpus},
                 {"held_gpu_s", use.all.held_gpu_s},     {"busy_gpu_s", use.all.busy_gpu_s},
                 {"idle_gpu_s", use.all.idle_gpu_s},     {"never_used_gpu_s", use.all.never_gpu_s},
                 {"never_used_holders", use.never_used}};
  json["users"] = Json::array();
  for (const UserUse& user : use.users) json["users"].push_back(user_json(user));
  json["wait_limit_s"] = report.options.limit_s;
  json["idle_before_move_s"] = report.options.idle_before_move_s;
  if (report.options.assumed_active > 0) json["assumed_active"] = report.options.assumed_active;
  json["ladder"] = Json::array();
  for (const Rung& rung : report.ladder) json["ladder"].push_back(rung_json(rung));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tendril::plan
