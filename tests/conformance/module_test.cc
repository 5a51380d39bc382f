// SPDX-License-Identifier: Apache-2.0
// Conformance of modules: loading PTX, functions, globals, lifetimes. Logs and options of the
// compiler: jit_log_test.cc.
#include <stdlib.h>
#include <unistd.h>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class ModuleTest : public CudaTest {};

TEST_F(ModuleTest, LoadAndUnload) {
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, basic_ptx()));
  EXPECT_NE(module, nullptr);
  OK(cuModuleUnload(module));
}

TEST_F(ModuleTest, LoadErrors) {
  CUmodule module = nullptr;
  INVALID(cuModuleLoadData(&module, nullptr));
  INVALID(cuModuleLoadData(nullptr, basic_ptx()));
}

TEST_F(ModuleTest, LoadOfGarbage) {
  CUmodule module = nullptr;
  // Which of these codes depends on how far the loader gets in guessing the format.
  EXPECT_CU(cuModuleLoadData(&module, "this is not a program"), CUDA_ERROR_INVALID_IMAGE,
            CUDA_ERROR_INVALID_PTX, CUDA_ERROR_INVALID_SOURCE, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(module, nullptr);
}

TEST_F(ModuleTest, LoadOfBrokenPtx) {
  CUmodule module = nullptr;
  const char* broken =
      ".version 6.0\n.target sm_70\n.address_size 64\n.visible .entry k() { this is wrong; }\n";
  EXPECT_CU(cuModuleLoadData(&module, broken), CUDA_ERROR_INVALID_PTX);
}

TEST_F(ModuleTest, LoadFromFile) {
  char path[] = "/tmp/tendril-conformance-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  const size_t length = strlen(basic_ptx());
  ASSERT_EQ(write(fd, basic_ptx(), length), static_cast<ssize_t>(length));
  close(fd);
  CUmodule module = nullptr;
  OK(cuModuleLoad(&module, path));
  unlink(path);
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, "fill"));
  OK(cuModuleUnload(module));
}

TEST_F(ModuleTest, LoadOfMissingFile) {
  CUmodule module = nullptr;
  EXPECT_CU(cuModuleLoad(&module, "/nonexistent/module.ptx"), CUDA_ERROR_FILE_NOT_FOUND);
  INVALID(cuModuleLoad(&module, nullptr));
}

