// SPDX-License-Identifier: Apache-2.0
// The runtime API with the shared CUDA runtime: pinned memory, streams with events between them,
// stream-ordered allocation, a host function, a captured graph launched many times, printf and
// cooperative launch, occupancy and function attributes.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kWords = 1 << 20;
constexpr int kStreams = 4;

__global__ void step(uint32_t* data, int n, uint32_t add) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = data[i] * 1664525u + add;
}

__global__ void total(const uint32_t* data, int n, unsigned long long* out) {
  auto grid = cooperative_groups::this_grid();
  if (grid.thread_rank() == 0) *out = 0;
  grid.sync();
  unsigned long long sum = 0;
  for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size()) sum += data[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}

__global__ void speak(int who) { printf("kernel %d says hello\n", who); }

void CUDART_CB count_host_call(void* counter) { ++*static_cast<int*>(counter); }

uint32_t* pinned;
cudaStream_t streams[kStreams];

// Each stream owns a quarter of the words; the last waits for the others.
void overlap(uint32_t* device) {
  const int part = kWords / kStreams;
  for (int s = 0; s < kStreams; s++) {
    const size_t at = static_cast<size_t>(s) * part, bytes = part * sizeof(uint32_t);
    CHECK(cudaMemcpyAsync(device + at, pinned + at, bytes, cudaMemcpyHostToDevice, streams[s]));
    for (int round = 0; round < 10; round++)
      step<<<part / 256, 256, 0, streams[s]>>>(device + at, part, s + round);
    CHECK(cudaGetLastError());
  }
  for (int s = 0; s + 1 < kStreams; s++) {
    cudaEvent_t done;
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CHECK(cudaEventRecord(done, streams[s]));
    CHECK(cudaStreamWaitEvent(streams[kStreams - 1], done, 0));
    CHECK(cudaEventDestroy(done));
  }
}

unsigned long long sum_on(cudaStream_t stream, const uint32_t* device) {
  unsigned long long* sum;
  CHECK(cudaMallocAsync(&sum, sizeof *sum, stream));
  int n = kWords, blocks = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, total, 256, 0));
  std::printf("%d blocks of 256 threads fit a multiprocessor\n", blocks);
  void* arguments[] = {&device, &n, &sum};
  CHECK(cudaLaunchCooperativeKernel(total, dim3(64), dim3(256), arguments, 0, stream));
  unsigned long long result = 0;
  CHECK(cudaMemcpyAsync(&result, sum, sizeof result, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaFreeAsync(sum, stream));
  CHECK(cudaStreamSynchronize(stream));
  return result;
}

void replay(uint32_t* device) {
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < 20; i++) step<<<kWords / 256, 256, 0, streams[0]>>>(device, kWords, i);
  CHECK(cudaStreamEndCapture(streams[0], &graph));
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  std::printf("graph of %zu nodes\n", nodes);
  CHECK(cudaGraphInstantiate(&ready, graph, 0));
  for (int i = 0; i < 50; i++) CHECK(cudaGraphLaunch(ready, streams[0]));
  CHECK(cudaStreamSynchronize(streams[0]));
  CHECK(cudaGraphExecDestroy(ready));
  CHECK(cudaGraphDestroy(graph));
}

}  // namespace

int main() {
  uint32_t* device;
  CHECK(cudaMallocHost(&pinned, kWords * sizeof(uint32_t)));
  CHECK(cudaMalloc(&device, kWords * sizeof(uint32_t)));
  for (int i = 0; i < kWords; i++) pinned[i] = i;
  for (auto& stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  overlap(device);
  std::printf("sum after the streams %llu\n", sum_on(streams[kStreams - 1], device));
  int calls = 0;
  for (auto& stream : streams) CHECK(cudaLaunchHostFunc(stream, count_host_call, &calls));
  CHECK(cudaDeviceSynchronize());
  std::printf("%d host functions ran\n", calls);
  replay(device);
  CHECK(cudaMemcpy(pinned, device, kWords * sizeof(uint32_t), cudaMemcpyDeviceToHost));
  std::printf("checksum %016llx\n",
              static_cast<unsigned long long>(checksum(pinned, kWords * sizeof(uint32_t))));
  for (int i = 0; i < 3; i++) speak<<<1, 1>>>(i);
  CHECK(cudaDeviceSynchronize());
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, step));
  std::printf("at most %d threads a block\n", attributes.maxThreadsPerBlock);
  return finish(calls == kStreams);
}
