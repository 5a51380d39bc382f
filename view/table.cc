// SPDX-License-Identifier: Apache-2.0
// See table.h.
#include "view/table.h"

#include <algorithm>

namespace tendril::view {

namespace {

constexpr size_t kGap = 2;
constexpr size_t kCellMin = 8;  // narrower cells say nothing

std::vector<size_t> widths_of(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    if (row.size() > widths.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

size_t total_of(const std::vector<size_t>& widths) {
  size_t sum = widths.empty() ? 0 : (widths.size() - 1) * kGap;
  for (const size_t width : widths) sum += width;
  return sum;
}

// False: there is no such column.
bool drop_column(std::vector<Row>* rows, const std::string& heading) {
  const Row& headings = rows->front();
  const auto found = std::find(headings.begin(), headings.end(), heading);
  if (found == headings.end()) return false;
  const auto column = static_cast<size_t>(found - headings.begin());
  for (Row& row : *rows) {
    if (column < row.size()) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
  return true;
}

void cut_widest(std::vector<Row>* rows, size_t width) {
  for (std::vector<size_t> widths = widths_of(*rows); total_of(widths) > width;
       widths = widths_of(*rows)) {
    const auto widest = std::max_element(widths.begin(), widths.end());
    if (*widest <= kCellMin) return;
    const size_t excess = total_of(widths) - width;
    const size_t second = [&] {
      size_t next = kCellMin;
      for (const size_t each : widths) next = each < *widest ? std::max(next, each) : next;
      return next;
    }();
    const size_t room = std::max(second, *widest > excess + kCellMin ? *widest - excess : kCellMin);
    const size_t column = static_cast<size_t>(widest - widths.begin());
    const size_t allowed = room < *widest ? room : *widest - 1;
    for (Row& row : *rows) {
      if (column >= row.size() || row[column].size() <= allowed) continue;
      row[column].resize(allowed - 2);
      row[column] += "..";
    }
  }
}

}  // namespace

std::string fitted(std::vector<Row> rows, size_t width,
                   std::initializer_list<const char*> dispensable) {
  if (width == 0 || rows.empty()) return aligned(rows);
  std::string left_out;
  for (const char* heading : dispensable) {
    if (total_of(widths_of(rows)) <= width) break;
    if (drop_column(&rows, heading))
      left_out += (left_out.empty() ? "left out: " : ", ") + std::string(heading);
  }
  cut_widest(&rows, width);
  if (left_out.empty()) return aligned(rows);
  return aligned(rows) + wrapped("(" + left_out + "; --wide shows all)", width, 1) + "\n";
}

std::string wrapped(const std::string& text, size_t width, size_t indent) {
  std::string out, line;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    const bool first = line.find_first_not_of(' ') == std::string::npos;
    if (!first && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line = std::string(indent, ' ') + word;
    } else {
      line += (first ? "" : " ") + word;
    }
    at = end + 1;
  }
  return out + line;
}

std::string aligned(const std::vector<Row>& rows) {
  const std::vector<size_t> widths = widths_of(rows);
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      line.append(i + 1 < row.size() ? widths[i] - row[i].size() + kGap : 0, ' ');
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

}  // namespace tendril::view
