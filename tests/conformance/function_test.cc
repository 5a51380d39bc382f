// SPDX-License-Identifier: Apache-2.0
// Attributes and metadata of kernel functions.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class FunctionTest : public CudaTest {
 protected:
  static int get(CUfunction_attribute which, CUfunction function) {
    int value = -77;
    EXPECT_EQ(cuFuncGetAttribute(&value, which, function), CUDA_SUCCESS) << which;
    return value;
  }
};

TEST_F(FunctionTest, PlainKernel) {
  CUfunction function = basic("fill");
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function), 1024);
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function), 0);
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function), 0);
  EXPECT_GT(get(CU_FUNC_ATTRIBUTE_NUM_REGS, function), 0);
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_PTX_VERSION, function), 70);
  EXPECT_GE(get(CU_FUNC_ATTRIBUTE_BINARY_VERSION, function), 70);
}

TEST_F(FunctionTest, StaticSharedMemoryIsCounted) {
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, basic("reverse_static")), 1024);
}

TEST_F(FunctionTest, LocalMemoryIsCounted) {
  EXPECT_GE(get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, basic("local_array")), 256);
}

TEST_F(FunctionTest, LaunchBoundsLimitTheThreads) {
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, basic("bounded")), 128);
}

TEST_F(FunctionTest, DynamicSharedMemoryLimit) {
  Module module(basic_ptx());
  CUfunction function = module.function("reverse_dynamic");
  const int before = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function);
  EXPECT_EQ(before, 48 << 10);
  OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 20000));
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function), 20000);
  INVALID(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 16 << 20));
  INVALID(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1));
}

TEST_F(FunctionTest, CarveoutPreference) {
  Module module(basic_ptx());
  CUfunction function = module.function("fill");
  OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
  EXPECT_EQ(get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, function), 50);
}

TEST_F(FunctionTest, ReadOnlyAttributes) {
  INVALID(cuFuncSetAttribute(basic("fill"), CU_FUNC_ATTRIBUTE_NUM_REGS, 32));
  INVALID(cuFuncSetAttribute(basic("fill"), CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 32));
}

TEST_F(FunctionTest, AttributeErrors) {
  int value = 0;
  INVALID(cuFuncGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, basic("fill")));
  INVALID(cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(1000), basic("fill")));
  BAD_HANDLE(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr));
}

TEST_F(FunctionTest, ModuleOfFunction) {
  Module module(basic_ptx());
  CUmodule found = nullptr;
  OK(cuFuncGetModule(&found, module.function("fill")));
  EXPECT_EQ(found, CUmodule{module});
}

TEST_F(FunctionTest, Name) {
  const char* name = nullptr;
  OK(cuFuncGetName(&name, basic("mixed_params")));
  EXPECT_STREQ(name, "mixed_params");
  INVALID(cuFuncGetName(&name, nullptr));
  INVALID(cuFuncGetName(nullptr, basic("mixed_params")));
}

TEST_F(FunctionTest, ParameterLayout) {
  const struct {
    size_t offset, bytes;
  } expected[] = {{0, 1}, {2, 2}, {4, 4}, {8, 8}, {16, 12}, {28, 7}, {40, 8}, {48, 8}};
  size_t offset = 0, bytes = 0;
  for (size_t i = 0; i < std::size(expected); i++) {
    OK(cuFuncGetParamInfo(basic("mixed_params"), i, &offset, &bytes));
    EXPECT_EQ(offset, expected[i].offset) << i;
    EXPECT_EQ(bytes, expected[i].bytes) << i;
  }
  INVALID(cuFuncGetParamInfo(basic("mixed_params"), std::size(expected), &offset, &bytes));
  INVALID(cuFuncGetParamInfo(basic("mixed_params"), 0, nullptr, &bytes));
  OK(cuFuncGetParamInfo(basic("mixed_params"), 1, &offset, nullptr));
  INVALID(cuFuncGetParamInfo(basic("nothing"), 0, &offset, &bytes));
}

TEST_F(FunctionTest, Loading) {
  Module module(basic_ptx());
  CUfunction function = module.function("iota");
  auto state = static_cast<CUfunctionLoadingState>(77);
  OK(cuFuncIsLoaded(&state, function));
  EXPECT_TRUE(state == CU_FUNCTION_LOADING_STATE_LOADED ||
              state == CU_FUNCTION_LOADING_STATE_UNLOADED);
  OK(cuFuncLoad(function));
  OK(cuFuncIsLoaded(&state, function));
  EXPECT_EQ(state, CU_FUNCTION_LOADING_STATE_LOADED);
}

TEST_F(FunctionTest, CacheConfig) {
  OK(cuFuncSetCacheConfig(basic("fill"), CU_FUNC_CACHE_PREFER_L1));
  OK(cuFuncSetCacheConfig(basic("fill"), CU_FUNC_CACHE_PREFER_NONE));
  INVALID(cuFuncSetCacheConfig(basic("fill"), static_cast<CUfunc_cache>(77)));
  BAD_HANDLE(cuFuncSetCacheConfig(nullptr, CU_FUNC_CACHE_PREFER_L1));
}

}  // namespace
}  // namespace tendril::conformance
