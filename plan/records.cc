// SPDX-License-Identifier: Apache-2.0
// See records.h.
#include "plan/records.h"

#include <algorithm>

#include "plan/prometheus.h"
#include "pool/placement/request.h"
#include "pool/replay/table.h"

namespace tendril::plan {

using base::Code;
using base::Status;
using pool::TableLine;

namespace {

constexpr double kMostBytes = 1e15;  // of a GPU's memory
constexpr uint64_t kMilliOfGpu = 1000;
constexpr char kNameless[] = "(not named)";

bool has_column(const std::vector<std::string_view>& columns, const char* name) {
  return std::find(columns.begin(), columns.end(), name) != columns.end();
}

// The word in that column; an empty or a long one is an error of the line.
std::string name_in(TableLine& line, const char* column) {
  const std::string_view name = line.text(column);
  if (name.empty() || name.size() > kMostNameBytes)
    line.refuse(std::string("column ") + column + " needs 1 to " + std::to_string(kMostNameBytes) +
                " bytes");
  return std::string(name.substr(0, kMostNameBytes));
}

// The commonest difference between neighbours of one holder.
int64_t step_of(const std::vector<Holder>& holders) {
  std::map<int64_t, size_t> counts;
  for (const Holder& holder : holders)
    for (size_t i = 1; i < holder.samples.size(); ++i)
      ++counts[holder.samples[i].at_s - holder.samples[i - 1].at_s];
  int64_t step_s = 60;
  size_t most = 0;
  for (const auto& [difference_s, count] : counts) {
    if (count <= most) continue;
    most = count;
    step_s = difference_s;
  }
  return std::max<int64_t>(1, step_s);
}

}  // namespace

uint64_t Holder::peak_memory_bytes() const {
  uint64_t peak = most_memory_bytes;
  for (const Sample& sample : samples) peak = std::max(peak, sample.memory_bytes);
  return peak;
}

Status RecordReader::add(std::string_view text) {
  constexpr std::string_view kGzip = "\x1f\x8b";
  if (text.substr(0, kGzip.size()) == kGzip)
    return Status(Code::kInvalid, "it is compressed; unpack it first: tar xzf, or gunzip");
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text[begin] == '{') return add_prometheus(text);
  if (is_slurm(text)) return add_slurm(text);
  const std::vector<std::string_view> columns = pool::table_columns(text);
  if (has_column(columns, "time_s") && has_column(columns, "utilisation_percent"))
    return add_records(text);
  if (has_column(columns, "timestamp_anon") && has_column(columns, "container_ip"))
    return add_pods(text);
  if (has_column(columns, "num_gpu") && has_column(columns, "creation_time"))
    return add_requests(text);
  if (has_column(columns, "num_gpu") && has_column(columns, "gpu_milli")) {
    return Status(Code::kInvalid,
                  "it has requests without times, so nobody knows how many there were at once; a "
                  "plan needs the columns creation_time and deletion_time");
  }
  return Status(Code::kInvalid,
                "its first line names no columns that are known; expected records (time_s, gpu, "
                "utilisation_percent, memory_bytes), pods (timestamp_anon, value, container_ip), "
                "requests (num_gpu, gpu_milli, creation_time, deletion_time), jobs of Slurm "
                "(JobID|Start|End|AllocTRES) or an answer of Prometheus");
}

uint32_t RecordReader::holder(const std::string& name, const std::string& user) {
  const auto known = numbers_.find(name);
  if (known != numbers_.end()) return known->second;
  if (holders_.size() == kMostHolders) return kMostHolders;
  const auto number = static_cast<uint32_t>(holders_.size());
  numbers_.emplace(name, number);
  Holder made;
  made.name = name;
  made.user = user;
  holders_.push_back(std::move(made));
  return number;
}

Status RecordReader::add_row(const UseRow& row) {
  const auto refuse = [](const char* why) { return Status(Code::kInvalid, why); };
  if (++rows_read_ > kMostRows) return refuse("too many rows");
  if (row.at_s < 0 || row.at_s > static_cast<int64_t>(kMostTime_s) || row.busy > 1)
    return refuse("a row has a time or a utilisation that cannot be");
  if (row.user.empty() && row.job.empty()) return {};  // nobody holds it
  const auto cut = [](std::string_view name) {
    return std::string(name.substr(0, kMostNameBytes));
  };
  const std::string user = cut(row.user), job = cut(row.job);
  Row one;
  one.sample = {row.at_s, static_cast<float>(std::max(0.0, row.busy)), row.busy >= 0,
                row.memory_bytes};
  one.holder = holder(cut(row.server) + "/" + cut(row.gpu) + "/" + user + "/" + job,
                      user.empty() ? job : user);
  if (one.holder == kMostHolders) return refuse("too many programs");
  if (holders_[one.holder].job.empty()) holders_[one.holder].job = job;
  rows_.push_back(one);
  return {};
}

