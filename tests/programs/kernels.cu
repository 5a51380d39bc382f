// SPDX-License-Identifier: Apache-2.0
// Kernels of the small programs in this folder.
#include "tests/conformance/kernels/device.h"

KERNEL vector_add(const float* a, const float* b, float* c, uint32 n) {
  uint32 i = global_x();
  if (i < n) c[i] = a[i] + b[i];
}

// c = a * b for square matrices, 16 x 16 tiles through shared memory. Grid in x only: block index =
// tile row * tiles + tile column.
KERNEL matrix_multiply(const float* a, const float* b, float* c, uint32 n) {
  __shared__ float tile_a[16][16], tile_b[16][16];
  uint32 tiles = n / 16;
  uint32 x = tid_x() % 16, y = tid_x() / 16;
  uint32 row = ctaid_x() / tiles * 16 + y, column = ctaid_x() % tiles * 16 + x;
  float sum = 0;
  for (uint32 t = 0; t < tiles; t++) {
    tile_a[y][x] = a[row * n + t * 16 + x];
    tile_b[y][x] = b[(t * 16 + y) * n + column];
    sync_threads();
    for (uint32 k = 0; k < 16; k++) sum += tile_a[y][k] * tile_b[k][x];
    sync_threads();
  }
  c[row * n + column] = sum;
}

// One partial sum per block: shuffles inside warps, shared memory between them.
KERNEL reduce(const uint32* in, uint32* partial, uint32 n) {
  __shared__ uint32 warp_sums[32];
  uint32 sum = 0;
  for (uint32 i = global_x(); i < n; i += ntid_x() * nctaid_x()) sum += in[i];
  for (uint32 delta = 16; delta > 0; delta /= 2) sum += shuffle_down(sum, delta);
  if (tid_x() % 32 == 0) warp_sums[tid_x() / 32] = sum;
  sync_threads();
  if (tid_x() < 32) {
    sum = tid_x() < ntid_x() / 32 ? warp_sums[tid_x()] : 0;
    for (uint32 delta = 16; delta > 0; delta /= 2) sum += shuffle_down(sum, delta);
    if (tid_x() == 0) partial[ctaid_x()] = sum;
  }
}

KERNEL histogram(const unsigned char* in, uint32 n, uint32* bins) {
  __shared__ uint32 local[256];
  for (uint32 i = tid_x(); i < 256; i += ntid_x()) local[i] = 0;
  sync_threads();
  for (uint32 i = global_x(); i < n; i += ntid_x() * nctaid_x()) atomic_add(&local[in[i]], 1u);
  sync_threads();
  for (uint32 i = tid_x(); i < 256; i += ntid_x()) atomic_add(&bins[i], local[i]);
}

KERNEL affine(uint32* data, uint32 factor, uint32 addend, uint32 n) {
  uint32 i = global_x();
  if (i < n) data[i] = data[i] * factor + addend;
}

// A layer of a network that learns, for `rows` examples at once. One thread for each result, and
// sums in a fixed order, so that every run has the same bits.
KERNEL dense(const float* in, const float* weights, float* out, uint32 rows, uint32 inputs,
             uint32 outputs, uint32 rectifies) {
  uint32 i = global_x();
  if (i >= rows * outputs) return;
  uint32 row = i / outputs, column = i % outputs;
  float sum = 0;
  for (uint32 k = 0; k < inputs; k++) sum += in[row * inputs + k] * weights[k * outputs + column];
  out[i] = rectifies && sum < 0 ? 0 : sum;
}

// What the errors of a rectifying layer's results say about those of the layer before it.
KERNEL dense_errors(const float* errors, const float* weights, const float* activations,
                    float* before, uint32 rows, uint32 inputs, uint32 outputs) {
  uint32 i = global_x();
  if (i >= rows * inputs) return;
  uint32 row = i / inputs, column = i % inputs;
  float sum = 0;
  for (uint32 k = 0; k < outputs; k++)
    sum += errors[row * outputs + k] * weights[column * outputs + k];
  before[i] = activations[i] > 0 ? sum : 0;
}

KERNEL dense_learn(const float* in, const float* errors, float* weights, uint32 rows, uint32 inputs,
                   uint32 outputs, float rate) {
  uint32 i = global_x();
  if (i >= inputs * outputs) return;
  uint32 row = i / outputs, column = i % outputs;
  float sum = 0;
  for (uint32 k = 0; k < rows; k++) sum += in[k * inputs + row] * errors[k * outputs + column];
  weights[i] -= rate * sum;
}

KERNEL subtract(float* from, const float* what, uint32 n) {
  uint32 i = global_x();
  if (i < n) from[i] -= what[i];
}

KERNEL nothing() {}

KERNEL write_at(uint32* address, uint32 value) { *(volatile uint32*)address = value; }

// Plays `rounds` turns with the host through one word that both see. The host writes odd numbers,
// this thread the even ones. After `patience` looks without a turn it gives up and leaves the word
// as it is.
KERNEL take_turns(volatile uint32* word, uint32 rounds, uint32 patience) {
  for (uint32 turn = 0; turn < rounds; turn++) {
    uint32 looks = 0;
    while (*word != 2 * turn + 1) {
      if (++looks == patience) return;
    }
    *word = 2 * turn + 2;
  }
}

// Fixed amounts of work for share_meter. Each has a name, so that the software GPU can be told how
// long it takes.
__device__ inline void multiply_and_add(float* out, uint32 rounds) {
  float x = (float)tid_x();
  for (uint32 i = 0; i < rounds; i++) {
#pragma unroll
    for (uint32 k = 0; k < 16; k++) x = __builtin_fmaf(x, 0.9999f, 0.5f);
  }
  if (x == -1.0f) out[0] = x;  // never happens, but the compiler does not know that
}

KERNEL share_tiny(float* out, uint32 rounds) { multiply_and_add(out, rounds); }
KERNEL share_short(float* out, uint32 rounds) { multiply_and_add(out, rounds); }
KERNEL share_medium(float* out, uint32 rounds) { multiply_and_add(out, rounds); }
KERNEL share_long(float* out, uint32 rounds) { multiply_and_add(out, rounds); }

typedef float float4 __attribute__((ext_vector_type(4)));

KERNEL share_memory(float4* data, uint32 count, uint32 rounds) {
  for (uint32 round = 0; round < rounds; round++) {
    for (uint32 i = global_x(); i < count; i += ntid_x() * nctaid_x())
      data[i] = data[i] * 0.5f + 1.0f;
  }
}

// Ways in which a bad neighbour ends. `endless` waits for what nobody writes.
KERNEL bad_assert(uint32 limit) {
  if (tid_x() >= limit) __assertfail("tid_x() < limit", "kernels.cu", 100, "bad_assert", 1);
}
KERNEL bad_trap() { __builtin_trap(); }
KERNEL bad_endless(volatile uint32* word) {
  while (*word == 0) {
  }
}
