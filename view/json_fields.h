// SPDX-License-Identifier: Apache-2.0
// Reads fields of JSON that another program wrote. What is absent or of another type is nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace tendril::view {

// The field, or null.
inline const nlohmann::json& part(const nlohmann::json& from, const char* key) {
  static const nlohmann::json none;
  if (!from.is_object()) return none;
  const auto found = from.find(key);
  return found == from.end() ? none : *found;
}

// 0 if it is no number; 1 if it is true.
inline double number(const nlohmann::json& from, const char* key) {
  const nlohmann::json& value = part(from, key);
  return value.is_boolean() ? value.get<bool>() : value.is_number() ? value.get<double>() : 0;
}
// A number of anybody's as a whole one: at most 10^15 away from zero, so that sums of some fit.
inline int64_t whole(double value) {
  constexpr double kMost = 1e15;
  return static_cast<int64_t>(std::clamp(value, -kMost, kMost));
}

}  // namespace tendril::view
