// SPDX-License-Identifier: Apache-2.0
// See library.h.
#include "gpu/nccl/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

namespace tendril::gpu {
namespace {

template <typename Function>
void bind(void* library, const char* symbol, Function** into) {
  void* entry = dlsym(library, symbol);
  std::memcpy(into, &entry, sizeof entry);
}

namespace fs = std::filesystem;

// Files of NCCL in the folder, and below it to `depth` folders.
void collect_nccl_files(const fs::path& folder, int depth, std::vector<std::string>* files) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    const bool fits = name.rfind("libnccl.so", 0) == 0 || name.rfind("libnccl-", 0) == 0;
    if (entry.is_directory(ignored)) {
      if (depth > 0) collect_nccl_files(entry.path(), depth - 1, files);
    } else if (fits && entry.is_regular_file(ignored)) {
      files->push_back(entry.path());
    }
  }
}

// As wheels lay it out: VERSION/nvidia/nccl/lib/libnccl.so.2.
constexpr int kFoldersDeep = 4;

}  // namespace

base::Result<std::vector<NcclFile>> find_nccl(const std::string& path) {
  std::error_code ignored;
  std::vector<std::string> paths = {path};
  const bool is_folder = fs::is_directory(path, ignored);
  if (is_folder) {
    paths.clear();
    collect_nccl_files(path, kFoldersDeep, &paths);
    std::sort(paths.begin(), paths.end());
  }
  std::vector<NcclFile> found;
  base::Status why(base::Code::kNotFound, "there is no NCCL library (libnccl.so...) in '" + path +
                                              "'; name another folder or file with --nccl");
  for (const std::string& each : paths) {
    auto library = Nccl::open(each);
    if (!library.ok()) {
      why = library.status();
      if (is_folder) fprintf(stderr, "left out: %s\n", why.message().c_str());
      continue;
    }
    const auto version = static_cast<uint32_t>((*library)->version());
    const auto same = std::find_if(found.begin(), found.end(), [version](const NcclFile& other) {
      return other.version == version;
    });
    if (same == found.end() && found.size() < kNcclFilesMax) found.push_back({version, each});
  }
  if (found.empty()) return why;
  std::sort(found.begin(), found.end(),
            [](const NcclFile& a, const NcclFile& b) { return a.version > b.version; });
  return found;
}

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
