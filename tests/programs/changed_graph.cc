// SPDX-License-Identifier: Apache-2.0
// A graph whose nodes get other memory and other values before each launch, as XLA does it: a kernel, then a copy of what it made. For
// counting what the changes cost (tests/cost). Argument: steps (default 10).
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
  }
  CHECK(cuStreamSynchronize(stream));
  const std::vector<uint32_t> seen = program::download<uint32_t>(sums, static_cast<size_t>(steps));
  bool good = true;
  for (long i = 0; i < steps; ++i) good = good && seen[static_cast<size_t>(i)] == static_cast<uint32_t>(i);
  std::printf("checksum %016llx\n", static_cast<unsigned long long>(program::checksum(seen)));
  return program::finish(good);
}
