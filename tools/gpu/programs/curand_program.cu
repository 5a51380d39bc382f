// SPDX-License-Identifier: Apache-2.0
// cuRAND: three generators with fixed seeds. Their numbers are part of the library's contract, so
// the checksums are equal on every machine.
#include <cuda_runtime.h>
#include <curand.h>

#include "check.h"

int main() {
  const size_t n = 1 << 20;
  float* data;
  CHECK(cudaMalloc(&data, n * sizeof(float)));
  std::vector<float> host(n);
  bool good = true;
  for (curandRngType_t type :
       {CURAND_RNG_PSEUDO_PHILOX4_32_10, CURAND_RNG_PSEUDO_XORWOW, CURAND_RNG_PSEUDO_MTGP32}) {
    curandGenerator_t generator;
    CHECK(curandCreateGenerator(&generator, type));
    CHECK(curandSetPseudoRandomGeneratorSeed(generator, 1234));
    CHECK(curandGenerateUniform(generator, data, n));
    CHECK(cudaMemcpy(host.data(), data, n * sizeof(float), cudaMemcpyDeviceToHost));
    double mean = 0;
    for (float value : host) mean += value / n;
    good = good && std::fabs(mean - 0.5) < 0.01;
    std::printf("generator %d: uniform %016llx", static_cast<int>(type),
                static_cast<unsigned long long>(checksum(host)));
    CHECK(curandGenerateNormal(generator, data, n, 0, 1));
    CHECK(cudaMemcpy(host.data(), data, n * sizeof(float), cudaMemcpyDeviceToHost));
    std::printf(", normal %016llx\n", static_cast<unsigned long long>(checksum(host)));
    CHECK(curandDestroyGenerator(generator));
  }
  return finish(good);
}
