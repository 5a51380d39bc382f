// SPDX-License-Identifier: Apache-2.0
// See records.h.
#include "plan/records.h"

#include <algorithm>

#include "pool/placement/request.h"
#include "pool/replay/table.h"

namespace tendril::plan {

using base::Code;
using base::Status;
using pool::TableLine;

namespace {

constexpr double kMostBytes = 1e15;  // of a GPU's memory
constexpr uint64_t kMilliOfGpu = 1000;

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
  uint64_t peak = 0;
  for (const Sample& sample : samples) peak = std::max(peak, sample.memory_bytes);
  return peak;
}

Status RecordReader::add(std::string_view text) {
  constexpr std::string_view kGzip = "\x1f\x8b";
  if (text.substr(0, kGzip.size()) == kGzip)
    return Status(Code::kInvalid, "it is compressed; unpack it first: tar xzf, or gunzip");
  const std::vector<std::string_view> columns = pool::table_columns(text);
  if (has_column(columns, "time_s") && has_column(columns, "utilisation_percent"))
    return add_records(text);
  if (has_column(columns, "timestamp_anon") && has_column(columns, "container_ip"))
    return add_pods(text);
  if (has_column(columns, "num_gpu") && has_column(columns, "creation_time"))
    return add_requests(text);
  return Status(Code::kInvalid,
                "its first line names no columns that are known; expected records (time_s, gpu, "
                "utilisation_percent, memory_bytes), pods (timestamp_anon, value, container_ip) or "
                "requests (num_gpu, gpu_milli, creation_time, deletion_time)");
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

Status RecordReader::add_records(std::string_view text) {
  return pool::read_table(text, [this](TableLine& line) {
    if (++rows_read_ > kMostRows) return line.refuse("too many rows");
    Row row;
    row.sample.at_s = static_cast<int64_t>(line.number("time_s", kMostTime_s));
    row.sample.busy = static_cast<float>(line.decimal("utilisation_percent", 100) / 100);
    row.sample.busy_known = true;
    row.sample.memory_bytes = static_cast<uint64_t>(line.decimal("memory_bytes", kMostBytes));
    const std::string user(line.text("user").substr(0, kMostNameBytes));
    const std::string job(line.text("job").substr(0, kMostNameBytes));
    const std::string gpu = name_in(line, "gpu");
    if (user.empty() && job.empty()) return;  // nobody holds it
    const std::string server(line.text("server").substr(0, kMostNameBytes));
    row.holder = holder(server + "/" + gpu + "/" + user + "/" + job, user.empty() ? job : user);
    if (row.holder == kMostHolders) return line.refuse("too many programs");
    rows_.push_back(row);
  });
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
  Records records;
  records.rows = rows_read_;
  records.step_s = step_of(holders_);
  for (Holder& holder : holders_) {
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
