// SPDX-License-Identifier: Apache-2.0
// Host memory that the device reaches: mapped, registered, write-combined and managed; what pointer
// queries say of each; and pinned memory that read(2) writes.
#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

namespace {

constexpr int kWords = 1 << 18;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
bool good = true;

__global__ void step(uint32_t* data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = data[i] * 3 + 1;
}

void say(const char* what, const uint32_t* data, bool right = true) {
  std::printf("%s: %016llx%s\n", what, static_cast<unsigned long long>(checksum(data, kBytes)),
              right ? "" : " WRONG");
  good = good && right;
}

void describe(const char* what, const void* pointer) {
  cudaPointerAttributes is;
  CHECK(cudaPointerGetAttributes(&is, pointer));
  std::printf("%s is of type %d, device %d, host pointer %s, device pointer %s\n", what, is.type,
              is.type == cudaMemoryTypeUnregistered ? -1 : is.device,
              is.hostPointer == pointer ? "itself" : (is.hostPointer ? "another" : "none"),
              is.devicePointer == pointer ? "itself" : (is.devicePointer ? "another" : "none"));
}

void mapped() {
  uint32_t *host, *device;
  CHECK(cudaHostAlloc(&host, kBytes, cudaHostAllocMapped | cudaHostAllocPortable));
  CHECK(cudaHostGetDevicePointer(&device, host, 0));
  unsigned flags = 0;
  CHECK(cudaHostGetFlags(&flags, host));
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < kWords; i++) host[i] += i;
    step<<<kWords / 256, 256>>>(device, kWords);
    CHECK(cudaDeviceSynchronize());
  }
  std::printf("mapped at the same address: %s, flags %u\n", host == device ? "yes" : "no", flags);
  describe("mapped memory", host);
  say("mapped", host, host[1] == ((1 * 3 + 1 + 1) * 3 + 1 + 1) * 3 + 1);
  CHECK(cudaFreeHost(host));
}

void registered() {
  auto* host = static_cast<uint32_t*>(
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (int i = 0; i < kWords; i++) host[i] = i;
  describe("plain memory", host);
  CHECK(cudaHostRegister(host, kBytes, cudaHostRegisterMapped));
  describe("registered memory", host);
  std::printf("registered twice: %s\n",
              cudaGetErrorName(cudaHostRegister(host, kBytes, cudaHostRegisterDefault)));
  cudaGetLastError();
  uint32_t* device;
  CHECK(cudaHostGetDevicePointer(&device, host, 0));
  step<<<kWords / 256, 256>>>(device, kWords);
  CHECK(cudaDeviceSynchronize());
  say("registered", host, host[10] == 31);
  CHECK(cudaHostUnregister(host));
  std::printf("unregistered twice: %s\n", cudaGetErrorName(cudaHostUnregister(host)));
  cudaGetLastError();
  munmap(host, kBytes);
}

// The operating system writes pinned memory. No store of this program shows it.
void written_by_read() {
  char name[] = "/tmp/host-memory-XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  uint32_t *host, *device, *copy;
  CHECK(cudaHostAlloc(&host, kBytes, cudaHostAllocMapped));
  CHECK(cudaMalloc(&copy, kBytes));
  CHECK(cudaHostGetDevicePointer(&device, host, 0));
  std::vector<uint32_t> words(kWords);
  for (int round = 1; round <= 3; round++) {
    for (int i = 0; i < kWords; i++) words[i] = i * round;
    CHECK(pwrite(file, words.data(), kBytes, 0) != static_cast<ssize_t>(kBytes));
    CHECK(pread(file, host, kBytes, 0) != static_cast<ssize_t>(kBytes));
    step<<<kWords / 256, 256>>>(device, kWords);
    CHECK(cudaMemcpy(copy, device, kBytes, cudaMemcpyDefault));
    CHECK(cudaMemcpy(words.data(), copy, kBytes, cudaMemcpyDeviceToHost));
    say("read(2) into mapped memory", words.data(), words[7] == 7u * round * 3 + 1);
    CHECK(pwrite(file, host, kBytes, 0) != static_cast<ssize_t>(kBytes));
    CHECK(pread(file, words.data(), kBytes, 0) != static_cast<ssize_t>(kBytes));
    say("write(2) out of it", words.data(), words[7] == 7u * round * 3 + 1);
  }
  close(file);
  CHECK(cudaFreeHost(host));
  CHECK(cudaFree(copy));
}

void managed() {
  uint32_t* data;
  CHECK(cudaMallocManaged(&data, kBytes));
  describe("managed memory", data);
  for (int i = 0; i < kWords; i++) data[i] = i;
  for (int round = 0; round < 3; round++) {
    step<<<kWords / 256, 256>>>(data, kWords);
    CHECK(cudaDeviceSynchronize());
    data[round] = 1000;
  }
  step<<<kWords / 256, 256>>>(data, kWords);
  CHECK(cudaDeviceSynchronize());
  say("managed", data, data[2] == 3001);
  CHECK(cudaMemset(data, 7, kBytes));
  CHECK(cudaDeviceSynchronize());
  say("managed, set", data, data[5] == 0x07070707);
  CHECK(cudaFree(data));
}

void managed_hints() {
  uint32_t* data;
  int concurrent = 0;
  CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
  CHECK(cudaMallocManaged(&data, kBytes));
  for (int i = 0; i < kWords; i++) data[i] = i;
  const cudaMemLocation there = {cudaMemLocationTypeDevice, 0}, here = {cudaMemLocationTypeHost, 0};
  const cudaError_t advised = cudaMemAdvise(data, kBytes, cudaMemAdviseSetReadMostly, there);
  const cudaError_t fetched = cudaMemPrefetchAsync(data, kBytes, there, 0, 0);
  step<<<kWords / 256, 256>>>(data, kWords);
  const cudaError_t back = cudaMemPrefetchAsync(data, kBytes, here, 0, 0);
  CHECK(cudaDeviceSynchronize());
  std::printf("concurrent access %d, hints: %s %s %s\n", concurrent, cudaGetErrorName(advised),
              cudaGetErrorName(fetched), cudaGetErrorName(back));
  say("managed with hints", data, data[4] == 13);
  CHECK(cudaFree(data));
}

void write_combined() {
  uint32_t *host, *device;
  CHECK(cudaHostAlloc(&host, kBytes, cudaHostAllocWriteCombined));
  CHECK(cudaMalloc(&device, kBytes));
  for (int i = 0; i < kWords; i++) host[i] = i;
  CHECK(cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice));
  step<<<kWords / 256, 256>>>(device, kWords);
  std::vector<uint32_t> out(kWords);
  CHECK(cudaMemcpy(out.data(), device, kBytes, cudaMemcpyDeviceToHost));
  say("write-combined", out.data(), out[100] == 301);
  describe("device memory", device + 10);
  CHECK(cudaFree(device));
  CHECK(cudaFreeHost(host));
}

}  // namespace

int main() {
  mapped();
  registered();
  written_by_read();
  managed();
  managed_hints();
  write_combined();
  return finish(good);
}
