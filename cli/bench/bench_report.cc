// SPDX-License-Identifier: Apache-2.0
// See bench_report.h.
#include "cli/bench/bench_report.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "view/table.h"

namespace tendril::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMark = "tendril-bench {";
// a figure below this part of its earlier speed is reported as slower
constexpr double kSlower = 0.95;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool better_small(const std::string& name) {
  return ends_with(name, "_us") || ends_with(name, "_ms") || ends_with(name, "_mb");
}

// The bare channel's figure for the same amount of data: "gb_per_s" for a large copy,
// "round_trip_64k_us" for one of 64 KiB.
std::string bare_name(const std::string& name) {
  const std::string mark = "_gpu_";
  const size_t at = name.find(mark);
  if (at == std::string::npos) return "";
  return ends_with(name, "_gb_per_s") ? "gb_per_s" : "round_trip_" + name.substr(at + mark.size());
}

const double* find(const Figures& figures, const std::string& name) {
  for (const auto& [known, value] : figures) {
    if (known == name) return &value;
  }
  return nullptr;
}

std::string number(const double* value) {
  if (value == nullptr) return "n/a";
  if (*value >= 100000) return base::format("%.0f", *value);
  return base::format(*value < 100 ? "%.2f" : "%.1f", *value);
}

// How fast `value` is compared with `reference`. More than 1 is faster.
std::string speed(const std::string& name, const double* value, const double* reference) {
  if (value == nullptr || reference == nullptr || *value <= 0 || *reference <= 0) return "";
  return base::format("%.2fx", better_small(name) ? *reference / *value : *value / *reference);
}

Figures figures_of(const Json& json) {
  Figures figures;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number()) figures.emplace_back(name, value.get<double>());
  }
  return figures;
}

std::vector<std::string> names_of(const std::vector<const BenchSide*>& sides) {
  std::vector<std::string> names;
  for (const BenchSide* side : sides) {
    if (side == nullptr) continue;
    for (const auto& figure : side->figures) {
      if (std::find(names.begin(), names.end(), figure.first) == names.end())
        names.push_back(figure.first);
    }
  }
  return names;
}

std::string gpu_name(size_t number) { return "gpu" + std::to_string(number); }

const view::PassageReport* passage_of(const BenchReport& report, const BenchGpu& one,
                                      const BenchGpu& other) {
  for (const view::PassageReport& each : report.passages) {
    if ((each.one == one.server && each.other == other.server) ||
        (each.one == other.server && each.other == one.server))
      return &each;
  }
  return nullptr;
}

// Empty: all GPUs are of one server.
std::string two_ways(const BenchReport& report, const Figures& endpoints) {
  const BenchSide* const through = report.side("endpoints through the client");
  const Figures none;
  const Figures& old = through != nullptr ? through->figures : none;
  std::vector<view::Row> rows = {{"between servers", "server to server, GB/s",
                                  "through the client, GB/s", "", "server to server, us",
                                  "through the client, us", ""}};
  for (size_t from = 0; from < report.gpus.size(); ++from) {
    for (size_t to = 0; to < report.gpus.size(); ++to) {
      if (report.gpus[from].place == report.gpus[to].place) continue;
      const view::PassageReport* const way = passage_of(report, report.gpus[from], report.gpus[to]);
      const bool open = way != nullptr && way->open;
      rows.push_back({gpu_name(from) + " to " + gpu_name(to)});
      for (const std::string unit : {"_gb_per_s", "_us"}) {
        const std::string name = gpu_name(from) + "_" + gpu_name(to) + unit;
        const double* const direct = open ? find(endpoints, name) : nullptr;
        const double* const client = find(old, name);
        rows.back().insert(rows.back().end(),
                           {number(direct), number(client), speed(name, direct, client)});
      }
    }
  }
  if (rows.size() == 1) return "";
  std::string out = "\n" + view::aligned(rows);
  for (const view::PassageReport& each : report.passages) {
    out += each.one + ", " + each.other + ": " +
           (each.open ? (each.sealed ? "server to server, sealed" : "server to server, in clear")
                      : "through the client: " + each.detail) +
           "\n";
  }
  return out;
}

}  // namespace

const BenchSide* BenchReport::side(const std::string& name) const {
  for (const BenchSide& side : sides) {
    if (side.name == name) return &side;
  }
  return nullptr;
}

Figures bench_figures(const std::string& output) {
  const size_t at = output.rfind(kMark);
  if (at == std::string::npos) return {};
  const size_t begin = at + std::string(kMark).size() - 1;
  const Json json =
      Json::parse(output.substr(begin, output.find('}', begin) + 1 - begin), nullptr, false);
  return json.is_object() ? figures_of(json) : Figures();
}

