// SPDX-License-Identifier: Apache-2.0
// A driver-API program with its device code as PTX text. The driver compiles it with a log and
// links it with a second piece. It is launched with both ways of passing arguments.
#include <cuda.h>

#include "check.h"

namespace {

const char* const kMain = R"(.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) twice (.param .b32 value);
.visible .entry fill(.param .u64 out, .param .u32 count, .param .u32 start) {
  .reg .pred %p;
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  ld.param.u32 %r4, [count];
  setp.ge.u32 %p, %r1, %r4;
  @%p bra done;
  ld.param.u32 %r5, [start];
  add.u32 %r6, %r1, %r5;
  { .param .b32 value; .param .b32 result;
    st.param.b32 [value], %r6;
    call (result), twice, (value);
    ld.param.b32 %r7, [result]; }
  ld.param.u64 %d1, [out];
  cvta.to.global.u64 %d1, %d1;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r7;
done:
  ret;
})";

const char* const kTwice = R"(.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 result) twice (.param .b32 value) {
  .reg .b32 %r<2>;
  ld.param.b32 %r0, [value];
  shl.b32 %r1, %r0, 1;
  st.param.b32 [result], %r1;
  ret;
})";

CUmodule link() {
  CUlinkState state;
  char errors[4096] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {errors, reinterpret_cast<void*>(sizeof errors)};
  CHECK(cuLinkCreate(2, options, values, &state));
  auto add = [&](const char* text, const char* name) {
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(text), strlen(text) + 1, name, 0,
                        nullptr, nullptr));
  };
  add(kMain, "main.ptx");
  add(kTwice, "twice.ptx");
  void* cubin;
  size_t bytes;
  CHECK(cuLinkComplete(state, &cubin, &bytes));
  CUmodule module;
  CHECK(cuModuleLoadData(&module, cubin));
  CHECK(cuLinkDestroy(state));
  return module;
}

}  // namespace

int main() {
  CUdevice device;
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  char name[100];
  CHECK(cuDeviceGetName(name, sizeof name, device));
  std::printf("%s\n", name);
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CUmodule module = link();
  CUfunction fill;
  CHECK(cuModuleGetFunction(&fill, module, "fill"));
  uint32_t count = 100'000, start = 7;
  CUdeviceptr out;
  CHECK(cuMemAlloc(&out, count * 4));
  void* arguments[] = {&out, &count, &start};
  CHECK(cuLaunchKernel(fill, (count + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
  std::vector<uint32_t> first(count), second(count);
  CHECK(cuMemcpyDtoH(first.data(), out, count * 4));
  struct {
    CUdeviceptr out;
    uint32_t count, start;
  } packed = {out, count, 1000};
  size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  CHECK(cuLaunchKernel(fill, (count + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
  CHECK(cuMemcpyDtoH(second.data(), out, count * 4));
  bool good = true;
  for (uint32_t i = 0; i < count; i++)
    good = good && first[i] == 2 * (i + 7) && second[i] == 2 * (i + 1000);
  std::printf("checksums %016llx %016llx\n", static_cast<unsigned long long>(checksum(first)),
              static_cast<unsigned long long>(checksum(second)));
  CUmodule broken;
  const char* why = nullptr;
  const CUresult refused = cuModuleLoadData(&broken, ".version 8.0\n.target sm_80\nnonsense");
  CHECK(cuGetErrorName(refused, &why));
  std::printf("broken code: %s\n", why);
  CHECK(cuModuleUnload(module));
  CHECK(cuMemFree(out));
  CHECK(cuDevicePrimaryCtxRelease(device));
  return finish(good && refused != CUDA_SUCCESS);
}
