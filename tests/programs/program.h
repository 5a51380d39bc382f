// SPDX-License-Identifier: Apache-2.0
// The few lines that every program here shares: checking calls, choosing a device, launching, and
// the last line PASS or FAIL. One thread. Prints only what is the same on every run, except where a
// program says otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/programs/cuda_driver.h"

namespace program {

[[noreturn]] inline void fail(const char* what) {
  std::printf("%s\nFAIL\n", what);
  std::exit(1);
}

inline void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "unknown code";
  std::printf("%s: %s (%d)\nFAIL\n", call, name, static_cast<int>(result));
  std::exit(1);
}
#define CHECK(call) ::program::check((call), #call)

inline int finish(bool good) {
  std::printf(good ? "PASS\n" : "FAIL\n");
  return good ? 0 : 1;
}

// Initialises and makes the primary context of device `ordinal` current.
inline CUcontext use_device(int ordinal) {
  CUdevice device;
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, ordinal));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  return context;
}

inline CUfunction load(const char* ptx, const char* kernel) {
  CUmodule module;
  CUfunction function;
  CHECK(cuModuleLoadData(&module, ptx));
  CHECK(cuModuleGetFunction(&function, module, kernel));
  return function;
}

template <typename... Arguments>
CUresult launch(CUfunction function, unsigned grid, unsigned block, CUstream stream,
                Arguments... arguments) {
  void* pointers[] = {static_cast<void*>(&arguments)..., nullptr};
  return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, pointers, nullptr);
}

template <typename T>
CUdeviceptr upload(const std::vector<T>& data) {
  CUdeviceptr address;
  CHECK(cuMemAlloc(&address, data.size() * sizeof(T)));
  CHECK(cuMemcpyHtoD(address, data.data(), data.size() * sizeof(T)));
  return address;
}

template <typename T>
std::vector<T> download(CUdeviceptr address, size_t count) {
  std::vector<T> data(count);
  CHECK(cuMemcpyDtoH(data.data(), address, count * sizeof(T)));
  return data;
}

// FNV-1a, so that transcripts can be compared without printing everything.
template <typename T>
uint64_t checksum(const std::vector<T>& data) {
  uint64_t hash = 1469598103934665603u;
  const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
  for (size_t i = 0; i < data.size() * sizeof(T); i++) hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash;
}

inline long argument(int argc, char** argv, int position, long otherwise) {
  return argc > position ? std::strtol(argv[position], nullptr, 0) : otherwise;
}

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace program