std::string bench_json(const BenchReport& report) {
  Json sides = Json::object();
  for (const BenchSide& side : report.sides) {
    Json figures = Json::object();
    for (const auto& [name, value] : side.figures) figures[name] = value;
    sides[side.name] = side.figures.empty() ? Json{{"absent", side.absent}} : figures;
  }
  Json gpus = Json::array(), passages = Json::array();
  for (const BenchGpu& gpu : report.gpus)
    gpus.push_back({{"server", gpu.server}, {"name", gpu.name}});
  for (const view::PassageReport& each : report.passages) {
    passages.push_back({{"servers", {each.one, each.other}},
                        {"open", each.open},
                        {"sealed", each.sealed},
                        {"detail", each.detail}});
  }
  return Json{{"version", report.version},
              {"server", report.server},
              {"sides", sides},
              {"gpus", gpus},
              {"passages", passages}}
      .dump(2);
}

base::Result<BenchReport> read_bench_json(const std::string& path) {
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, false);
  if (!file.is_open() || !json.is_object() || !json.contains("sides") ||
      !json["sides"].is_object()) {
    return base::Status(base::Code::kInvalid,
                        "'" + path + "' is not what 'tendril bench --json' prints");
  }
  BenchReport report;
  report.version = json.value("version", "");
  report.server = json.value("server", "");
  for (const auto& [name, figures] : json["sides"].items()) {
    if (figures.is_object()) report.sides.push_back({name, figures_of(figures), ""});
  }
  return report;
}

std::string bench_table(const BenchReport& report) {
  const BenchSide *native = report.side("native"), *tcp = report.side("tcp"),
                  *shm = report.side("shm");
  const BenchSide* bare = report.side("bare tcp");
  const auto of = [](const BenchSide* side, const std::string& name) {
    return side != nullptr ? find(side->figures, name) : nullptr;
  };
  std::vector<view::Row> rows = {
      {"figure", "native", "tcp", "shm", "tcp/native", "shm/native", "tcp/bare"}};
  for (const std::string& name : names_of({native, tcp, shm})) {
    const double *n = of(native, name), *t = of(tcp, name), *s = of(shm, name);
    rows.push_back({name, number(n), number(t), number(s), speed(name, t, n), speed(name, s, n),
                    speed(name, t, of(bare, bare_name(name)))});
  }
  std::string out = view::aligned(rows);
  for (const BenchSide& side : report.sides) {
    if (side.figures.empty()) {
      out += side.name + ": n/a, " + side.absent + "\n";
    } else if (side.name.rfind("bare ", 0) == 0) {
      out += side.name + ": round trip " + number(find(side.figures, "round_trip_us")) + " us, " +
             number(find(side.figures, "gb_per_s")) + " GB/s\n";
    }
  }
  return out + "ratios: how fast ours is beside it; more than 1 is faster\n";
}

std::string endpoint_table(const BenchReport& report) {
  const BenchSide* const side = report.side("endpoints");
  if (side == nullptr || side->figures.empty()) return "";
  std::vector<std::string> endpoints = {"host"};
  for (size_t i = 0; i < report.gpus.size(); ++i) endpoints.push_back(gpu_name(i));
  std::string out;
  for (const char* unit : {"_gb_per_s", "_us"}) {
    std::vector<view::Row> rows = {{unit == std::string("_us") ? "4 bytes, us" : "64 MiB, GB/s"}};
    for (const std::string& to : endpoints) rows[0].push_back("to " + to);
    for (const std::string& from : endpoints) {
      rows.push_back({"from " + from});
      for (const std::string& to : endpoints) {
        const double* value = find(side->figures, from + "_" + to + unit);
        rows.back().push_back(from == to && from == "host" ? "-" : number(value));
      }
    }
    out += view::aligned(rows);
  }
  for (size_t i = 0; i < report.gpus.size(); ++i)
    out += gpu_name(i) + ": " + report.gpus[i].server + ", " + report.gpus[i].name + "\n";
  return out + two_ways(report, side->figures);
}

std::string bench_comparison(const BenchReport& before, const BenchReport& after) {
  std::vector<view::Row> rows = {{"side", "figure", "before", "after", "speed", ""}};
  for (const BenchSide& side : after.sides) {
    const BenchSide* old = before.side(side.name);
    for (const std::string& name : names_of({old, &side})) {
      const double* a = old != nullptr ? find(old->figures, name) : nullptr;
      const double* b = find(side.figures, name);
      const std::string ratio = speed(name, b, a);
      const bool slower = !ratio.empty() && std::stod(ratio) < kSlower;
      rows.push_back({side.name, name, number(a), number(b), ratio, slower ? "slower" : ""});
    }
  }
  return view::aligned(rows);
}

}  // namespace tendril::cli
