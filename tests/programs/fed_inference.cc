// SPDX-License-Identifier: Apache-2.0
// The driver calls of one inference step whose images come from the host and whose answer goes back
// there, as PyTorch makes them: an asynchronous copy from pinned memory, launches on the default
// stream, and a copy into pageable memory, whose end is waited for three times. Beside it lives
// mapped pinned memory, as libraries have it for flags. For counting the cost of a step
// (tests/cost). Argument: steps (default 10).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

constexpr int kLaunches = 40;
constexpr size_t kImageBytes = 3 * 224 * 224;

struct Model {
  CUfunction affine = nullptr;
  CUdeviceptr image = 0, answers = 0;
  void* host = nullptr;
};

uint32_t step(const Model& model) {
  CHECK(cuMemcpyHtoDAsync(model.image, model.host, kImageBytes, nullptr));
  for (int i = 0; i < kLaunches; ++i) {
    CHECK(program::launch(model.affine, 1, 32, nullptr, model.answers, 1u, 1u, 32u));
  }
  uint32_t answer = 0;
  CHECK(cuMemcpyDtoHAsync(&answer, model.answers, 4, nullptr));
  CHECK(cuStreamSynchronize(nullptr));
  CHECK(cuCtxSynchronize());
  return answer;
}

}  // namespace

int main(int argc, char** argv) {
  const long steps = program::argument(argc, argv, 1, 10);
  program::use_device(0);
  Model model;
  void* flags = nullptr;
  CUdeviceptr mapped = 0;
  model.affine = program::load(kKernelsPtx, "affine");
  CHECK(cuMemAlloc(&model.image, kImageBytes));
  CHECK(cuMemAlloc(&model.answers, 128));
  CHECK(cuMemsetD32(model.answers, 0, 32));
  CHECK(cuMemAllocHost(&model.host, kImageBytes));
  std::memset(model.host, 1, kImageBytes);
  CHECK(cuMemHostAlloc(&flags, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CHECK(cuMemHostGetDevicePointer(&mapped, flags, 0));
  CHECK(cuCtxSynchronize());
  uint32_t answer = 0;
  for (long i = 0; i < steps; ++i) answer = step(model);
  std::printf("answer %u\n", answer);
  return program::finish(answer == static_cast<uint32_t>(steps * kLaunches));
}
