// SPDX-License-Identifier: Apache-2.0
// Conformance of context-independent loading: libraries and kernels, as CUDA 12 runtimes load code.
#include <stdlib.h>
#include <unistd.h>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class LibraryTest : public CudaTest {
 protected:
  void TearDown() override {
    if (library_) {
      EXPECT_EQ(cuLibraryUnload(library_), CUDA_SUCCESS);
    }
    CudaTest::TearDown();
  }
  void load(const char* ptx = basic_ptx()) {
    EXPECT_EQ(cuLibraryLoadData(&library_, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0),
              CUDA_SUCCESS);
  }
  CUkernel kernel(const char* name) {
    CUkernel found = nullptr;
    EXPECT_EQ(cuLibraryGetKernel(&found, library_, name), CUDA_SUCCESS) << name;
    return found;
  }
  CUlibrary library_ = nullptr;
};

TEST_F(LibraryTest, LoadErrors) {
  CUlibrary library = nullptr;
  INVALID(cuLibraryLoadData(&library, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0));
  INVALID(cuLibraryLoadData(nullptr, basic_ptx(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  BAD_HANDLE(cuLibraryUnload(nullptr));
}

TEST_F(LibraryTest, LoadFromFile) {
  char path[] = "/tmp/tendril-conformance-XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  const size_t length = strlen(faults_ptx());
  ASSERT_EQ(write(fd, faults_ptx(), length), static_cast<ssize_t>(length));
  close(fd);
  OK(cuLibraryLoadFromFile(&library_, path, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unlink(path);
  EXPECT_NE(kernel("healthy"), nullptr);
}

TEST_F(LibraryTest, LoadFromMissingFile) {
  CUlibrary library = nullptr;
  EXPECT_CU(cuLibraryLoadFromFile(&library, "/nonexistent/library.ptx", nullptr, nullptr, 0,
                                  nullptr, nullptr, 0),
            CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_F(LibraryTest, KernelLookup) {
  load();
  EXPECT_EQ(kernel("fill"), kernel("fill"));
  EXPECT_NE(kernel("fill"), kernel("iota"));
  CUkernel found = nullptr;
  EXPECT_CU(cuLibraryGetKernel(&found, library_, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
  INVALID(cuLibraryGetKernel(&found, library_, nullptr));
  INVALID(cuLibraryGetKernel(nullptr, library_, "fill"));
  BAD_HANDLE(cuLibraryGetKernel(&found, nullptr, "fill"));
}

TEST_F(LibraryTest, LaunchThroughFunction) {
  load();
  CUfunction function = nullptr;
  OK(cuKernelGetFunction(&function, kernel("iota")));
  Buffer out(1024);
  OK(launch(function, {1}, {256}, 0, nullptr, CUdeviceptr{out}, 5u, 256u));
  EXPECT_EQ(read_words(out, 256)[255], 260u);
}

TEST_F(LibraryTest, LaunchTheKernelHandleItself) {
  load();
  Buffer out(1024);
  OK(launch(reinterpret_cast<CUfunction>(kernel("iota")), {1}, {256}, 0, nullptr, CUdeviceptr{out},
            6u, 256u));
  EXPECT_EQ(read_words(out, 256)[0], 6u);
}

TEST_F(LibraryTest, KernelMetadata) {
  load();
  const char* name = nullptr;
  CUlibrary owner = nullptr;
  size_t offset = 99, bytes = 99;
  OK(cuKernelGetName(&name, kernel("affine")));
  EXPECT_STREQ(name, "affine");
  INVALID(cuKernelGetName(&name, nullptr));
  OK(cuKernelGetLibrary(&owner, kernel("affine")));
  EXPECT_EQ(owner, library_);
  OK(cuKernelGetParamInfo(kernel("affine"), 1, &offset, &bytes));
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(bytes, 4u);
  INVALID(cuKernelGetParamInfo(kernel("affine"), 4, &offset, &bytes));
}

TEST_F(LibraryTest, KernelAttributes) {
  load();
  int value = 0;
  OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel("bounded"),
                          device()));
  EXPECT_EQ(value, 128);
  OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel("reverse_static"),
                          device()));
  EXPECT_EQ(value, 1024);
  OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 30000,
                          kernel("reverse_dynamic"), device()));
  OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                          kernel("reverse_dynamic"), device()));
  EXPECT_EQ(value, 30000);
  CUfunction function = nullptr;
  OK(cuKernelGetFunction(&function, kernel("reverse_dynamic")));
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  EXPECT_EQ(value, 30000);
}

TEST_F(LibraryTest, KernelAttributeErrors) {
  load();
  int value = 0;
  INVALID(cuKernelGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel("fill"), device()));
  EXPECT_CU(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel("fill"), 9999),
            CUDA_ERROR_INVALID_DEVICE);
  INVALID(cuKernelGetAttribute(&value, static_cast<CUfunction_attribute>(1000), kernel("fill"),
                               device()));
}

