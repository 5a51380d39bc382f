// SPDX-License-Identifier: Apache-2.0
// The program behind scripts/demo: an ordinary CUDA driver-API program that draws the Mandelbrot
// set as text and says on which device it ran. It knows nothing of Tendril. It renders several
// frames with a short pause in between, so that there is time to look at `tendril ls`. Arguments:
// frames (default 8), pause in milliseconds (default 150).
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "demo/cuda_driver.h"
#include "mandelbrot.ptx.gen.h"

namespace {

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "unknown code";
  cuGetErrorName(result, &name);
  std::printf("%s: %s\nFAIL\n", call, name);
  std::exit(1);
}
#define CHECK(call) check((call), #call)

constexpr uint32_t kWidth = 100, kHeight = 34, kLimit = 200;

struct View {
  float left, top, step_x, step_y;
};

// Frame 0 shows the whole set; later ones zoom in on the seahorse valley.
View view(long frame) {
  const float centre_x = frame ? -0.745f : -0.6f, centre_y = frame ? 0.11f : 0.0f;
  float width = 3.0f;
  for (long i = 0; i < frame; i++) width *= 0.62f;
  const float step_x = width / kWidth;
  return {centre_x - width / 2, centre_y + step_x * kHeight, step_x, -2 * step_x};
}

void draw(const std::vector<uint8_t>& picture) {
  const char shades[] = " .,:;i1tfLCG08#";
  for (uint32_t y = 0; y < kHeight; y++) {
    char line[kWidth + 2];
    for (uint32_t x = 0; x < kWidth; x++) {
      const uint8_t n = picture[y * kWidth + x];
      line[x] = n == 255 ? '@' : shades[n % 15];
    }
    line[kWidth] = '\n';
    line[kWidth + 1] = 0;
    std::fputs(line, stdout);
  }
}

// Opens device 0, prints what it is, and returns the kernel.
CUfunction open_device() {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction kernel;
  char name[256];
  size_t bytes;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDeviceGetName(name, sizeof name, device));
  CHECK(cuDeviceTotalMem_v2(&bytes, device));
  std::printf("device 0: %s, %zu MiB\n", name, bytes >> 20);
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, kMandelbrotPtx));
  CHECK(cuModuleGetFunction(&kernel, module, "mandelbrot"));
  return kernel;
}

std::vector<uint8_t> render(CUfunction kernel, CUdeviceptr picture, View v) {
  uint32_t width = kWidth, height = kHeight, limit = kLimit;
  void* arguments[] = {&picture, &width, &height, &v.left, &v.top, &v.step_x, &v.step_y, &limit};
  CHECK(cuLaunchKernel(kernel, (kWidth * kHeight + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr,
                       arguments, nullptr));
  std::vector<uint8_t> pixels(kWidth * kHeight);
  CHECK(cuMemcpyDtoH_v2(pixels.data(), picture, pixels.size()));
  return pixels;
}

}  // namespace

int main(int argc, char** argv) {
  const long frames = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 8;
  const long pause_ms = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 150;
  CUfunction kernel = open_device();
  CUdeviceptr picture;
  CHECK(cuMemAlloc_v2(&picture, kWidth * kHeight));
  std::vector<uint8_t> pixels;
  uint64_t hash = 1469598103934665603u;  // FNV-1a
  for (long frame = frames - 1; frame >= 0; frame--) {
    pixels = render(kernel, picture, view(frame));
    for (uint8_t pixel : pixels) hash = (hash ^ pixel) * 1099511628211u;
    const timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
    if (frame) nanosleep(&pause, nullptr);
  }
  draw(pixels);
  uint32_t inside = 0;
  for (uint8_t n : pixels) inside += n == 255;
  std::printf("%ld frames, %u points inside, checksum %016llx\n", frames, inside,
              static_cast<unsigned long long>(hash));
  CHECK(cuMemFree_v2(picture));
  const bool good = inside > kWidth * kHeight / 20 && inside < kWidth * kHeight / 2;
  std::printf(good ? "PASS\n" : "FAIL\n");
  return good ? 0 : 1;
}
