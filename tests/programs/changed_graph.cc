// SPDX-License-Identifier: Apache-2.0
// A graph whose nodes get other memory and other values before each launch, as XLA does it: a
// kernel, then a copy of its result. Each step brings one word to the host and learns from a host
// function that it has arrived, in the same pinned memory every time. Other pinned memory is
// mapped, as libraries map it for flags. For counting the cost (tests/cost). Argument: steps
// (default 10).
#include <condition_variable>
#include <mutex>

#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

constexpr uint32_t kWords = 256;

struct Changed {
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode kernel, copy;
};

CUDA_MEMCPY3D one_word(CUdeviceptr to, CUdeviceptr from) {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstDevice = to;
  copy.WidthInBytes = copy.srcPitch = copy.dstPitch = 4;
  copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
  return copy;
}

// The word, and the program that sleeps until it has arrived.
struct Reader {
  uint32_t* word = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  bool there = false;

  static void tell(void* self) {
    Reader* reader = static_cast<Reader*>(self);
    const std::lock_guard<std::mutex> hold(reader->mutex);
    reader->there = true;
    reader->changed.notify_one();
  }
  uint32_t read(CUdeviceptr from, CUstream stream) {
    there = false;
    CHECK(cuMemcpyDtoHAsync(word, from, 4, stream));
    CHECK(cuLaunchHostFunc(stream, tell, this));
    std::unique_lock<std::mutex> hold(mutex);
    changed.wait(hold, [&] { return there; });
    return *word;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const long steps = program::argument(argc, argv, 1, 10);
  CUcontext context = program::use_device(0);
  CUstream stream;
  CUdeviceptr data[2], sums;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (CUdeviceptr& each : data) CHECK(cuMemAlloc(&each, kWords * 4));
  CHECK(cuMemAlloc(&sums, static_cast<size_t>(steps) * 4));
  for (const CUdeviceptr each : data) CHECK(cuMemsetD32(each, 1, kWords));

  Reader reader;
  void* flag = nullptr;
  CUdeviceptr mapped = 0;
  CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&reader.word), 4, CU_MEMHOSTALLOC_PORTABLE));
  CHECK(cuMemHostAlloc(&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP));
  CHECK(cuMemHostGetDevicePointer(&mapped, flag, 0));

  bool good = true;
  uint32_t factor = 0, addend = 0, words = kWords;
  CUdeviceptr in = data[0];
  void* values[] = {&in, &factor, &addend, &words};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = program::load(kKernelsPtx, "affine");
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.blockDimX = kWords;
  kernel.kernelParams = values;
  CUDA_MEMCPY3D copy = one_word(sums, in);
  Changed c = {};
  CHECK(cuGraphCreate(&c.graph, 0));
  CHECK(cuGraphAddKernelNode_v2(&c.kernel, c.graph, nullptr, 0, &kernel));
  CHECK(cuGraphAddMemcpyNode(&c.copy, c.graph, &c.kernel, 1, &copy, context));
  CHECK(cuGraphInstantiateWithFlags(&c.exec, c.graph, 0));
  for (long i = 0; i < steps; ++i) {
    in = data[i % 2];
    addend = static_cast<uint32_t>(i);
    copy = one_word(sums + static_cast<CUdeviceptr>(i) * 4, in + (kWords - 1) * 4);
    CHECK(cuGraphExecKernelNodeSetParams_v2(c.exec, c.kernel, &kernel));
    CHECK(cuGraphExecMemcpyNodeSetParams(c.exec, c.copy, &copy, context));
    CHECK(cuGraphLaunch(c.exec, stream));
    good = reader.read(sums + static_cast<CUdeviceptr>(i) * 4, stream) == addend && good;
  }
  CHECK(cuStreamSynchronize(stream));
  const std::vector<uint32_t> seen = program::download<uint32_t>(sums, static_cast<size_t>(steps));
  for (long i = 0; i < steps; ++i)
    good = good && seen[static_cast<size_t>(i)] == static_cast<uint32_t>(i);
  std::printf("checksum %016llx\n", static_cast<unsigned long long>(program::checksum(seen)));
  return program::finish(good);
}
