// SPDX-License-Identifier: Apache-2.0
// The library through its exported calls. Tests what only its inside can get wrong.
// tests/conformance tests the breadth of calls.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/prototypes.h"

namespace tendril::softgpu {
namespace {

#define OK(call) ASSERT_EQ(CUDA_SUCCESS, call)

constexpr char kPtx[] = R"(
  .version 7.0
  .target sm_70
  .address_size 64
  .visible .global .align 4 .u32 counter = 7;
  .visible .entry index(.param .u64 p, .param .u32 n)
  {
    .reg .b32 %r<6>; .reg .b64 %rd<5>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;
    cvta.to.global.u64 %rd2, %rd1; mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r5;
  DONE: ret;
  }
  .visible .entry poke(.param .u64 p)
  {
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p]; st.global.u64 [%rd1], %rd1; ret;
  }
  .visible .entry wait(.param .u64 p)
  {
    .reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [p];
  AGAIN: ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;
    ret;
  }
)";

class Driver : public ::testing::Test {
 protected:
  void SetUp() override {
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context_, 0));
    OK(cuCtxSetCurrent(context_));
    OK(cuModuleLoadData(&module_, kPtx));
    OK(cuMemAlloc_v2(&memory_, 4096));
  }
  void TearDown() override {
    cuDevicePrimaryCtxReset_v2(0);
    cuCtxSetCurrent(nullptr);
  }
  CUfunction function(const char* name) {
    CUfunction found = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&found, module_, name));
    return found;
  }
  CUresult launch_index(CUstream stream) {
    unsigned count = 1024;
    void* params[] = {&memory_, &count};
    return cuLaunchKernel(function("index"), 4, 1, 1, 256, 1, 1, 0, stream, params, nullptr);
  }
  void expect_index() {
    std::vector<unsigned> got(1024);
    OK(cuMemcpyDtoH_v2(got.data(), memory_, 4096));
    for (unsigned i = 0; i < 1024; ++i) ASSERT_EQ(i, got[i]);
  }
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(Driver, LaunchByPointersAndByBuffer) {
  OK(launch_index(nullptr));
  expect_index();
  OK(cuMemsetD32_v2(memory_, 0, 1024));
  struct {
    CUdeviceptr p;
    unsigned n;
  } buffer = {memory_, 1024};
  size_t bytes = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(function("index"), 4, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  expect_index();
}

TEST_F(Driver, LaunchReturnsWhileTheKernelRuns) {
  void* flag = nullptr;
  OK(cuMemHostAlloc(&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  *static_cast<volatile unsigned*>(flag) = 0;
  CUdeviceptr address = 0;
  OK(cuMemHostGetDevicePointer_v2(&address, flag, 0));
  EXPECT_EQ(reinterpret_cast<CUdeviceptr>(flag), address);
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  void* params[] = {&address};
  OK(cuLaunchKernel(function("wait"), 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  OK(launch_index(nullptr));  // another stream goes on meanwhile
  expect_index();
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  *static_cast<volatile unsigned*>(flag) = 1;
  OK(cuStreamSynchronize(stream));
}

TEST_F(Driver, LegacyStreamOrdersBlockingStreamsOnly) {
  CUstream blocking, free_one;
  OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  OK(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
  static std::atomic<int> gate, step;
  gate = 0;
  step = 0;
  OK(cuLaunchHostFunc(
      blocking,
      [](void*) {
        while (gate == 0) std::this_thread::yield();
        step = 1;
      },
      nullptr));
  OK(cuMemsetD8Async(memory_, 1, 16, nullptr));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  OK(cuMemsetD8Async(memory_, 2, 16, free_one));
  OK(cuStreamSynchronize(free_one));
  EXPECT_EQ(0, step.load());
  gate = 1;
  OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(1, step.load());
}

// cuMemcpyPeer is ordered against pending and later work of every context that takes part, in any
// stream.
TEST_F(Driver, PeerCopyIsOrderedInBothContexts) {
  static std::atomic<int> gate;
  auto wait_for_gate = [](void*) {
    while (gate == 0) std::this_thread::yield();
  };
  CUcontext other;
  CUstream stream;
  CUdeviceptr far;
  OK(cuCtxCreate_v2(&other, 0, 0));
  OK(cuMemAlloc_v2(&far, 4096));
  for (unsigned flags : {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING}) {
    OK(cuStreamCreate(&stream, flags));
    OK(cuCtxSetCurrent(context_));
    OK(cuMemsetD32_v2(memory_, 1, 1024));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(other));
    gate = 0;
    OK(cuLaunchHostFunc(stream, wait_for_gate, nullptr));
    OK(cuMemsetD32Async(far, 2, 1024, stream));
    OK(cuCtxSetCurrent(context_));
    OK(cuMemcpyPeer(far, other, memory_, context_, 4096));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));  // waits for the other context
    gate = 1;
    OK(cuCtxSetCurrent(other));
    unsigned first = 0;
    OK(cuMemcpyDtoH_v2(&first, far, sizeof first));  // and the other context for it
    EXPECT_EQ(1u, first);
    OK(cuStreamDestroy_v2(stream));
  }
  OK(cuCtxDestroy_v2(other));
  OK(cuCtxSetCurrent(context_));
}

// The same for a plain copy in the legacy stream. It ignores streams that do not block.
TEST_F(Driver, LegacyCopyBetweenContextsIsOrderedInBoth) {
  static std::atomic<int> gate;
  gate = 0;
  CUcontext other;
  CUdeviceptr far;
  OK(cuCtxCreate_v2(&other, 0, 0));
  OK(cuMemAlloc_v2(&far, 4096));
  OK(cuMemsetD32_v2(far, 0, 1024));
  OK(cuCtxSynchronize());
  OK(cuCtxSetCurrent(context_));
  OK(cuLaunchHostFunc(
      nullptr,
      [](void*) {
        while (gate == 0) std::this_thread::yield();
      },
      nullptr));
  OK(cuMemsetD32Async(memory_, 5, 1024, nullptr));
  OK(cuMemcpyDtoDAsync_v2(far, memory_, 4096, nullptr));
  OK(cuCtxSetCurrent(other));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  gate = 1;
  unsigned first = 0;
  OK(cuMemcpyDtoH_v2(&first, far, sizeof first));
  EXPECT_EQ(5u, first);
  OK(cuCtxDestroy_v2(other));
  OK(cuCtxSetCurrent(context_));
}

TEST_F(Driver, PerThreadStreamsAreTwoStreams) {
  static std::atomic<int> gate;
  gate = 0;
  OK(cuLaunchHostFunc_ptsz(
      nullptr,
      [](void*) {
        while (gate == 0) std::this_thread::yield();
      },
      nullptr));
  std::thread other([&] {
    EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
    EXPECT_EQ(CUDA_SUCCESS, cuMemsetD8Async_ptsz(memory_, 1, 16, nullptr));
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(CU_STREAM_PER_THREAD));
  });
  other.join();
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
  gate = 1;
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

TEST_F(Driver, PageableSourceMayBeReusedAtOnce) {
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  static std::atomic<int> gate;
  gate = 0;
  OK(cuLaunchHostFunc(
      stream,
      [](void*) {
        while (gate == 0) std::this_thread::yield();
      },
      nullptr));
  std::vector<uint8_t> bytes(64, 5);
  OK(cuMemcpyHtoDAsync_v2(memory_, bytes.data(), 64, stream));
  std::fill(bytes.begin(), bytes.end(), 9);
  gate = 1;
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(bytes.data(), memory_, 64));
  EXPECT_EQ(5, bytes[63]);
}

TEST_F(Driver, FaultsStickUntilReset) {
  uint64_t nowhere = 64;
  void* params[] = {&nowhere};
  OK(cuLaunchKernel(function("poke"), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  CUdeviceptr more;
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&more, 16));
  CUcontext current;
  OK(cuCtxGetCurrent(&current));
  OK(cuDevicePrimaryCtxReset_v2(0));
  OK(cuDevicePrimaryCtxRetain(&context_, 0));
  EXPECT_EQ(current, context_);
  OK(cuMemAlloc_v2(&more, 16));
}

TEST_F(Driver, FreedMemoryFaults) {
  CUdeviceptr big;
  OK(cuMemAlloc_v2(&big, 8 << 20));
  uint64_t inside = big + (4 << 20);
  OK(cuMemFree_v2(big));
  void* params[] = {&inside};
  OK(cuLaunchKernel(function("poke"), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(Driver, NobodyJoinsACaptureThatIsOver) {
  CUstream stream, other;
  CUevent event;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));  // goes on meanwhile
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuEventRecord(event, stream));
  CUgraph graph, none;
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuStreamWaitEvent(stream, event, 0));
  CUstreamCaptureStatus status;
  OK(cuStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(cuStreamEndCapture(stream, &none), CUDA_ERROR_ILLEGAL_STATE);
  OK(cuGraphDestroy(graph));
  OK(cuStreamEndCapture(other, &graph));
  OK(cuGraphDestroy(graph));
}

TEST_F(Driver, CaptureReplays) {
  CUstream stream, joined;
  CUevent fork, join;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuMemsetD32Async(memory_, 0, 1024, stream));
  OK(cuEventRecord(fork, stream));
  OK(cuStreamWaitEvent(joined, fork, 0));
  OK(launch_index(joined));
  OK(cuEventRecord(join, joined));
  OK(cuStreamWaitEvent(stream, join, 0));
  CUgraph graph;
  OK(cuStreamEndCapture(stream, &graph));
  size_t nodes = 0, edges = 0;
  OK(cuGraphGetNodes(graph, nullptr, &nodes));
  OK(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  EXPECT_EQ(2u, nodes);
  EXPECT_EQ(1u, edges);
  CUgraphExec exec;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  for (int i = 0; i < 3; ++i) {
    OK(cuMemsetD8_v2(memory_, 0xff, 4096));
    OK(cuCtxSynchronize());
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    expect_index();
  }
  OK(cuGraphExecDestroy(exec));
}

TEST_F(Driver, VirtualMemoryMapsAndFaultsWithoutAccess) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUdeviceptr range;
  CUmemGenericAllocationHandle handle;
  OK(cuMemAddressReserve(&range, 1ull << 40, 0, 0, 0));
  OK(cuMemCreate(&handle, 4 << 20, &properties, 0));
  OK(cuMemMap(range, 4 << 20, 0, handle, 0));
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemSetAccess(range, 4 << 20, &access, 1));
  OK(cuMemRelease(handle));
  CUdeviceptr kept = memory_;
  memory_ = range + (2 << 20);
  OK(launch_index(nullptr));
  expect_index();
  memory_ = kept;
  OK(cuMemUnmap(range, 4 << 20));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(&kept, range, 8));
  OK(cuMemAddressFree(range, 1ull << 40));
}

