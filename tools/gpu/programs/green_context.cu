// SPDX-License-Identifier: Apache-2.0
// Green contexts: the multiprocessors split in two, a context and a stream on each part, kernels on
// both, and what the driver says of the parts.
#include <cuda.h>

#include "check.h"

namespace {

const char* const kKernel = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry step(.param .u64 out, .param .u32 factor) {
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  ld.param.u32 %r4, [factor];
  ld.param.u64 %d1, [out];
  cvta.to.global.u64 %d1, %d1;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d3, %d1, %d2;
  ld.global.u32 %r5, [%d3];
  mad.lo.u32 %r6, %r5, %r4, %r1;
  st.global.u32 [%d3], %r6;
  ret;
})";
constexpr unsigned kWords = 1 << 16;

struct Part {
  CUgreenCtx green;
  CUcontext context;
  CUstream stream;
  CUdeviceptr data;
};

Part make(CUdevice device, CUdevResource resource) {
  Part out;
  CUdevResourceDesc description;
  CHECK(cuDevResourceGenerateDesc(&description, &resource, 1));
  CHECK(cuGreenCtxCreate(&out.green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
  CHECK(cuCtxFromGreenCtx(&out.context, out.green));
  CHECK(cuGreenCtxStreamCreate(&out.stream, out.green, CU_STREAM_NON_BLOCKING, 0));
  CUdevResource has;
  CHECK(cuGreenCtxGetDevResource(out.green, &has, CU_DEV_RESOURCE_TYPE_SM));
  std::printf("a part of %u multiprocessors\n", has.sm.smCount);
  return out;
}

void run(Part& part, uint32_t factor) {
  CUmodule module;
  CUfunction step;
  CUgreenCtx owner;
  unsigned words = kWords;
  CHECK(cuCtxSetCurrent(part.context));
  CHECK(cuModuleLoadData(&module, kKernel));
  CHECK(cuModuleGetFunction(&step, module, "step"));
  CHECK(cuMemAlloc(&part.data, words * 4));
  CHECK(cuMemsetD32Async(part.data, 1, words, part.stream));
  void* arguments[] = {&part.data, &factor};
  for (int round = 0; round < 20; round++)
    CHECK(cuLaunchKernel(step, words / 256, 1, 1, 256, 1, 1, 0, part.stream, arguments, nullptr));
  CHECK(cuStreamGetGreenCtx(part.stream, &owner));
  std::printf("the stream belongs to its part: %s\n", owner == part.green ? "yes" : "no");
}

void finish_part(Part& part) {
  std::vector<uint32_t> host(kWords);
  CHECK(cuCtxSetCurrent(part.context));
  CHECK(cuMemcpyDtoHAsync(host.data(), part.data, kWords * 4, part.stream));
  CHECK(cuStreamSynchronize(part.stream));
  std::printf("%016llx\n", static_cast<unsigned long long>(checksum(host)));
  CHECK(cuMemFree(part.data));
  CHECK(cuStreamDestroy(part.stream));
  CHECK(cuGreenCtxDestroy(part.green));
}

}  // namespace

int main() {
  CUdevice device;
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CUdevResource whole, piece, rest;
  unsigned groups = 1;
  CHECK(cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(cuDevSmResourceSplitByCount(&piece, &groups, &whole, &rest, 0, whole.sm.smCount / 2));
  std::printf("%u multiprocessors: %u and %u\n", whole.sm.smCount, piece.sm.smCount,
              rest.sm.smCount);
  Part first = make(device, piece), second = make(device, rest);
  run(first, 3);
  run(second, 5);
  finish_part(first);
  finish_part(second);
  const bool sums = piece.sm.smCount + rest.sm.smCount <= whole.sm.smCount;
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuCtxSynchronize());
  return finish(sums && piece.sm.smCount > 0);
}
