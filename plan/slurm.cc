// SPDX-License-Identifier: Apache-2.0
// See slurm.h.
#include "plan/slurm.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/text.h"
#include "plan/records.h"
#include "pool/replay/table.h"

namespace tendril::plan {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr size_t kMostJobs = 2'000'000;
constexpr double kMostPercent = 1e6;  // summed over GPUs

// What steps of one job used.
struct Usage {
  double busy_s = 0;  // GPU seconds
  bool busy_known = false;
  double memory_bytes = 0;
};

std::string_view line_of(std::string_view* text) {
  const size_t end = text->find('\n');
  std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

bool read_integer(std::string_view text, int64_t most, int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value >= 0 && *value <= most;
}

// "2026-11-01T08:00:00", or seconds as SLURM_TIME_FORMAT=%s gives them. False: no moment, as
// "Unknown" is of a job that still runs. Local times are taken as if they were UTC.
bool read_moment(std::string_view text, int64_t* at_s) {
  if (read_integer(text, static_cast<int64_t>(kMostTime_s), at_s)) return true;
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd";
  if (text.size() != kForm.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == 'd' ? !digit : text[i] != kForm[i]) return false;
  }
  const auto number = [text](size_t at, size_t digits) {
    int value = 0;
    for (size_t i = at; i < at + digits; ++i) value = value * 10 + (text[i] - '0');
    return value;
  };
  tm parts = {};
  parts.tm_year = number(0, 4) - 1900;
  parts.tm_mon = number(5, 2) - 1;
  parts.tm_mday = number(8, 2);
  parts.tm_hour = number(11, 2);
  parts.tm_min = number(14, 2);
  parts.tm_sec = number(17, 2);
  *at_s = timegm(&parts);
  return *at_s >= 0;
}

// The value of `name` in "cpu=8,gres/gpu=2"; empty: it is not there.
std::string_view resource(std::string_view list, std::string_view name) {
  for (const std::string_view part : pool::split_text(list, ',')) {
    if (part.size() > name.size() && part.substr(0, name.size()) == name &&
        part[name.size()] == '=')
      return part.substr(name.size() + 1);
  }
  return {};
}

// "512", "1.5G": in units of 1024; a number alone counts bytes.
bool read_amount(std::string_view text, double most, double* value) {
  constexpr std::string_view kUnits = "KMGTP";
  const size_t power = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  if (power != std::string_view::npos) text.remove_suffix(1);
  if (!pool::read_decimal(text, most, value)) return false;
  for (size_t i = 0; power != std::string_view::npos && i <= power; ++i) *value *= 1024;
  return *value <= most;
}

class SlurmReader {
 public:
  Result<std::vector<SlurmJob>> read(std::string_view text) {
    number_ = 1;
    for (const std::string_view name : pool::split_text(line_of(&text), '|'))
      names_.emplace_back(name.substr(0, kMostNameBytes));
    for (const char* const needed : {"JobID", "Start", "End", "AllocTRES"})
      if (!has(needed))
        return Status(Code::kInvalid, std::string("line 1: the column ") + needed +
                                          " is missing; expected JobID, Start, End and AllocTRES");
    while (!text.empty()) {
      ++number_;
      const std::string_view line = line_of(&text);
      if (line.empty()) continue;
      values_ = pool::split_text(line, '|');
      const Status taken = take_line();
      if (!taken.ok()) return taken;
    }
    finish();
    return std::move(jobs_);
  }

 private:
  bool has(std::string_view name) const {
    return std::find(names_.begin(), names_.end(), name) != names_.end();
  }
  std::string_view value(std::string_view name) const {
    const size_t at = std::find(names_.begin(), names_.end(), name) - names_.begin();
    return at < values_.size() ? values_[at] : std::string_view();
  }
  Status refuse(std::string_view column, const std::string& expected) const {
    return Status(Code::kInvalid,
                  "line " + std::to_string(number_) + ": column " + std::string(column) + " is \"" +
                      base::printable(std::string(value(column)), 60) + "\"; expected " + expected);
  }
  // Of a job that never started, or has not ended: `known` is false.
  Status moment(std::string_view column, bool* known, int64_t* at_s) {
    *known = read_moment(value(column), at_s);
    if (*known) {
      last_s_ = std::max(last_s_, *at_s);
      return {};
    }
    const std::string_view text = value(column);
    if (text.empty() || text == "Unknown" || text == "None" || text == "N/A") return {};
    return refuse(column, "a time such as 2026-11-01T08:00:00, or Unknown");
  }

  Status take_line() {
    const std::string_view id = value("JobID");
    const std::string_view job = id.substr(0, id.find('.'));
    if (job.empty() || job.size() > kMostNameBytes)
      return refuse("JobID", "a number such as 1234 or 1234.0");
    bool started = false, ended = false;
    int64_t from_s = 0, to_s = 0;
    Status read = moment("Start", &started, &from_s);
    if (read.ok()) read = moment("End", &ended, &to_s);
    if (!read.ok() || !started) return read;
    if (ended && to_s < from_s) return refuse("End", "a time after Start");
    const auto known = numbers_.find(job);
    if (id.size() == job.size()) {
      if (known != numbers_.end()) return {};  // a job that was requeued stands there again
      return take_job(std::string(job), from_s, ended ? to_s : kOpen);
    }
    if (known == numbers_.end() || !ended) return {};
    return take_usage(known->second, static_cast<double>(to_s - from_s));
  }

