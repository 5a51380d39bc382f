// SPDX-License-Identifier: Apache-2.0
// JIT options as the driver takes them, built from a peer's message. Log buffers are ours, and
// arrays are as long as their counts say. module.cc and link.cc use it. It must not move, because
// the driver writes into it while a linker lives.
#pragma once

#include <cstdint>
#include <vector>

#include "api/cuda/jit_option.h"
#include "worker/cuda/executor/scope.h"

namespace tendril::worker::cuda {

class JitOptions {
 public:
  JitOptions() = default;
  JitOptions(const JitOptions&) = delete;
  JitOptions& operator=(const JitOptions&) = delete;

  template <typename Request>
  CUresult take(const Request& request) {
    return take(request.options, request.values, request.names, request.addresses);
  }
  CUresult take(const wire::Array<uint32_t>& options, const wire::Array<uint64_t>& values,
                const wire::Bytes& names, const wire::Array<uint64_t>& addresses);

  unsigned count() const { return static_cast<unsigned>(options_.size()); }
  CUjit_option* options() { return options_.data(); }
  void** values() { return values_.data(); }

  // Puts logs and values into a reply. They live in the executor's scratch memory. Call this after
  // the driver has answered.
  template <typename Answer>
  void report(Executor& executor, Answer* reply) const {
    Scope scope(executor);
    reply->values = values_copy(&scope);
    reply->info_log = log_copy(&scope, info_log_);
    reply->error_log = log_copy(&scope, error_log_);
    executor.replies().reply_with_body_anyway();
  }

 private:
  CUresult take_names(uint64_t count, const wire::Bytes& names, uint64_t* at);
  void bound_counts();
  static wire::Bytes log_copy(Scope* scope, const std::vector<char>& log);
  wire::Array<uint64_t> values_copy(Scope* scope) const;

  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  std::vector<char> info_log_, error_log_;
  std::vector<char> text_;
  std::vector<std::vector<const char*>> name_arrays_;
  std::vector<std::vector<uint64_t>> address_arrays_;
};

}  // namespace tendril::worker::cuda
