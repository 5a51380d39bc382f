// SPDX-License-Identifier: Apache-2.0
// The child of `tendril doctor` that tests the whole way. It loads the client library like a
// program, copies to and from the GPU, and prints GB/s and microseconds on one line. It is a
// separate process, so that a library that hangs or fails does not take doctor with it.
#include <stdio.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "cli/commands.h"
#include "gpu/cuda/driver.h"

namespace tendril::cli {
namespace {

// From the first to the last, eight times as many each, until a copy takes long enough. So a line
// of 10 MB/s is measured within seconds, too.
constexpr size_t kFirstBytes = 1u << 20, kBytes = 64u << 20;
constexpr double kLongEnoughS = 0.3;
constexpr int kRounds = 5, kSyncs = 200;

// Seconds of the fastest of several rounds. Negative if a call failed.
template <typename Call>
double fastest(int rounds, Call call) {
  double best = -1;
  for (int i = 0; i < rounds; ++i) {
    const uint64_t begin_ns = base::now_ns();
    if (call() != CUDA_SUCCESS) return -1;
    const double took = static_cast<double>(base::now_ns() - begin_ns) / 1e9;
    best = best < 0 ? took : std::min(best, took);
  }
  return best;
}

// GB/s of the fastest copy. Negative if one failed.
template <typename Copy>
double rate_of(Copy copy) {
  for (size_t bytes = kFirstBytes;; bytes *= 8) {
    bytes = std::min(bytes, kBytes);
    const double took = fastest(kRounds, [&] { return copy(bytes); });
    if (took < 0) return took;
    if (took > kLongEnoughS || bytes == kBytes) return static_cast<double>(bytes) / took / 1e9;
  }
}

int failed(const gpu::Driver& driver, const char* call, CUresult result) {
  const char* name = nullptr;
  if (driver.cuGetErrorName != nullptr) driver.cuGetErrorName(result, &name);
  printf("%s answered %s\n", call, name != nullptr ? name : "an unknown error");
  return kFailed;
}

}  // namespace

int doctor_measure(const std::string& library) {
  auto opened = gpu::Driver::open(library);
  if (!opened.ok()) {
    printf("%s\n", opened.status().message().c_str());
    return kFailed;
  }
  const gpu::Driver& driver = **opened;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUresult result = driver.cuInit(0);
  if (result != CUDA_SUCCESS) return failed(driver, "cuInit", result);
  result = driver.cuDeviceGet(&device, 0);
  if (result != CUDA_SUCCESS) return failed(driver, "cuDeviceGet", result);
  result = driver.cuDevicePrimaryCtxRetain(&context, device);
  if (result != CUDA_SUCCESS) return failed(driver, "cuDevicePrimaryCtxRetain", result);
  driver.cuCtxSetCurrent(context);
  result = driver.cuMemAlloc_v2(&memory, kBytes);
  if (result != CUDA_SUCCESS) return failed(driver, "cuMemAlloc", result);
  std::vector<char> host(kBytes, 1);
  const double to_gpu = rate_of([&](size_t bytes) {
    const CUresult copied = driver.cuMemcpyHtoD_v2(memory, host.data(), bytes);
    return copied != CUDA_SUCCESS ? copied : driver.cuCtxSynchronize();
  });
  const double from_gpu =
      rate_of([&](size_t bytes) { return driver.cuMemcpyDtoH_v2(host.data(), memory, bytes); });
  const double sync = fastest(kSyncs, [&] { return driver.cuCtxSynchronize(); });
  driver.cuMemFree_v2(memory);
  if (to_gpu < 0 || from_gpu < 0 || sync < 0) {
    printf("a copy or a synchronisation failed\n");
    return kFailed;
  }
  printf("tendril-measure %.6g %.6g %.2f\n", to_gpu, from_gpu, sync * 1e6);
  return 0;
}

}  // namespace tendril::cli
