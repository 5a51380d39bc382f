// SPDX-License-Identifier: Apache-2.0
// The five kernels that measure the software GPU's speed; see softgpu_bench.cc.
#include "tests/conformance/kernels/device.h"

KERNEL vector_add(const float* a, const float* b, float* c, uint32 n) {
  uint32 i = global_x();
  if (i < n) c[i] = a[i] + b[i];
}

// Each block halves its 256 values in shared memory until one is left.
KERNEL reduce_shared(const float* in, float* out, uint32 n) {
  __shared__ float part[256];
  uint32 t = tid_x(), i = ctaid_x() * 512 + t;
  part[t] = (i < n ? in[i] : 0.0f) + (i + 256 < n ? in[i + 256] : 0.0f);
  sync_threads();
  for (uint32 s = 128; s > 0; s /= 2) {
    if (t < s) part[t] += part[t + s];
    sync_threads();
  }
  if (t == 0) out[ctaid_x()] = part[0];
}

// c = a * b for n x n matrices, 16 x 16 tiles.
KERNEL multiply_tiled(const float* a, const float* b, float* c, uint32 n) {
  __shared__ float tile_a[16][16], tile_b[16][16];
  uint32 x = tid_x(), y = tid_y(), row = ctaid_y() * 16 + y, column = ctaid_x() * 16 + x;
  float sum = 0;
  for (uint32 t = 0; t < n; t += 16) {
    tile_a[y][x] = a[row * n + t + x];
    tile_b[y][x] = b[(t + y) * n + column];
    sync_threads();
    for (uint32 k = 0; k < 16; k++) sum += tile_a[y][k] * tile_b[k][x];
    sync_threads();
  }
  c[row * n + column] = sum;
}

// Neighbouring threads leave the loop at different times.
KERNEL mandelbrot(uint32* out, uint32 width, uint32 limit) {
  uint32 x = ctaid_x() * 16 + tid_x(), y = ctaid_y() * 16 + tid_y();
  float cr = -2.0f + 3.0f * x / width, ci = -1.5f + 3.0f * y / width, zr = 0, zi = 0;
  uint32 k = 0;
  while (k < limit && zr * zr + zi * zi < 4.0f) {
    float next = zr * zr - zi * zi + cr;
    zi = 2.0f * zr * zi + ci;
    zr = next;
    k++;
  }
  out[y * width + x] = k;
}

// Four independent chains, so that the latency of one does not hold a plain loop up.
KERNEL fma_chain(float* out, float a, float b, uint32 rounds) {
  float w = global_x(), x = w + 1, y = w + 2, z = w + 3;
  for (uint32 i = 0; i < rounds; i++) {
    w = __builtin_fmaf(w, a, b);
    x = __builtin_fmaf(x, a, b);
    y = __builtin_fmaf(y, a, b);
    z = __builtin_fmaf(z, a, b);
  }
  out[global_x()] = w + x + y + z;
}