Status RecordReader::add_records(std::string_view text) {
  return pool::read_table(text, [this](TableLine& line) {
    UseRow row;
    row.at_s = static_cast<int64_t>(line.number("time_s", kMostTime_s));
    row.busy = line.decimal("utilisation_percent", 100) / 100;
    row.memory_bytes = static_cast<uint64_t>(line.decimal("memory_bytes", kMostBytes));
    const std::string gpu = name_in(line, "gpu");
    if (!line.status()) return;
    row.gpu = gpu;
    row.server = line.text("server");
    row.user = line.text("user");
    row.job = line.text("job");
    const Status added = add_row(row);
    if (!added.ok()) line.refuse(added.message());
  });
}

Status RecordReader::add_prometheus(std::string_view text) {
  constexpr double kMib = 1024.0 * 1024;
  return read_prometheus(text, [this](const DcgmSeries& series, int64_t at_s, double value) {
    UseRow row;
    row.at_s = at_s;
    row.server = series.server;
    row.gpu = series.gpu;
    row.user = series.user;
    row.job = series.job;
    const bool nameless = series.user.empty() && series.job.empty();
    if (nameless) row.user = kNameless;
    if (series.kind == DcgmSeries::Kind::kMemoryMib)
      row.memory_bytes = static_cast<uint64_t>(value * kMib);
    else
      row.busy = series.kind == DcgmSeries::Kind::kBusyPart ? value : value / 100;
    const Status added = add_row(row);
    if (added.ok() && nameless) nameless_.insert(rows_.back().holder);
    named_ = named_ || !nameless;
    return added;
  });
}

Status RecordReader::add_slurm(std::string_view text) {
  auto jobs = read_slurm(text);
  if (!jobs.ok()) return jobs.status();
  for (SlurmJob& job : *jobs) {
    if (++rows_read_ > kMostRows) return Status(Code::kInvalid, "too many rows");
    if (job.gpus == 0 || job.to_s <= job.from_s) continue;
    slurm_.push_back(std::move(job));
  }
  return {};
}

// A GPU that does nothing and whose memory is empty is nobody's. If other GPUs have names, all
// without one are nobody's.
void RecordReader::judge_nameless() {
  constexpr uint64_t kEmpty_bytes = 1'000'000'000;  // more than a driver keeps for itself
  if (nameless_.empty()) return;
  for (const uint32_t number : nameless_) {
    std::vector<Sample>& samples = holders_[number].samples;
    const auto is_nobodys = [this](const Sample& sample) {
      return named_ || (sample.busy == 0 && sample.memory_bytes < kEmpty_bytes);
    };
    samples.erase(std::remove_if(samples.begin(), samples.end(), is_nobodys), samples.end());
  }
  std::vector<Holder> kept;
  for (uint32_t i = 0; i < holders_.size(); ++i)
    if (nameless_.count(i) == 0 || !holders_[i].samples.empty())
      kept.push_back(std::move(holders_[i]));
  holders_ = std::move(kept);
}

Status RecordReader::join_slurm() {
  std::map<std::string, const SlurmJob*> jobs;
  for (const SlurmJob& job : slurm_) jobs[job.id] = &job;
  bool measured = false;
  for (Holder& holder : holders_) {
    measured = measured || !holder.samples.empty();
    const auto found = jobs.find(holder.job);
    if (found != jobs.end() && !found->second->user.empty()) holder.user = found->second->user;
  }
  if (measured) return {};
  for (const SlurmJob& job : slurm_) {
    Holder one;
    one.name = job.id;
    one.user = job.user;
    one.from_s = job.ready_s;
    one.to_s = job.ready_s + (job.to_s - job.from_s);
    one.mean_busy = job.mean_busy;
    one.most_memory_bytes = job.memory_bytes;
    // A request of the engine has a bound; a larger job is several that come at once.
    for (uint32_t left = job.gpus; left > 0; left -= one.gpus) {
      if (holders_.size() == kMostHolders) return Status(Code::kInvalid, "too many jobs");
      one.gpus = std::min(left, pool::kMostSlices);
      holders_.push_back(one);
    }
  }
  return {};
}

