// SPDX-License-Identifier: Apache-2.0
// Compiles CUDA C++ at run time with NVRTC, to PTX and to machine code, and launches both through
// the driver API: a template by its lowered name, shared memory, a global variable.
#include <cuda.h>
#include <nvrtc.h>

#include <string>

#include "check.h"

namespace {

const char* const kSource = R"(
__device__ int launches;
template <typename T>
__global__ void blend(const T* a, const T* b, T* out, T weight, int n) {
  __shared__ T tile[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) tile[threadIdx.x] = a[i] * weight;
  __syncthreads();
  if (i < n) out[i] = tile[threadIdx.x] + b[i];
  if (i == 0) launches += 1;
}
)";

struct Compiled {
  std::vector<char> code;
  std::string name;
};

Compiled compile(const std::string& target, bool machine_code) {
  nvrtcProgram program;
  CHECK(nvrtcCreateProgram(&program, kSource, "blend.cu", 0, nullptr, nullptr));
  CHECK(nvrtcAddNameExpression(program, "blend<float>"));
  const std::string option = "--gpu-architecture=" + target;
  const char* options[] = {option.c_str(), "--fmad=false"};
  const nvrtcResult result = nvrtcCompileProgram(program, 2, options);
  if (result != NVRTC_SUCCESS) {
    size_t bytes = 0;
    nvrtcGetProgramLogSize(program, &bytes);
    std::string log(bytes, 0);
    nvrtcGetProgramLog(program, log.data());
    std::printf("%s\n", log.c_str());
  }
  CHECK(result);
  Compiled out;
  const char* lowered = nullptr;
  CHECK(nvrtcGetLoweredName(program, "blend<float>", &lowered));
  out.name = lowered;
  size_t bytes = 0;
  CHECK(machine_code ? nvrtcGetCUBINSize(program, &bytes) : nvrtcGetPTXSize(program, &bytes));
  out.code.resize(bytes);
  CHECK(machine_code ? nvrtcGetCUBIN(program, out.code.data())
                     : nvrtcGetPTX(program, out.code.data()));
  CHECK(nvrtcDestroyProgram(&program));
  return out;
}

bool run(const Compiled& compiled, const char* what) {
  const int n = 100'001;
  Numbers numbers(3);
  const std::vector<float> a = numbers.many<float>(n), b = numbers.many<float>(n);
  std::vector<float> out(n);
  CUmodule module;
  CUfunction kernel;
  CUdeviceptr da, db, dout, counter;
  size_t counter_bytes = 0;
  CHECK(cuModuleLoadData(&module, compiled.code.data()));
  CHECK(cuModuleGetFunction(&kernel, module, compiled.name.c_str()));
  CHECK(cuModuleGetGlobal(&counter, &counter_bytes, module, "launches"));
  CHECK(cuMemAlloc(&da, n * 4));
  CHECK(cuMemAlloc(&db, n * 4));
  CHECK(cuMemAlloc(&dout, n * 4));
  CHECK(cuMemcpyHtoD(da, a.data(), n * 4));
  CHECK(cuMemcpyHtoD(db, b.data(), n * 4));
  float weight = 0.5f;
  int count = n;
  void* arguments[] = {&da, &db, &dout, &weight, &count};
  for (int i = 0; i < 3; i++)
    CHECK(cuLaunchKernel(kernel, (n + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
  CHECK(cuMemcpyDtoH(out.data(), dout, n * 4));
  int launches = 0;
  CHECK(cuMemcpyDtoH(&launches, counter, sizeof launches));
  bool good = launches == 3 && counter_bytes == 4;
  for (int i = 0; i < n; i++) good = good && out[i] == a[i] * 0.5f + b[i];
  std::printf("%s: %s, checksum %016llx, %d launches\n", what, compiled.name.c_str(),
              static_cast<unsigned long long>(checksum(out)), launches);
  CHECK(cuModuleUnload(module));
  return good;
}

}  // namespace

int main() {
  CUdevice device;
  CUcontext context;
  int major = 0, minor = 0;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  CHECK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  const std::string version = std::to_string(major * 10 + minor);
  const bool from_ptx = run(compile("compute_" + version, false), "PTX");
  const bool from_cubin = run(compile("sm_" + version, true), "machine code");
  return finish(from_ptx && from_cubin);
}
