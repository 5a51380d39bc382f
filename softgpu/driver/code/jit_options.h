// SPDX-License-Identifier: Apache-2.0
// The (option, value) pairs of module, library and linker calls. Values are integers stored in
// pointers, or buffers of the program that are written when the call ends.
#pragma once

#include <string>

#include "api/cuda_abi.gen.h"

namespace tendril::softgpu {

class JitOptions {
 public:
  // CUDA_ERROR_INVALID_VALUE for options that do not exist.
  CUresult read(unsigned count, CUjit_option* options, void** values);
  // Writes both logs and their sizes back.
  void report(const std::string& info, const std::string& error) const;

 private:
  char* info_ = nullptr;
  char* error_ = nullptr;
  void** info_bytes_ = nullptr;
  void** error_bytes_ = nullptr;
  void** wall_time_ = nullptr;
};

}  // namespace tendril::softgpu
