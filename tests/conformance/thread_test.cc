// SPDX-License-Identifier: Apache-2.0
// Several host threads: current contexts, per-thread default streams, order across threads,
// concurrent use of everything. Threads collect results and the main thread checks them, so that
// transcripts do not depend on scheduling.
#include <atomic>
#include <thread>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class ThreadTest : public CudaTest {
 protected:
  template <typename Body>
  void in_thread(Body body) {
    CUcontext context = context_;
    std::thread([&] {
      cuCtxSetCurrent(context);
      body();
    }).join();
  }
  // Runs body(i) on `count` threads with the context current; returns how many reported a failure.
  template <typename Body>
  int on_threads(int count, Body body) {
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    CUcontext context = context_;
    for (int i = 0; i < count; i++) {
      threads.emplace_back([&, i] {
        if (cuCtxSetCurrent(context) != CUDA_SUCCESS || !body(i)) failures++;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return failures;
  }
};

TEST_F(ThreadTest, NewThreadHasNoContext) {
  CUcontext current = reinterpret_cast<CUcontext>(1);
  CUresult get = CUDA_ERROR_UNKNOWN, alloc = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    CUdeviceptr pointer = 0;
    get = cuCtxGetCurrent(&current);
    alloc = cuMemAlloc_v2(&pointer, 1024);
  }).join();
  EXPECT_EQ(get, CUDA_SUCCESS);
  EXPECT_EQ(current, nullptr);
  EXPECT_EQ(alloc, CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(ThreadTest, ContextStacksAreSeparate) {
  CUcontext seen = nullptr;
  in_thread([&] {
    cuCtxSetCurrent(nullptr);
    cuCtxGetCurrent(&seen);
  });
  EXPECT_EQ(seen, nullptr);
  CUcontext mine = nullptr;
  OK(cuCtxGetCurrent(&mine));
  EXPECT_EQ(mine, context_);
}

TEST_F(ThreadTest, MemoryIsSharedBetweenThreads) {
  CUdeviceptr pointer = 0;
  CUresult result = CUDA_ERROR_UNKNOWN;
  in_thread([&] {
    result = cuMemAlloc_v2(&pointer, 1024);
    if (result == CUDA_SUCCESS) result = cuMemsetD32_v2(pointer, 88, 256);
  });
  EXPECT_EQ(result, CUDA_SUCCESS);
  EXPECT_EQ(read_words(pointer, 256), std::vector<uint32_t>(256, 88));
  OK(cuMemFree_v2(pointer));
}

TEST_F(ThreadTest, ConcurrentAllocations) {
  EXPECT_EQ(on_threads(8,
                       [](int i) {
                         for (int round = 0; round < 20; round++) {
                           CUdeviceptr pointer = 0;
                           uint32_t word = 0;
                           const uint32_t value = static_cast<uint32_t>(i * 1000 + round);
                           if (cuMemAlloc_v2(&pointer, 8192) ||
                               cuMemsetD32_v2(pointer, value, 2048) ||
                               cuMemcpyDtoH_v2(&word, pointer + 8188, 4) || word != value ||
                               cuMemFree_v2(pointer)) {
                             return false;
                           }
                         }
                         return true;
                       }),
            0);
}

TEST_F(ThreadTest, ConcurrentStreams) {
  CUfunction affine = basic("affine");
  EXPECT_EQ(
      on_threads(
          8,
          [affine](int i) {
            CUstream stream = nullptr;
            CUdeviceptr data = 0;
            uint32_t expected = static_cast<uint32_t>(i), word = 0;
            if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) || cuMemAlloc_v2(&data, 1024))
              return false;
            if (cuMemsetD32Async(data, expected, 256, stream)) return false;
            for (uint32_t step = 0; step < 50; step++) {
              if (launch(affine, {1}, {256}, 0, stream, data, 3u, step, 256u)) return false;
              expected = expected * 3 + step;
            }
            if (cuMemcpyDtoHAsync_v2(&word, data + 1020, 4, stream) || cuStreamSynchronize(stream))
              return false;
            return word == expected && !cuStreamDestroy_v2(stream) && !cuMemFree_v2(data);
          }),
      0);
}

