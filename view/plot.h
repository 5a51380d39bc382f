// SPDX-License-Identifier: Apache-2.0
// Plots as SVG and pages as HTML that need no network and run no script: for `tendril plan`,
// `report` and `bench`. Light or dark as the reader's system is. Names are escaped here. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tendril::view {

// Also what is no UTF-8, and control characters.
std::string escaped_html(const std::string& text, size_t max = 200);

// A cell of a table is escaped; the first row has the headings.
using HtmlRows = std::vector<std::vector<std::string>>;
std::string html_table(const HtmlRows& rows);
// A whole page around `body`, which is not escaped.
std::string html_page(const std::string& title, const std::string& body);

// The next of 1, 2, 5, 10, 20, ... that divides it into at most five.
double grid_step(double most);

struct Line {
  std::string name;
  std::vector<double> values;  // one for each step; negative: not known
};
struct LinePlot {
  std::string title, unit;  // "GPUs"
  int64_t from_s = 0;       // of the first value, UTC
  double step_s = 1;
  bool by_clock = true;     // the moments stand below it; else hours from the beginning
  std::vector<Line> lines;  // at most kMostLines
  std::vector<std::pair<int64_t, int64_t>> gaps;  // seconds; shaded
};
inline constexpr size_t kMostLines = 6;

struct Bar {
  std::string name, text;  // the text stands behind the bar
  double length = 0;
  double inner = -1;         // a part of it, drawn darker; negative: none
  std::string heading = {};  // a line above the bar; empty: none
};
struct BarPlot {
  std::string title;
  std::vector<Bar> bars;
};

// Whole SVGs.
std::string line_svg(const LinePlot& plot);
std::string bar_svg(const BarPlot& plot);

}  // namespace tendril::view
