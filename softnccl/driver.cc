// SPDX-License-Identifier: Apache-2.0
// Finds the process' driver and binds its calls. See driver.h.
#include "softnccl/driver.h"

#include <dlfcn.h>

#include <initializer_list>

namespace tendril::softnccl {
namespace {

void* library() {
  // As NCCL does. A worker whose libcuda.so.1 is not there has opened the software GPU by its path.
  for (const char* name : {"libcuda.so.1", "libtendril-softgpu.so"})
    // structure: allow dlopen: only asks for what is there
    if (void* found = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return found;
  // structure: allow dlopen: as NCCL does, for a program that calls it first
  return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

const Driver* bind() {
  void* handle = library();
  if (handle == nullptr) return nullptr;
  static Driver bound;
  bool whole = true;
#define TENDRIL_SOFTNCCL_BIND(member, symbol)                             \
  bound.member = reinterpret_cast<symbol##_call>(dlsym(handle, #symbol)); \
  whole = whole && bound.member != nullptr;
  TENDRIL_SOFTNCCL_DRIVER(TENDRIL_SOFTNCCL_BIND)
#undef TENDRIL_SOFTNCCL_BIND
  return whole ? &bound : nullptr;
}

}  // namespace

const Driver* driver() {
  static const Driver* bound = bind();
  return bound;
}

}  // namespace tendril::softnccl
