// SPDX-License-Identifier: Apache-2.0
// The driver's own compiler and linker: information and error logs, options with answers, pieces
// that do not fit together, code for another device, a library with kernels and globals.
#include <cuda.h>

#include <string>

#include "check.h"

namespace {

const char* const kHead = ".version 8.0\n.target sm_80\n.address_size 64\n";
const char* const kCaller = R"(
.extern .func (.param .b32 result) part (.param .b32 value);
.visible .global .align 4 .u32 offset = 7;
.visible .entry fill(.param .u64 out) {
  .reg .b32 %r<5>;
  .reg .b64 %d<4>;
  mov.u32 %r1, %tid.x;
  { .param .b32 value; .param .b32 result;
    st.param.b32 [value], %r1;
    call (result), part, (value);
    ld.param.b32 %r2, [result]; }
  ld.global.u32 %r3, [offset];
  add.u32 %r4, %r2, %r3;
  ld.param.u64 %d1, [out];
  cvta.to.global.u64 %d1, %d1;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r4;
  ret;
})";
const char* const kPart = R"(
.visible .func (.param .b32 result) part (.param .b32 value) {
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [value];
  mul.lo.u32 %r2, %r1, 3;
  st.param.b32 [result], %r2;
  ret;
})";
const char* const kAlone = R"(
.visible .entry nothing() { ret; }
)";

bool good = true;

const char* name_of(CUresult result) {
  const char* name = "?";
  cuGetErrorName(result, &name);
  return name;
}

// The parts of a log that do not differ between machines: its first line, and whether it is empty.
void show_log(const char* what, const char* log) {
  const std::string text = log;
  std::printf("  %s log: %s\n", what, text.substr(0, text.find('\n')).c_str());
}

struct Logs {
  char info[8192] = {}, error[8192] = {};
  CUjit_option names[7] = {CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                           CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                           CU_JIT_LOG_VERBOSE,      CU_JIT_OPTIMIZATION_LEVEL,
                           CU_JIT_WALL_TIME};
  void* values[7] = {info,
                     reinterpret_cast<void*>(sizeof info),
                     error,
                     reinterpret_cast<void*>(sizeof error),
                     reinterpret_cast<void*>(1),
                     reinterpret_cast<void*>(3),
                     nullptr};
  void show() {
    std::printf("  bytes of logs: %s, %s\n", values[1] ? "some" : "none",
                values[3] ? "some" : "none");
    show_log("information", info);
    show_log("error", error);
  }
};

void link(const char* what, std::vector<std::string> pieces, bool works) {
  Logs logs;
  CUlinkState state;
  CHECK(cuLinkCreate(7, logs.names, logs.values, &state));
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < pieces.size() && result == CUDA_SUCCESS; i++) {
    const std::string name = "piece" + std::to_string(i) + ".ptx";
    result = cuLinkAddData(state, CU_JIT_INPUT_PTX, pieces[i].data(), pieces[i].size() + 1,
                           name.c_str(), 0, nullptr, nullptr);
  }
  void* code = nullptr;
  size_t bytes = 0;
  if (result == CUDA_SUCCESS) result = cuLinkComplete(state, &code, &bytes);
  std::printf("%s: %s, code %s\n", what, name_of(result), bytes ? "made" : "not made");
  logs.show();
  good = good && works == (result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS) {
    CUmodule module;
    CUfunction fill;
    CUdeviceptr out, offset;
    size_t offset_bytes = 0;
    uint32_t host[64] = {}, other = 1000;
    CHECK(cuModuleLoadData(&module, code));
    CHECK(cuModuleGetFunction(&fill, module, "fill"));
    CHECK(cuModuleGetGlobal(&offset, &offset_bytes, module, "offset"));
    CHECK(cuMemAlloc(&out, sizeof host));
    CHECK(cuMemcpyHtoD(offset, &other, 4));
    void* arguments[] = {&out};
    CHECK(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK(cuMemcpyDtoH(host, out, sizeof host));
    std::printf("  %016llx\n", static_cast<unsigned long long>(checksum(host, sizeof host)));
    good = good && host[63] == 63 * 3 + 1000;
    CHECK(cuMemFree(out));
    CHECK(cuModuleUnload(module));
  }
  CHECK(cuLinkDestroy(state));
}

void load(const char* what, const std::string& text) {
  Logs logs;
  CUmodule module = nullptr;
  const CUresult result = cuModuleLoadDataEx(&module, text.c_str(), 7, logs.names, logs.values);
  std::printf("%s: %s\n", what, name_of(result));
  logs.show();
  if (result == CUDA_SUCCESS) CHECK(cuModuleUnload(module));
}

void library() {
  std::string caller = kCaller;
  caller.erase(0, caller.find(".visible"));  // the part is defined here, so it is not extern
  const std::string text = std::string(kHead) + kPart + caller;
  CUlibrary library;
  CUkernel kernel;
  CUfunction function;
  CUdeviceptr offset;
  CUmodule module;
  size_t bytes = 0;
  unsigned kernels = 0;
  CHECK(cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK(cuLibraryGetKernel(&kernel, library, "fill"));
  CHECK(cuLibraryGetKernelCount(&kernels, library));
  CHECK(cuLibraryGetGlobal(&offset, &bytes, library, "offset"));
  CHECK(cuLibraryGetModule(&module, library));
  CHECK(cuKernelGetFunction(&function, kernel));
  const char* name = "?";
  CHECK(cuKernelGetName(&name, kernel));
  std::printf("library: %u kernels, %s, global of %zu bytes\n", kernels, name, bytes);
  std::printf("  no such kernel: %s\n", name_of(cuLibraryGetKernel(&kernel, library, "empty")));
  std::printf("  no such global: %s\n",
              name_of(cuLibraryGetGlobal(&offset, &bytes, library, "empty")));
  CHECK(cuLibraryUnload(library));
}

}  // namespace

int main() {
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  const std::string head = kHead;
  link("two pieces", {head + kCaller, head + kPart}, true);
  link("a piece is missing", {head + kCaller}, false);
  link("a piece twice", {head + kCaller, head + kPart, head + kPart}, false);
  link("a broken piece", {head + kCaller, head + "nonsense"}, false);
  load("good", head + kAlone);
  load("broken", head + "\n.visible .entry broken() { nonsense; ret; }");
  load("unresolved", head + kCaller);
  load("from the future", ".version 99.0\n.target sm_80\n.address_size 64\n" + std::string(kAlone));
  load("for another device",
       ".version 8.6\n.target sm_999\n.address_size 64\n" + std::string(kAlone));
  load("empty", "");
  library();
  return finish(good);
}
