// SPDX-License-Identifier: Apache-2.0
// A tiny device for the engine's own tests: one arena of memory at a fixed device address, and a
// way to load text and launch kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "softgpu/engine.h"

namespace tendril::softgpu {

inline constexpr uint64_t kArenaBase = 0x700000000000ull;
inline const char kHeader[] = ".version 7.8\n.target sm_80\n.address_size 64\n";

class TestGpu {
 public:
  explicit TestGpu(size_t bytes = 4 * kPageBytes)
      : memory_(bytes), pages_(bytes / kPageBytes + 1, 1) {
    MemoryRegion r;
    r.base = kArenaBase, r.bytes = bytes, r.host = memory_.data(), r.valid_pages = pages_.data();
    view_.regions.push_back(r);
  }

  bool load(const std::string& text) {
    program = parse_program(text, &log);
    if (!program) return false;
    for (const GlobalInfo& g : program->globals()) {
      top_ = (top_ + g.align - 1) / g.align * g.align;
      addresses_.push_back(kArenaBase + top_);
      std::copy(g.bytes.begin(), g.bytes.end(), memory_.begin() + static_cast<long>(top_));
      top_ += g.size;
    }
    for (size_t i = 0; i < program->globals().size(); ++i)
      for (const auto& rel : program->globals()[i].relocations)
        for (size_t k = 0; k < program->globals().size(); ++k)
          if (program->globals()[k].name == rel.symbol) {
            uint64_t v = addresses_[k] + static_cast<uint64_t>(rel.addend);
            std::memcpy(host(addresses_[i] + rel.offset), &v, 8);
          }
    return true;
  }

  uint64_t alloc(size_t bytes) {
    top_ = (top_ + 255) & ~size_t{255};
    uint64_t a = kArenaBase + top_;
    top_ += bytes;
    return a;
  }
  uint8_t* host(uint64_t address) { return memory_.data() + (address - kArenaBase); }
  template <class T>
  T* at(uint64_t address) {
    return reinterpret_cast<T*>(host(address));
  }
  uint64_t global(size_t i) const { return addresses_[i]; }

  template <class... Args>
  LaunchResult run(const std::string& kernel, Dim3 grid, Dim3 block, Args... args) {
    LaunchRequest r = request;
    r.program = program.get();
    r.kernel_index = 0;
    for (size_t i = 0; i < program->kernels().size(); ++i)
      if (program->kernels()[i].name == kernel) r.kernel_index = i;
    const KernelInfo& k = program->kernels()[r.kernel_index];
    std::vector<uint8_t> params(k.param_bytes);
    size_t index = 0;
    auto put = [&](auto v) {
      if (index < k.params.size())
        std::memcpy(params.data() + k.params[index].offset, &v,
                    std::min<size_t>(sizeof v, k.params[index].size));
      ++index;
    };
    (put(args), ...);
    r.grid = grid, r.block = block, r.params = params.data();
    r.global_addresses = addresses_.data(), r.memory = &view_;
    r.print = [this](std::string_view s) { printed += s; };
    return run_grid(r);
  }

  std::unique_ptr<Program> program;
  std::string log, printed;
  LaunchRequest request;  // defaults for run(): dynamic shared memory, budget, cooperative
  std::vector<uint8_t>& pages() { return pages_; }
  MemoryView& view() { return view_; }

 private:
  std::vector<uint8_t> memory_, pages_;
  MemoryView view_;
  std::vector<uint64_t> addresses_;
  size_t top_ = 4096;
};

}  // namespace tendril::softgpu
