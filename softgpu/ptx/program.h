// SPDX-License-Identifier: Apache-2.0
// Program as the engine sees it: the parsed module and a cache of decoded kernels. The cache is
// filled under a lock, each kernel once. A decoded kernel never changes, so launches on several
// threads share it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "softgpu/engine.h"
#include "softgpu/ptx/exec.h"
#include "softgpu/ptx/text/ast.h"

namespace tendril::softgpu {

class ProgramImpl final : public Program {
 public:
  explicit ProgramImpl(std::unique_ptr<Module> module);
  ~ProgramImpl() override;
  const std::vector<KernelInfo>& kernels() const override { return kernels_; }
  const std::vector<GlobalInfo>& globals() const override { return module_->globals; }
  uint32_t ptx_version() const override { return module_->version; }
  uint32_t target_sm() const override { return module_->target; }
  std::string decode(size_t kernel_index) const override;
  const DecodedKernel& decoded(size_t kernel_index) const;

 private:
  using Offsets = std::unordered_map<const Variable*, uint32_t>;
  std::vector<uint32_t> reachable(uint32_t function) const;
  uint32_t place_shared(const std::vector<uint32_t>& functions, Offsets* offsets) const;
  void describe(uint32_t function);

  std::unique_ptr<Module> module_;
  std::vector<KernelInfo> kernels_;
  std::vector<uint32_t> kernel_functions_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<DecodedKernel>> cache_;
};

}  // namespace tendril::softgpu
