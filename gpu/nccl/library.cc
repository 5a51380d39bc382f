// SPDX-License-Identifier: Apache-2.0
// See library.h.
#include "gpu/nccl/library.h"

#include <dlfcn.h>

#include <cstring>

namespace tendril::gpu {
namespace {

template <typename Function>
void bind(void* library, const char* symbol, Function** into) {
  void* entry = dlsym(library, symbol);
  std::memcpy(into, &entry, sizeof entry);
}

}  // namespace

base::Result<std::unique_ptr<Nccl>> Nccl::open(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return base::Status(base::Code::kNotFound, "cannot open the NCCL library '" + path + "': " +
                                                   (why != nullptr ? why : "unknown reason") +
                                                   "; name another with --nccl");
  }
  std::unique_ptr<Nccl> nccl(new Nccl);
  nccl->path_ = path;
#define TENDRIL_NCCL_BIND(symbol, result, arguments, names) bind(library, #symbol, &nccl->symbol);
  TENDRIL_NCCL_FUNCTIONS(TENDRIL_NCCL_BIND)
#undef TENDRIL_NCCL_BIND
  if (nccl->ncclGetVersion == nullptr || nccl->ncclCommInitRankConfig == nullptr ||
      nccl->ncclGroupStart == nullptr || nccl->ncclGroupEnd == nullptr ||
      nccl->ncclGetUniqueId == nullptr || nccl->ncclCommDestroy == nullptr ||
      nccl->ncclCommAbort == nullptr || nccl->ncclCommGetAsyncError == nullptr ||
      nccl->ncclGetVersion(&nccl->version_) != ncclSuccess) {
    return base::Status(base::Code::kMismatch,
                        "'" + path +
                            "' is no NCCL of version 2.14 or newer; name another with "
                            "--nccl");
  }
  return nccl;
}

}  // namespace tendril::gpu
