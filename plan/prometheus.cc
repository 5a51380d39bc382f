// SPDX-License-Identifier: Apache-2.0
// See prometheus.h. Values are taken as they are read, so that memory is bounded by the rows that
// are kept, not by the text.
#include "plan/prometheus.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text.h"
#include "plan/records.h"
#include "pool/replay/table.h"

namespace tendril::plan {

using base::Code;
using base::Status;
using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kMostDepth = 16, kMostLabelBytes = 256, kMostLabels = 256;
constexpr double kMostValue = 1e9;
constexpr char kExpectedNames[] =
    "DCGM_FI_DEV_GPU_UTIL, DCGM_FI_PROF_GR_ENGINE_ACTIVE or DCGM_FI_DEV_FB_USED";

using Labels = std::map<std::string, std::string>;

DcgmSeries::Kind kind_of(const std::string& name) {
  if (name == "DCGM_FI_DEV_GPU_UTIL") return DcgmSeries::Kind::kBusyPercent;
  if (name == "DCGM_FI_PROF_GR_ENGINE_ACTIVE") return DcgmSeries::Kind::kBusyPart;
  if (name == "DCGM_FI_DEV_FB_USED") return DcgmSeries::Kind::kMemoryMib;
  return DcgmSeries::Kind::kOther;
}

// The first of these labels that is there.
std::string first_of(const Labels& labels, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const auto found = labels.find(name);
    if (found != labels.end() && !found->second.empty()) return found->second;
  }
  return "";
}

// Where Prometheus keeps its own labels, the label of a pod is the exporter's, and the program's
// begins with "exported".
std::string program_label(const Labels& labels, const std::string& name) {
  const std::string exported = first_of(labels, {("exported_" + name).c_str()});
  if (!exported.empty()) return exported;
  const std::string pod = first_of(labels, {"pod"});
  const bool of_exporter =
      pod.find("dcgm-exporter") != std::string::npos || labels.count("exported_pod") != 0;
  return of_exporter ? std::string() : first_of(labels, {name.c_str()});
}

DcgmSeries series_of(const Labels& labels) {
  DcgmSeries series;
  series.kind = kind_of(first_of(labels, {"__name__"}));
  series.server = first_of(labels, {"Hostname", "hostname", "node", "instance"});
  series.gpu = first_of(labels, {"UUID", "uuid", "gpu", "device"});
  const std::string instance = first_of(labels, {"GPU_I_ID"});
  if (!instance.empty()) series.gpu += "/" + instance;
  series.job = first_of(labels, {"hpc_job"});
  if (!series.job.empty()) return series;
  series.job = program_label(labels, "pod");
  if (!series.job.empty()) series.user = program_label(labels, "namespace");
  return series;
}

// "line 1, column 12"
std::string place_of(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const auto lines = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t begin = before.rfind('\n');
  const size_t column = before.size() - (begin == std::string_view::npos ? 0 : begin + 1);
  return "line " + std::to_string(lines) + ", column " +
         std::to_string(std::max<size_t>(1, column));
}

// Hears the parts of the text in order, as the parser finds them.
class Hearer : public nlohmann::json_sax<Json> {
 public:
  using Take = std::function<Status(const DcgmSeries&, int64_t, double)>;
  Hearer(std::string_view text, const Take& take) : text_(text), take_(take) {}

  Status finish() const {
    if (!status_.ok()) return status_;
    if (!error_.empty())
      return Status(Code::kInvalid,
                    "Prometheus answered with an error: " + base::printable(error_, 200));
    if (!is_range_)
      return Status(Code::kInvalid,
                    "it has no data of a range; expected the answer of /api/v1/query_range");
    if (!any_)
      return Status(Code::kInvalid, std::string("no series in it is named ") + kExpectedNames +
                                        " (functions such as rate() take the names away)");
    return {};
  }

