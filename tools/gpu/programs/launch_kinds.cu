// SPDX-License-Identifier: Apache-2.0
// Launches that are more than a grid: cooperative, thread block clusters with distributed shared
// memory, programmatic dependent launch, priorities, much dynamic shared memory, large parameters.
// And what occupancy says of them.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace {

namespace groups = cooperative_groups;
constexpr int kWords = 1 << 16;
uint32_t* data;
bool good = true;

// Each round writes one half from the other half, which the whole grid has finished by then.
__global__ void rounds(uint32_t* values, int half, int times) {
  const groups::grid_group grid = groups::this_grid();
  for (int round = 0; round < times; round++) {
    const uint32_t* from = values + (round % 2 ? half : 0);
    uint32_t* to = values + (round % 2 ? 0 : half);
    for (int i = grid.thread_rank(); i < half; i += grid.size())
      to[i] = from[i] * 3 + from[(i + 4097) % half];
    grid.sync();
  }
}

// Each block of a cluster adds up its part and reads the sums of the others from their shared
// memory.
__global__ void cluster_sums(uint32_t* values) {
  __shared__ uint32_t sum;
  const groups::cluster_group cluster = groups::this_cluster();
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, values[blockIdx.x * blockDim.x + threadIdx.x]);
  cluster.sync();
  uint32_t total = 0;
  for (unsigned rank = 0; rank < cluster.num_blocks(); rank++)
    total += *cluster.map_shared_rank(&sum, rank) * (rank + 1);
  cluster.sync();
  if (threadIdx.x == 0) values[blockIdx.x] = total + cluster.block_rank();
}

__global__ void __cluster_dims__(2, 1, 1) fixed_cluster(uint32_t* values) {
  const groups::cluster_group cluster = groups::this_cluster();
  if (threadIdx.x == 0) values[blockIdx.x] = cluster.num_blocks() * 100 + cluster.block_rank();
}

__global__ void produce(uint32_t* values, uint32_t from) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i] = from + i;
  cudaTriggerProgrammaticLaunchCompletion();
}

__global__ void consume(uint32_t* values) {
  cudaGridDependencySynchronize();
  values[blockIdx.x * blockDim.x + threadIdx.x] *= 2;
}

__global__ void shared_reverse(uint32_t* values, int n) {
  extern __shared__ uint32_t tile[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = values[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = tile[n - 1 - i];
}

struct Large {
  uint32_t words[1000];  // near the 4,000 bytes that every launch may carry
};

__global__ void with_large(Large large, uint32_t* values) {
  for (int i = threadIdx.x; i < 1000; i += blockDim.x) values[i] = large.words[999 - i];
}

void refill() {
  std::vector<uint32_t> host(kWords);
  for (int i = 0; i < kWords; i++) host[i] = i * 2654435761u >> 20;
  CHECK(cudaMemcpy(data, host.data(), kWords * 4, cudaMemcpyHostToDevice));
}

void say(const char* what) {
  std::vector<uint32_t> host(kWords);
  CHECK(cudaMemcpy(host.data(), data, kWords * 4, cudaMemcpyDeviceToHost));
  std::printf("%s: %016llx\n", what, static_cast<unsigned long long>(checksum(host)));
}

void cooperative() {
  int blocks = 0, processors = 0, half = kWords / 2, times = 7;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, rounds, 128, 0));
  CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  refill();
  void* arguments[] = {&data, &half, &times};
  CHECK(cudaLaunchCooperativeKernel(rounds, dim3(processors), dim3(128), arguments, 0, nullptr));
  say("cooperative");
  const cudaError_t refused = cudaLaunchCooperativeKernel(rounds, dim3(processors * blocks + 1),
                                                          dim3(128), arguments, 0, nullptr);
  std::printf("%d blocks a processor; one block too many: %s\n", blocks, cudaGetErrorName(refused));
  good = good && refused == cudaErrorCooperativeLaunchTooLarge;
  cudaGetLastError();
}

cudaError_t launch_clusters(unsigned size, unsigned blocks) {
  cudaLaunchConfig_t configuration = {};
  configuration.gridDim = dim3(blocks);
  configuration.blockDim = dim3(128);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {size, 1, 1};
  configuration.attrs = &attribute;
  configuration.numAttrs = 1;
  int most = 0;
  const cudaError_t asked = cudaOccupancyMaxActiveClusters(&most, cluster_sums, &configuration);
  const cudaError_t launched = cudaLaunchKernelEx(&configuration, cluster_sums, data);
  std::printf("clusters of %u: %s, %d fit, %s\n", size, cudaGetErrorName(asked), most,
              cudaGetErrorName(launched));
  cudaGetLastError();
  return launched;
}

void clusters() {
  int largest = 0;
  for (const unsigned size : {1u, 2u, 4u, 8u}) {
    refill();
    CHECK(launch_clusters(size, 64));
    say("cluster");
  }
  launch_clusters(16, 64);  // more than portable: refused without the attribute
  launch_clusters(8, 63);   // the grid is no multiple
  CHECK(cudaFuncSetAttribute(cluster_sums, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  refill();
  launch_clusters(16, 64);
  say("cluster of 16");
  cudaLaunchConfig_t configuration = {};
  configuration.gridDim = dim3(64);
  configuration.blockDim = dim3(128);
  CHECK(cudaOccupancyMaxPotentialClusterSize(&largest, cluster_sums, &configuration));
  fixed_cluster<<<8, 64>>>(data);
  CHECK(cudaGetLastError());
  say("fixed cluster");
  std::printf("largest cluster %d\n", largest);
}

void dependent() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaLaunchConfig_t configuration = {};
  configuration.gridDim = dim3(kWords / 256);
  configuration.blockDim = dim3(256);
  configuration.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  configuration.attrs = &attribute;
  configuration.numAttrs = 1;
  for (uint32_t round = 0; round < 10; round++) {
    produce<<<kWords / 256, 256, 0, stream>>>(data, round);
    CHECK(cudaLaunchKernelEx(&configuration, consume, data));
  }
  CHECK(cudaStreamSynchronize(stream));
  say("dependent launch");
  CHECK(cudaStreamDestroy(stream));
}

void priorities() {
  int least = 0, greatest = 0, given = 0;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  std::printf("priorities %d to %d:", least, greatest);
  for (int wanted = greatest - 1; wanted <= least + 1; wanted++) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, wanted));
    CHECK(cudaStreamGetPriority(stream, &given));
    std::printf(" %d", given);
    produce<<<16, 256, 0, stream>>>(data, wanted);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
  }
  std::printf("\n");
}

void shared_memory() {
  int most = 0;
  CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  refill();
  shared_reverse<<<1, 256, most>>>(data, most / 4);
  std::printf("%d bytes of shared memory unasked: %s", most, cudaGetErrorName(cudaGetLastError()));
  CHECK(cudaFuncSetAttribute(shared_reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  shared_reverse<<<1, 256, most>>>(data, most / 4);
  std::printf(", asked: %s\n", cudaGetErrorName(cudaGetLastError()));
  say("shared memory");
  Large large;
  for (int i = 0; i < 1000; i++) large.words[i] = i * i;
  with_large<<<1, 128>>>(large, data);
  CHECK(cudaGetLastError());
  say("large parameters");
}

}  // namespace

int main() {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  if (properties.major < 9) skip("clusters need compute capability 9.0");
  CHECK(cudaMalloc(&data, kWords * 4));
  cooperative();
  clusters();
  dependent();
  priorities();
  shared_memory();
  CHECK(cudaDeviceSynchronize());
  return finish(good);
}
