// SPDX-License-Identifier: Apache-2.0
// Kernels that read textures and write surfaces through objects. In PTX, because there is no
// toolkit with headers for them.
#include "tests/conformance/kernels/device.h"

// One sample per thread at (x, y) plus `step` for each thread.
KERNEL sample_2d(uint64 texture, float x, float y, float step, float* out) {
  const uint32 i = tid_x();
  float r, g, b, a;
  asm volatile("tex.2d.v4.f32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
               : "=f"(r), "=f"(g), "=f"(b), "=f"(a)
               : "l"(texture), "f"(x + step * (float)i), "f"(y));
  out[i] = r;
}

KERNEL fetch_1d(uint64 texture, uint32* out) {
  const uint32 i = tid_x();
  uint32 r, g, b, a;
  asm volatile("tex.1d.v4.u32.s32 {%0, %1, %2, %3}, [%4, {%5}];"
               : "=r"(r), "=r"(g), "=r"(b), "=r"(a)
               : "l"(texture), "r"(i));
  out[i] = r;
}

KERNEL sample_layer(uint64 texture, float* out) {
  const uint32 layer = tid_x();
  float r, g, b, a;
  asm volatile("tex.a2d.v4.f32.f32 {%0, %1, %2, %3}, [%4, {%5, %6, %6, %6}];"
               : "=f"(r), "=f"(g), "=f"(b), "=f"(a)
               : "l"(texture), "r"(layer), "f"(0.5f));
  out[layer] = r;
}

KERNEL sample_level(uint64 texture, float* out) {
  const uint32 level = tid_x();
  float r, g, b, a;
  asm volatile("tex.level.2d.v4.f32.f32 {%0, %1, %2, %3}, [%4, {%5, %5}], %6;"
               : "=f"(r), "=f"(g), "=f"(b), "=f"(a)
               : "l"(texture), "f"(0.5f), "f"((float)level));
  out[level] = r;
}

// Thread (x, y) writes x + 100 y, then reads the transposed place into `out`.
KERNEL surface_write(uint64 surface) {
  const uint32 x = tid_x(), y = tid_y(), v = x + 100 * y;
  asm volatile("sust.b.2d.b32.trap [%0, {%1, %2}], %3;" ::"l"(surface), "r"(4 * x), "r"(y), "r"(v)
               : "memory");
}
KERNEL surface_read(uint64 surface, uint32* out) {
  const uint32 x = tid_x(), y = tid_y();
  uint32 v;
  asm volatile("suld.b.2d.b32.zero %0, [%1, {%2, %3}];"
               : "=r"(v)
               : "l"(surface), "r"(4 * y), "r"(x)
               : "memory");
  out[y * ntid_x() + x] = v;
}