  bool null() override { return scalar(nullptr, 0); }
  bool boolean(bool) override { return scalar(nullptr, 0); }
  bool number_integer(int64_t value) override {
    return scalar(nullptr, static_cast<double>(value));
  }
  bool number_unsigned(uint64_t value) override {
    return scalar(nullptr, static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) override { return scalar(nullptr, value); }
  bool string(std::string& value) override { return scalar(&value, 0); }
  bool binary(Json::binary_t&) override { return false; }

  bool start_object(size_t) override { return open(false); }
  bool key(std::string& name) override {
    levels_.back().key = name.substr(0, kMostLabelBytes);
    if (levels_.size() == kSeriesDepth && levels_.back().key == "values" && !has_labels_)
      return fail("'metric' must come before 'values'");
    if (levels_.size() == kSeriesDepth && levels_.back().key == "value")
      return fail("it is a moment; expected a range: ask /api/v1/query_range");
    return true;
  }
  bool end_object() override {
    if (in_labels()) {
      series_ = series_of(labels_);
      has_labels_ = true;
      any_ = any_ || series_.kind != DcgmSeries::Kind::kOther;
      if (series_.kind != DcgmSeries::Kind::kOther && series_.gpu.empty())
        return fail("a label UUID or gpu is missing");
    }
    return close();
  }
  bool start_array(size_t) override { return open(true); }
  bool end_array() override {
    if (in_point() && levels_.back().index != 2) return fail("expected [seconds, \"number\"]");
    return close();
  }
  bool parse_error(size_t position, const std::string& token, const Json::exception&) override {
    status_ =
        Status(Code::kInvalid, place_of(text_, position) + ": \"" + base::printable(token, 40) +
                                   "\" does not belong there; expected JSON as Prometheus "
                                   "answers");
    return false;
  }

 private:
  struct Level {
    bool is_array = false;
    std::string key;   // of an object: the last one
    size_t index = 0;  // of an array: values so far
  };
  // {"data": {"result": [{"metric": {...}, "values": [[...], ...]}]}}
  static constexpr size_t kSeriesDepth = 4, kLabelsDepth = 5, kPointDepth = 6;

  bool in_result() const {
    return levels_.size() >= kSeriesDepth && levels_[0].key == "data" &&
           levels_[1].key == "result" && levels_[2].is_array && !levels_[3].is_array;
  }
  bool in_labels() const {
    return levels_.size() == kLabelsDepth && in_result() && levels_[3].key == "metric" &&
           !levels_[4].is_array;
  }
  bool in_point() const {
    return levels_.size() == kPointDepth && in_result() && levels_[3].key == "values" &&
           levels_[4].is_array && levels_[5].is_array;
  }

  bool fail(const std::string& what) {
    std::string where;
    if (in_result()) where = "series " + std::to_string(series_count_);
    if (in_point()) where += ", value " + std::to_string(levels_[4].index + 1);
    status_ = Status(Code::kInvalid, where.empty() ? what : where + ": " + what);
    return false;
  }

  bool open(bool is_array) {
    if (levels_.size() == kMostDepth) return fail("it is nested too deeply");
    if (in_point()) return fail("expected [seconds, \"number\"]");
    levels_.push_back({is_array, "", 0});
    if (levels_.size() == kSeriesDepth && in_result()) {
      if (++series_count_ > kMostSeries) return fail("too many series");
      labels_.clear();
      has_labels_ = false;
    }
    return true;
  }
  bool close() {
    levels_.pop_back();
    if (!levels_.empty()) ++levels_.back().index;
    return true;
  }

  bool scalar(const std::string* text, double number) {
    if (levels_.empty()) return true;
    Level& level = levels_.back();
    if (text != nullptr && in_labels()) {
      if (labels_.size() < kMostLabels) labels_[level.key] = text->substr(0, kMostLabelBytes);
    } else if (text != nullptr && levels_.size() == 2 && level.key == "resultType") {
      is_range_ = *text == "matrix";
    } else if (text != nullptr && levels_.size() == 1 && level.key == "error") {
      error_ = *text;
    } else if (in_point() && !add_point(text, number)) {
      return false;
    }
    ++level.index;
    return true;
  }

  bool add_point(const std::string* text, double number) {
    const size_t index = levels_.back().index;
    if (index == 0) {
      if (text != nullptr || !(number >= 0 && number <= static_cast<double>(kMostTime_s)))
        return fail("expected seconds since 1970 first");
      at_s_ = static_cast<int64_t>(number);
      return true;
    }
    if (index > 1 || text == nullptr) return fail("expected [seconds, \"number\"]");
    if (series_.kind == DcgmSeries::Kind::kOther || *text == "NaN") return true;
    double value = 0;
    if (!pool::read_decimal(*text, most_of(series_.kind), &value))
      return fail("\"" + base::printable(*text, 40) + "\" is no number of at most " +
                  std::to_string(static_cast<uint64_t>(most_of(series_.kind))));
    status_ = take_(series_, at_s_, value);
    return status_.ok();
  }

  static double most_of(DcgmSeries::Kind kind) {
    if (kind == DcgmSeries::Kind::kBusyPercent) return 100;
    return kind == DcgmSeries::Kind::kBusyPart ? 1 : kMostValue;
  }

  const std::string_view text_;
  const Take& take_;
  Status status_;
  std::string error_;
  std::vector<Level> levels_;
  Labels labels_;
  DcgmSeries series_;
  size_t series_count_ = 0;
  int64_t at_s_ = 0;
  bool has_labels_ = false, is_range_ = false, any_ = false;
};

}  // namespace

Status read_prometheus(std::string_view text, const Hearer::Take& take) {
  Hearer hearer(text, take);
  // The hearer keeps its own errors.
  static_cast<void>(Json::sax_parse(text.begin(), text.end(), &hearer));
  return hearer.finish();
}

}  // namespace tendril::plan
