// SPDX-License-Identifier: Apache-2.0
// The files of the page, which embed.py puts into the program at build time.
#pragma once

#include <cstddef>
#include <string_view>

namespace tendril::dashboard {

struct File {
  const char* path;  // "/style.css"; the first one is "/"
  const char* type;
  const char* tag;                 // changes with the content
  std::string_view plain, packed;  // the same, and with gzip
};
// Null: there is none.
const File* find_file(std::string_view path);
// Whether the chart library was there when this program was built.
bool has_charts();

}  // namespace tendril::dashboard
