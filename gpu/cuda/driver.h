// SPDX-License-Identifier: Apache-2.0
// Opens CUDA's driver library, libcuda.so.1 or the software GPU, and holds every entry point by its
// exported name. Nothing else opens it. worker/ and the inventory use this. Opening creates no
// context; the caller calls `cuInit`. An entry point that the library lacks is null: check it
// before you call it.
#pragma once

#include <memory>
#include <string>

#include "api/cuda_abi.gen.h"
#include "base/result.h"

namespace tendril::gpu {

class Driver {
 public:
  // `path`: a file or soname; empty: "libcuda.so.1". The library stays open while the process
  // lives.
  static base::Result<std::unique_ptr<Driver>> open(const std::string& path);

  const std::string& path() const { return path_; }

#define TENDRIL_DRIVER_MEMBER(symbol, result, arguments, names) symbol##_t* symbol = nullptr;
  TENDRIL_CUDA_FUNCTIONS(TENDRIL_DRIVER_MEMBER)
#undef TENDRIL_DRIVER_MEMBER

 private:
  Driver() = default;
  std::string path_;
};

}  // namespace tendril::gpu
