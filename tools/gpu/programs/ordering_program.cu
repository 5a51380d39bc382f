// SPDX-License-Identifier: Apache-2.0
// Orders that are easy to get wrong: pinned memory that the device fills and reads again, host
// functions between copies, events across streams and threads, copies in a capture, the legacy
// default stream, memory that the host changes as soon as it may.
#include <cuda_runtime.h>

#include <thread>

#include "check.h"

namespace {

constexpr int kWords = 1 << 20;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr int kBlocks = kWords / 256;
constexpr long long kDelayCycles = 10'000'000;  // some ms: what does not wait is seen

uint32_t *device, *other, *pinned;
cudaStream_t one, two;
bool good = true;

__global__ void delay(long long cycles) {
  const long long begun = clock64();
  while (clock64() - begun < cycles) {
  }
}

__global__ void fill(uint32_t* data, uint32_t from) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = from + i;
}

__global__ void step(uint32_t* data) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = data[i] * 3 + 1;
}

void say(const char* what, const void* data) {
  std::vector<uint32_t> host(kWords);
  CHECK(cudaMemcpy(host.data(), data, kBytes, cudaMemcpyDefault));
  std::printf("%s: %016llx\n", what, static_cast<unsigned long long>(checksum(host)));
}

void expect(const char* what, const uint32_t* data, uint32_t first, uint32_t last) {
  std::vector<uint32_t> host(kWords);
  CHECK(cudaMemcpy(host.data(), data, kBytes, cudaMemcpyDefault));
  const bool right = host.front() == first && host.back() == last;
  std::printf("%s: %016llx %s\n", what, static_cast<unsigned long long>(checksum(host)),
              right ? "right" : "WRONG");
  good = good && right;
}

// DtoH into pinned memory, then HtoD from it on the same stream. Nobody waits.
void there_and_back() {
  delay<<<1, 1, 0, one>>>(kDelayCycles);
  fill<<<kBlocks, 256, 0, one>>>(device, 0);
  for (int round = 0; round < 8; round++) {
    step<<<kBlocks, 256, 0, one>>>(device);
    CHECK(cudaMemcpyAsync(pinned, device, kBytes, cudaMemcpyDeviceToHost, one));
    CHECK(cudaMemcpyAsync(device, pinned, kBytes, cudaMemcpyHostToDevice, one));
  }
  CHECK(cudaMemcpyAsync(other, pinned, kBytes, cudaMemcpyHostToDevice, one));
  CHECK(cudaStreamSynchronize(one));
  uint32_t first = 0, last = kWords - 1;
  for (int round = 0; round < 8; round++) first = first * 3 + 1, last = last * 3 + 1;
  expect("there and back, device", device, first, last);
  expect("there and back, other", other, first, last);
  expect("there and back, pinned", pinned, first, last);
}

void CUDART_CB fill_pinned(void* from) {
  for (int i = 0; i < kWords; i++) pinned[i] = *static_cast<uint32_t*>(from) + i;
}

void CUDART_CB double_pinned(void*) {
  for (int i = 0; i < kWords; i++) pinned[i] *= 2;
}

// Host functions write what the next copy takes, and see what the copy before brought.
void host_functions() {
  static uint32_t from = 1000;
  CHECK(cudaMemsetAsync(device, 0, kBytes, one));
  CHECK(cudaLaunchHostFunc(one, fill_pinned, &from));
  CHECK(cudaMemcpyAsync(device, pinned, kBytes, cudaMemcpyHostToDevice, one));
  step<<<kBlocks, 256, 0, one>>>(device);
  CHECK(cudaMemcpyAsync(pinned, device, kBytes, cudaMemcpyDeviceToHost, one));
  CHECK(cudaLaunchHostFunc(one, double_pinned, nullptr));
  CHECK(cudaMemcpyAsync(other, pinned, kBytes, cudaMemcpyHostToDevice, one));
  CHECK(cudaStreamSynchronize(one));
  expect("host functions", other, 2 * 3001, 2 * ((1000 + kWords - 1) * 3 + 1));
}

// A wait takes the record that was there at the call, not a later one.
void events() {
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaEventQuery(event));  // never recorded: complete
  fill<<<kBlocks, 256, 0, one>>>(device, 5);
  CHECK(cudaEventRecord(event, one));
  CHECK(cudaStreamWaitEvent(two, event, 0));
  delay<<<1, 1, 0, one>>>(100 * kDelayCycles);
  CHECK(cudaEventRecord(event, one));
  CHECK(cudaMemcpyAsync(pinned, device, kBytes, cudaMemcpyDeviceToHost, two));
  CHECK(cudaStreamSynchronize(two));
  const cudaError_t later = cudaEventQuery(event);
  std::printf("the later record while its stream is busy: %s\n", cudaGetErrorName(later));
  good = good && later == cudaErrorNotReady;
  CHECK(cudaEventSynchronize(event));
  CHECK(cudaEventDestroy(event));
  expect("event", pinned, 5, 5 + kWords - 1);
}

