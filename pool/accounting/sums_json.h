// SPDX-License-Identifier: Apache-2.0
// Inside of pool/accounting: reading and writing fields of JSON objects that may be damaged.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "pool/accounting/used_record.h"

namespace tendril::pool {

inline constexpr size_t kUsedGpusMax = 4096;

void put_sums(const UsedSums& sums, nlohmann::ordered_json* json);
bool get_sums(const nlohmann::ordered_json& json, UsedSums* sums);

inline const nlohmann::ordered_json* find(const nlohmann::ordered_json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() ? nullptr : &*found;
}

// False: it is not there, or of another type or size.
template <typename T>
bool get(const nlohmann::ordered_json& json, const char* key, T* value) {
  const nlohmann::ordered_json* const field = find(json, key);
  if (field == nullptr) return false;
  if constexpr (std::is_same_v<T, std::string>) {
    if (!field->is_string()) return false;
    *value = field->get<std::string>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!field->is_boolean()) return false;
    *value = field->get<bool>();
  } else if constexpr (std::is_signed_v<T>) {
    if (!field->is_number_integer()) return false;
    *value = field->get<T>();
  } else {
    if (!field->is_number_unsigned() || field->get<uint64_t>() > std::numeric_limits<T>::max()) {
      return false;
    }
    *value = field->get<T>();
  }
  return true;
}

// Bytes that are no UTF-8 are replaced.
inline std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

inline std::string json_text(const std::string& text) {
  return text_of(nlohmann::ordered_json(text));
}

// Sums of many leases do not fit into 64 bits.
inline std::string whole_text(unsigned __int128 value) {
  std::string digits;
  do {
    digits.insert(digits.begin(), char('0' + int(value % 10)));
    value /= 10;
  } while (value != 0);
  return digits;
}

}  // namespace tendril::pool
