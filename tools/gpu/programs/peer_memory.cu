// SPDX-License-Identifier: Apache-2.0
// Two GPUs: copies between them, kernels of one in the memory of the other, events across them, and
// what is refused without peer access. Skipped on a machine with one GPU.
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kWords = 1 << 20;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
uint32_t* data[2];
cudaStream_t streams[2];

__global__ void fill(uint32_t* values, uint32_t from) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i] = from + i;
}

__global__ void add(uint32_t* to, const uint32_t* from) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] += from[i];
}

void say(const char* what, int device) {
  std::vector<uint32_t> host(kWords);
  CHECK(cudaSetDevice(device));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(host.data(), data[device], kBytes, cudaMemcpyDeviceToHost));
  std::printf("%s: %016llx\n", what, static_cast<unsigned long long>(checksum(host)));
}

void copies() {
  CHECK(cudaSetDevice(0));
  fill<<<kWords / 256, 256, 0, streams[0]>>>(data[0], 17);
  CHECK(cudaMemcpyPeerAsync(data[1], 1, data[0], 0, kBytes, streams[0]));
  CHECK(cudaStreamSynchronize(streams[0]));
  say("a peer copy", 1);
  CHECK(cudaMemcpy(data[0], data[1], kBytes / 2, cudaMemcpyDefault));
  say("a copy by address", 0);
}

void access() {
  for (int device = 0; device < 2; device++) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaDeviceEnablePeerAccess(1 - device, 0));
    std::printf("twice: %s\n", cudaGetErrorName(cudaDeviceEnablePeerAccess(1 - device, 0)));
    cudaGetLastError();
  }
  cudaEvent_t done[2];
  for (int device = 0; device < 2; device++) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaEventCreateWithFlags(&done[device], cudaEventDisableTiming));
  }
  for (int round = 0; round < 6; round++) {  // each adds the other's words to its own, in turns
    const int device = round % 2;
    CHECK(cudaSetDevice(device));
    if (round > 0) CHECK(cudaStreamWaitEvent(streams[device], done[1 - device], 0));
    add<<<kWords / 256, 256, 0, streams[device]>>>(data[device], data[1 - device]);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(done[device], streams[device]));
  }
  for (auto stream : streams) CHECK(cudaStreamSynchronize(stream));
  say("kernels in the other's memory", 0);
  say("kernels in the other's memory", 1);
  CHECK(cudaSetDevice(0));
  CHECK(cudaDeviceDisablePeerAccess(1));
  std::printf("disabled twice: %s\n", cudaGetErrorName(cudaDeviceDisablePeerAccess(1)));
  cudaGetLastError();
}

}  // namespace

int main() {
  int devices = 0, there = 0, back = 0;
  CHECK(cudaGetDeviceCount(&devices));
  if (devices < 2) skip("peer access needs two GPUs");
  CHECK(cudaDeviceCanAccessPeer(&there, 0, 1));
  CHECK(cudaDeviceCanAccessPeer(&back, 1, 0));
  std::printf("%d devices, access %d %d\n", devices, there, back);
  for (int device = 0; device < 2; device++) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&data[device], kBytes));
    CHECK(cudaMemset(data[device], device + 1, kBytes));
    CHECK(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
  }
  copies();
  if (there && back) access();
  cudaPointerAttributes is;
  CHECK(cudaPointerGetAttributes(&is, data[1]));
  std::printf("the second block lies on device %d\n", is.device);
  return finish(is.device == 1);
}