TEST_F(LibraryTest, Enumeration) {
  load(faults_ptx());
  unsigned count = 0;
  OK(cuLibraryGetKernelCount(&count, library_));
  EXPECT_EQ(count, 8u);
  std::vector<CUkernel> kernels(count);
  OK(cuLibraryEnumerateKernels(kernels.data(), count, library_));
  for (CUkernel each : kernels) {
    const char* name = nullptr;
    EXPECT_EQ(cuKernelGetName(&name, each), CUDA_SUCCESS);
  }
}

TEST_F(LibraryTest, Globals) {
  load();
  CUdeviceptr address = 0;
  size_t bytes = 0;
  OK(cuLibraryGetGlobal(&address, &bytes, library_, "table"));
  EXPECT_EQ(bytes, 64u);
  EXPECT_EQ(read_words(address, 16)[4], 5u);
  EXPECT_CU(cuLibraryGetGlobal(&address, &bytes, library_, "no_such_global"), CUDA_ERROR_NOT_FOUND);
  INVALID(cuLibraryGetGlobal(&address, &bytes, library_, nullptr));
}

TEST_F(LibraryTest, GlobalsAreSharedWithLaunches) {
  load();
  CUdeviceptr address = 0;
  OK(cuLibraryGetGlobal(&address, nullptr, library_, "counter"));
  OK(launch(reinterpret_cast<CUfunction>(kernel("bump_counter")), {1}, {10}, 0, nullptr, 4u));
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_words(address, 1)[0], 45u);
}

TEST_F(LibraryTest, ModuleOfLibrary) {
  load();
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  OK(cuLibraryGetModule(&module, library_));
  OK(cuModuleGetFunction(&function, module, "iota"));
  Buffer out(64);
  OK(launch(function, {1}, {16}, 0, nullptr, CUdeviceptr{out}, 1u, 16u));
  EXPECT_EQ(read_words(out, 16)[15], 16u);
}

TEST_F(LibraryTest, ManagedAndUnifiedLookupsFindNothing) {
  load();
  CUdeviceptr address = 0;
  size_t bytes = 0;
  EXPECT_CU(cuLibraryGetManaged(&address, &bytes, library_, "no_such_variable"),
            CUDA_ERROR_NOT_FOUND);
}

TEST_F(LibraryTest, LoadNeedsNoContext) {
  CUcontext popped = nullptr;
  OK(cuCtxPopCurrent_v2(&popped));
  load();
  EXPECT_NE(kernel("fill"), nullptr);
  size_t offset = 0, bytes = 0;
  EXPECT_CU(cuKernelGetParamInfo(kernel("fill"), 0, &offset, &bytes), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxPushCurrent_v2(popped));
}

TEST_F(LibraryTest, OneLibraryInTwoContexts) {
  load();
  Buffer here(64);
  OK(launch(reinterpret_cast<CUfunction>(kernel("bump_counter")), {1}, {1}, 0, nullptr, 100u));
  CUcontext other = nullptr;
  MUST(cuCtxCreate_v2(&other, 0, device()));
  {
    Buffer there(4);
    OK(launch(reinterpret_cast<CUfunction>(kernel("read_counter")), {1}, {1}, 0, nullptr,
              CUdeviceptr{there}));
    OK(cuCtxSynchronize());
    EXPECT_EQ(read_words(there, 1)[0], 5u) << "each context has its own copy of the variables";
  }
  OK(cuCtxDestroy_v2(other));
  OK(launch(reinterpret_cast<CUfunction>(kernel("read_counter")), {1}, {1}, 0, nullptr,
            CUdeviceptr{here}));
  EXPECT_EQ(read_words(here, 1)[0], 105u);
}

}  // namespace
}  // namespace tendril::conformance
