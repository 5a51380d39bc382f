// SPDX-License-Identifier: Apache-2.0
// The driver calls of one step of a training loop, without the arithmetic: a batch from pinned
// memory, launches on two streams that events order, memory in stream order, and a loss that is
// read back. For counting the cost of a step (tests/cost). Argument: steps (default 10).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

constexpr int kLaunches = 40;
constexpr size_t kBatchBytes = 256 << 10;

struct Loop {
  CUfunction affine = nullptr;
  CUstream compute = nullptr, copying = nullptr;
  CUevent copied = nullptr, done = nullptr;
  CUdeviceptr batch = 0, weights = 0;
  void* host = nullptr;
};

uint32_t step(Loop& loop) {
  CHECK(cuMemcpyHtoDAsync(loop.batch, loop.host, kBatchBytes, loop.copying));
  CHECK(cuEventRecord(loop.copied, loop.copying));
  CHECK(cuStreamWaitEvent(loop.compute, loop.copied, 0));
  CUdeviceptr activations;
  CHECK(cuMemAllocAsync(&activations, 1 << 20, loop.compute));
  CHECK(cuMemsetD8Async(activations, 0, 1 << 20, loop.compute));
  for (int i = 0; i < kLaunches; ++i) {
    CHECK(program::launch(loop.affine, 1, 32, loop.compute, loop.weights, 1u, 1u, 32u));
  }
  CHECK(cuMemFreeAsync(activations, loop.compute));
  CHECK(cuEventRecord(loop.done, loop.compute));
  CHECK(cuStreamWaitEvent(loop.copying, loop.done, 0));
  uint32_t loss = 0;
  CHECK(cuMemcpyDtoHAsync(&loss, loop.weights, 4, loop.compute));
  CHECK(cuStreamSynchronize(loop.compute));
  CHECK(cuEventQuery(loop.done));
  return loss;
}

}  // namespace

int main(int argc, char** argv) {
  const long steps = program::argument(argc, argv, 1, 10);
  program::use_device(0);
  Loop loop;
  loop.affine = program::load(kKernelsPtx, "affine");
  CHECK(cuStreamCreate(&loop.compute, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&loop.copying, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&loop.copied, CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventCreate(&loop.done, CU_EVENT_DISABLE_TIMING));
  CHECK(cuMemAlloc(&loop.batch, kBatchBytes));
  CHECK(cuMemAlloc(&loop.weights, 128));
  CHECK(cuMemsetD32(loop.weights, 0, 32));
  CHECK(cuMemAllocHost(&loop.host, kBatchBytes));
  std::memset(loop.host, 1, kBatchBytes);
  CHECK(cuCtxSynchronize());
  uint32_t loss = 0, expected = 0;
  for (long i = 0; i < steps; ++i) {
    loss = step(loop);
    for (int launch = 0; launch < kLaunches; ++launch) expected = expected * 1 + 1;
  }
  std::printf("loss %u\n", loss);
  return program::finish(loss == expected);
}