TEST_F(ModuleTest, GetFunctionErrors) {
  Module module(basic_ptx());
  CUfunction function = nullptr;
  EXPECT_CU(cuModuleGetFunction(&function, module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
  INVALID(cuModuleGetFunction(&function, module, nullptr));
  INVALID(cuModuleGetFunction(nullptr, module, "fill"));
  BAD_HANDLE(cuModuleGetFunction(&function, nullptr, "fill"));
}

TEST_F(ModuleTest, UnloadNull) { BAD_HANDLE(cuModuleUnload(nullptr)); }

TEST_F(ModuleTest, SameFunctionTwiceIsTheSameHandle) {
  Module module(basic_ptx());
  EXPECT_EQ(module.function("fill"), module.function("fill"));
  EXPECT_NE(module.function("fill"), module.function("iota"));
}

TEST_F(ModuleTest, FunctionCountAndEnumeration) {
  Module module(faults_ptx());
  unsigned count = 0;
  OK(cuModuleGetFunctionCount(&count, module));
  EXPECT_EQ(count, 8u);
  std::vector<CUfunction> functions(count);
  OK(cuModuleEnumerateFunctions(functions.data(), count, module));
  bool seen = false;
  for (CUfunction function : functions) {
    const char* name = nullptr;
    ASSERT_EQ(cuFuncGetName(&name, function), CUDA_SUCCESS);
    seen |= strcmp(name, "healthy") == 0;
  }
  EXPECT_TRUE(seen);
}

TEST_F(ModuleTest, GlobalHasItsInitialValue) {
  Module module(basic_ptx());
  CUdeviceptr address = 0;
  size_t bytes = 0;
  OK(cuModuleGetGlobal_v2(&address, &bytes, module, "table"));
  EXPECT_EQ(bytes, 64u);
  const std::vector<uint32_t> expected = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
  EXPECT_EQ(read_words(address, 16), expected);
  OK(cuModuleGetGlobal_v2(&address, &bytes, module, "zeroed"));
  EXPECT_EQ(bytes, 4096u);
  EXPECT_EQ(read_words(address, 1024), std::vector<uint32_t>(1024, 0));
}

TEST_F(ModuleTest, KernelsSeeWritesToGlobals) {
  Module module(basic_ptx());
  CUdeviceptr address = 0;
  OK(cuModuleGetGlobal_v2(&address, nullptr, module, "table"));
  std::vector<uint32_t> values(16);
  for (uint32_t i = 0; i < 16; i++) values[i] = 1000 + i;
  OK(cuMemcpyHtoD_v2(address, values.data(), 64));
  Buffer out(64);
  OK(launch(module.function("read_table"), {1}, {16}, 0, nullptr, CUdeviceptr{out}));
  EXPECT_EQ(read_words(out, 16), values);
}

TEST_F(ModuleTest, HostSeesKernelWritesToGlobals) {
  Module module(basic_ptx());
  CUdeviceptr address = 0;
  size_t bytes = 0;
  OK(cuModuleGetGlobal_v2(&address, &bytes, module, "counter"));
  EXPECT_EQ(bytes, 4u);
  OK(launch(module.function("bump_counter"), {2}, {32}, 0, nullptr, 3u));
  EXPECT_EQ(read_words(address, 1)[0], 5u + 64 * 3);
}

TEST_F(ModuleTest, ConstantMemory) {
  Module module(basic_ptx());
  CUdeviceptr address = 0;
  size_t bytes = 0;
  OK(cuModuleGetGlobal_v2(&address, &bytes, module, "coefficients"));
  EXPECT_EQ(bytes, 32u);
  Buffer out(32);
  OK(launch(module.function("read_constants"), {1}, {8}, 0, nullptr, CUdeviceptr{out}));
  EXPECT_EQ(read_words(out, 8), (std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  const std::vector<uint32_t> changed = {80, 70, 60, 50, 40, 30, 20, 10};
  OK(cuMemcpyHtoD_v2(address, changed.data(), 32));
  OK(launch(module.function("read_constants"), {1}, {8}, 0, nullptr, CUdeviceptr{out}));
  EXPECT_EQ(read_words(out, 8), changed);
}

TEST_F(ModuleTest, GlobalErrors) {
  Module module(basic_ptx());
  CUdeviceptr address = 0;
  size_t bytes = 0;
  EXPECT_CU(cuModuleGetGlobal_v2(&address, &bytes, module, "no_such_global"), CUDA_ERROR_NOT_FOUND);
  // The name of a function; an H200 (580.159.04) answers invalid value.
  EXPECT_CU(cuModuleGetGlobal_v2(&address, &bytes, module, "fill"), CUDA_ERROR_NOT_FOUND,
            CUDA_ERROR_INVALID_VALUE);
  INVALID(cuModuleGetGlobal_v2(&address, &bytes, module, nullptr));
  BAD_HANDLE(cuModuleGetGlobal_v2(&address, &bytes, nullptr, "table"));
}

TEST_F(ModuleTest, TwoLoadsHaveSeparateGlobals) {
  Module first(basic_ptx()), second(basic_ptx());
  OK(launch(first.function("bump_counter"), {1}, {1}, 0, nullptr, 10u));
  Buffer out(8);
  OK(launch(first.function("read_counter"), {1}, {1}, 0, nullptr, CUdeviceptr{out}));
  OK(launch(second.function("read_counter"), {1}, {1}, 0, nullptr, CUdeviceptr{out + 4}));
  EXPECT_EQ(read_words(out, 2), (std::vector<uint32_t>{15, 5}));
}

TEST_F(ModuleTest, GlobalAddressIsAnOrdinaryPointer) {
  Module module(basic_ptx());
  CUdeviceptr address = 0;
  OK(cuModuleGetGlobal_v2(&address, nullptr, module, "table"));
  Buffer out(64);
  OK(launch(basic("copy_words"), {1}, {16}, 0, nullptr, CUdeviceptr{out}, address, 16u));
  EXPECT_EQ(read_words(out, 16)[5], 9u);
  OK(cuMemcpyDtoD_v2(out, address + 4, 8));
  EXPECT_EQ(read_words(out, 2), (std::vector<uint32_t>{1, 4}));
}

TEST_F(ModuleTest, UnloadWaitsForNothingButWorks) {
  CUmodule module = nullptr;
  MUST(cuModuleLoadData(&module, basic_ptx()));
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, "iota"));
  Buffer out(1024);
  OK(launch(function, {1}, {256}, 0, nullptr, CUdeviceptr{out}, 7u, 256u));
  OK(cuCtxSynchronize());
  OK(cuModuleUnload(module));
  EXPECT_EQ(read_words(out, 256)[255], 262u);
}

TEST_F(ModuleTest, ManyLoads) {
  for (int i = 0; i < 20; i++) {
    CUmodule module = nullptr;
    ASSERT_EQ(cuModuleLoadData(&module, faults_ptx()), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace tendril::conformance
