// SPDX-License-Identifier: Apache-2.0
// See plot.h. Lines differ in colour, in lightness and in dashes, and each has its name at its end.
#include "view/plot.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/text.h"

namespace tendril::view {
namespace {

using base::format;

constexpr double kWidth = 790, kLeft = 60, kRight = 620, kHeight = 230, kTop = 34, kBottom = 34;
constexpr double kBarLeft = 195, kBarRoom = 400, kBarHeight = 26;
constexpr size_t kNameBytes = 24;

// Plain colours by class: many viewers of SVG know no variables.
constexpr char kStyle[] =
    "svg{font:13px system-ui,sans-serif}.paper{fill:#ffffff}text{fill:#1c1e21}"
    "text.soft{fill:#5c6370}line.grid{stroke:#c9ced6}rect.gap{fill:#e4e6ea}"
    "polyline,line.key{fill:none;stroke-width:2}"
    ".l0{stroke:#2f5d9b}.l1{stroke:#b03a2e}.l2{stroke:#3f7a3a;stroke-dasharray:7 3}"
    ".l3{stroke:#7a4ea3;stroke-dasharray:2 3}.l4{stroke:#8a6100;stroke-dasharray:9 3 2 3}"
    ".l5{stroke:#55595f;stroke-dasharray:4 4}"
    "rect.bar{fill:#8aa4c8}rect.inner{fill:#2f5d9b}"
    "@media(prefers-color-scheme:dark){.paper{fill:#15171a}text{fill:#e8eaed}"
    "text.soft{fill:#a9b1bd}line.grid{stroke:#454b55}rect.gap{fill:#2a2e34}"
    ".l0{stroke:#8db8f2}.l1{stroke:#f0857a}.l2{stroke:#86c97f}.l3{stroke:#c49bf0}"
    ".l4{stroke:#e0b34a}.l5{stroke:#b4b8be}rect.bar{fill:#4d6a93}rect.inner{fill:#8db8f2}}";

constexpr char kPageStyle[] =
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;"
    "max-width:60em;padding:0 1em}table{border-collapse:collapse;font-variant-numeric:"
    "tabular-nums}th,td{padding:.25em .7em;text-align:right;border-bottom:1px solid #8886}"
    "td+td{white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere;min-width:9em}"
    ".wide{overflow-x:auto}svg{max-width:100%;height:auto}"
    "@media print{body{margin:0;max-width:none}svg,tr{break-inside:avoid}}";

std::string begin_svg(const std::string& title, double height) {
  const std::string name = escaped_html(title);
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"-8 0 %.0f %.0f\" "
             "width=\"%.0f\" height=\"%.0f\">\n<title>",
             kWidth, height, kWidth, height) +
         name + "</title>\n<style>" + kStyle +
         format("</style>\n<rect x=\"-8\" width=\"%.0f\" height=\"%.0f\" class=\"paper\"/>\n",
                kWidth, height) +
         "<text x=\"0\" y=\"18\" font-weight=\"600\">" + name + "</text>\n";
}

// A month, a day or a minute, as the range wants.
std::string moment_text(int64_t at_s, double span_s) {
  const time_t at = static_cast<time_t>(at_s);
  tm parts = {};
  gmtime_r(&at, &parts);
  char text[40];
  const char* const form = span_s > 4 * 86'400.0 ? "%Y-%m-%d"
                           : span_s > 600        ? "%d %H:%M"
                                                 : "%H:%M:%S";
  if (strftime(text, sizeof text, form, &parts) == 0) return "";
  return text;
}

double most_of(const LinePlot& plot, size_t* values) {
  double most = 0;
  for (const Line& line : plot.lines) {
    *values = std::max(*values, line.values.size());
    for (const double value : line.values) most = std::max(most, value);
  }
  return most <= 0 ? 1 : most * 1.05;
}

std::string number_text(double value, double step) {
  return format(step < 1 ? step < 0.1 ? "%.2f" : "%.1f" : "%.0f", value);
}

void add_grid(const LinePlot& plot, double most, double span_s, std::string* svg) {
  // The steps of small plots are tenths and hundredths.
  const double scale = most < 0.5 ? 0.01 : most < 5 ? 0.1 : 1;
  const double step = grid_step(most / scale) * scale;
  for (double value = 0; value <= most; value += step) {
    const double y = kTop + kHeight * (1 - value / most);
    *svg += format("<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>", kLeft,
                   kRight, y, y);
    *svg +=
        format("<text class=\"soft\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">", kLeft - 8, y + 4);
    *svg += number_text(value, step) + "</text>\n";
  }
  constexpr int kMoments = 4;
  for (int i = 0; i <= kMoments; ++i) {
    const double part = double(i) / kMoments;
    const std::string text =
        plot.by_clock ? moment_text(plot.from_s + int64_t(span_s * part), span_s)
                      : number_text(span_s * part / 3600, span_s / 3600 / kMoments) + " h";
    *svg += format("<text class=\"soft\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"%s\">",
                   kLeft + (kRight - kLeft) * part, kTop + kHeight + 20,
                   i == 0          ? "start"
                   : i == kMoments ? "end"
                                   : "middle");
    *svg += text + "</text>\n";
  }
}

// Values stand for a step each, so lines are steps. Where nothing is known, there is none.
void add_line(const Line& line, size_t number, double most, size_t values, std::string* svg) {
  std::string points;
  const auto flush = [&] {
    if (!points.empty())
      *svg += format("<polyline class=\"l%zu\" points=\"", number) + points + "\"/>\n";
    points.clear();
  };
  for (size_t i = 0; i < line.values.size(); ++i) {
    if (line.values[i] < 0) {
      flush();
      continue;
    }
    const double y = kTop + kHeight * (1 - line.values[i] / most);
    for (size_t end = 0; end < 2; ++end)
      points +=
          format("%.1f,%.1f ", kLeft + (kRight - kLeft) * double(i + end) / double(values), y);
  }
  flush();
}

}  // namespace

double grid_step(double most) {
  double step = 1;
  for (int i = 0; step * 5 < most && i < 60; ++i) step *= i % 3 == 1 ? 2.5 : 2;
  return step;
}

std::string escaped_html(const std::string& text, size_t max) {
  std::string result;
  for (const char one : base::printable(text, max)) {
    switch (one) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += one;
    }
  }
  return result;
}

