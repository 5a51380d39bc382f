// SPDX-License-Identifier: Apache-2.0
// Two devices and more. On a machine with one device everything here is skipped, aloud.
#include <unistd.h>

#include <set>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class MultiDeviceTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    ASSERT_EQ(cuDeviceGetCount(&count_), CUDA_SUCCESS);
    if (count_ < 2) GTEST_SKIP() << "ONE DEVICE ONLY: nothing about several devices was checked";
    for (CUdevice dev = 0; dev < count_; dev++) {
      CUcontext context = nullptr;
      ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, dev), CUDA_SUCCESS);
      contexts_.push_back(context);
    }
  }
  void TearDown() override {
    for (CUdevice dev = 0; dev < static_cast<int>(contexts_.size()); dev++)
      cuDevicePrimaryCtxRelease_v2(dev);
    CudaTest::TearDown();
  }
  CUdeviceptr allocate_on(int dev, size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuCtxSetCurrent(contexts_[dev]), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc_v2(&pointer, bytes), CUDA_SUCCESS);
    return pointer;
  }
  void free_on(int dev, CUdeviceptr pointer) {
    EXPECT_EQ(cuCtxSetCurrent(contexts_[dev]), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
  }
  int count_ = 0;
  std::vector<CUcontext> contexts_;
};

TEST_F(MultiDeviceTest, IdentitiesDiffer) {
  std::set<std::string> uuids;
  for (CUdevice dev = 0; dev < count_; dev++) {
    CUuuid uuid = {};
    OK(cuDeviceGetUuid_v2(&uuid, dev));
    uuids.insert(std::string(uuid.bytes, sizeof uuid.bytes));
  }
  EXPECT_EQ(uuids.size(), static_cast<size_t>(count_));
}

TEST_F(MultiDeviceTest, EachContextKnowsItsDevice) {
  for (CUdevice dev = 0; dev < count_; dev++) {
    CUdevice found = -1;
    OK(cuCtxSetCurrent(contexts_[dev]));
    OK(cuCtxGetDevice(&found));
    EXPECT_EQ(found, dev);
  }
}

TEST_F(MultiDeviceTest, AddressesDoNotCollide) {
  std::vector<CUdeviceptr> pointers;
  for (CUdevice dev = 0; dev < count_; dev++) pointers.push_back(allocate_on(dev, 1 << 20));
  EXPECT_EQ(std::set<CUdeviceptr>(pointers.begin(), pointers.end()).size(), pointers.size());
  for (CUdevice dev = 0; dev < count_; dev++) {
    int ordinal = -1;
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointers[dev]));
    EXPECT_EQ(ordinal, dev);
    free_on(dev, pointers[dev]);
  }
}

TEST_F(MultiDeviceTest, EveryDeviceComputes) {
  for (CUdevice dev = 0; dev < count_; dev++) {
    CUdeviceptr data = allocate_on(dev, 1024);
    {
      Module module(basic_ptx());
      OK(launch(module.function("iota"), {1}, {256}, 0, nullptr, data,
                static_cast<uint32_t>(dev * 1000), 256u));
      EXPECT_EQ(read_words(data, 256)[255], static_cast<uint32_t>(dev * 1000 + 255));
    }
    free_on(dev, data);
  }
}

TEST_F(MultiDeviceTest, PeerCopy) {
  CUdeviceptr a = allocate_on(0, 65536), b = allocate_on(1, 65536);
  OK(cuCtxSetCurrent(contexts_[0]));
  OK(cuMemsetD32_v2(a, 0x600df00d, 16384));
  OK(cuCtxSynchronize());
  OK(cuMemcpyPeer(b, contexts_[1], a, contexts_[0], 65536));
  OK(cuCtxSetCurrent(contexts_[1]));
  EXPECT_EQ(read_words(b, 16384), std::vector<uint32_t>(16384, 0x600df00d));
  free_on(0, a);
  free_on(1, b);
}

