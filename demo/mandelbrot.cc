// SPDX-License-Identifier: Apache-2.0
// The program behind scripts/demo: an ordinary CUDA driver-API program that draws the Mandelbrot set as text and says on which device
// it ran. It knows nothing of Tendril. It renders several frames with a short pause in between, so that there is time to look at
// `tendril ls`. Arguments: frames (default 8), pause in milliseconds (default 150).
#include <time.h>

#include "mandelbrot.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

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

void draw(const std::vector<uint8_t> &picture) {
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

}  // namespace

int main(int argc, char **argv) {
  const long frames = program::argument(argc, argv, 1, 8);
  const long pause_ms = program::argument(argc, argv, 2, 150);
  program::use_device(0);
  char name[256];
  size_t bytes;
  CHECK(cuDeviceGetName(name, sizeof name, 0));
  CHECK(cuDeviceTotalMem(&bytes, 0));
  std::printf("device 0: %s, %zu MiB\n", name, bytes >> 20);
  CUfunction mandelbrot = program::load(kMandelbrotPtx, "mandelbrot");
  CUdeviceptr picture;
  CHECK(cuMemAlloc(&picture, kWidth * kHeight));

  std::vector<uint8_t> pixels;
  uint64_t hash = 0;
  for (long frame = frames - 1; frame >= 0; frame--) {
    const View v = view(frame);
    CHECK(program::launch(mandelbrot, (kWidth * kHeight + 127) / 128, 128, nullptr, picture, kWidth, kHeight, v.left, v.top,
                          v.step_x, v.step_y, kLimit));
    pixels = program::download<uint8_t>(picture, kWidth * kHeight);
    hash = hash * 31 + program::checksum(pixels);
    const timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
    if (frame) nanosleep(&pause, nullptr);
  }
  draw(pixels);
  uint32_t inside = 0;
  for (uint8_t n : pixels) inside += n == 255;
  std::printf("%ld frames, %u points inside, checksum %016llx\n", frames, inside, static_cast<unsigned long long>(hash));
  CHECK(cuMemFree(picture));
  return program::finish(inside > kWidth * kHeight / 20 && inside < kWidth * kHeight / 2);
}
