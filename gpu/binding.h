// SPDX-License-Identifier: Apache-2.0
// Opens a vendor's library and fills a table of its entry points by name. Each API's driver.cc uses
// it. The library stays open while the process lives.
#pragma once

#include <cstddef>
#include <string>

namespace tendril::gpu {

struct Binding {
  const char* symbol;
  size_t offset;  // of its pointer in the table
};

template <typename Table, typename Member>
size_t offset_of(Table* table, Member* member) {
  return static_cast<size_t>(reinterpret_cast<char*>(member) - reinterpret_cast<char*>(table));
}

// Null: it cannot be opened, and *why says why.
void* open_library(const std::string& name, std::string* why);
// The file behind `name`. A driver's file name has its version.
std::string file_of(void* library, const std::string& name);
// A symbol that the library lacks becomes null.
void bind(void* library, const Binding* bindings, size_t count, void* table);

}  // namespace tendril::gpu