// A card maps the descriptor, writes the GPU's memory there, and reads it.
TEST_F(Driver, ADescriptorOfMappedMemoryIsThatMemory) {
  constexpr size_t kBytes = 4 << 20;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  OK(cuMemCreate(&handle, kBytes, &properties, 0));
  OK(cuMemAddressReserve(&range, kBytes, 0, 0, 0));
  OK(cuMemMap(range, kBytes, 0, handle, 0));
  CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemSetAccess(range, kBytes, &access, 1));
  int file = -1;
  const auto give = [&](CUdeviceptr from, size_t bytes, CUmemRangeHandleType type) {
    return cuMemGetHandleForAddressRange(&file, from, bytes, type, 0);
  };
  constexpr auto kDmaBuf = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, give(range, kBytes + 4096, kDmaBuf));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, give(range + 8, 4096, kDmaBuf));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, give(range, kBytes, CU_MEM_RANGE_HANDLE_TYPE_MAX));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, give(range + 4096, 4096, kDmaBuf));
  OK(give(range, kBytes, kDmaBuf));
  void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  ASSERT_NE(MAP_FAILED, mapped);
  auto* const words = static_cast<uint32_t*>(mapped);
  OK(cuMemsetD32_v2(range, 77, kBytes / 4));
  OK(cuCtxSynchronize());
  EXPECT_EQ(77u, words[kBytes / 4 - 1]);
  words[5] = 78;
  OK(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
  uint32_t got[2] = {};
  OK(cuMemcpyDtoH_v2(got, range + 16, 8));
  EXPECT_EQ(77u, got[0]);
  EXPECT_EQ(78u, got[1]);
  munmap(mapped, kBytes);
  OK(cuMemUnmap(range, kBytes));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(range, kBytes));
}