TEST_F(MultiDeviceTest, UnifiedCopyBetweenDevices) {
  CUdeviceptr a = allocate_on(0, 4096), b = allocate_on(1, 4096);
  OK(cuCtxSetCurrent(contexts_[0]));
  OK(cuMemsetD32_v2(a, 123, 1024));
  OK(cuCtxSynchronize());
  OK(cuMemcpy(b, a, 4096));
  OK(cuCtxSynchronize());
  OK(cuCtxSetCurrent(contexts_[1]));
  EXPECT_EQ(read_words(b, 1024), std::vector<uint32_t>(1024, 123));
  free_on(0, a);
  free_on(1, b);
}

TEST_F(MultiDeviceTest, AsyncPeerCopyKeepsStreamOrder) {
  CUdeviceptr a = allocate_on(0, 4096), b = allocate_on(1, 4096);
  OK(cuCtxSetCurrent(contexts_[0]));
  {
    Stream stream;
    OK(cuMemsetD32Async(a, 321, 1024, stream));
    OK(cuMemcpyPeerAsync(b, contexts_[1], a, contexts_[0], 4096, stream));
    OK(cuStreamSynchronize(stream));
  }
  OK(cuCtxSetCurrent(contexts_[1]));
  EXPECT_EQ(read_words(b, 1024), std::vector<uint32_t>(1024, 321));
  free_on(0, a);
  free_on(1, b);
}

TEST_F(MultiDeviceTest, EventsOrderStreamsOfTwoDevices) {
  CUdeviceptr a = allocate_on(0, 4096), b = allocate_on(1, 4096);
  OK(cuCtxSetCurrent(contexts_[0]));
  {
    Stream first;
    Event done(CU_EVENT_DISABLE_TIMING);
    Gate gate;
    gate.block(first);
    OK(cuMemsetD32Async(a, 5, 1024, first));
    OK(cuEventRecord(done, first));
    OK(cuCtxSetCurrent(contexts_[1]));
    {
      Stream second;
      OK(cuStreamWaitEvent(second, done, 0));
      OK(cuMemcpyPeerAsync(b, contexts_[1], a, contexts_[0], 4096, second));
      gate.open();
      OK(cuStreamSynchronize(second));
    }
    EXPECT_EQ(read_words(b, 1024), std::vector<uint32_t>(1024, 5));
    OK(cuCtxSetCurrent(contexts_[0]));
  }
  free_on(0, a);
  free_on(1, b);
}

