// SPDX-License-Identifier: Apache-2.0
// Opens the operator's NCCL, or softnccl, and holds the entry points that workers use. Nothing else
// opens it. An entry point that the library lacks is null: check it before you call it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/nccl_abi.gen.h"
#include "base/result.h"
#include "gpu/inventory.h"

namespace tendril::gpu {

// The NCCL libraries at `path`: a file, or a folder that has files whose names begin with libnccl,
// or folders with such files. The highest version first, each version once. Opens all of them, so
// this is for the probe. An error says why there is none.
base::Result<std::vector<NcclFile>> find_nccl(const std::string& path);

class Nccl {
 public:
  // `path`: the file. It stays open while the process lives.
  static base::Result<std::unique_ptr<Nccl>> open(const std::string& path);

  const std::string& path() const { return path_; }
  int version() const { return version_; }  // 22809 for 2.28.9

#define TENDRIL_NCCL_MEMBER(symbol, result, arguments, names) symbol##_t* symbol = nullptr;
  TENDRIL_NCCL_FUNCTIONS(TENDRIL_NCCL_MEMBER)
#undef TENDRIL_NCCL_MEMBER

 private:
  Nccl() = default;
  std::string path_;
  int version_ = 0;
};

}  // namespace tendril::gpu
