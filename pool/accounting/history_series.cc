// SPDX-License-Identifier: Apache-2.0
// Charts of the pool's history: of each step of a range the mean of what was there, given, used and
// waited for. See history_query.h.
#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "pool/accounting/history_query.h"
#include "pool/accounting/sums_json.h"

namespace tendril::pool {
namespace {

// Who asks: for all, by what has GPUs (servers, classes), or by names that have parts of them.
enum Of : unsigned { kAll = 1, kPlaces = 2, kNames = 4, kEach = 7 };

// A line of a chart.
struct Kind {
  const char* series;
  const char* name;
  uint64_t UsedSums::*sum;
  uint64_t UsedSums::*per;  // null: time
  double unit;              // the sum of one second, or one `per`, of one unit
  unsigned of;
};
constexpr double kNs = 1e9, kMemory = 1000.0 / (1 << 20);
constexpr Kind kKinds[] = {
    {"gpus", "capacity", &UsedSums::capacity_gpu_ns, nullptr, kNs, kAll},
    {"gpus", "given", &UsedSums::given_gpu_ns, nullptr, kNs, kEach},
    {"gpus", "used", &UsedSums::used_ns, nullptr, kNs, kEach},
    {"gpus", "idle", &UsedSums::idle_gpu_ns, nullptr, kNs, kAll},
    {"utilisation", "given", &UsedSums::given_gpu_ns, &UsedSums::capacity_gpu_ns, 1,
     kAll | kPlaces},
    {"utilisation", "used", &UsedSums::used_ns, &UsedSums::capacity_gpu_ns, 1, kAll | kPlaces},
    {"utilisation", "used", &UsedSums::used_ns, &UsedSums::given_gpu_ns, 1, kNames},
    {"memory", "held", &UsedSums::memory_held_mib_ms, nullptr, kMemory, kEach},
    {"memory", "used", &UsedSums::memory_used_mib_ms, nullptr, kMemory, kEach},
    {"waiting", "requests", &UsedSums::queued_ns, nullptr, kNs, kEach},
    {"waiting", "gpus", &UsedSums::queued_gpu_ns, nullptr, kNs, kEach},
    {"waits", "mean", &UsedSums::waited_ns, &UsedSums::leases, kNs, kEach}};

constexpr std::pair<const char*, const char*> kUnits[] = {{"gpus", "gpus"},
                                                          {"utilisation", "ratio"},
                                                          {"memory", "bytes"},
                                                          {"waiting", "count"},
                                                          {"waits", "seconds"}};
// A step of which less is known is left out: what is told a second late would be missing in it.
constexpr double kLeastKnownS = 30;

size_t index_of(uint64_t UsedSums::*sum) {
  for (size_t i = 0; i < std::size(kSumFields); ++i) {
    if (kSumFields[i].second == sum) return i;
  }
  return 0;
}

unsigned asked_of(const HistoryQuery& query) {
  // GPUs of servers are nobody's.
  if (!query.owner_id.empty()) return kNames;
  if (query.by.empty()) return kAll;
  const bool are_places =
      std::all_of(query.by.begin(), query.by.end(),
                  [](const std::string& name) { return name == "server" || name == "gpu_class"; });
  return are_places ? kPlaces : kNames;
}

}  // namespace

std::map<HistorySums::Names, HistorySums::Sums> HistorySums::totals() const {
  std::map<Names, Sums> totals;
  for (const auto& [key, sums] : sums_) {
    Sums& total = totals[key.second];
    for (size_t i = 0; i < sums.size(); ++i) total[i] += sums[i];
  }
  return totals;
}

// Who had or waited for most comes first; the others, who are many, come last.
std::vector<HistorySums::Names> HistorySums::by_weight() const {
  struct Weighed {
    bool is_others;
    unsigned __int128 had, there;
    Names names;
  };
  std::vector<Weighed> order;
  for (auto& [names, sums] : totals()) {
    order.push_back(
        {are_others(names),
         sums[index_of(&UsedSums::given_gpu_ns)] + sums[index_of(&UsedSums::queued_gpu_ns)],
         sums[index_of(&UsedSums::capacity_gpu_ns)], names});
  }
  std::sort(order.begin(), order.end(), [](const Weighed& one, const Weighed& other) {
    if (one.is_others != other.is_others) return other.is_others;
    if (one.had != other.had) return one.had > other.had;
    if (one.there != other.there) return one.there > other.there;
    return one.names < other.names;
  });
  std::vector<Names> names;
  for (Weighed& each : order) names.push_back(std::move(each.names));
  return names;
}

// How much of the step is known; 0: too little to say something.
double HistorySums::known_seconds(size_t bucket) const {
  const int64_t begin_s = query_.from_s + int64_t(bucket) * query_.step_s;
  const auto whole_s = double(std::min<int64_t>(query_.step_s, query_.to_s - begin_s));
  const uint64_t begin_ns = bucket_ns(bucket);
  const double known_s = double(known_until_ns_ - std::min(known_until_ns_, begin_ns)) / kNs;
  if (known_s >= whole_s) return whole_s;
  return known_s < kLeastKnownS ? 0 : known_s;
}

std::string HistorySums::chart_json(const std::string& series,
                                    const std::vector<Names>& order) const {
  std::vector<const Kind*> kinds;
  for (const Kind& kind : kKinds) {
    if (series == kind.series && (kind.of & asked_of(query_)) != 0) kinds.push_back(&kind);
  }
  std::string lines;
  std::map<Names, size_t> first_line;
  size_t count = 0;
  for (const Names& names : order) {
    first_line[names] = count;
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    for (const Kind* kind : kinds) {
      lines += std::string(count++ == 0 ? "" : ",") + "{\"name\":" + json_text(text) +
               ",\"others\":" + (are_others(names) ? "true" : "false") + ",\"kind\":\"" +
               kind->name + "\"}";
    }
  }
  const char* unit = "";
  for (const auto& [name, of_it] : kUnits) {
    if (series == name) unit = of_it;
  }
  std::string json = "{\"series\":\"" + series + "\",\"unit\":\"" + unit + "\",\"lines\":[" +
                     lines + "],\"rows\":[";
  const size_t buckets = size_t((query_.to_s - query_.from_s + query_.step_s - 1) / query_.step_s);
  auto at = sums_.begin();
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const double seconds = known_seconds(bucket);
    if (seconds == 0) break;
    std::vector<std::string> cells(count, "null");
    for (; at != sums_.end() && at->first.first == bucket; ++at) {
      for (size_t i = 0; i < kinds.size(); ++i) {
        const auto sum = double(at->second[index_of(kinds[i]->sum)]);
        const double per =
            kinds[i]->per == nullptr ? seconds : double(at->second[index_of(kinds[i]->per)]);
        double value = per > 0 ? sum / kinds[i]->unit / per : 0;
        // Servers count what they give by their clocks, and the pool counts GPUs while it hears of
        // them. So a clock that runs fast, and a server that was cut off, gave more than was there.
        if (kinds[i]->per == &UsedSums::capacity_gpu_ns) value = std::min(value, 1.0);
        if (per > 0) cells[first_line[at->first.second] + i] = base::format("%.6g", value);
      }
    }
    json += (bucket == 0 ? "[" : ",[") + std::to_string(bucket_ns(bucket) / kNsOfSecond);
    for (const std::string& cell : cells) json += "," + cell;
    json += "]";
  }
  return json + "]}";
}

std::string HistorySums::charts_json() const {
  std::vector<Names> order = by_weight();
  std::string json = head_json() + ",\"others\":" + std::to_string(others_) + ",\"totals\":[";
  std::map<Names, Sums> sums = totals();
  for (size_t i = 0; i < order.size(); ++i) {
    json += std::string(i == 0 ? "\n{" : ",\n{") +
            "\"others\":" + (are_others(order[i]) ? "true" : "false") + "," +
            row_json(order[i], sums[order[i]]) + "}";
  }
  json += "],\"charts\":[";
  for (size_t i = 0; i < query_.series.size(); ++i)
    json += (i == 0 ? "\n" : ",\n") + chart_json(query_.series[i], order);
  return json + "]}";
}

}  // namespace tendril::pool
