// SPDX-License-Identifier: Apache-2.0
// Reading tables of comma-separated values. Nothing is quoted in these traces.
#include "pool/replay/trace.h"

#include <algorithm>
#include <charconv>
#include <functional>

namespace tendril::pool {

namespace {

constexpr uint64_t kMib = 1 << 20;

std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(mark);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// One line of a table, by the names of its columns.
class Line {
 public:
  Line(const std::vector<std::string_view>& names, std::string_view text, size_t number)
      : names_(names), values_(split(text, ',')), number_(number) {}

  std::string_view text(std::string_view column) const {
    const size_t at = std::find(names_.begin(), names_.end(), column) - names_.begin();
    return at < values_.size() ? values_[at] : std::string_view();
  }

  // A number of at most `most`; else the error is kept.
  uint64_t number(std::string_view column, uint64_t most) {
    const std::string_view digits = text(column);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value > most)
      status_ = base::Status(base::Code::kInvalid,
                             "line " + std::to_string(number_) + " of the trace: column " +
                                 std::string(column) + " is \"" + std::string(digits) +
                                 "\"; expected a number of at most " + std::to_string(most));
    return value;
  }

  const base::Status& status() const { return status_; }

 private:
  const std::vector<std::string_view>& names_;
  std::vector<std::string_view> values_;
  size_t number_;
  base::Status status_;
};

base::Status read_lines(std::string_view text, const std::function<void(Line&)>& read) {
  std::vector<std::string_view> names;
  size_t number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (names.empty()) {
      names = split(line, ',');
      continue;
    }
    if (line.empty()) continue;
    Line values(names, line, number);
    read(values);
    if (!values.status()) return values.status();
  }
  return {};
}

}  // namespace

base::Result<std::vector<ServerSpec>> read_servers(std::string_view text) {
  std::vector<ServerSpec> servers;
  const base::Status status = read_lines(text, [&](Line& line) {
    ServerSpec server;
    server.name = line.text("sn");
    server.model = line.text("model");
    server.gpus = static_cast<uint32_t>(line.number("gpu", kMostGpus));
    server.cpu_milli = static_cast<uint32_t>(line.number("cpu_milli", 1U << 30));
    server.host_memory_bytes = line.number("memory_mib", uint64_t{1} << 32) * kMib;
    servers.push_back(std::move(server));
  });
  if (!status) return status;
  return servers;
}

base::Result<std::vector<TraceRequest>> read_requests(std::string_view text) {
  constexpr uint32_t kMilli = 1000;  // of a GPU in the trace's unit; more means the whole GPU
  std::vector<TraceRequest> requests;
  const base::Status status = read_lines(text, [&](Line& line) {
    TraceRequest each;
    Request& request = each.request;
    request.slices = static_cast<uint32_t>(line.number("num_gpu", kMostSlices));
    const uint64_t share = line.number("gpu_milli", 1U << 20);
    request.share_millionths =
        request.slices == 0 ? 0 : std::min<uint64_t>(share, kMilli) * (kWholeGpu / kMilli);
    request.host.cpu_milli = static_cast<uint32_t>(line.number("cpu_milli", 1U << 30));
    request.host.memory_bytes = line.number("memory_mib", uint64_t{1} << 32) * kMib;
    for (std::string_view model : split(line.text("gpu_spec"), '|'))
      if (!model.empty()) each.models.emplace_back(model);
    requests.push_back(std::move(each));
  });
  if (!status) return status;
  return requests;
}

}  // namespace tendril::pool
