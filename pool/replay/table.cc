// SPDX-License-Identifier: Apache-2.0
// See table.h.
#include "pool/replay/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/text.h"

namespace tendril::pool {

namespace {

constexpr size_t kMostDigits = 40;  // of a decimal

std::string_view without_return(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

}  // namespace

std::vector<std::string_view> split_text(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(mark);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool read_decimal(std::string_view text, double most, double* value) {
  const std::string digits(text.substr(0, kMostDigits + 1));
  const size_t wrong = digits.find_first_not_of("0123456789.eE+-");
  char* end = nullptr;
  *value = std::strtod(digits.c_str(), &end);
  return !digits.empty() && digits.size() <= kMostDigits && wrong == std::string::npos &&
         *end == '\0' && std::isfinite(*value) && *value >= 0 && *value <= most;
}

std::vector<std::string_view> table_columns(std::string_view text) {
  return split_text(without_return(text.substr(0, text.find('\n'))), ',');
}

std::string_view TableLine::text(std::string_view column) const {
  const size_t at = std::find(names_.begin(), names_.end(), column) - names_.begin();
  return at < values_.size() ? values_[at] : std::string_view();
}

void TableLine::refuse(const std::string& why) {
  status_ = base::Status(base::Code::kInvalid,
                         "line " + std::to_string(number_) + " of the trace: " + why);
}

void TableLine::refuse_value(std::string_view column, std::string_view value,
                             const std::string& most) {
  refuse("column " + std::string(column) + " is \"" + base::printable(std::string(value), 80) +
         "\"; expected a number of at most " + most);
}

uint64_t TableLine::number(std::string_view column, uint64_t most) {
  const std::string_view digits = text(column);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc() && end == digits.data() + digits.size() && value <= most) return value;
  refuse_value(column, digits, std::to_string(most));
  return 0;
}

double TableLine::decimal(std::string_view column, double most) {
  const std::string_view digits = text(column);
  double value = 0;
  if (read_decimal(digits, most, &value)) return value;
  refuse_value(column, digits, std::to_string(static_cast<uint64_t>(most)));
  return 0;
}

base::Status read_table(std::string_view text, const std::function<void(TableLine&)>& read) {
  std::vector<std::string_view> names;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    const std::string_view line = without_return(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (names.empty()) {
      names = split_text(line, ',');
      continue;
    }
    if (line.empty()) continue;
    TableLine values(names, line, number);
    read(values);
    if (!values.status()) return values.status();
  }
  return {};
}

}  // namespace tendril::pool