TEST_F(ThreadTest, ConcurrentCopies) {
  EXPECT_EQ(
      on_threads(6,
                 [](int i) {
                   const std::vector<uint8_t> source =
                       pattern_bytes(300000 + i, static_cast<unsigned>(i));
                   std::vector<uint8_t> target(source.size());
                   CUdeviceptr data = 0;
                   if (cuMemAlloc_v2(&data, source.size())) return false;
                   for (int round = 0; round < 4; round++) {
                     if (cuMemcpyHtoD_v2(data, source.data(), source.size())) return false;
                     if (cuMemcpyDtoH_v2(target.data(), data, target.size()) || source != target)
                       return false;
                   }
                   return !cuMemFree_v2(data);
                 }),
      0);
}

// What one thread has of its own: a stream, an instantiated graph of one kernel, memory of every
// kind. All calls of a round may be answered before the GPU has seen them, except the waits.
class Everything {
 public:
  static constexpr uint32_t kWords = 50'000, kMapped = 256;

  Everything(CUfunction affine, uint32_t seed) : affine_(affine), seed_(seed), source_(kWords) {}
  ~Everything() {
    if (exec_) cuGraphExecDestroy(exec_);
    if (graph_) cuGraphDestroy(graph_);
    if (event_) cuEventDestroy_v2(event_);
    if (stream_) cuStreamDestroy_v2(stream_);
    if (mapped_) cuMemFreeHost(mapped_);
    if (back_) cuMemFreeHost(back_);
    if (data_) cuMemFree_v2(data_);
  }
  Everything(const Everything&) = delete;

  bool make() {
    return !cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) &&
           !cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING) && !cuMemAlloc_v2(&data_, kWords * 4) &&
           !host(&mapped_, kMapped) && !host(&back_, kWords) &&
           !cuMemHostGetDevicePointer_v2(&mapped_gpu_, mapped_, 0) && !cuGraphCreate(&graph_, 0) &&
           !change(0) && !cuGraphInstantiateWithFlags(&exec_, graph_, 0);
  }
  bool round(uint32_t number) {
    const uint32_t base = seed_ * 1000 + number;
    for (uint32_t i = 0; i < kWords; i++) source_[i] = base + i;
    for (uint32_t i = 0; i < kMapped; i++) mapped_[i] = base + i;
    if (cuMemcpyHtoDAsync_v2(data_, source_.data(), kWords * 4, stream_) || change(number) ||
        cuGraphLaunch(exec_, stream_) ||
        launch(affine_, {1}, {kMapped}, 0, stream_, mapped_gpu_, 2u, seed_, kMapped) ||
        cuEventRecord(event_, stream_) || cuMemcpyDtoHAsync_v2(back_, data_, kWords * 4, stream_))
      return false;
    if (number % 2 && cuEventSynchronize(event_)) return false;
    if (number % 2 && !is(mapped_, kMapped, base, 2, seed_)) return false;
    if (number % 3 == 0 ? cuCtxSynchronize() : cuStreamSynchronize(stream_)) return false;
    return is(mapped_, kMapped, base, 2, seed_) && is(back_, kWords, base, 3, number);
  }

 private:
  static CUresult host(uint32_t** memory, uint32_t words) {
    return cuMemHostAlloc(reinterpret_cast<void**>(memory), words * 4, CU_MEMHOSTALLOC_DEVICEMAP);
  }
  static bool is(const uint32_t* words, uint32_t count, uint32_t base, uint32_t factor,
                 uint32_t addend) {
    for (uint32_t i = 0; i < count; i++)
      if (words[i] != (base + i) * factor + addend) return false;
    return true;
  }
  CUresult change(uint32_t addend) {
    uint32_t factor = 3, n = kWords;
    void* parameters[] = {&data_, &factor, &addend, &n};
    CUDA_KERNEL_NODE_PARAMS node = {};
    node.func = affine_;
    node.gridDimX = (kWords + 255) / 256;
    node.blockDimX = 256;
    node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = parameters;
    return exec_ ? cuGraphExecKernelNodeSetParams_v2(exec_, node_, &node)
                 : cuGraphAddKernelNode_v2(&node_, graph_, nullptr, 0, &node);
  }

  const CUfunction affine_;
  const uint32_t seed_;
  std::vector<uint32_t> source_;
  uint32_t *mapped_ = nullptr, *back_ = nullptr;
  CUdeviceptr data_ = 0, mapped_gpu_ = 0;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphNode node_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

