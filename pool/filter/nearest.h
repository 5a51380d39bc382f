// SPDX-License-Identifier: Apache-2.0
// What a writer may have meant by a name that nobody knows. Pure.
#pragma once

#include <string>
#include <vector>

namespace tendril::pool {

// "; did you mean 'memory'?" for the nearest of the names; empty if none is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& names);
// "a, b, c"
std::string joined(const std::vector<std::string>& names);

}  // namespace tendril::pool
