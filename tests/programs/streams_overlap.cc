// SPDX-License-Identifier: Apache-2.0
// Several streams, each a pipeline of upload, kernels and read-back over pinned memory. One stream
// joins them all by events and adds up. Arguments: streams (default 4), words per stream (default
// 16384).
#include <memory>

#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

struct Lane {
  CUstream stream;
  CUevent done;
  CUdeviceptr data;
  uint32_t* host;
};

constexpr uint32_t kSteps = 5;

void enqueue(Lane& lane, CUfunction affine, uint32_t words) {
  CHECK(cuMemcpyHtoDAsync(lane.data, lane.host, words * 4, lane.stream));
  for (uint32_t step = 1; step <= kSteps; step++) {
    CHECK(
        program::launch(affine, (words + 255) / 256, 256, lane.stream, lane.data, 3u, step, words));
  }
  CHECK(cuMemcpyDtoHAsync(lane.host, lane.data, words * 4, lane.stream));
  CHECK(cuEventRecord(lane.done, lane.stream));
}

uint32_t expected_value(uint32_t value) {
  for (uint32_t step = 1; step <= kSteps; step++) value = value * 3 + step;
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t count = static_cast<uint32_t>(program::argument(argc, argv, 1, 4));
  const uint32_t words = static_cast<uint32_t>(program::argument(argc, argv, 2, 16384));
  program::use_device(0);
  CUfunction affine = program::load(kKernelsPtx, "affine");
  std::vector<Lane> lanes(count);
  for (uint32_t i = 0; i < count; i++) {
    CHECK(cuStreamCreate(&lanes[i].stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&lanes[i].done, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&lanes[i].data, words * 4));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&lanes[i].host), words * 4));
    for (uint32_t k = 0; k < words; k++) lanes[i].host[k] = i * 1000 + k;
  }
  for (Lane& lane : lanes) enqueue(lane, affine, words);
  CUstream join;
  CHECK(cuStreamCreate(&join, CU_STREAM_NON_BLOCKING));
  for (Lane& lane : lanes) CHECK(cuStreamWaitEvent(join, lane.done, 0));
  CHECK(cuStreamSynchronize(join));
  uint32_t wrong = 0;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < words; k++) {
      wrong += lanes[i].host[k] != expected_value(i * 1000 + k);
      sum += lanes[i].host[k];
    }
  }
  std::printf("streams_overlap: %u streams of %u words, %u wrong, sum %llu\n", count, words, wrong,
              static_cast<unsigned long long>(sum));
  return program::finish(wrong == 0);
}
