// SPDX-License-Identifier: Apache-2.0
// See binding.h.
#include "gpu/binding.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>

namespace tendril::gpu {

void* open_library(const std::string& name, std::string* why) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* reason = dlerror();
  *why = reason != nullptr ? reason : "unknown reason";
  return nullptr;
}

std::string file_of(void* library, const std::string& name) {
  const link_map* map = nullptr;
  char resolved[PATH_MAX];
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return name;
  return realpath(map->l_name, resolved) != nullptr ? resolved : name;
}

void bind(void* library, const Binding* bindings, size_t count, void* table) {
  for (size_t i = 0; i < count; ++i) {
    void* entry = dlsym(library, bindings[i].symbol);
    *reinterpret_cast<void**>(static_cast<char*>(table) + bindings[i].offset) = entry;
  }
}

}  // namespace tendril::gpu
