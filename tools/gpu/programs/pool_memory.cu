// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation: the default pool and one of our own, its attributes and what trimming
// leaves, reuse across streams, allocation in a captured graph.
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr size_t kBytes = 8 << 20;
bool good = true;

__global__ void fill(uint32_t* data, uint32_t value, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = value + i;
}

uint64_t attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
  uint64_t value = 0;
  CHECK(cudaMemPoolGetAttribute(pool, which, &value));
  return value;
}

void figures(const char* what, cudaMemPool_t pool) {
  std::printf("%s: used %llu MiB, reserved %s, most used %llu MiB\n", what,
              static_cast<unsigned long long>(attribute(pool, cudaMemPoolAttrUsedMemCurrent) >> 20),
              attribute(pool, cudaMemPoolAttrReservedMemCurrent) ? "some" : "none",
              static_cast<unsigned long long>(attribute(pool, cudaMemPoolAttrUsedMemHigh) >> 20));
}

void use(cudaMemPool_t pool, cudaStream_t stream, const char* what) {
  uint32_t* blocks[4];
  const int n = kBytes / 4;
  std::vector<uint32_t> host(n);
  uint64_t sum = 0;
  for (int round = 0; round < 4; round++)
    CHECK(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&blocks[round]), kBytes, pool, stream));
  figures(what, pool);
  for (int round = 0; round < 4; round++) {
    fill<<<n / 256, 256, 0, stream>>>(blocks[round], round * 1000, n);
    CHECK(cudaMemcpyAsync(host.data(), blocks[round], kBytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    sum = sum * 31 + checksum(host);
    CHECK(cudaFreeAsync(blocks[round], stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  std::printf("%s: %016llx\n", what, static_cast<unsigned long long>(sum));
  figures(what, pool);
}

void own_pool(cudaStream_t stream) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool;
  CHECK(cudaMemPoolCreate(&pool, &properties));
  uint64_t keep = UINT64_MAX;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  std::printf("kept: %s\n",
              attribute(pool, cudaMemPoolAttrReleaseThreshold) == keep ? "all" : "less");
  use(pool, stream, "a pool of our own");
  const bool kept = attribute(pool, cudaMemPoolAttrReservedMemCurrent) > 0;
  CHECK(cudaMemPoolTrimTo(pool, 0));
  const bool trimmed = attribute(pool, cudaMemPoolAttrReservedMemCurrent) == 0;
  std::printf("kept until trimmed: %s\n", kept && trimmed ? "yes" : "NO");
  good = good && kept && trimmed;
  uint32_t* block;
  CHECK(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&block), 1 << 20, pool, stream));
  CHECK(cudaFree(block));  // an ordinary free takes it too
  CHECK(cudaMemPoolDestroy(pool));
}

// Freed on one stream, taken by another that waits for an event of the first.
void across_streams(cudaStream_t one) {
  cudaStream_t two;
  cudaEvent_t freed;
  CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&freed, cudaEventDisableTiming));
  const int n = kBytes / 4;
  std::vector<uint32_t> host(n);
  uint64_t sum = 0;
  for (int round = 0; round < 20; round++) {
    uint32_t* block;
    CHECK(cudaMallocAsync(&block, kBytes, one));
    fill<<<n / 256, 256, 0, one>>>(block, round, n);
    CHECK(cudaEventRecord(freed, one));
    CHECK(cudaStreamWaitEvent(two, freed, 0));
    CHECK(cudaMemcpyAsync(host.data(), block, kBytes, cudaMemcpyDeviceToHost, two));
    CHECK(cudaFreeAsync(block, two));
    CHECK(cudaEventRecord(freed, two));
    CHECK(cudaStreamWaitEvent(one, freed, 0));
    CHECK(cudaStreamSynchronize(two));
    sum = sum * 31 + checksum(host);
  }
  std::printf("across streams: %016llx\n", static_cast<unsigned long long>(sum));
  CHECK(cudaStreamDestroy(two));
}

void in_a_graph(cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  uint32_t *block, *result;
  const int n = kBytes / 4;
  CHECK(cudaMalloc(&result, kBytes));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMallocAsync(&block, kBytes, stream));
  fill<<<n / 256, 256, 0, stream>>>(block, 42, n);
  CHECK(cudaMemcpyAsync(result, block, kBytes, cudaMemcpyDeviceToDevice, stream));
  CHECK(cudaFreeAsync(block, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&ready, graph, 0));
  for (int round = 0; round < 5; round++) CHECK(cudaGraphLaunch(ready, stream));
  std::vector<uint32_t> host(n);
  CHECK(cudaMemcpyAsync(host.data(), result, kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::printf("in a graph: %016llx\n", static_cast<unsigned long long>(checksum(host)));
  good = good && host[0] == 42 && host[n - 1] == 42u + n - 1;
  CHECK(cudaGraphExecDestroy(ready));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaDeviceGraphMemTrim(0));
}

}  // namespace

int main() {
  cudaStream_t stream;
  cudaMemPool_t pool, current;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  CHECK(cudaDeviceGetMemPool(&current, 0));
  std::printf("the default pool is the current one: %s\n", pool == current ? "yes" : "no");
  use(pool, stream, "the default pool");
  own_pool(stream);
  across_streams(stream);
  in_a_graph(stream);
  void* far;
  std::printf("too much: %s\n", cudaGetErrorName(cudaMallocAsync(&far, size_t{1} << 50, stream)));
  std::printf("then: %s\n", cudaGetErrorName(cudaGetLastError()));
  CHECK(cudaStreamSynchronize(stream));
  return finish(good);
}