  Status take_job(const std::string& id, int64_t from_s, int64_t to_s) {
    if (jobs_.size() == kMostJobs)
      return Status(Code::kInvalid, "line " + std::to_string(number_) + ": too many jobs");
    SlurmJob job;
    job.id = id;
    job.user = std::string(value("User").substr(0, kMostNameBytes));
    if (job.user.empty()) job.user = std::string(value("Account").substr(0, kMostNameBytes));
    job.from_s = from_s;
    job.to_s = to_s;
    job.ready_s = from_s;
    for (const char* const column : {"Submit", "Eligible"}) {
      bool known = false;
      int64_t at_s = 0;
      const Status read = moment(column, &known, &at_s);
      if (!read.ok()) return read;
      if (known) job.ready_s = std::min(at_s, from_s);
    }
    const Status counted = count_gpus(&job.gpus);
    if (!counted.ok()) return counted;
    numbers_.emplace(job.id, jobs_.size());
    jobs_.push_back(job);
    usages_.emplace_back();
    const double lasts_s = to_s == kOpen ? 0 : static_cast<double>(to_s - from_s);
    return take_usage(jobs_.size() - 1, lasts_s);
  }

  // "gres/gpu=4"; where only kinds are counted, their sum: "gres/gpu:a100=2,gres/gpu:h100=2".
  Status count_gpus(uint32_t* gpus) const {
    int64_t all = 0, kinds = 0;
    for (const std::string_view part : pool::split_text(value("AllocTRES"), ',')) {
      if (part.substr(0, 8) != "gres/gpu" || part.size() < 9) continue;
      if (part[8] != '=' && part[8] != ':') continue;
      const size_t equals = part.find('=');
      int64_t count = 0;
      if (equals == std::string_view::npos ||
          !read_integer(part.substr(equals + 1), kMostGpusOfJob, &count))
        return refuse("AllocTRES", "gres/gpu=N");
      (part[8] == '=' ? all : kinds) += count;
    }
    *gpus = static_cast<uint32_t>(std::min<int64_t>(all != 0 ? all : kinds, kMostGpusOfJob));
    return {};
  }

  // Slurm sums over the GPUs of a task. A total is over all tasks, an average over one.
  Status take_usage(size_t number, double lasts_s) {
    const uint32_t gpus = jobs_[number].gpus;
    if (gpus == 0) return {};
    const bool total = !value("TRESUsageInTot").empty();
    const char* const column = total ? "TRESUsageInTot" : "TRESUsageInAve";
    int64_t tasks = 0;
    const bool tasks_known = read_integer(value("NTasks"), kMostGpusOfJob, &tasks);
    double busy = 0, memory = 0;
    const std::string_view busy_text = resource(value(column), "gres/gpuutil");
    const std::string_view memory_text = resource(value(column), "gres/gpumem");
    if (!busy_text.empty()) {
      if (!read_amount(busy_text, kMostPercent, &busy)) return refuse(column, "gres/gpuutil=N");
      if (!total && tasks_known) busy *= static_cast<double>(tasks);
      // An average without the number of tasks: more than one GPU can only be seen above 100.
      if (total || tasks_known || busy > 100) busy /= gpus;
      usages_[number].busy_s += std::min(busy, 100.0) / 100 * gpus * lasts_s;
      usages_[number].busy_known = true;
    }
    if (!memory_text.empty()) {
      if (!read_amount(memory_text, 1e18, &memory)) return refuse(column, "gres/gpumem=12M");
      if (!total && tasks_known) memory *= static_cast<double>(tasks);
      if (total || tasks_known) memory /= gpus;
      usages_[number].memory_bytes = std::max(usages_[number].memory_bytes, memory);
    }
    return {};
  }

  void finish() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      SlurmJob& job = jobs_[i];
      if (job.to_s == kOpen) job.to_s = std::max(last_s_, job.from_s);
      const double gpu_s = static_cast<double>(job.to_s - job.from_s) * job.gpus;
      if (usages_[i].busy_known && gpu_s > 0)
        job.mean_busy = std::min(1.0, usages_[i].busy_s / gpu_s);
      job.memory_bytes = static_cast<uint64_t>(usages_[i].memory_bytes);
    }
  }

  static constexpr int64_t kOpen = -1;
  std::vector<std::string> names_;
  std::vector<std::string_view> values_;  // of the line
  size_t number_ = 0;                     // of the line
  int64_t last_s_ = 0;
  std::vector<SlurmJob> jobs_;
  std::vector<Usage> usages_;
  std::map<std::string, size_t, std::less<>> numbers_;
};

}  // namespace

bool is_slurm(std::string_view text) {
  const std::string_view line = line_of(&text);
  const auto names = pool::split_text(line, '|');
  return names.size() > 1 && std::find(names.begin(), names.end(), "JobID") != names.end();
}

Result<std::vector<SlurmJob>> read_slurm(std::string_view text) { return SlurmReader().read(text); }

}  // namespace tendril::plan
