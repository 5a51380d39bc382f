// SPDX-License-Identifier: Apache-2.0
// The demo's kernel: one thread per picture point, escape time of the Mandelbrot iteration.
#define KERNEL extern "C" __attribute__((global)) void
typedef unsigned int uint32;

KERNEL mandelbrot(unsigned char* out, uint32 width, uint32 height, float left, float top,
                  float step_x, float step_y, uint32 limit) {
  uint32 i =
      __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  if (i >= width * height) return;
  float cx = left + step_x * (float)(i % width), cy = top + step_y * (float)(i / width);
  float x = 0, y = 0;
  uint32 n = 0;
  while (n < limit && x * x + y * y <= 4.0f) {
    float next = x * x - y * y + cx;
    y = 2 * x * y + cy;
    x = next;
    n++;
  }
  out[i] = n == limit ? 255 : (unsigned char)(n % 255);
}
