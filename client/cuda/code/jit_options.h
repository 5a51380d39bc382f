// SPDX-License-Identifier: Apache-2.0
// The JIT options of one call. They are taken from the program's parallel arrays and put into a
// message. Afterwards logs go into the program's buffers, sizes and times into its values. Used by
// module.cc, library.cc and link.cc; a linker keeps its object while it lives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/cuda/jit_option.h"
#include "wire/message.h"

namespace tendril::client::cuda {

class JitOptions {
 public:
  // Keeps `values` and the buffers that it names: results are written there.
  CUresult take(const CUjit_option* options, void** values, unsigned count);

  template <typename Request>
  void put(Request* request) const {
    request->options = {options_.data(), options_.size()};
    request->values = {words_.data(), words_.size()};
    request->names = {reinterpret_cast<const uint8_t*>(names_.data()), names_.size()};
    request->addresses = {addresses_.data(), addresses_.size()};
  }
  template <typename Answer>
  void give_back(const Answer& reply) {
    give(reply.info_log, reply.error_log, reply.values);
  }

  const std::vector<uint32_t>& options() const { return options_; }
  const std::vector<uint64_t>& words() const { return words_; }
  // Only options whose values are plain words. These still make sense in a later load, for which
  // the program gave no buffers.
  void set_words(const std::vector<uint32_t>& options, const std::vector<uint64_t>& words);
  static bool is_plain(uint32_t option);

 private:
  CUresult take_array(uint32_t option, const void* array, unsigned elements);
  void give(const wire::Bytes& info_log, const wire::Bytes& error_log,
            const wire::Array<uint64_t>& values);

  std::vector<uint32_t> options_;
  std::vector<uint64_t> words_;
  std::string names_;
  std::vector<uint64_t> addresses_;
  void** values_ = nullptr;
  char* info_log_ = nullptr;
  char* error_log_ = nullptr;
  uint64_t info_bytes_ = 0, error_bytes_ = 0;
};

}  // namespace tendril::client::cuda