TEST_F(MultiDeviceTest, PeerAccess) {
  int can = 0;
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  if (!can) {
    OK(cuCtxSetCurrent(contexts_[0]));
    EXPECT_CU(cuCtxEnablePeerAccess(contexts_[1], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    GTEST_SKIP() << "devices 0 and 1 are no peers";
  }
  CUdeviceptr remote = allocate_on(1, 1024);
  OK(cuCtxSetCurrent(contexts_[0]));
  EXPECT_CU(cuCtxDisablePeerAccess(contexts_[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  OK(cuCtxEnablePeerAccess(contexts_[1], 0));
  EXPECT_CU(cuCtxEnablePeerAccess(contexts_[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  OK(launch(basic("iota"), {1}, {256}, 0, nullptr, remote, 9u, 256u));
  OK(cuCtxSynchronize());
  OK(cuCtxDisablePeerAccess(contexts_[1]));
  OK(cuCtxSetCurrent(contexts_[1]));
  EXPECT_EQ(read_words(remote, 256)[255], 264u);
  free_on(1, remote);
}

// A kernel node runs where its function lives, whichever context is current when it is added or
// launched.
TEST_F(MultiDeviceTest, GraphWithKernelsOfEachDevice) {
  CUdeviceptr data[2] = {allocate_on(0, 1024), allocate_on(1, 1024)};
  OK(cuCtxSetCurrent(contexts_[1]));
  Module there(basic_ptx());
  const CUfunction of_second = there.function("iota");
  OK(cuCtxSetCurrent(contexts_[0]));
  const CUfunction functions[2] = {basic("iota"), of_second};
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node[2] = {};
  MUST(cuGraphCreate(&graph, 0));
  auto params = [&](int dev, uint32_t* start, uint32_t* n, void** arguments) {
    arguments[0] = &data[dev];
    arguments[1] = start;
    arguments[2] = n;
    CUDA_KERNEL_NODE_PARAMS out = {};
    out.func = functions[dev];
    out.gridDimX = out.gridDimY = out.gridDimZ = out.blockDimY = out.blockDimZ = 1;
    out.blockDimX = 256;
    out.kernelParams = arguments;
    return out;
  };
  uint32_t n = 256;
  void* arguments[3] = {};
  for (int dev = 0; dev < 2; dev++) {
    uint32_t start = 100 * (dev + 1);
    const CUDA_KERNEL_NODE_PARAMS kernel = params(dev, &start, &n, arguments);
    MUST(cuGraphAddKernelNode_v2(&node[dev], graph, node, dev, &kernel));
  }
  CUDA_KERNEL_NODE_PARAMS told = {};
  OK(cuGraphKernelNodeGetParams_v2(node[1], &told));
  EXPECT_EQ(told.func, of_second);
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  for (int dev = 0; dev < 2; dev++)
    EXPECT_EQ(read_words(data[dev], 256)[255], 100u * (dev + 1) + 255) << dev;
  uint32_t other = 7000;
  const CUDA_KERNEL_NODE_PARAMS changed = params(1, &other, &n, arguments);
  OK(cuGraphExecKernelNodeSetParams_v2(exec, node[1], &changed));
  OK(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_EQ(read_words(data[1], 256)[255], 7255u);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  free_on(0, data[0]);
  free_on(1, data[1]);
  OK(cuCtxSetCurrent(contexts_[1]));  // where `there` is unloaded
}

TEST_F(MultiDeviceTest, HandleOfAnotherDevice) {
  OK(cuCtxSetCurrent(contexts_[1]));
  Event event;
  OK(cuCtxSetCurrent(contexts_[0]));
  Stream stream;
  EXPECT_CU(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_CONTEXT);
}

// A library belongs to no device: its kernels answer for every device, in a program that has a
// context on one.
TEST_F(MultiDeviceTest, KernelAttributesOfADeviceWithoutContext) {
  OK(cuCtxSetCurrent(contexts_[0]));
  OK(cuDevicePrimaryCtxRelease_v2(1));
  int active = 0, here = 0, there = 0;
  unsigned flags = 0;
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(active, 0);
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  MUST(cuLibraryLoadData(&library, basic_ptx(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  MUST(cuLibraryGetKernel(&kernel, library, "bounded"));
  OK(cuKernelGetAttribute(&here, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
  const CUresult told =
      cuKernelGetAttribute(&there, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 1);
  if (told == CUDA_ERROR_INVALID_CONTEXT && !on_software())
    GTEST_SKIP() << "this driver wants a context first";
  ASSERT_EQ(told, CUDA_SUCCESS);
  EXPECT_EQ(here, 128);
  EXPECT_EQ(there, 128);
  const auto dynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  OK(cuKernelSetAttribute(dynamic, 30000, kernel, 1));
  OK(cuKernelGetAttribute(&there, dynamic, kernel, 1));
  EXPECT_EQ(there, 30000);
  OK(cuKernelGetAttribute(&here, dynamic, kernel, 0));
  EXPECT_NE(here, 30000);
  OK(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 1));
  INVALID(cuKernelSetCacheConfig(kernel, static_cast<CUfunc_cache>(99), 1));
  EXPECT_CU(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 99), CUDA_ERROR_INVALID_DEVICE);
  MUST(cuDevicePrimaryCtxRetain(&contexts_[1], 1));
  OK(cuKernelGetAttribute(&there, dynamic, kernel, 1));
  EXPECT_EQ(there, 30000);
  size_t offset = 99, bytes = 99;  // what was learned without a context is not all
  OK(cuCtxSetCurrent(contexts_[1]));
  OK(cuKernelGetParamInfo(kernel, 0, &offset, &bytes));
  EXPECT_EQ(offset, 0u);
  EXPECT_EQ(bytes, 8u);
  OK(cuLibraryUnload(library));
}

TEST_F(MultiDeviceTest, MemoryInfoIsPerDevice) {
  size_t before = 0, after = 0, total = 0;
  OK(cuCtxSetCurrent(contexts_[1]));
  OK(cuMemGetInfo_v2(&before, &total));
  CUdeviceptr big = allocate_on(1, 64 << 20);
  OK(cuMemGetInfo_v2(&after, &total));
  EXPECT_LT(after, before);
  free_on(1, big);
}

// In a process of its own, without streams that do not wait for the legacy one: those make every
// copy wait.
PROCESS_TEST(MultiDeviceProcess, ACopyIsThereForPeersWhenItReturns) {
  constexpr size_t kWords = 16u << 20;
  attach();
  int count = 0, can = 0;
  OK(cuDeviceGetCount(&count));
  if (count < 2) GTEST_SKIP() << "ONE DEVICE ONLY: nothing about several devices was checked";
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  if (!can) GTEST_SKIP() << "devices 0 and 1 are no peers";
  CUcontext contexts[2] = {};
  for (CUdevice dev : {0, 1}) OK(cuDevicePrimaryCtxRetain(&contexts[dev], dev));
  CUdeviceptr data = 0;
  OK(cuCtxSetCurrent(contexts[1]));
  OK(cuMemAlloc_v2(&data, kWords * 4));
  OK(cuCtxSetCurrent(contexts[0]));
  OK(cuCtxEnablePeerAccess(contexts[1], 0));
  CUfunction affine = basic("affine");
  const CUdeviceptr last = data + (kWords - 1) * 4;
  for (uint32_t round = 1; round <= 4; round++) {
    const std::vector<uint32_t> words(kWords, round);
    OK(launch(affine, {1}, {32}, 0, nullptr, last, 1u, 0u, 1u));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(contexts[1]));
    OK(cuMemcpyHtoD_v2(data, words.data(), kWords * 4));
    OK(cuCtxSetCurrent(contexts[0]));
    OK(launch(affine, {1}, {32}, 0, nullptr, last, 2u, 1u, 1u));
    OK(cuCtxSynchronize());
    EXPECT_EQ(read_words(last, 1)[0], 2 * round + 1);
  }
}

// The copy waits for what the other stream does. The context comes after the copy.
PROCESS_TEST(MultiDeviceProcess, ACopyIsThereForAPeerThatComesAfterIt) {
  attach();
  int count = 0, can = 0;
  OK(cuDeviceGetCount(&count));
  if (count < 2) GTEST_SKIP() << "ONE DEVICE ONLY: nothing about several devices was checked";
  OK(cuDeviceCanAccessPeer(&can, 1, 0));
  if (!can) GTEST_SKIP() << "devices 1 and 0 are no peers";
  CUcontext here = nullptr, later = nullptr;
  OK(cuCtxGetCurrent(&here));
  Buffer data(4);
  const uint32_t word = 5;
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  OK(cuLaunchHostFunc(
      stream, [](void*) { usleep(300'000); }, nullptr));
  OK(cuMemcpyHtoD_v2(data, &word, sizeof word));
  OK(cuDevicePrimaryCtxRetain(&later, 1));
  OK(cuCtxSetCurrent(later));
  OK(cuCtxEnablePeerAccess(here, 0));
  OK(launch(basic("affine"), {1}, {32}, 0, nullptr, CUdeviceptr{data}, 2u, 1u, 1u));
  OK(cuCtxSynchronize());
  OK(cuCtxSetCurrent(here));
  EXPECT_EQ(read_words(data, 1)[0], 11u);
}

}  // namespace
}  // namespace tendril::conformance
