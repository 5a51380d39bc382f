// SPDX-License-Identifier: Apache-2.0
// Square matrix product with 16 x 16 tiles in shared memory, checked against the host. Argument: n
// (multiple of 16, default 128).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

int main(int argc, char** argv) {
  const uint32_t n = static_cast<uint32_t>(program::argument(argc, argv, 1, 128));
  if (n == 0 || n % 16) program::fail("n must be a multiple of 16");
  program::use_device(0);
  CUfunction multiply = program::load(kKernelsPtx, "matrix_multiply");
  // Small integers, so that float sums are exact in any order.
  std::vector<float> a(n * n), b(n * n);
  for (uint32_t i = 0; i < n * n; i++) {
    a[i] = static_cast<float>(i % 7) - 3;
    b[i] = static_cast<float>(i % 5) - 2;
  }
  CUdeviceptr da = program::upload(a), db = program::upload(b), dc;
  CHECK(cuMemAlloc(&dc, n * n * sizeof(float)));
  CHECK(program::launch(multiply, n / 16 * (n / 16), 256, nullptr, da, db, dc, n));
  const std::vector<float> c = program::download<float>(dc, n * n);
  uint32_t wrong = 0;
  for (uint32_t row = 0; row < n; row++) {
    for (uint32_t column = 0; column < n; column++) {
      float sum = 0;
      for (uint32_t k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
      wrong += c[row * n + column] != sum;
    }
  }
  std::printf("matrix_multiply: %u x %u, %u wrong, checksum %016llx\n", n, n, wrong,
              static_cast<unsigned long long>(program::checksum(c)));
  return program::finish(wrong == 0);
}
