// SPDX-License-Identifier: Apache-2.0
// JIT options from a hostile peer: no pointer of the driver's may come from the wire, and no count
// may exceed its array.
#include "worker/cuda/code/jit_options.h"

#include <gtest/gtest.h>

#include <string>

namespace tendril::worker::cuda {
namespace {

struct Message {
  std::vector<uint32_t> options;
  std::vector<uint64_t> values;
  std::string names;
  std::vector<uint64_t> addresses;

  CUresult give(JitOptions* jit) const {
    return jit->take({options.data(), options.size()}, {values.data(), values.size()},
                     {reinterpret_cast<const uint8_t*>(names.data()), names.size()},
                     {addresses.data(), addresses.size()});
  }
};

uint64_t word(JitOptions& jit, size_t i) { return reinterpret_cast<uint64_t>(jit.values()[i]); }

TEST(WorkerJitOptions, LogBuffersAreOurs) {
  JitOptions jit;
  const Message m{{CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS},
                  {0x41414141, ~uint64_t{0}, 64},
                  "",
                  {}};
  ASSERT_EQ(m.give(&jit), CUDA_SUCCESS);
  EXPECT_NE(word(jit, 0), 0x41414141u);
  EXPECT_EQ(word(jit, 1), api::kJitLogBytesMax);
  EXPECT_EQ(word(jit, 2), 64u);
  static_cast<char*>(jit.values()[0])[api::kJitLogBytesMax] = 0;  // all of it is writable
}

TEST(WorkerJitOptions, CountsNeverExceedTheArrays) {
  JitOptions jit;
  const Message m{{CU_JIT_GLOBAL_SYMBOL_COUNT, CU_JIT_GLOBAL_SYMBOL_NAMES,
                   CU_JIT_GLOBAL_SYMBOL_ADDRESSES, CU_JIT_REFERENCED_KERNEL_COUNT},
                  {1000, 2, 1, 5},
                  std::string("a\0b\0", 4),
                  {0x1000}};
  ASSERT_EQ(m.give(&jit), CUDA_SUCCESS);
  EXPECT_EQ(word(jit, 0), 1u);
  EXPECT_EQ(word(jit, 3), 0u);
  const char* const* names = static_cast<const char* const*>(jit.values()[1]);
  EXPECT_STREQ(names[0], "a");
  EXPECT_STREQ(names[1], "b");
  EXPECT_EQ(*static_cast<const uint64_t*>(jit.values()[2]), 0x1000u);
}

TEST(WorkerJitOptions, RefusesWhatIsNotThere) {
  JitOptions a, b, c, d, e;
  EXPECT_EQ((Message{{CU_JIT_GLOBAL_SYMBOL_NAMES}, {2}, std::string("a\0b", 3), {}}).give(&a),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ((Message{{CU_JIT_GLOBAL_SYMBOL_ADDRESSES}, {~uint64_t{0}}, "", {}}).give(&b),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ((Message{{CU_JIT_MAX_REGISTERS}, {}, "", {}}).give(&c), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ((Message{{4000}, {1}, "", {}}).give(&d), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ((Message{std::vector<uint32_t>(65, 0), std::vector<uint64_t>(65, 0), "", {}}).give(&e),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace tendril::worker::cuda