TEST_F(ThreadTest, EverythingAtOnce) {
  CUfunction affine = basic("affine");
  EXPECT_EQ(on_threads(6,
                       [affine](int i) {
                         Everything mine(affine, static_cast<uint32_t>(i) + 1);
                         if (!mine.make()) return false;
                         for (uint32_t number = 0; number < 12; number++)
                           if (!mine.round(number)) return false;
                         return true;
                       }),
            0);
}

TEST_F(ThreadTest, MemoryChangesBackWhileAnotherThreadWaits) {
  // A word of memory that GPUs use changes for a moment only. So does a word of other such memory
  // before each wait. It lies where the small ranges already end; at least one of them has a higher
  // address, in whatever order addresses are given.
  constexpr uint32_t kSmall = 16'384, kLarge = 65'536, kRounds = 400;
  uint32_t* memory[3] = {};
  const uint32_t words[] = {kSmall, kLarge, kSmall};
  CUdeviceptr on_gpu[3] = {};
  for (int i = 0; i < 3; i++) {
    MUST(cuMemHostAlloc(reinterpret_cast<void**>(&memory[i]), words[i] * 4,
                        CU_MEMHOSTALLOC_DEVICEMAP));
    MUST(cuMemHostGetDevicePointer_v2(&on_gpu[i], memory[i], 0));
    memset(memory[i], 0, words[i] * 4);
  }
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over.load()) {
      for (uint32_t value : {1u, 0u})
        for (int i : {0, 2}) std::atomic_ref(memory[i][kSmall - 1]).store(value);
    }
  });
  int failures = 0;
  for (uint32_t round = 1; round <= kRounds; round++) {
    std::atomic_ref(memory[1][kLarge - 2]).store(round);
    failures += cuStreamSynchronize(CU_STREAM_PER_THREAD) != CUDA_SUCCESS;
  }
  over = true;
  other.join();
  EXPECT_EQ(failures, 0);
  OK(launch(basic("affine"), {1}, {256}, 0, CU_STREAM_PER_THREAD, on_gpu[1] + (kLarge - 2) * 4, 2u,
            0u, 1u));
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_EQ(memory[1][kLarge - 2], 2 * kRounds);
  for (uint32_t* each : memory) OK(cuMemFreeHost(each));
}

TEST_F(ThreadTest, ConcurrentModuleLoads) {
  EXPECT_EQ(on_threads(4,
                       [](int) {
                         CUmodule module = nullptr;
                         CUfunction function = nullptr;
                         for (int round = 0; round < 3; round++) {
                           if (cuModuleLoadData(&module, faults_ptx())) return false;
                           if (cuModuleGetFunction(&function, module, "healthy") ||
                               cuModuleUnload(module))
                             return false;
                         }
                         return true;
                       }),
            0);
}

TEST_F(ThreadTest, LegacyStreamOrdersThreads) {
  // Each thread launches on the default stream only after the one before it has returned from its
  // launch.
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 1, 256));
  std::atomic<int> turn{0};
  const CUdeviceptr where = data;
  CUfunction affine = basic("affine");
  const int failures = on_threads(6, [&](int i) {
    while (turn.load() != i) std::this_thread::yield();
    const CUresult result =
        launch(affine, {1}, {256}, 0, nullptr, where, 10u, static_cast<uint32_t>(i), 256u);
    turn++;
    return result == CUDA_SUCCESS;
  });
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 1012345));
}

TEST_F(ThreadTest, SharedStreamKeepsTheOrderOfCalls) {
  Buffer data(1024);
  Stream stream;
  OK(cuMemsetD32Async(data, 2, 256, stream));
  std::atomic<int> turn{0};
  const CUdeviceptr where = data;
  CUstream handle = stream;
  CUfunction affine = basic("affine");
  const int failures = on_threads(4, [&](int i) {
    bool good = true;
    for (int round = 0; round < 2; round++) {
      while (turn.load() != round * 4 + i) std::this_thread::yield();
      good &= !launch(affine, {1}, {256}, 0, handle, where, 10u, static_cast<uint32_t>(i), 256u);
      turn++;  // or the others would wait for ever
    }
    return good;
  });
  EXPECT_EQ(failures, 0);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 201230123));
}

