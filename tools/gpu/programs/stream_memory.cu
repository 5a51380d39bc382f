// SPDX-License-Identifier: Apache-2.0
// Stream memory operations: streams that write and wait for words in device memory, alone and in
// batches, between streams and from a graph; waits of every kind.
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kWords = 1 << 16;
CUdeviceptr words, data;
CUstream one, two;
bool good = true;

__global__ void delay(long long cycles) {
  const long long begun = clock64();
  while (clock64() - begun < cycles) {
  }
}

__global__ void step(uint32_t* values) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i] = values[i] * 3 + 1;
}

void step_on(CUstream stream) {
  step<<<kWords / 256, 256, 0, stream>>>(reinterpret_cast<uint32_t*>(data));
  CHECK(cudaGetLastError());
}

uint32_t word(int index) {
  uint32_t out = 0;
  CHECK(cuMemcpyDtoH(&out, words + index * 4, 4));
  return out;
}

// The two streams take turns through two words.
void turns() {
  CHECK(cuMemsetD8(words, 0, 4096));
  CHECK(cuMemsetD32(data, 1, kWords));
  CHECK(cuCtxSynchronize());
  delay<<<1, 1, 0, one>>>(10'000'000);
  for (uint32_t turn = 1; turn <= 10; turn++) {
    step_on(one);
    CHECK(cuStreamWriteValue32(one, words, turn, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK(cuStreamWaitValue32(two, words, turn, CU_STREAM_WAIT_VALUE_GEQ));
    step_on(two);
    CHECK(cuStreamWriteValue32(two, words + 4, turn, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK(cuStreamWaitValue32(one, words + 4, turn, CU_STREAM_WAIT_VALUE_EQ));
  }
  CHECK(cuStreamSynchronize(one));
  CHECK(cuStreamSynchronize(two));
  uint32_t expected = 1, first = 0;
  for (int turn = 0; turn < 20; turn++) expected = expected * 3 + 1;
  CHECK(cuMemcpyDtoH(&first, data, 4));
  std::printf("turns: %u, words %u %u\n", first, word(0), word(1));
  good = good && first == expected;
}

void kinds() {
  const struct {
    const char* name;
    unsigned flags;
    uint32_t first, written, awaited;
  } waits[] = {{"greater or equal", CU_STREAM_WAIT_VALUE_GEQ, 0, 50, 40},
               {"equal", CU_STREAM_WAIT_VALUE_EQ, 0, 60, 60},
               {"and", CU_STREAM_WAIT_VALUE_AND, 0, 0x10, 0x30},
               {"nor", CU_STREAM_WAIT_VALUE_NOR, 0xffffffffu, 0xfffffff0u, 7}};
  for (const auto& wait : waits) {
    CHECK(cuMemsetD32(words, wait.first, 16));
    CHECK(cuCtxSynchronize());
    delay<<<1, 1, 0, one>>>(10'000'000);
    CHECK(cuStreamWriteValue32(one, words + 8, wait.written, 0));
    const CUresult result = cuStreamWaitValue32(two, words + 8, wait.awaited, wait.flags);
    CHECK(cuStreamSynchronize(two));
    CHECK(cuStreamSynchronize(one));
    std::printf("%s: %d, word %u\n", wait.name, result, word(2));
  }
  CHECK(cuStreamWriteValue64(one, words + 16, 0x123456789abcdefull, 0));
  CHECK(cuStreamWaitValue64(two, words + 16, 0x123456789abcdefull, CU_STREAM_WAIT_VALUE_EQ));
  CHECK(cuStreamSynchronize(two));
  std::printf("64 bits: %x %x\n", word(5), word(4));
}

void batches() {
  CUstreamBatchMemOpParams writes[2] = {}, waits[2] = {};
  for (int i = 0; i < 2; i++) {
    writes[i].writeValue = {};
    writes[i].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    writes[i].writeValue.address = words + 32 + 4 * i;
    writes[i].writeValue.value = 70 + i;
    waits[i].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    waits[i].waitValue.address = words + 32 + 4 * i;
    waits[i].waitValue.value = 70 + i;
    waits[i].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  }
  CHECK(cuStreamBatchMemOp(one, 2, writes, 0));
  CHECK(cuStreamBatchMemOp(two, 2, waits, 0));
  CHECK(cuStreamSynchronize(two));
  std::printf("batches: %u %u\n", word(8), word(9));
  CUgraph graph;
  CUgraphExec ready;
  CHECK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  const CUresult captured = cuStreamWriteValue32(one, words + 40, 99, 0);
  const CUresult ended = cuStreamEndCapture(one, &graph);
  std::printf("in a capture: %d %d\n", captured, ended);
  if (captured == CUDA_SUCCESS && ended == CUDA_SUCCESS) {
    CHECK(cuGraphInstantiate(&ready, graph, 0));
    CHECK(cuGraphLaunch(ready, one));
    CHECK(cuStreamSynchronize(one));
    std::printf("written by the graph: %u\n", word(10));
    CHECK(cuGraphExecDestroy(ready));
    CHECK(cuGraphDestroy(graph));
  }
}

}  // namespace

int main() {
  CHECK(cudaFree(nullptr));
  int wide = 0, nor = 0;
  CHECK(cuDeviceGetAttribute(&wide, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
  CHECK(cuDeviceGetAttribute(&nor, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 0));
  std::printf("64 bits %d, nor %d\n", wide, nor);
  CHECK(cuMemAlloc(&words, 4096));
  CHECK(cuMemAlloc(&data, kWords * 4));
  CHECK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  turns();
  kinds();
  batches();
  return finish(good);
}
