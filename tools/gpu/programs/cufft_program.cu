// SPDX-License-Identifier: Apache-2.0
// cuFFT: complex transforms of several sizes forwards and backwards, a batch in a stream, a real
// transform in two dimensions. Prints checksums, and whether the way back gives the input.
#include <cuda_runtime.h>
#include <cufft.h>

#include "check.h"

namespace {

bool there_and_back(int n, int batch, cudaStream_t stream) {
  Numbers numbers(n);
  const size_t count = static_cast<size_t>(n) * batch;
  std::vector<cufftComplex> in(count), spectrum(count), out(count);
  for (auto& value : in)
    value = {static_cast<float>(numbers.next()), static_cast<float>(numbers.next())};
  cufftComplex* data;
  CHECK(cudaMalloc(&data, count * sizeof *data));
  cufftHandle plan;
  CHECK(cufftPlan1d(&plan, n, CUFFT_C2C, batch));
  CHECK(cufftSetStream(plan, stream));
  CHECK(cudaMemcpyAsync(data, in.data(), count * sizeof *data, cudaMemcpyHostToDevice, stream));
  CHECK(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
  CHECK(
      cudaMemcpyAsync(spectrum.data(), data, count * sizeof *data, cudaMemcpyDeviceToHost, stream));
  CHECK(cufftExecC2C(plan, data, data, CUFFT_INVERSE));
  CHECK(cudaMemcpyAsync(out.data(), data, count * sizeof *data, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  double worst = 0;
  for (size_t i = 0; i < count; i++)
    worst = std::fmax(
        worst, std::fmax(std::fabs(out[i].x / n - in[i].x), std::fabs(out[i].y / n - in[i].y)));
  const bool good = worst < 1e-4;
  std::printf("%d x %d: checksum %016llx, %s\n", batch, n,
              static_cast<unsigned long long>(checksum(spectrum)), good ? "right" : "WRONG");
  CHECK(cufftDestroy(plan));
  CHECK(cudaFree(data));
  return good;
}

bool real_plane() {
  const int rows = 512, columns = 640;
  Numbers numbers(9);
  const std::vector<float> in = numbers.many<float>(static_cast<size_t>(rows) * columns);
  std::vector<cufftComplex> spectrum(static_cast<size_t>(rows) * (columns / 2 + 1));
  float* image;
  cufftComplex* out;
  CHECK(cudaMalloc(&image, in.size() * sizeof(float)));
  CHECK(cudaMalloc(&out, spectrum.size() * sizeof *out));
  CHECK(cudaMemcpy(image, in.data(), in.size() * sizeof(float), cudaMemcpyHostToDevice));
  cufftHandle plan;
  CHECK(cufftPlan2d(&plan, rows, columns, CUFFT_R2C));
  CHECK(cufftExecR2C(plan, image, out));
  CHECK(cudaMemcpy(spectrum.data(), out, spectrum.size() * sizeof *out, cudaMemcpyDeviceToHost));
  double sum = 0;
  for (float value : in) sum += value;
  const bool good = std::fabs(spectrum[0].x - sum) < 1e-1;
  std::printf("plane: checksum %016llx, %s\n", static_cast<unsigned long long>(checksum(spectrum)),
              good ? "right" : "WRONG");
  CHECK(cufftDestroy(plan));
  return good;
}

}  // namespace

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  bool good = there_and_back(4096, 1, stream);
  good &= there_and_back(1000, 64, stream);
  good &= there_and_back(1 << 20, 1, stream);
  good &= there_and_back(10007, 3, stream);  // a prime
  good &= real_plane();
  return finish(good);
}
