// SPDX-License-Identifier: Apache-2.0
// Compiler options and logs of cuModuleLoadDataEx and cuLibraryLoadData, and the linker. Texts
// differ between compilers. The test checks that a promised log exists, is terminated, and names
// the line.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class JitLogTest : public CudaTest {};

// Line 7 is no PTX at all.
constexpr char kBroken[] =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry broken()\n{\n  .reg .b32 %r<3>;\n  ) this is wrong (\n  ret;\n}\n";

void* as_value(size_t number) { return reinterpret_cast<void*>(number); }

TEST_F(JitLogTest, NoOptions) {
  CUmodule module = nullptr;
  OK(cuModuleLoadDataEx(&module, basic_ptx(), 0, nullptr, nullptr));
  OK(cuModuleUnload(module));
}

TEST_F(JitLogTest, CommonOptionsAreAccepted) {
  CUjit_option options[] = {CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL,
                            CU_JIT_GENERATE_LINE_INFO};
  void* values[] = {as_value(64), as_value(2), as_value(1)};
  CUmodule module = nullptr;
  OK(cuModuleLoadDataEx(&module, basic_ptx(), 3, options, values));
  OK(cuModuleUnload(module));
}

TEST_F(JitLogTest, ErrorLogOfBrokenPtx) {
  char log[4096];
  memset(log, 'x', sizeof log);
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, as_value(sizeof log)};
  CUmodule module = nullptr;
  EXPECT_CU(cuModuleLoadDataEx(&module, kBroken, 2, options, values), CUDA_ERROR_INVALID_PTX);
  ASSERT_NE(memchr(log, 0, sizeof log), nullptr) << "the log must be terminated";
  EXPECT_GT(strlen(log), 0u);
  EXPECT_NE(std::string(log).find("7"), std::string::npos) << "the log should name line 7: " << log;
  // The size option returns the bytes written, with or without the terminator.
  const size_t written = reinterpret_cast<size_t>(values[1]);
  EXPECT_TRUE(written == strlen(log) || written == strlen(log) + 1)
      << written << " against " << strlen(log);
}

TEST_F(JitLogTest, SmallErrorLogIsNotOverrun) {
  char log[64];
  memset(log, 'x', sizeof log);
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, as_value(32)};
  CUmodule module = nullptr;
  EXPECT_CU(cuModuleLoadDataEx(&module, kBroken, 2, options, values), CUDA_ERROR_INVALID_PTX);
  for (size_t i = 32; i < sizeof log; i++) EXPECT_EQ(log[i], 'x') << i;
}

// Neither PTX nor machine code: refused with text in the error log and none in the other.
TEST_F(JitLogTest, LogsOfNoCode) {
  for (const char* image : {"", "no code"}) {
    char info[256] = {}, error[256] = {};
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {info, as_value(sizeof info), error, as_value(sizeof error)};
    CUmodule module = nullptr;
    EXPECT_CU(cuModuleLoadDataEx(&module, image, 4, options, values), CUDA_ERROR_INVALID_IMAGE);
    EXPECT_EQ(values[1], nullptr) << "bytes of an empty log";
    EXPECT_STREQ(info, "");
    EXPECT_NE(values[3], nullptr);
    EXPECT_STRNE(error, "");
  }
}

TEST_F(JitLogTest, LogsOfGoodPtx) {
  char info[4096] = {}, error[4096] = {};
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_LOG_VERBOSE};
  void* values[] = {info, as_value(sizeof info), error, as_value(sizeof error), as_value(1)};
  CUmodule module = nullptr;
  OK(cuModuleLoadDataEx(&module, basic_ptx(), 5, options, values));
  EXPECT_NE(memchr(info, 0, sizeof info), nullptr);
  EXPECT_STREQ(error, "");
  OK(cuModuleUnload(module));
}

TEST_F(JitLogTest, WallTimeIsReturned) {
  CUjit_option options[] = {CU_JIT_WALL_TIME};
  void* values[] = {nullptr};
  CUmodule module = nullptr;
  OK(cuModuleLoadDataEx(&module, basic_ptx(), 1, options, values));
  float milliseconds = -1;
  memcpy(&milliseconds, values, sizeof milliseconds);
  EXPECT_GE(milliseconds, 0.0f);
  OK(cuModuleUnload(module));
}

