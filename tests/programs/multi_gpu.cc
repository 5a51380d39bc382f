// SPDX-License-Identifier: Apache-2.0
// Uses every device it sees: each computes on its own data, then the data goes around all devices
// by peer copies, one step of work on each, and is checked at the end. Prints names and identities,
// so runs on different devices differ. Argument: words (16384).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

struct Gpu {
  CUcontext context;
  CUfunction affine;
  CUdeviceptr data;
};

Gpu open(int ordinal, uint32_t words) {
  Gpu gpu;
  gpu.context = program::use_device(ordinal);
  gpu.affine = program::load(kKernelsPtx, "affine");
  CHECK(cuMemAlloc(&gpu.data, words * 4));
  char name[256];
  CHECK(cuDeviceGetName(name, sizeof name, ordinal));
  std::printf("device %d: %s\n", ordinal, name);
  return gpu;
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t words = static_cast<uint32_t>(program::argument(argc, argv, 1, 16384));
  int count = 0;
  CHECK(cuInit(0));
  CHECK(cuDeviceGetCount(&count));
  std::vector<Gpu> gpus;
  for (int i = 0; i < count; i++) gpus.push_back(open(i, words));

  std::vector<uint32_t> host(words);
  for (uint32_t i = 0; i < words; i++) host[i] = i;
  CHECK(cuCtxSetCurrent(gpus[0].context));
  CHECK(cuMemcpyHtoD(gpus[0].data, host.data(), words * 4));
  for (int i = 0; i < count; i++) {
    CHECK(cuCtxSetCurrent(gpus[i].context));
    CHECK(program::launch(gpus[i].affine, (words + 255) / 256, 256, nullptr, gpus[i].data, 3u,
                          static_cast<uint32_t>(i), words));
    CHECK(cuCtxSynchronize());
    if (i + 1 < count) {
      CHECK(cuMemcpyPeer(gpus[i + 1].data, gpus[i + 1].context, gpus[i].data, gpus[i].context,
                         words * 4));
      CHECK(cuCtxSynchronize());
    }
  }
  const std::vector<uint32_t> result = program::download<uint32_t>(gpus[count - 1].data, words);
  uint32_t wrong = 0;
  for (uint32_t k = 0; k < words; k++) {
    uint32_t expected = k;
    for (int i = 0; i < count; i++) expected = expected * 3 + static_cast<uint32_t>(i);
    wrong += result[k] != expected;
  }
  std::printf("multi_gpu: %d devices, %u words, %u wrong, checksum %016llx\n", count, words, wrong,
              static_cast<unsigned long long>(program::checksum(result)));
  return program::finish(wrong == 0);
}
