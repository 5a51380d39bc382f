// SPDX-License-Identifier: Apache-2.0
// Text tables for people. Pure.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

namespace tendril::view {

using Row = std::vector<std::string>;

// Columns as wide as their widest cell, two spaces between; no trailing spaces.
std::string aligned(const std::vector<Row>& rows);
// The same in lines of at most `width` characters; 0: as wide as it gets. What is too wide loses
// the columns with these headings, in this order, and a line below says so. If that is not enough,
// the widest cells are cut and end in "..". The first row has the headings.
std::string fitted(std::vector<Row> rows, size_t width,
                   std::initializer_list<const char*> dispensable);
// Breaks a text at blanks into lines of at most `width` characters. A longer word has a line of its
// own. All lines but the first begin with `indent` blanks.
std::string wrapped(const std::string& text, size_t width, size_t indent);

}  // namespace tendril::view
