// SPDX-License-Identifier: Apache-2.0
// Lists of names of system calls, as people and `tendril serve --learn-filter` write them: words,
// with comments from '#' to the end of the line. The daemon reads what it has learned before, a
// worker what it may call. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tendril::base {

inline constexpr size_t kCallNamesMax = 1024;          // the kernel has about 450
inline constexpr size_t kCallNamesBytesMax = 1 << 20;  // of a list
// Lower-case letters, digits and '_'.
bool is_call_name(const std::string& text);
// False: something in the text is no name, or there are too many. `*wrong` says what.
bool read_call_names(const std::string& text, std::vector<std::string>* names, std::string* wrong);

}  // namespace tendril::base