TEST_F(ThreadTest, PerThreadStreamsAreIndependent) {
  Buffer data(1024);
  const CUdeviceptr where = data;
  Gate gate;
  gate.block(CU_STREAM_PER_THREAD);
  CUresult other = CUDA_ERROR_UNKNOWN;
  in_thread([&] {
    other = cuMemsetD32Async(where, 1, 256, CU_STREAM_PER_THREAD);
    if (other == CUDA_SUCCESS) other = cuStreamSynchronize(CU_STREAM_PER_THREAD);
  });
  EXPECT_EQ(other, CUDA_SUCCESS);
  EXPECT_CU(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

// What a server records to learn of the end of the legacy stream's work must not come between the
// two.
TEST_F(ThreadTest, PerThreadStreamsAreIndependentAfterLegacyWork) {
  Buffer data(1024);
  const CUdeviceptr where = data;
  CUfunction affine = basic("affine");
  for (int round = 0; round < 3; round++) {
    Gate gate;
    OK(launch(affine, {1}, {256}, 0, CU_STREAM_LEGACY, where, 1u, 1u, 256u));
    gate.block(CU_STREAM_PER_THREAD);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CUresult other = CUDA_ERROR_UNKNOWN;
    in_thread([&] {
      other = cuMemsetD32Async(where, 1, 256, CU_STREAM_PER_THREAD);
      if (other == CUDA_SUCCESS) other = cuStreamSynchronize(CU_STREAM_PER_THREAD);
    });
    EXPECT_EQ(other, CUDA_SUCCESS);
    gate.open();
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }
}

TEST_F(ThreadTest, PerThreadEntryPointsUseThePerThreadStream) {
  Gate gate;
  gate.block(CU_STREAM_PER_THREAD);
  EXPECT_CU(cuStreamQuery_ptsz(nullptr), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuStreamSynchronize_ptsz(nullptr));
  OK(cuStreamQuery_ptsz(nullptr));
}

TEST_F(ThreadTest, LegacyStreamWaitsForPerThreadStreams) {
  Buffer data(1024);
  Gate gate;
  OK(cuMemsetD32_v2(data, 1, 256));
  gate.block(CU_STREAM_PER_THREAD);
  OK(launch(basic("affine"), {1}, {256}, 0, CU_STREAM_PER_THREAD, CUdeviceptr{data}, 10u, 1u,
            256u));
  OK(launch(basic("affine"), {1}, {256}, 0, CU_STREAM_LEGACY, CUdeviceptr{data}, 10u, 2u, 256u));
  gate.open();
  OK(cuStreamSynchronize(CU_STREAM_LEGACY));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 112));
}

TEST_F(ThreadTest, EventCrossesThreads) {
  Stream stream;
  Event event;
  Gate gate;
  Buffer data(1024);
  CUevent handle = event;
  CUstream stream_handle = stream;
  const CUdeviceptr where = data;
  gate.block(stream);
  CUresult recorded = CUDA_ERROR_UNKNOWN;
  in_thread([&] {
    cuMemsetD32Async(where, 61, 256, stream_handle);
    recorded = cuEventRecord(handle, stream_handle);
  });
  EXPECT_EQ(recorded, CUDA_SUCCESS);
  EXPECT_CU(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  gate.open();
  OK(cuEventSynchronize(event));
  EXPECT_EQ(read_words(data, 256)[255], 61u);
}

TEST_F(ThreadTest, WorkOfAFinishedThreadCompletes) {
  Buffer data(1024);
  const CUdeviceptr where = data;
  CUfunction affine = basic("affine");
  OK(cuMemsetD32_v2(data, 1, 256));
  in_thread([&] {
    for (uint32_t i = 0; i < 30; i++)
      launch(affine, {1}, {256}, 0, CU_STREAM_PER_THREAD, where, 1u, 1u, 256u);
  });
  OK(cuCtxSynchronize());
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 31));
}

