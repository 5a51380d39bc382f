// SPDX-License-Identifier: Apache-2.0
// Tables of comma-separated values as public traces have them: a line of column names, then a line
// for each row. Nothing is quoted. The text is untrusted: an error names the line. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tendril::pool {

std::vector<std::string_view> split_text(std::string_view text, char mark);
// A number from 0 to `most`, with a fraction; the whole text. False: it is something else.
bool read_decimal(std::string_view text, double most, double* value);
// The names in the first line.
std::vector<std::string_view> table_columns(std::string_view text);

// One line of a table, by the names of its columns.
class TableLine {
 public:
  TableLine(const std::vector<std::string_view>& names, std::string_view text, size_t number)
      : names_(names), values_(split_text(text, ',')), number_(number) {}

  // Empty if there is no such column.
  std::string_view text(std::string_view column) const;
  // A number from 0 to `most`; else the error is kept, and the answer is 0.
  uint64_t number(std::string_view column, uint64_t most);
  // The same with a fraction.
  double decimal(std::string_view column, double most);
  void refuse(const std::string& why);  // keeps an error about this line

  const base::Status& status() const { return status_; }

 private:
  void refuse_value(std::string_view column, std::string_view value, const std::string& most);

  const std::vector<std::string_view>& names_;
  std::vector<std::string_view> values_;
  size_t number_;
  base::Status status_;
};

// Calls `read` for each line but the first and empty ones, until one keeps an error.
base::Status read_table(std::string_view text, const std::function<void(TableLine&)>& read);

}  // namespace tendril::pool
