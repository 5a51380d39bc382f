// SPDX-License-Identifier: Apache-2.0
// What can be asked of a GPU by name (--query-gpu): the names, units and spellings of the vendor's
// tool, with answers of our NVML. `query` of every other form (-q) takes its values from here too.
// Every function asks NVML, which may ask a server.
#pragma once

#include <cstddef>
#include <string>

#include "client/nvml/answer.h"

namespace tendril::client::smi {

struct Gpu {
  nvmlDevice_t handle = nullptr;
  unsigned index = 0;
};

struct Field {
  const char* name;
  const char* alias;  // "": none
  const char* unit;   // "": none
  // Writes the value without its unit. Null: no server reports it, NOT_SUPPORTED.
  nvmlReturn_t (*read)(const Gpu& gpu, std::string* value);
};

// For such functions: hands `text` over if NVML had an answer.
inline nvmlReturn_t done(nvmlReturn_t result, std::string* value, const std::string& text) {
  if (result == NVML_SUCCESS) *value = text;
  return result;
}

extern const Field kFields[];
extern const size_t kFieldCount;
// Null: the tool has no such field.
const Field* find_field(const std::string& name);

// The value as the tool prints it: with unit, or why there is none ("N/A").
struct Value {
  std::string text;
  bool known = false;
};
Value value_of(const Field& field, const Gpu& gpu, bool with_unit);
// Why there is no value: "N/A", "GPU is lost".
const char* reason(nvmlReturn_t result);

// Of the whole machine; "N/A" if no server says.
std::string driver_version();
std::string cuda_version();
std::string timestamp_of_log();  // "Fri Nov 27 20:44:10 2026"

constexpr unsigned long long kMiB = 1ull << 20;

}  // namespace tendril::client::smi
