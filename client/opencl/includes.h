// SPDX-License-Identifier: Apache-2.0
// Files that a program's source includes. They lie on the machine of the program, and the compiler
// is elsewhere. So they are found here, as a compiler would find them, and go along. Any thread.
#pragma once

#include <string>
#include <vector>

namespace tendril::client::opencl {

struct Includes {
  // Behind each other in `content`, with absolute paths, each with a NUL.
  std::string paths, content;
  std::vector<uint64_t> lengths;
  // What the compiler gets: before each folder's path stands `kServersFolder`, which the server
  // replaces.
  std::string options;
  bool empty() const { return lengths.empty(); }
};

// Of these sources and what they include in turn. Names that are macros are not followed.
Includes find_includes(const std::vector<const std::string*>& sources, const char* options);

// `source` as the compiler gets it: what it includes from the root is there below another folder,
// so these names lose their first "/".
std::string without_roots(const std::string& source);

}  // namespace tendril::client::opencl