TEST_F(Driver, HostFunctionsMayNotCall) {
  static std::atomic<int> answer;
  answer = -1;
  OK(cuLaunchHostFunc(
      nullptr,
      [](void*) {
        int count;
        answer = cuDeviceGetCount(&count);
      },
      nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(CUDA_ERROR_NOT_PERMITTED, answer.load());
}

TEST_F(Driver, ForkedChildIsNotInitialised) {
  pid_t child = fork();
  if (child == 0)
    _exit(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED &&
                  cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
              ? 0
              : 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(0, WEXITSTATUS(status));
  OK(cuCtxSynchronize());
}

TEST_F(Driver, InventedHandlesAreRefused) {
  uint64_t bad = 0xdeadbeef0;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(reinterpret_cast<CUstream>(bad)));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(reinterpret_cast<CUevent>(bad)));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(reinterpret_cast<CUmodule>(bad)));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(reinterpret_cast<CUcontext>(bad)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(bad));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(reinterpret_cast<CUfunction>(bad), 1, 1, 1, 1,
                                                      1, 1, 0, nullptr, nullptr, nullptr));
  // A handle of one kind is not found as another kind.
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(reinterpret_cast<CUevent>(module_)));
}

TEST_F(Driver, CutsAndLogs) {
  char log[256] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule module;
  EXPECT_EQ(
      CUDA_ERROR_INVALID_PTX,
      cuModuleLoadDataEx(&module, ".version 7.0\n.target sm_70\n.entry {", 2, options, values));
  EXPECT_NE('\0', log[0]);
  log[0] = '\0';
  values[1] = reinterpret_cast<void*>(sizeof log);
  EXPECT_EQ(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadDataEx(&module,
                                                             "\x7f"
                                                             "ELF",
                                                             2, options, values));
  EXPECT_NE('\0', log[0]);
}

