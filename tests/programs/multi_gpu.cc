// SPDX-License-Identifier: Apache-2.0
// Uses every device that it sees. Each computes on its own data. Then the data goes around all
// devices by peer copies, with one step of work on each, and is checked at the end. Then once more
// between the first and the last device, in streams that only events order, and once in graphs.
// Prints the devices' names. Argument: words (16384).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

struct Gpu {
  CUcontext context;
  CUfunction affine;
  CUdeviceptr data;
};

Gpu open(int ordinal, uint32_t words) {
  Gpu gpu;
  gpu.context = program::use_device(ordinal);
  gpu.affine = program::load(kKernelsPtx, "affine");
  CHECK(cuMemAlloc(&gpu.data, words * 4));
  char name[256];
  CHECK(cuDeviceGetName(name, sizeof name, ordinal));
  std::printf("device %d: %s\n", ordinal, name);
  return gpu;
}

// A copy between two devices in a stream of the first, then work in a stream of the second that
// waits for the first by an event. The second's default stream is busy, and none of them waits for
// it.
uint32_t wrong_across_streams(const Gpu& first, const Gpu& last, uint32_t words) {
  CUstream streams[2];
  CUevent copied;
  CUdeviceptr other;
  const unsigned blocks = (words + 255) / 256;
  CHECK(cuCtxSetCurrent(last.context));
  CHECK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAlloc(&other, words * 4));
  for (int i = 0; i < 200; i++)
    CHECK(program::launch(last.affine, blocks, 256, nullptr, other, 3u, 1u, words));
  CHECK(cuCtxSetCurrent(first.context));
  CHECK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
  CHECK(cuMemsetD32Async(first.data, 5, words, streams[0]));
  CHECK(program::launch(first.affine, blocks, 256, streams[0], first.data, 3u, 1u, words));
  CHECK(
      cuMemcpyPeerAsync(last.data, last.context, first.data, first.context, words * 4, streams[0]));
  CHECK(cuEventRecord(copied, streams[0]));
  CHECK(cuCtxSetCurrent(last.context));
  CHECK(cuStreamWaitEvent(streams[1], copied, 0));
  CHECK(program::launch(last.affine, blocks, 256, streams[1], last.data, 3u, 1u, words));
  CHECK(cuStreamSynchronize(streams[1]));
  uint32_t wrong = 0;
  for (uint32_t word : program::download<uint32_t>(last.data, words))
    wrong += word != (5 * 3 + 1) * 3 + 1;
  return wrong;
}

// A graph for each device, captured side by side. They are made ready and launched one after the
// other while the last device's context is current.
uint32_t wrong_in_graphs(const std::vector<Gpu>& gpus, uint32_t words) {
  const unsigned blocks = (words + 255) / 256;
  std::vector<CUstream> streams(gpus.size());
  std::vector<CUgraph> graphs(gpus.size());
  std::vector<CUgraphExec> ready(gpus.size());
  for (size_t i = 0; i < gpus.size(); i++) {
    CHECK(cuCtxSetCurrent(gpus[i].context));
    CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD32(gpus[i].data, 7, words));
    CHECK(cuCtxSynchronize());
  }
  for (size_t i = 0; i < gpus.size(); i++) {
    CHECK(cuCtxSetCurrent(gpus[i].context));
    CHECK(cuStreamBeginCapture(streams[i], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(program::launch(gpus[i].affine, blocks, 256, streams[i], gpus[i].data, 3u,
                          static_cast<uint32_t>(i), words));
  }
  for (size_t i = 0; i < gpus.size(); i++) CHECK(cuStreamEndCapture(streams[i], &graphs[i]));
  for (size_t i = 0; i < gpus.size(); i++)
    CHECK(cuGraphInstantiateWithFlags(&ready[i], graphs[i], 0));
  for (size_t i = 0; i < gpus.size(); i++) CHECK(cuGraphLaunch(ready[i], streams[i]));
  uint32_t wrong = 0;
  for (size_t i = 0; i < gpus.size(); i++) {
    CHECK(cuStreamSynchronize(streams[i]));
    CHECK(cuGraphExecDestroy(ready[i]));
    CHECK(cuGraphDestroy(graphs[i]));
    for (uint32_t word : program::download<uint32_t>(gpus[i].data, words))
      wrong += word != 7 * 3 + i;
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t words = static_cast<uint32_t>(program::argument(argc, argv, 1, 16384));
  int count = 0;
  CHECK(cuInit(0));
  CHECK(cuDeviceGetCount(&count));
  std::vector<Gpu> gpus;
  for (int i = 0; i < count; i++) gpus.push_back(open(i, words));

  std::vector<uint32_t> host(words);
  for (uint32_t i = 0; i < words; i++) host[i] = i;
  CHECK(cuCtxSetCurrent(gpus[0].context));
  CHECK(cuMemcpyHtoD(gpus[0].data, host.data(), words * 4));
  for (int i = 0; i < count; i++) {
    CHECK(cuCtxSetCurrent(gpus[i].context));
    CHECK(program::launch(gpus[i].affine, (words + 255) / 256, 256, nullptr, gpus[i].data, 3u,
                          static_cast<uint32_t>(i), words));
    CHECK(cuCtxSynchronize());
    if (i + 1 < count) {
      CHECK(cuMemcpyPeer(gpus[i + 1].data, gpus[i + 1].context, gpus[i].data, gpus[i].context,
                         words * 4));
      CHECK(cuCtxSynchronize());
    }
  }
  const std::vector<uint32_t> result = program::download<uint32_t>(gpus[count - 1].data, words);
  uint32_t wrong = 0;
  for (uint32_t k = 0; k < words; k++) {
    uint32_t expected = k;
    for (int i = 0; i < count; i++) expected = expected * 3 + static_cast<uint32_t>(i);
    wrong += result[k] != expected;
  }
  if (count > 1) {
    const uint32_t across = wrong_across_streams(gpus[0], gpus[count - 1], words);
    std::printf("across streams: %u wrong\n", across);
    const uint32_t in_graphs = wrong_in_graphs(gpus, words);
    std::printf("in graphs: %u wrong\n", in_graphs);
    wrong += across + in_graphs;
  }
  std::printf("multi_gpu: %d devices, %u words, %u wrong, checksum %016llx\n", count, words, wrong,
              static_cast<unsigned long long>(program::checksum(result)));
  return program::finish(wrong == 0);
}
