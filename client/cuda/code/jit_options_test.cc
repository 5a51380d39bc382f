// SPDX-License-Identifier: Apache-2.0
// JIT options of the program into a message, and results back into the program's buffers and
// values.
#include "client/cuda/code/jit_options.h"

#include <gtest/gtest.h>

#include <cstring>

#include "api/cuda_messages.gen.h"

namespace tendril::client::cuda {
namespace {

void* word(uint64_t value) { return reinterpret_cast<void*>(value); }

TEST(JitOptions, BuffersTravelAsSizesAndComeBackAsText) {
  char info[8], error[64];
  std::memset(info, 'x', sizeof info);
  std::memset(error, 'x', sizeof error);
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER,
                            CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_ERROR_LOG_BUFFER,
                            CU_JIT_MAX_REGISTERS,
                            CU_JIT_WALL_TIME};
  void* values[] = {info, word(sizeof info), word(sizeof error), error, word(32), nullptr};
  JitOptions jit;
  ASSERT_EQ(jit.take(options, values, 6), CUDA_SUCCESS);
  wire::cuda::module_load_request m;
  jit.put(&m);
  ASSERT_EQ(m.values.count, 6u);
  EXPECT_EQ(m.values[0], sizeof info);
  EXPECT_EQ(m.values[3], sizeof error);
  EXPECT_EQ(m.values[4], 32u);

  wire::cuda::module_load_reply r;
  r.info_log = wire::bytes_of("longer than the buffer");
  r.error_log = wire::bytes_of("syntax error");
  const uint64_t told[] = {0, 7, 13, 0, 99, 0x40000000};
  r.values = {told, 6};
  jit.give_back(r);
  EXPECT_STREQ(info, "longer ");
  EXPECT_STREQ(error, "syntax error");
  EXPECT_EQ(values[0], info);
  EXPECT_EQ(values[1], word(7));
  EXPECT_EQ(values[2], word(13));
  EXPECT_EQ(values[3], error);
  EXPECT_EQ(values[4], word(32));  // not a result
  EXPECT_EQ(values[5], word(0x40000000));
}

TEST(JitOptions, ArraysTravelByTheirCounts) {
  const char* names[] = {"alpha", "beta"};
  void* addresses[] = {word(0x1000), word(0x2000)};
  CUjit_option options[] = {CU_JIT_GLOBAL_SYMBOL_NAMES, CU_JIT_GLOBAL_SYMBOL_ADDRESSES,
                            CU_JIT_GLOBAL_SYMBOL_COUNT};
  void* values[] = {names, addresses, word(2)};
  JitOptions jit;
  ASSERT_EQ(jit.take(options, values, 3), CUDA_SUCCESS);
  wire::cuda::link_create_request m;
  jit.put(&m);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(m.names.data), m.names.count),
            std::string("alpha\0beta\0", 11));
  ASSERT_EQ(m.addresses.count, 2u);
  EXPECT_EQ(m.addresses[1], 0x2000u);
  EXPECT_EQ(m.values[0], 2u);
  EXPECT_EQ(m.values[2], 2u);
}

TEST(JitOptions, BadArgumentsAreRefused) {
  CUjit_option unknown[] = {static_cast<CUjit_option>(4000)};
  CUjit_option names[] = {CU_JIT_REFERENCED_KERNEL_NAMES, CU_JIT_REFERENCED_KERNEL_COUNT};
  void* none[] = {nullptr};
  void* null_array[] = {nullptr, word(3)};
  EXPECT_EQ(JitOptions().take(nullptr, none, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(JitOptions().take(unknown, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(JitOptions().take(unknown, none, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(JitOptions().take(names, null_array, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(JitOptions().take(nullptr, nullptr, 0), CUDA_SUCCESS);
}

TEST(JitOptions, OnlyPlainWordsSurviveTheCall) {
  EXPECT_TRUE(JitOptions::is_plain(CU_JIT_MAX_REGISTERS));
  EXPECT_TRUE(JitOptions::is_plain(CU_JIT_CACHE_MODE));
  EXPECT_FALSE(JitOptions::is_plain(CU_JIT_INFO_LOG_BUFFER));
  EXPECT_FALSE(JitOptions::is_plain(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES));
  EXPECT_FALSE(JitOptions::is_plain(CU_JIT_WALL_TIME));
  EXPECT_FALSE(JitOptions::is_plain(CU_JIT_GLOBAL_SYMBOL_COUNT));
  EXPECT_FALSE(JitOptions::is_plain(CU_JIT_GLOBAL_SYMBOL_NAMES));
}

}  // namespace
}  // namespace tendril::client::cuda