TEST_F(JitLogTest, LibraryErrorLog) {
  char log[4096] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, as_value(sizeof log)};
  CUlibrary library = nullptr;
  const CUresult result =
      cuLibraryLoadData(&library, kBroken, options, values, 2, nullptr, nullptr, 0);
  // With lazy loading the compiler may run only when a kernel is first used.
  EXPECT_TRUE(check("cuLibraryLoadData(broken)", result, {CUDA_ERROR_INVALID_PTX, CUDA_SUCCESS}));
  if (result == CUDA_SUCCESS) {
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
    EXPECT_TRUE(cuLibraryGetKernel(&kernel, library, "broken") ||
                cuKernelGetFunction(&function, kernel));
    OK(cuLibraryUnload(library));
  }
}

TEST_F(JitLogTest, UnsupportedVersionIsRefused) {
  const char* future =
      ".version 99.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n";
  CUmodule module = nullptr;
  EXPECT_CU(cuModuleLoadData(&module, future), CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            CUDA_ERROR_INVALID_PTX);
}

PROCESS_TEST(JitLogProcess, UnknownInstruction) {
  attach();
  const char* unknown =
      ".version 6.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry k()\n{\n  .reg .b32 %r<3>;\n  no_such.u32 %r1, %r2;\n  ret;\n}\n";
  CUmodule module = nullptr;
  // A driver that decodes kernels when first launched may accept the module.
  const CUresult loaded = cuModuleLoadData(&module, unknown);
  EXPECT_TRUE(check("cuModuleLoadData(unknown)", loaded, {CUDA_ERROR_INVALID_PTX, CUDA_SUCCESS}));
  if (loaded != CUDA_SUCCESS) return;
  CUfunction function = nullptr;
  EXPECT_TRUE(cuModuleGetFunction(&function, module, "k") || cuFuncLoad(function) ||
              cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) ||
              cuCtxSynchronize())
      << "the unknown instruction was never reported";
}

TEST_F(JitLogTest, LinkPtxAndLoad) {
  CUlinkState state = nullptr;
  MUST(cuLinkCreate_v2(0, nullptr, nullptr, &state));
  std::string ptx = basic_ptx();
  OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, ptx.data(), ptx.size() + 1, "basic", 0, nullptr,
                      nullptr));
  void* image = nullptr;
  size_t bytes = 0;
  OK(cuLinkComplete(state, &image, &bytes));
  ASSERT_NE(image, nullptr);
  EXPECT_GT(bytes, 0u);
  CUmodule module = nullptr;
  MUST(cuModuleLoadData(&module, image));
  OK(cuLinkDestroy(state));
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, "iota"));
  Buffer out(64);
  OK(launch(function, {1}, {16}, 0, nullptr, CUdeviceptr{out}, 2u, 16u));
  EXPECT_EQ(read_words(out, 16)[15], 17u);
  OK(cuModuleUnload(module));
}

TEST_F(JitLogTest, LinkErrors) {
  INVALID(cuLinkCreate_v2(0, nullptr, nullptr, nullptr));
  CUlinkState state = nullptr;
  MUST(cuLinkCreate_v2(0, nullptr, nullptr, &state));
  std::string broken = kBroken;
  // The compiler may run when data is added or when the link is completed.
  const CUresult added = cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, broken.data(), broken.size() + 1,
                                          "broken", 0, nullptr, nullptr);
  EXPECT_TRUE(check("cuLinkAddData(broken)", added, {CUDA_ERROR_INVALID_PTX, CUDA_SUCCESS}));
  if (added == CUDA_SUCCESS) {
    void* image = nullptr;
    size_t bytes = 0;
    EXPECT_NE(cuLinkComplete(state, &image, &bytes), CUDA_SUCCESS);
  }
  OK(cuLinkDestroy(state));
}

}  // namespace
}  // namespace tendril::conformance
