// SPDX-License-Identifier: Apache-2.0
// The smallest complete CUDA program: adds two vectors and checks every element. Argument: number
// of elements (default 100000).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

int main(int argc, char** argv) {
  const uint32_t n = static_cast<uint32_t>(program::argument(argc, argv, 1, 100000));
  program::use_device(0);
  CUfunction add = program::load(kKernelsPtx, "vector_add");
  std::vector<float> a(n), b(n);
  for (uint32_t i = 0; i < n; i++) {
    a[i] = static_cast<float>(i % 1000);
    b[i] = static_cast<float>(i % 777) * 2;
  }
  CUdeviceptr da = program::upload(a), db = program::upload(b), dc;
  CHECK(cuMemAlloc(&dc, n * sizeof(float)));
  CHECK(program::launch(add, (n + 255) / 256, 256, nullptr, da, db, dc, n));
  const std::vector<float> c = program::download<float>(dc, n);
  uint32_t wrong = 0;
  for (uint32_t i = 0; i < n; i++) wrong += c[i] != a[i] + b[i];
  std::printf("vector_add: %u elements, %u wrong, checksum %016llx\n", n, wrong,
              static_cast<unsigned long long>(program::checksum(c)));
  CHECK(cuMemFree(da));
  CHECK(cuMemFree(db));
  CHECK(cuMemFree(dc));
  return program::finish(wrong == 0);
}
