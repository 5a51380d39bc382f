// SPDX-License-Identifier: Apache-2.0
// Would launches that arrive together be quicker as one graph? The same chain of kernels, each
// with other arguments, submitted in four ways:
//   launches   one by one
//   set        one graph that is kept: new arguments for each of its nodes, then one launch
//   update     launches captured from a stream, the kept graph updated to them, then one launch
//   build      a new graph for every batch
// Times are for each kernel: of the thread that submits, and until all is done. All four ways must
// give the same bits.
#include <cuda_runtime.h>

#include <chrono>
#include <functional>

#include "check.h"

namespace {

constexpr int kElements = 256, kKernels = 4096;

// Depends on order and arguments. `spin_ns`: at least so long.
__global__ void step(float* data, float by, int number, long long spin_ns) {
  long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  const int i = threadIdx.x;
  data[i] = data[i] * 0.99f + by * static_cast<float>(number % 17 + i);
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < spin_ns);
}

struct Arguments {
  float* data;
  float by;
  int number;
  long long spin_ns;
  void* pointers[4];
  cudaKernelNodeParams node = {};

  void set(float* at, int n, long long spin) {
    data = at, by = 0.001f * static_cast<float>(n % 7), number = n, spin_ns = spin;
    pointers[0] = &data, pointers[1] = &by, pointers[2] = &number, pointers[3] = &spin_ns;
    node.func = reinterpret_cast<void*>(step);
    node.gridDim = 1, node.blockDim = kElements, node.kernelParams = pointers;
  }
};

struct Chain {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t run = nullptr;
  std::vector<cudaGraphNode_t> nodes;

  void build(std::vector<Arguments>& batch) {
    CHECK(cudaGraphCreate(&graph, 0));
    nodes.assign(batch.size(), nullptr);
    for (size_t i = 0; i < batch.size(); i++) {
      CHECK(cudaGraphAddKernelNode(&nodes[i], graph, i ? &nodes[i - 1] : nullptr, i ? 1 : 0,
                                   &batch[i].node));
    }
    CHECK(cudaGraphInstantiate(&run, graph, 0));
  }
  void end() {
    if (run) CHECK(cudaGraphExecDestroy(run));
    if (graph) CHECK(cudaGraphDestroy(graph));
    run = nullptr, graph = nullptr;
  }
};

struct Trial {
  cudaStream_t stream;
  float* data;
  size_t size;
  long long spin_ns;
  Chain kept;

  void launches(std::vector<Arguments>& batch) {
    for (Arguments& one : batch)
      CHECK(cudaLaunchKernel(one.node.func, 1, kElements, one.pointers, 0, stream));
  }
  void set(std::vector<Arguments>& batch) {
    if (!kept.run) kept.build(batch);
    for (size_t i = 0; i < batch.size(); i++)
      CHECK(cudaGraphExecKernelNodeSetParams(kept.run, kept.nodes[i], &batch[i].node));
    CHECK(cudaGraphLaunch(kept.run, stream));
  }
  void update(std::vector<Arguments>& batch) {
    if (!kept.run) kept.build(batch);
    cudaGraph_t captured;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launches(batch);
    CHECK(cudaStreamEndCapture(stream, &captured));
    cudaGraphExecUpdateResultInfo told;
    CHECK(cudaGraphExecUpdate(kept.run, captured, &told));
    CHECK(cudaGraphLaunch(kept.run, stream));
    CHECK(cudaGraphDestroy(captured));
  }
  void build(std::vector<Arguments>& batch) {
    Chain fresh;
    fresh.build(batch);
    CHECK(cudaGraphLaunch(fresh.run, stream));
    fresh.end();
  }

  // The result's checksum.
  uint64_t run(const char* name, const std::function<void(std::vector<Arguments>&)>& submit) {
    using Clock = std::chrono::steady_clock;
    std::vector<Arguments> batch(size);
    CHECK(cudaMemset(data, 0, kElements * sizeof(float)));
    for (size_t i = 0; i < size; i++) batch[i].set(data, 0, 0);
    submit(batch);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemset(data, 0, kElements * sizeof(float)));
    const auto begin = Clock::now();
    for (int first = 0; first < kKernels; first += static_cast<int>(size)) {
      for (size_t i = 0; i < size; i++) batch[i].set(data, first + static_cast<int>(i), spin_ns);
      submit(batch);
    }
    const auto submitted = Clock::now();
    CHECK(cudaStreamSynchronize(stream));
    const auto over = Clock::now();
    const auto us = [](Clock::duration took) {
      return std::chrono::duration<double, std::micro>(took).count() / kKernels;
    };
    std::printf("time batch %3zu, kernels of %lld us, %-8s %6.3f us submitting, %6.3f us in all\n",
                size, spin_ns / 1000, name, us(submitted - begin), us(over - begin));
    kept.end();
    std::vector<float> result(kElements);
    CHECK(cudaMemcpy(result.data(), data, kElements * sizeof(float), cudaMemcpyDeviceToHost));
    return checksum(result);
  }
};

}  // namespace

int main() {
  Trial trial = {};
  CHECK(cudaStreamCreateWithFlags(&trial.stream, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&trial.data, kElements * sizeof(float)));
  bool good = true;
  for (const long long spin_ns : {0LL, 5000LL}) {
    for (const size_t size : {4, 16, 64, 256}) {
      trial.size = size, trial.spin_ns = spin_ns;
      const uint64_t wanted = trial.run("launches", [&](auto& batch) { trial.launches(batch); });
      good &= wanted == trial.run("set", [&](auto& batch) { trial.set(batch); });
      good &= wanted == trial.run("update", [&](auto& batch) { trial.update(batch); });
      good &= wanted == trial.run("build", [&](auto& batch) { trial.build(batch); });
      std::printf("batch %zu: %016llx\n", size, static_cast<unsigned long long>(wanted));
    }
  }
  return finish(good);
}
