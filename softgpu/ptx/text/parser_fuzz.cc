// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any text must be refused, or parsed, decoded and run for a few steps, without
// crashing. Built with -DTENDRIL_FUZZ=ON.
#include <cstdint>
#include <string_view>
#include <vector>

#include "softgpu/engine.h"

using namespace tendril::softgpu;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string log;
  auto program = parse_program(std::string_view(reinterpret_cast<const char*>(data), size), &log);
  if (!program) return 0;
  set_engine_threads(1);
  static std::vector<uint8_t> memory(1 << 16);
  MemoryView view;
  view.regions.push_back({1ull << 40, memory.size(), memory.data(), nullptr});
  std::vector<uint64_t> addresses(program->globals().size(), 1ull << 40);
  for (size_t k = 0; k < program->kernels().size() && k < 4; ++k) {
    const KernelInfo& info = program->kernels()[k];
    if (!program->decode(k).empty() || info.static_shared_bytes > (1u << 20)) continue;
    LaunchRequest r;
    r.program = program.get(), r.kernel_index = k, r.block.x = 40, r.memory = &view;
    r.global_addresses = addresses.data(), r.step_budget = 20000;
    run_grid(r);
  }
  return 0;
}
