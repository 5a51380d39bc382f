// SPDX-License-Identifier: Apache-2.0
// Kernels of the conformance suite: arithmetic, memory spaces, warps, atomics and parameter
// layouts. Everything is exact, in integers or in floats that hold small integers, so results are
// equal on every device. faults.cu has the faults.
#include "tests/conformance/kernels/device.h"

__device__ uint32 counter = 5;
__device__ uint32 table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
__constant__ uint32 coefficients[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__device__ uint32 zeroed[1024];

KERNEL nothing() {}

KERNEL vector_add(const float* a, const float* b, float* c, uint32 n) {
  uint32 i = global_x();
  if (i < n) c[i] = a[i] + b[i];
}

KERNEL fill(uint32* out, uint32 value, uint32 n) {
  uint32 i = global_x();
  if (i < n) out[i] = value;
}

KERNEL iota(uint32* out, uint32 start, uint32 n) {
  uint32 i = global_x();
  if (i < n) out[i] = start + i;
}

// Polls a word that the host writes while this runs; 0 if it never came.
KERNEL await_word(const uint32* word, uint32* out, uint32 tries) {
  uint32 seen = 0;
  while (seen == 0 && tries-- != 0) seen = *(const volatile uint32*)word;
  *out = seen;
}

// The same. Afterwards reads what lies elsewhere.
KERNEL await_and_read(const uint32* word, const uint32* data, uint32* out, uint32 tries) {
  uint32 seen = 0;
  while (seen == 0 && tries-- != 0) seen = *(const volatile uint32*)word;
  out[0] = seen;
  out[1] = *(const volatile uint32*)data;
}

// Not commutative, so that a chain of launches reveals their order.
KERNEL affine(uint32* data, uint32 factor, uint32 addend, uint32 n) {
  uint32 i = global_x();
  if (i < n) data[i] = data[i] * factor + addend;
}

KERNEL copy_words(uint32* out, const uint32* in, uint32 n) {
  uint32 i = global_x();
  if (i < n) out[i] = in[i];
}

// out[linear thread index] = the coordinates, 4 bits each.
KERNEL coordinates(uint32* out) {
  uint32 block = (ctaid_z() * nctaid_y() + ctaid_y()) * nctaid_x() + ctaid_x();
  uint32 thread = (tid_z() * ntid_y() + tid_y()) * ntid_x() + tid_x();
  uint32 where = block * (ntid_x() * ntid_y() * ntid_z()) + thread;
  out[where] =
      ctaid_x() | ctaid_y() << 4 | ctaid_z() << 8 | tid_x() << 12 | tid_y() << 16 | tid_z() << 20;
}

KERNEL reverse_static(uint32* data) {
  __shared__ uint32 buffer[256];
  buffer[tid_x()] = data[tid_x()];
  sync_threads();
  data[tid_x()] = buffer[ntid_x() - 1 - tid_x()];
}

extern __shared__ uint32 dynamic_buffer[];

KERNEL reverse_dynamic(uint32* data, uint32 per_thread) {
  uint32 n = per_thread * ntid_x();
  for (uint32 i = tid_x(); i < n; i += ntid_x()) dynamic_buffer[i] = data[i];
  sync_threads();
  for (uint32 i = tid_x(); i < n; i += ntid_x()) data[i] = dynamic_buffer[n - 1 - i];
}

KERNEL warp_sum(const uint32* in, uint32* out) {
  uint32 v = in[global_x()];
  for (uint32 delta = 16; delta > 0; delta /= 2) v += shuffle_down(v, delta);
  if (tid_x() % 32 == 0) atomic_add(out, v);
}

KERNEL warp_ballot(uint32* out, uint32 divisor) {
  uint32 mask = ballot(tid_x() % divisor == 0);
  if (tid_x() % 32 == 0) out[global_x() / 32] = mask;
}

KERNEL warp_butterfly(uint32* data) { data[tid_x()] = shuffle_xor(data[tid_x()], 5); }

// out: add, exchange count, max, min, and, or, xor, cas counter; 64-bit sum in out64; float sum in
// outf.
KERNEL atomics(uint32* out, uint64* out64, float* outf) {
  uint32 i = global_x();
  atomic_add(&out[0], i);
  if (atomic_exchange(&out[1], 1) == 0) atomic_add(&out[8], 1);
  atomic_max(&out[2], i);
  atomic_min(&out[3], i);
  atomic_and(&out[4], ~(1u << (i % 8)));
  atomic_or(&out[5], 1u << (i % 8));
  atomic_xor(&out[6], i);
  for (uint32 seen = out[7];;) {
    uint32 now = atomic_cas(&out[7], seen, seen + 2);
    if (now == seen) break;
    seen = now;
  }
  atomic_add(out64, (uint64)i << 30);
  atomic_add(outf, 1.0f);
}

KERNEL histogram(const unsigned char* in, uint32 n, uint32* bins) {
  for (uint32 i = global_x(); i < n; i += ntid_x() * nctaid_x()) atomic_add(&bins[in[i] % 16], 1u);
}

KERNEL bump_counter(uint32 by) { atomic_add(&counter, by); }
KERNEL read_counter(uint32* out) { *out = counter; }
KERNEL read_table(uint32* out) { out[tid_x()] = table[tid_x()] + zeroed[tid_x()]; }
KERNEL read_constants(uint32* out) { out[tid_x()] = coefficients[tid_x()]; }

struct Triple {
  uint32 a, b, c;
};
struct Odd {
  unsigned char bytes[7];
};

// Every alignment that a parameter list can have: offsets 0, 2, 4, 8, 16, 28, 40, 48.
KERNEL mixed_params(unsigned char c, short s, int i, double d, Triple triple, Odd odd, long long l,
                    long long* out) {
  out[0] = c;
  out[1] = s;
  out[2] = i;
  out[3] = (long long)d;
  out[4] = triple.a + triple.b + triple.c;
  long long sum = 0;
  for (int k = 0; k < 7; k++) sum = sum * 3 + odd.bytes[k];
  out[5] = sum;
  out[6] = l;
}

struct Big {
  uint32 words[1000];
};
KERNEL big_param(Big big, uint32* out) {
  for (uint32 i = tid_x(); i < 1000; i += ntid_x()) out[i] = big.words[i] + 1;
}

extern "C" __global__ void __launch_bounds__(128) bounded(uint32* out) { out[global_x()] = 1; }

// Uses a per-thread array with indices unknown at compile time, so it has to live in local memory.
KERNEL local_array(uint32* out, uint32 n) {
  volatile uint32 scratch[64];
  for (uint32 i = 0; i < 64; i++) scratch[i] = i * i + tid_x();
  uint32 sum = 0;
  for (uint32 i = 0; i < n; i++) sum += scratch[(i * 7 + tid_x()) % 64];
  out[tid_x()] = sum;
}

// A barrier over the whole grid. All blocks must be resident together, which a cooperative launch
// promises.
KERNEL grid_barrier(uint32* arrived, uint32* values, uint32* sums) {
  uint32 blocks = nctaid_x();
  if (tid_x() == 0) {
    values[ctaid_x()] = ctaid_x() + 1;
    thread_fence();
    atomic_add(arrived, 1u);
    while (*(volatile uint32*)arrived < blocks) {
    }
    thread_fence();
    uint32 sum = 0;
    for (uint32 i = 0; i < blocks; i++) sum += ((volatile uint32*)values)[i];
    sums[ctaid_x()] = sum;
  }
}

KERNEL divide(const int* a, const int* b, int* quotient, int* remainder, uint32* uquotient) {
  uint32 i = tid_x();
  quotient[i] = a[i] / b[i];
  remainder[i] = a[i] % b[i];
  uquotient[i] = (uint32)a[i] / (uint32)b[i];
}

KERNEL chain(uint32** head, uint32* out) {
  uint32* p = head[tid_x()];
  out[tid_x()] = *p;
}

// Every thread keeps a value in its own memory for a while.
KERNEL heap_round_trip(uint32* out) {
  uint32* mine = (uint32*)malloc(256);
  if (!mine) return;
  for (uint32 i = 0; i < 64; i++) mine[i] = global_x() + i;
  sync_threads();
  uint32 sum = 0;
  for (uint32 i = 0; i < 64; i++) sum += mine[i];
  out[global_x()] = sum;
  free(mine);
}