// Another thread waits for this thread's work, and passes its own work back.
void threads() {
  cudaEvent_t ready, done;
  CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  delay<<<1, 1, 0, one>>>(kDelayCycles);
  fill<<<kBlocks, 256, 0, one>>>(device, 9);
  CHECK(cudaEventRecord(ready, one));
  std::thread helper([&] {
    CHECK(cudaStreamWaitEvent(two, ready, 0));
    step<<<kBlocks, 256, 0, two>>>(device);
    CHECK(cudaEventRecord(done, two));
  });
  helper.join();
  CHECK(cudaStreamWaitEvent(one, done, 0));
  CHECK(cudaMemcpyAsync(pinned, device, kBytes, cudaMemcpyDeviceToHost, one));
  CHECK(cudaStreamSynchronize(one));
  expect("threads", pinned, 28, (9 + kWords - 1) * 3 + 1);
  CHECK(cudaEventDestroy(ready));
  CHECK(cudaEventDestroy(done));
}

// Eight threads, each with a stream. The sum does not depend on their order.
void many_threads() {
  CHECK(cudaMemset(device, 0, kBytes));
  CHECK(cudaDeviceSynchronize());  // the streams below do not wait for the default stream
  std::vector<std::thread> workers;
  for (uint32_t number = 0; number < 8; number++) {
    workers.emplace_back([number] {
      const int part = kWords / 8;
      uint32_t* mine = device + number * part;
      cudaStream_t stream;
      CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      fill<<<part / 256, 256, 0, stream>>>(mine, number);
      for (int round = 0; round < 200; round++) step<<<part / 256, 256, 0, stream>>>(mine);
      CHECK(cudaStreamSynchronize(stream));
      CHECK(cudaStreamDestroy(stream));
    });
  }
  for (std::thread& worker : workers) worker.join();
  say("many threads", device);
}

// Copies in a graph read the pinned memory when the graph runs, not when it was captured.
void capture() {
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  cudaEvent_t fork, join;
  CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
  CHECK(cudaMemcpyAsync(device, pinned, kBytes, cudaMemcpyHostToDevice, one));
  CHECK(cudaEventRecord(fork, one));
  CHECK(cudaStreamWaitEvent(two, fork, 0));
  CHECK(cudaMemcpyAsync(other, device, kBytes, cudaMemcpyDeviceToDevice, two));
  CHECK(cudaEventRecord(join, two));
  CHECK(cudaStreamWaitEvent(one, join, 0));
  step<<<kBlocks, 256, 0, one>>>(device);
  CHECK(cudaMemcpyAsync(pinned, device, kBytes, cudaMemcpyDeviceToHost, one));
  CHECK(cudaLaunchHostFunc(one, double_pinned, nullptr));
  CHECK(cudaStreamEndCapture(one, &graph));
  CHECK(cudaGraphInstantiate(&ready, graph, 0));
  for (int i = 0; i < kWords; i++) pinned[i] = i;
  for (int round = 0; round < 3; round++) CHECK(cudaGraphLaunch(ready, one));
  CHECK(cudaStreamSynchronize(one));
  pinned[0] = 77;
  CHECK(cudaGraphLaunch(ready, one));
  CHECK(cudaStreamSynchronize(one));
  uint32_t last = kWords - 1;
  for (int round = 0; round < 4; round++) last = 2 * (last * 3 + 1);
  expect("capture, pinned", pinned, 2 * (77 * 3 + 1), last);
  say("capture, other", other);
  CHECK(cudaGraphExecDestroy(ready));
  CHECK(cudaGraphDestroy(graph));
}

// The legacy default stream waits for blocking streams, and they wait for it.
void legacy_stream() {
  cudaStream_t blocking;
  CHECK(cudaStreamCreate(&blocking));
  delay<<<1, 1, 0, blocking>>>(kDelayCycles);
  fill<<<kBlocks, 256, 0, blocking>>>(device, 3);
  step<<<kBlocks, 256>>>(device);
  step<<<kBlocks, 256, 0, blocking>>>(device);
  CHECK(cudaMemcpy(pinned, device, kBytes, cudaMemcpyDeviceToHost));
  expect("legacy default stream", pinned, 31, ((3 + kWords - 1) * 3 + 1) * 3 + 1);
  CHECK(cudaStreamDestroy(blocking));
}

// The caller may use pageable memory again when the call returns. Its copies keep their order.
void pageable() {
  std::vector<uint32_t> host(kWords);
  delay<<<1, 1, 0, one>>>(kDelayCycles);
  for (uint32_t round = 0; round < 4; round++) {
    for (uint32_t& word : host) word = round + 1;
    CHECK(cudaMemcpyAsync(round % 2 ? other : device, host.data(), kBytes, cudaMemcpyHostToDevice,
                          one));
  }
  for (uint32_t& word : host) word = 99;
  CHECK(cudaMemcpyAsync(host.data(), device, kBytes, cudaMemcpyDeviceToHost, one));
  CHECK(cudaStreamSynchronize(one));
  expect("pageable, one", host.data(), 3, 3);
  expect("pageable, other", other, 4, 4);
}

}  // namespace

int main() {
  CHECK(cudaMalloc(&device, kBytes));
  CHECK(cudaMalloc(&other, kBytes));
  CHECK(cudaMallocHost(&pinned, kBytes));
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  there_and_back();
  host_functions();
  events();
  threads();
  many_threads();
  capture();
  legacy_stream();
  pageable();
  CHECK(cudaDeviceSynchronize());
  return finish(good);
}