std::string html_table(const HtmlRows& rows) {
  std::string html = "<div class=\"wide\"><table>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    html += "<tr>";
    const char* const tag = i == 0 ? "th" : "td";
    for (const std::string& cell : rows[i])
      html += std::string("<") + tag + ">" + escaped_html(cell) + "</" + tag + ">";
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string html_page(const std::string& title, const std::string& body) {
  const std::string name = escaped_html(title);
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
         "content=\"width=device-width\">\n<meta http-equiv=\"Content-Security-Policy\" "
         "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>" +
         name + "</title>\n<style>" + kPageStyle + "</style>\n<h1>" + name + "</h1>\n" + body +
         "</html>\n";
}

std::string line_svg(const LinePlot& plot) {
  const std::string title = plot.title + (plot.unit.empty() ? "" : ", " + plot.unit);
  std::string svg = begin_svg(title, kTop + kHeight + kBottom);
  size_t values = 1;
  const double most = most_of(plot, &values);
  const double span_s = plot.step_s * double(values);
  for (const auto& [from_s, to_s] : plot.gaps) {
    const auto x = [&](int64_t at_s) {
      return kLeft + (kRight - kLeft) * std::clamp(double(at_s - plot.from_s) / span_s, 0.0, 1.0);
    };
    svg += format("<rect class=\"gap\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%.0f\"/>\n",
                  x(from_s), kTop, std::max(1.0, x(to_s) - x(from_s)), kHeight);
  }
  add_grid(plot, most, span_s, &svg);
  for (size_t i = 0; i < plot.lines.size() && i < kMostLines; ++i) {
    add_line(plot.lines[i], i, most, values, &svg);
    const double y = kTop + 12 + 22 * double(i);
    svg += format("<line class=\"key l%zu\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.0f\" y2=\"%.0f\"/>", i,
                  kRight + 12, kRight + 36, y, y);
    svg += format("<text x=\"%.0f\" y=\"%.0f\">", kRight + 42, y + 4);
    svg += escaped_html(plot.lines[i].name, kNameBytes - 8) + "</text>\n";
  }
  return svg + "</svg>\n";
}

std::string bar_svg(const BarPlot& plot) {
  double most = 0, lines = 0;
  for (const Bar& bar : plot.bars) {
    most = std::max(most, bar.length);
    lines += bar.heading.empty() ? 1 : 2;
  }
  std::string svg = begin_svg(plot.title, kTop + kBarHeight * lines + 8);
  if (most <= 0) most = 1;
  double y = kTop;
  for (const Bar& bar : plot.bars) {
    const double width = kBarRoom * std::max(0.0, bar.length) / most;
    if (!bar.heading.empty()) {
      svg +=
          format("<text x=\"0\" y=\"%.0f\">", y + 18) + escaped_html(bar.heading, 80) + "</text>\n";
      y += kBarHeight;
    }
    svg += format("<text x=\"0\" y=\"%.0f\">", y + 14) + escaped_html(bar.name, kNameBytes) +
           "</text>";
    svg += format("<rect class=\"bar\" x=\"%.0f\" y=\"%.0f\" width=\"%.1f\" height=\"18\"/>",
                  kBarLeft, y, width);
    if (bar.inner >= 0) {
      svg += format("<rect class=\"inner\" x=\"%.0f\" y=\"%.0f\" width=\"%.1f\" height=\"18\"/>",
                    kBarLeft, y, std::min(width, kBarRoom * bar.inner / most));
    }
    svg += format("<text x=\"%.1f\" y=\"%.0f\">", kBarLeft + width + 8, y + 14) +
           escaped_html(bar.text, 60) + "</text>\n";
    y += kBarHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace tendril::view