// Taichi divides one large allocation into pages without checking where it begins.
TEST_F(Driver, LargeMemoryBeginsWithAPage) {
  CUdeviceptr small, large;
  OK(cuMemAlloc_v2(&small, 512));
  OK(cuMemAlloc_v2(&large, (2 << 20) + 512));
  EXPECT_EQ(0u, large % (2 << 20));
  OK(cuMemFree_v2(small));
  OK(cuMemFree_v2(large));
}

TEST_F(Driver, PoolsCharge) {
  size_t before, during, total;
  OK(cuMemGetInfo_v2(&before, &total));
  CUdeviceptr at;
  OK(cuMemAllocAsync(&at, 1 << 20, nullptr));
  OK(cuMemGetInfo_v2(&during, &total));
  EXPECT_EQ(before - (1 << 20), during);
  OK(cuMemFreeAsync(at, nullptr));
  OK(cuStreamSynchronize(nullptr));
  OK(cuMemGetInfo_v2(&during, &total));
  EXPECT_EQ(before, during);
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&at, total + 1));
}

TEST(Entry, MostOfTheAbiHasABody) {
  printf("%u of 637 symbols have a body\n", implemented_symbols());
  EXPECT_GE(implemented_symbols(), 450u);
  EXPECT_NE(nullptr, exported_symbol("cuMemAlloc_v2"));
  EXPECT_EQ(nullptr, exported_symbol("cuNoSuchThing"));
}

}  // namespace
}  // namespace tendril::softgpu
