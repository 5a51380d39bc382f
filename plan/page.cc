// SPDX-License-Identifier: Apache-2.0
// See page.h. Colours are chosen for contrast in both themes, and told apart by lightness too.
#include "plan/page.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "base/text.h"
#include "view/plot.h"

namespace tendril::plan {

using view::escaped_html;
using view::grid_step;
using view::html_page;
using view::html_table;

namespace {

constexpr double kWidth = 790, kLeft = 195, kRight = 770;
constexpr double kUseHeight = 250, kBarHeight = 26, kMargin = 34;

// Plain colours by class: many viewers of SVG know no variables.
constexpr char kStyle[] =
    "svg{font:13px system-ui,sans-serif}.paper{fill:#ffffff}text{fill:#1c1e21}"
    "text.soft{fill:#5c6370}line.grid{stroke:#c9ced6}rect.held{fill:#8aa4c8}"
    "rect.busy{fill:#b03a2e}rect.found{fill:#2f5d9b}polyline{fill:none;stroke-width:2}"
    "polyline.held{stroke:#8aa4c8}.busy{stroke:#b03a2e}line.busy{stroke-width:3}"
    "@media(prefers-color-scheme:dark){.paper{fill:#15171a}text{fill:#e8eaed}"
    "text.soft{fill:#a9b1bd}line.grid{stroke:#454b55}rect.held{fill:#4d6a93}"
    "rect.busy{fill:#f0857a}rect.found{fill:#8db8f2}polyline.held{stroke:#4d6a93}"
    ".busy{stroke:#f0857a}}";

__attribute__((format(printf, 2, 3))) void append(std::string* text, const char* format, ...) {
  char piece[600];
  va_list values;
  va_start(values, format);
  vsnprintf(piece, sizeof piece, format, values);
  va_end(values);
  *text += piece;
}

void draw_line(const Report& report, double top, double most, bool busy, std::string* svg) {
  const double span_s = static_cast<double>(std::max<int64_t>(1, report.to_s - report.from_s));
  *svg += busy ? "<polyline class=\"busy\" points=\"" : "<polyline class=\"held\" points=\"";
  for (const UsePoint& point : report.use.points) {
    const double x =
        kLeft + (kRight - kLeft) * static_cast<double>(point.at_s - report.from_s) / span_s;
    const double gpus = busy ? point.busy_gpus : point.held_gpus;
    append(svg, "%.1f,%.1f ", x, top + kUseHeight * (1 - gpus / most));
  }
  *svg += "\"/>\n";
}

void draw_use(const Report& report, double top, std::string* svg) {
  const double most = std::max(1.0, report.use.most_held_gpus) * 1.05;
  const double step = grid_step(most);
  append(svg, "<text x=\"0\" y=\"%.0f\" font-weight=\"600\">%s</text>\n", top - 14,
         report.measured ? "GPUs held and busy over time" : "GPUs asked for over time");
  for (double gpus = 0; gpus <= most; gpus += step) {
    const double y = top + kUseHeight * (1 - gpus / most);
    append(svg, "<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>", kLeft,
           kRight, y, y);
    append(svg, "<text class=\"soft\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n",
           kLeft - 8, y + 4, gpus);
  }
  const double hours = static_cast<double>(report.to_s - report.from_s) / 3600;
  const double step_h = grid_step(hours);
  for (double hour = 0; hour <= hours; hour += step_h)
    append(svg, "<text class=\"soft\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.0f h</text>\n",
           kLeft + (kRight - kLeft) * hour / hours, top + kUseHeight + 18, hour);
  draw_line(report, top, most, false, svg);
  if (!report.measured) return;
  draw_line(report, top, most, true, svg);
  append(svg,
         "<rect x=\"0\" y=\"%.0f\" width=\"12\" height=\"12\" class=\"held\"/><text x=\"18\" "
         "y=\"%.0f\">held: mean %.1f</text>\n",
         top + 20, top + 30, report.use.mean_held_gpus);
  append(svg,
         "<rect x=\"0\" y=\"%.0f\" width=\"12\" height=\"12\" class=\"busy\"/><text x=\"18\" "
         "y=\"%.0f\">busy: mean %.1f</text>\n",
         top + 44, top + 54, report.use.mean_busy_gpus);
}

std::string bar_name(const Rung& rung) {
  std::string name = step_name(rung.step);
  if (rung.card_bytes != 0) append(&name, ", %.0f GB", static_cast<double>(rung.card_bytes) / 1e9);
  return name + (rung.assumed ? "*" : "");
}

void draw_ladder(const Report& report, double top, std::string* svg) {
  append(svg, "<text x=\"0\" y=\"%.0f\" font-weight=\"600\">GPUs for the same work", top - 14);
  *svg += ": simulated; the mark is the bound</text>\n";
  double most = 1;
  for (const Rung& rung : report.ladder)
    most = std::max<double>(most, std::max(rung.outcome.gpus, rung.bound_gpus));
  const double room = kRight - kLeft - 160;  // for the text behind a bar
  double y = top;
  for (const Rung& rung : report.ladder) {
    append(svg, "<text x=\"0\" y=\"%.0f\">%s</text>", y + 14, bar_name(rung).c_str());
    if (rung.known) {
      const double width = room * rung.outcome.gpus / most;
      append(svg, "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.1f\" height=\"18\" class=\"found\"/>",
             kLeft, y, width);
      const double bound = kLeft + room * rung.bound_gpus / most;
      append(svg, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\" class=\"busy\"/>", bound,
             bound, y - 2, y + 20);
      append(svg, "<text x=\"%.1f\" y=\"%.0f\">%u, mean wait %s</text>\n", kLeft + width + 8,
             y + 14, rung.outcome.gpus, time_text(rung.outcome.mean_wait_s).c_str());
    } else {
      append(svg, "<text class=\"soft\" x=\"%.0f\" y=\"%.0f\">not known</text>\n", kLeft, y + 14);
    }
    y += kBarHeight;
  }
}

}  // namespace

std::string report_svg(const Report& report) {
  const double use_top = kMargin;
  const double ladder_top = use_top + kUseHeight + 2 * kMargin + 12;
  const double height = ladder_top + kBarHeight * static_cast<double>(report.ladder.size()) + 8;
  std::string svg;
  append(&svg,
         "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"-8 0 %.0f %.0f\" "
         "width=\"%.0f\" height=\"%.0f\">\n",
         kWidth, height, kWidth, height);
  svg += "<title>GPUs held and busy, and GPUs for the same work</title>\n<style>";
  svg += kStyle;
  append(&svg, "</style>\n<rect x=\"-8\" width=\"%.0f\" height=\"%.0f\" class=\"paper\"/>\n",
         kWidth, height);
  draw_use(report, use_top, &svg);
  draw_ladder(report, ladder_top, &svg);
  return svg + "</svg>\n";
}

std::string report_html(const Report& report) {
  std::string body = "<p>";
  for (const std::string& line : summary_sentences(report)) body += escaped_html(line) + "\n";
  body += "</p>\n" + report_svg(report);
  body += html_table(ladder_cells(report)) + "<ul>\n";
  for (const std::string& note : ladder_notes(report))
    body += "<li>" + escaped_html(note) + "</li>\n";
  body += "</ul>\n";
  if (report.measured || report.accounted)
    body += "<h2>Most held and idle</h2>\n" + html_table(user_cells(report));
  body += "<p>From";
  for (const std::string& file : report.files) body += " " + escaped_html(file);
  return html_page("GPUs for the same work", body + "</p>\n");
}

}  // namespace tendril::plan
