// SPDX-License-Identifier: Apache-2.0
// Memory and an event that two processes share by IPC handles. The second process is this program
// again, started with the handles as text. Each line says who printed it, in a fixed order.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "check.h"

namespace {

constexpr int kWords = 1 << 20;
constexpr size_t kBytes = kWords * sizeof(uint32_t);

__global__ void fill(uint32_t* data, uint32_t from) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = from + i;
}

__global__ void twice(uint32_t* data) { data[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }

__global__ void delay(long long cycles) {
  const long long begun = clock64();
  while (clock64() - begun < cycles) {
  }
}

std::string as_text(const void* bytes, size_t count) {
  std::string out;
  char two[3];
  for (size_t i = 0; i < count; i++) {
    std::snprintf(two, sizeof two, "%02x", static_cast<const uint8_t*>(bytes)[i]);
    out += two;
  }
  return out;
}

void from_text(const char* text, void* bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const char two[] = {text[2 * i], text[2 * i + 1], 0};
    static_cast<uint8_t*>(bytes)[i] = static_cast<uint8_t>(strtoul(two, nullptr, 16));
  }
}

uint64_t sum_of(const uint32_t* device) {
  std::vector<uint32_t> host(kWords);
  CHECK(cudaMemcpy(host.data(), device, kBytes, cudaMemcpyDeviceToHost));
  return checksum(host);
}

// The second process: waits for the event on the device, then changes the memory.
int second(const char* memory_text, const char* event_text) {
  cudaIpcMemHandle_t memory_handle;
  cudaIpcEventHandle_t event_handle;
  from_text(memory_text, &memory_handle, sizeof memory_handle);
  from_text(event_text, &event_handle, sizeof event_handle);
  uint32_t* data;
  cudaEvent_t event;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&data), memory_handle,
                             cudaIpcMemLazyEnablePeerAccess));
  CHECK(cudaIpcOpenEventHandle(&event, event_handle));
  CHECK(cudaStreamWaitEvent(stream, event, 0));
  twice<<<kWords / 256, 256, 0, stream>>>(data);
  CHECK(cudaStreamSynchronize(stream));
  std::printf("second: %016llx\n", static_cast<unsigned long long>(sum_of(data)));
  CHECK(cudaIpcCloseMemHandle(data));
  CHECK(cudaEventDestroy(event));
  return finish(true);
}

int run_second(const char* self, const std::string& memory, const std::string& event) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    execl(self, self, memory.c_str(), event.c_str(), nullptr);
    _exit(126);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return second(argv[1], argv[2]);
  uint32_t* data;
  cudaEvent_t event;
  cudaIpcMemHandle_t memory_handle;
  cudaIpcEventHandle_t event_handle;
  CHECK(cudaMalloc(&data, kBytes));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  CHECK(cudaIpcGetMemHandle(&memory_handle, data));
  CHECK(cudaIpcGetEventHandle(&event_handle, event));
  delay<<<1, 1>>>(1'000'000'000);
  fill<<<kWords / 256, 256>>>(data, 11);
  CHECK(cudaEventRecord(event));
  const int status = run_second("/proc/self/exe", as_text(&memory_handle, sizeof memory_handle),
                                as_text(&event_handle, sizeof event_handle));
  std::vector<uint32_t> host(kWords);
  CHECK(cudaMemcpy(host.data(), data, kBytes, cudaMemcpyDeviceToHost));
  const bool right = host[0] == 22 && host[kWords - 1] == 2u * (11 + kWords - 1);
  std::printf("first: %016llx, the second ended with %d\n",
              static_cast<unsigned long long>(checksum(host)), status);
  uint32_t* nothing;
  std::printf("one's own handle: %s\n", cudaGetErrorName(cudaIpcOpenMemHandle(
                                            reinterpret_cast<void**>(&nothing), memory_handle,
                                            cudaIpcMemLazyEnablePeerAccess)));
  cudaGetLastError();
  CHECK(cudaFree(data));
  return finish(right && status == 0);
}
