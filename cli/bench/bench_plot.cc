// SPDX-License-Identifier: Apache-2.0
// See bench_plot.h. Figures differ by powers of ten, so each has a scale of its own: its longest
// bar.
#include "cli/bench/bench_plot.h"

#include <algorithm>

#include "base/text.h"
#include "view/plot.h"

namespace tendril::cli {

namespace {

struct Unit {
  const char* ending;
  const char* text;
  bool is_small_better;
};
constexpr Unit kUnits[] = {{"_gb_per_s", "GB/s", false},
                           {"_per_s", "per second", false},
                           {"_us", "us", true},
                           {"_ms", "ms", true},
                           {"_mb", "MB", true}};

// The first that the name ends with; null: none.
const Unit* unit_of(const std::string& name) {
  for (const Unit& unit : kUnits) {
    const std::string ending = unit.ending;
    if (name.size() >= ending.size() &&
        name.compare(name.size() - ending.size(), ending.size(), ending) == 0)
      return &unit;
  }
  return nullptr;
}

std::string words_of(const std::string& name, const Unit& unit) {
  std::string words = name.substr(0, name.size() - std::string(unit.ending).size());
  std::replace(words.begin(), words.end(), '_', ' ');
  return words + ", " + unit.text;
}

struct Side {
  std::string name;
  const Figures* figures;
};

const double* value_of(const Figures& figures, const std::string& name) {
  for (const auto& [known, value] : figures)
    if (known == name) return &value;
  return nullptr;
}

std::string value_text(double value) {
  return base::format(value >= 1000 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
}

// Bars of every figure whose kind is that, in the order in which they were measured.
std::vector<view::Bar> bars_of(const std::vector<Side>& sides, bool small_is_better) {
  std::vector<std::string> names;
  for (const Side& side : sides)
    for (const auto& [name, value] : *side.figures)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::vector<view::Bar> bars;
  for (const std::string& name : names) {
    const Unit* const unit = unit_of(name);
    if (unit == nullptr || unit->is_small_better != small_is_better) continue;
    double most = 0;
    for (const Side& side : sides)
      if (const double* const value = value_of(*side.figures, name)) most = std::max(most, *value);
    if (most <= 0) continue;
    std::string heading = words_of(name, *unit);
    for (const Side& side : sides) {
      const double* const value = value_of(*side.figures, name);
      if (value == nullptr) continue;
      view::Bar bar;
      bar.name = side.name;
      bar.text = value_text(*value);
      bar.heading.swap(heading);  // above the first one
      bar.length = *value / most;
      bar.inner = side.name == sides.front().name ? bar.length : -1;
      bars.push_back(std::move(bar));
    }
  }
  return bars;
}

std::string plots_of(const std::vector<Side>& sides) {
  std::string body;
  for (const bool small_is_better : {true, false}) {
    view::BarPlot plot;
    plot.title = small_is_better ? "Shorter is better" : "Longer is better";
    plot.bars = bars_of(sides, small_is_better);
    if (!plot.bars.empty()) body += view::bar_svg(plot);
  }
  return body;
}

}  // namespace

std::string bench_page(const BenchReport& report) {
  std::vector<Side> sides;
  std::string absent;
  for (const BenchSide& side : report.sides) {
    // Pairs of GPUs have a matrix of their own, and the bare lines are no GPU's.
    if (side.name.rfind("bare", 0) == 0) continue;
    if (side.figures.empty())
      absent += "<p>" + view::escaped_html(side.name + ": " + side.absent) + "</p>\n";
    else
      sides.push_back({side.name, &side.figures});
  }
  std::string body = "<p>" +
                     view::escaped_html("Tendril " + report.version + ", " + report.server) +
                     ". Each figure has a scale of its own.</p>\n" + plots_of(sides);
  for (const BenchSide& side : report.sides) {
    if (side.name.rfind("bare", 0) == 0 && !side.figures.empty())
      body += plots_of({{side.name, &side.figures}});
  }
  return view::html_page("What Tendril costs here", body + absent);
}

std::string comparison_page(const BenchReport& before, const BenchReport& after) {
  std::string body;
  for (const BenchSide& side : after.sides) {
    const BenchSide* const old = before.side(side.name);
    if (old == nullptr) continue;
    body += "<h2>" + view::escaped_html(side.name) + "</h2>\n" +
            plots_of({{"before", &old->figures}, {"after", &side.figures}});
  }
  return view::html_page("Before and after", body);
}

}  // namespace tendril::cli
