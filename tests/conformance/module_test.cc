// SPDX-License-Identifier: Apache-2.0
// Conformance of modules: loading PTX, functions, globals, lifetimes. jit_log_test.cc has the
// compiler's logs and options.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class ModuleTest : public CudaTest {};

// Text, because Debian's clang has no managed variables.
constexpr char kManagedPtx[] = R"(
.version 6.0
.target sm_70
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 counter = 5;
.visible .global .attribute(.managed) .align 4 .b8 table[20000];
.visible .global .align 4 .u32 plain = 7;
.visible .entry count() {
  .reg .b32 %r<4>;
  .reg .b64 %d<4>;
  mov.u64 %d1, counter;
  atom.global.add.u32 %r1, [%d1], 1;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %d2, %r2, 4;
  mov.u64 %d3, table;
  add.s64 %d3, %d3, %d2;
  ld.global.u32 %r3, [%d3];
  add.u32 %r3, %r3, %r2;
  st.global.u32 [%d3], %r3;
  ret;
}
)";

// Program and kernels take turns with the variables. Each of `count` threads adds to `counter`.
void take_turns(CUfunction count, uint32_t* counter, uint32_t* table) {
  EXPECT_EQ(*counter, 5u);
  EXPECT_EQ(table[4999], 0u);
  table[3] = 100;
  OK(launch(count, {2}, {32}, 0, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(*counter, 5u + 64);
  EXPECT_GE(table[3], 103u);
  *counter = 1;
  Stream stream;
  OK(launch(count, {1}, {32}, 0, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(*counter, 33u);
  const uint32_t given = 44;
  uint32_t got = 0;
  OK(cuMemcpyHtoD_v2(reinterpret_cast<CUdeviceptr>(counter), &given, 4));
  OK(cuMemcpyDtoH_v2(&got, reinterpret_cast<CUdeviceptr>(counter), 4));
  EXPECT_EQ(got, 44u);
  EXPECT_EQ(*counter, 44u);
}

TEST_F(ModuleTest, ManagedVariables) {
  Module module(kManagedPtx);
  CUdeviceptr counter = 0, table = 0, plain = 0;
  size_t bytes = 0;
  unsigned managed = 0;
  MUST(cuModuleGetGlobal_v2(&counter, &bytes, module, "counter"));
  EXPECT_EQ(bytes, 4u);
  MUST(cuModuleGetGlobal_v2(&table, &bytes, module, "table"));
  EXPECT_EQ(bytes, 20000u);
  MUST(cuModuleGetGlobal_v2(&plain, &bytes, module, "plain"));
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, counter));
  EXPECT_EQ(managed, 1u);
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain));
  EXPECT_EQ(managed, 0u);
  take_turns(module.function("count"), reinterpret_cast<uint32_t*>(counter),
             reinterpret_cast<uint32_t*>(table));
}

// What the runtime does for a program with __managed__ variables before it has a context.
PROCESS_TEST(ModuleProcess, ManagedVariablesOfALibraryNeedNoContext) {
  MUST(cuInit(0));
  CUlibrary library = nullptr;
  MUST(cuLibraryLoadData(&library, kManagedPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUdeviceptr counter = 0, table = 0, again = 0;
  size_t bytes = 0;
  MUST(cuLibraryGetManaged(&counter, &bytes, library, "counter"));
  EXPECT_EQ(bytes, 4u);
  MUST(cuLibraryGetManaged(&table, nullptr, library, "table"));
  EXPECT_CU(cuLibraryGetManaged(&again, nullptr, library, "plain"), CUDA_ERROR_NOT_FOUND);
  attach();
  CUkernel kernel = nullptr;
  MUST(cuLibraryGetKernel(&kernel, library, "count"));
  take_turns(reinterpret_cast<CUfunction>(kernel), reinterpret_cast<uint32_t*>(counter),
             reinterpret_cast<uint32_t*>(table));
  OK(cuLibraryGetManaged(&again, nullptr, library, "counter"));
  EXPECT_EQ(again, counter);
  OK(cuLibraryUnload(library));
  // Later work is not affected by what was there.
  OK(launch(basic("nothing"), {1}, {1}, 0, nullptr));
  OK(cuCtxSynchronize());
}

// Takes all free addresses within 1 TiB of this program's libraries, above and below.
void take_addresses_near_libraries() {
  constexpr uint64_t kPiece = uint64_t{16} << 30, kReach = uint64_t{1} << 40;
  const uint64_t here = reinterpret_cast<uint64_t>(&mkstemp) / kPiece * kPiece;
  for (uint64_t at = here - kReach; at < here + kReach; at += kPiece)
    mmap(reinterpret_cast<void*>(at), kPiece, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
}

// Their addresses are the driver's, and the program must have them free.
PROCESS_TEST(ModuleProcess, ManagedVariablesOfACrowdedProgram) {
  take_addresses_near_libraries();
  attach();
  Module module(kManagedPtx);
  CUdeviceptr counter = 0, table = 0;
  MUST(cuModuleGetGlobal_v2(&counter, nullptr, module, "counter"));
  MUST(cuModuleGetGlobal_v2(&table, nullptr, module, "table"));
  take_turns(module.function("count"), reinterpret_cast<uint32_t*>(counter),
             reinterpret_cast<uint32_t*>(table));
}

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
  // The code depends on how far the loader gets in guessing the format.
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
  INVALID(cuModuleGetGlobal_v2(&address, &bytes, module, "fill"));  // a function
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