// A thread waits for a stream to which others go on giving work. What it does not wait for must not
// hold up anybody else.
TEST_F(ThreadTest, OthersGoOnWhileAStreamThatIsWaitedForGetsMore) {
  Stream shared, other;
  Buffer data(1024);
  const CUstream handle = shared;
  for (int round = 0; round < 20; round++) {
    Gate first, more;
    std::atomic<bool> waits{false}, over{false};
    bool failed = true;
    first.block(shared);
    std::thread waiter([&] {
      failed = cuCtxSetCurrent(context_) != CUDA_SUCCESS;
      waits = true;
      failed |= cuStreamSynchronize(handle) != CUDA_SUCCESS;
    });
    while (!waits.load()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(round * 40));
    more.block(shared);
    first.open();
    std::thread rescuer([&] {
      for (int i = 0; i < 1000 && !over.load(); i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      more.open();
    });
    OK(launch(basic("affine"), {1}, {256}, 0, other, CUdeviceptr{data}, 2u, 0u, 256u));
    OK(cuStreamSynchronize(other));
    EXPECT_CU(cuStreamQuery(shared), CUDA_ERROR_NOT_READY);
    over = true;
    rescuer.join();
    waiter.join();
    EXPECT_FALSE(failed);
  }
}

// A wait for the legacy stream waits for the blocking ones, but makes none of them wait for
// another.
TEST_F(ThreadTest, AWaitForTheLegacyStreamTiesNoOthersTogether) {
  Stream busy(CU_STREAM_DEFAULT), other(CU_STREAM_DEFAULT);
  Buffer data(1024);
  Gate gate;
  std::atomic<bool> over{false}, rescued{false};
  gate.block(busy);
  std::thread waiter([&] {
    if (cuCtxSetCurrent(context_) == CUDA_SUCCESS) cuStreamSynchronize(nullptr);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::thread rescuer([&] {
    for (int i = 0; i < 500 && !over.load(); i++)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    rescued = !over.load();
    gate.open();
  });
  OK(launch(basic("iota"), {1}, {256}, 0, other, CUdeviceptr{data}, 0u, 256u));
  OK(cuStreamSynchronize(other));
  over = true;
  rescuer.join();
  waiter.join();
  EXPECT_FALSE(rescued.load());
}

TEST_F(ThreadTest, SynchronizeFromManyThreads) {
  Stream stream;
  Buffer data(1024);
  OK(launch(basic("iota"), {1}, {256}, 0, stream, CUdeviceptr{data}, 0u, 256u));
  CUstream handle = stream;
  EXPECT_EQ(on_threads(8, [&](int) { return !cuStreamSynchronize(handle) && !cuCtxSynchronize(); }),
            0);
}

TEST_F(ThreadTest, ContextDestroyedUnderAnotherThread) {
  CUcontext doomed = nullptr;
  MUST(cuCtxCreate_v2(&doomed, 0, device()));
  std::atomic<int> phase{0};
  CUresult result = CUDA_SUCCESS;
  std::thread other([&] {
    cuCtxSetCurrent(doomed);
    phase = 1;
    while (phase.load() != 2) std::this_thread::yield();
    CUdeviceptr pointer = 0;
    result = cuMemAlloc_v2(&pointer, 1024);
  });
  while (phase.load() != 1) std::this_thread::yield();
  OK(cuCtxDestroy_v2(doomed));
  phase = 2;
  other.join();
  // Documented as CONTEXT_IS_DESTROYED.
  EXPECT_TRUE(result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT)
      << result;
}

TEST_F(ThreadTest, ManyShortThreads) {
  Buffer data(1024);
  const CUdeviceptr where = data;
  OK(cuMemsetD32_v2(data, 0, 256));
  CUfunction affine = basic("affine");
  for (int i = 0; i < 40; i++) {
    bool good = false;
    in_thread([&] { good = !launch(affine, {1}, {256}, 0, nullptr, where, 1u, 1u, 256u); });
    ASSERT_TRUE(good);
  }
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 40));
}

}  // namespace
}  // namespace tendril::conformance