Status RecordReader::add_pods(std::string_view text) {
  const size_t first = rows_.size();
  double most = 0;
  Status status = pool::read_table(text, [this, &most](TableLine& line) {
    if (++rows_read_ > kMostRows) return line.refuse("too many rows");
    Row row;
    row.sample.at_s = static_cast<int64_t>(line.decimal("timestamp_anon", 1e10));
    const double value = line.decimal("value", kMostBytes);
    most = std::max(most, value);
    row.sample.memory_bytes = static_cast<uint64_t>(value);
    row.sample.busy = static_cast<float>(std::min(value, 100.0) / 100);
    const std::string name = name_in(line, "container_ip");
    row.holder = holder(name, name);
    if (row.holder == kMostHolders) return line.refuse("too many pods");
    rows_.push_back(row);
  });
  if (!status) return status;
  const bool is_utilisation = most <= 100;
  for (size_t i = first; i < rows_.size(); ++i) {
    rows_[i].sample.busy_known = is_utilisation;
    if (is_utilisation)
      rows_[i].sample.memory_bytes = 0;
    else
      rows_[i].sample.busy = 0;
  }
  return {};
}

Status RecordReader::add_requests(std::string_view text) {
  return pool::read_table(text, [this](TableLine& line) {
    if (++rows_read_ > kMostRows) return line.refuse("too many rows");
    Holder one;
    one.gpus = static_cast<uint32_t>(line.number("num_gpu", pool::kMostSlices));
    const uint64_t milli = std::min(line.number("gpu_milli", uint64_t{1} << 20), kMilliOfGpu);
    const uint64_t came_s = line.number("creation_time", kMostTime_s);
    const uint64_t gone_s = line.number("deletion_time", kMostTime_s);
    const uint64_t began_s =
        line.text("scheduled_time").empty() ? came_s : line.number("scheduled_time", kMostTime_s);
    if (!line.status()) return;
    if (one.gpus == 0 || milli == 0 || gone_s <= began_s) return;  // had no GPU
    one.name = std::string(line.text("name").substr(0, kMostNameBytes));
    one.user = one.name;
    one.share_millionths = static_cast<uint32_t>(milli * (pool::kWholeGpu / kMilliOfGpu));
    // It came then, and kept its GPUs as long as it did; what it waited in that cluster is not
    // ours.
    one.from_s = static_cast<int64_t>(came_s);
    one.to_s = one.from_s + static_cast<int64_t>(gone_s - began_s);
    if (holders_.size() == kMostHolders) return line.refuse("too many requests");
    holders_.push_back(std::move(one));
  });
}

// Several rows of one holder and moment are one sample.
void RecordReader::merge_rows() {
  std::stable_sort(rows_.begin(), rows_.end(), [](const Row& left, const Row& right) {
    if (left.holder != right.holder) return left.holder < right.holder;
    return left.sample.at_s < right.sample.at_s;
  });
  for (const Row& row : rows_) {
    std::vector<Sample>& samples = holders_[row.holder].samples;
    if (samples.empty() || samples.back().at_s != row.sample.at_s) {
      samples.push_back(row.sample);
      continue;
    }
    Sample& sample = samples.back();
    sample.busy = std::max(sample.busy, row.sample.busy);
    sample.busy_known |= row.sample.busy_known;
    sample.memory_bytes = std::max(sample.memory_bytes, row.sample.memory_bytes);
  }
  rows_.clear();
}

base::Result<Records> RecordReader::finish() {
  merge_rows();
  judge_nameless();
  const Status joined = join_slurm();
  if (!joined.ok()) return joined;
  Records records;
  records.rows = rows_read_;
  records.step_s = step_of(holders_);
  for (Holder& holder : holders_) {
    records.accounted = records.accounted || holder.mean_busy >= 0;
    if (!holder.samples.empty()) {
      records.measured = true;
      holder.from_s = holder.samples.front().at_s;
      holder.to_s = holder.samples.back().at_s + records.step_s;
    }
    records.holders.push_back(std::move(holder));
  }
  if (records.holders.empty())
    return Status(Code::kInvalid, "nobody held a GPU in these records; there is nothing to plan");
  std::stable_sort(
      records.holders.begin(), records.holders.end(),
      [](const Holder& left, const Holder& right) { return left.from_s < right.from_s; });
  records.from_s = records.holders.front().from_s;
  for (const Holder& holder : records.holders) records.to_s = std::max(records.to_s, holder.to_s);
  if ((records.to_s - records.from_s) / records.step_s > kMostSteps)
    return Status(Code::kInvalid, "the records reach over more than " + std::to_string(kMostSteps) +
                                      " of their steps of " + std::to_string(records.step_s) +
                                      " s; is a time wrong? Otherwise plan them in parts");
  for (const Holder& holder : records.holders)
    if (records.measured && holder.samples.empty())
      return Status(Code::kInvalid,
                    "some files have measurements and others only requests; plan them one by one");
  return records;
}

}  // namespace tendril::plan
