// SPDX-License-Identifier: Apache-2.0
// The CUDA dialect without a toolkit: attribute macros and the few device builtins that our kernels
// use, for Debian's clang with -nocudainc -nocudalib. Every .cu of the tests and the demo includes
// it, on the device side only. The software GPU and a real driver must both load the PTX made from
// it.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define KERNEL extern "C" __global__ void

typedef unsigned int uint32;
typedef unsigned long long uint64;

__device__ inline uint32 tid_x() { return __nvvm_read_ptx_sreg_tid_x(); }
__device__ inline uint32 tid_y() { return __nvvm_read_ptx_sreg_tid_y(); }
__device__ inline uint32 tid_z() { return __nvvm_read_ptx_sreg_tid_z(); }
__device__ inline uint32 ntid_x() { return __nvvm_read_ptx_sreg_ntid_x(); }
__device__ inline uint32 ntid_y() { return __nvvm_read_ptx_sreg_ntid_y(); }
__device__ inline uint32 ntid_z() { return __nvvm_read_ptx_sreg_ntid_z(); }
__device__ inline uint32 ctaid_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
__device__ inline uint32 ctaid_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
__device__ inline uint32 ctaid_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
__device__ inline uint32 nctaid_x() { return __nvvm_read_ptx_sreg_nctaid_x(); }
__device__ inline uint32 nctaid_y() { return __nvvm_read_ptx_sreg_nctaid_y(); }
__device__ inline uint32 nctaid_z() { return __nvvm_read_ptx_sreg_nctaid_z(); }
__device__ inline uint32 global_x() { return ctaid_x() * ntid_x() + tid_x(); }
__device__ inline void sync_threads() { __syncthreads(); }
__device__ inline void thread_fence() { __nvvm_membar_gl(); }

__device__ inline uint32 atomic_add(uint32* p, uint32 v) {
  return __nvvm_atom_add_gen_i((int*)p, (int)v);
}
__device__ inline float atomic_add(float* p, float v) { return __nvvm_atom_add_gen_f(p, v); }
__device__ inline uint64 atomic_add(uint64* p, uint64 v) {
  return __nvvm_atom_add_gen_ll((long long*)p, (long long)v);
}
__device__ inline uint32 atomic_exchange(uint32* p, uint32 v) {
  return __nvvm_atom_xchg_gen_i((int*)p, (int)v);
}
__device__ inline uint32 atomic_max(uint32* p, uint32 v) { return __nvvm_atom_max_gen_ui(p, v); }
__device__ inline uint32 atomic_min(uint32* p, uint32 v) { return __nvvm_atom_min_gen_ui(p, v); }
__device__ inline uint32 atomic_and(uint32* p, uint32 v) {
  return __nvvm_atom_and_gen_i((int*)p, (int)v);
}
__device__ inline uint32 atomic_or(uint32* p, uint32 v) {
  return __nvvm_atom_or_gen_i((int*)p, (int)v);
}
__device__ inline uint32 atomic_xor(uint32* p, uint32 v) {
  return __nvvm_atom_xor_gen_i((int*)p, (int)v);
}
__device__ inline uint32 atomic_cas(uint32* p, uint32 c, uint32 v) {
  return __nvvm_atom_cas_gen_i((int*)p, (int)c, (int)v);
}

// Shuffles over the full warp.
__device__ inline uint32 shuffle_down(uint32 v, uint32 delta) {
  return __nvvm_shfl_sync_down_i32(0xffffffff, v, delta, 31);
}
__device__ inline float shuffle_down(float v, uint32 delta) {
  return __nvvm_shfl_sync_down_f32(0xffffffff, v, delta, 31);
}
__device__ inline uint32 shuffle_xor(uint32 v, uint32 mask) {
  return __nvvm_shfl_sync_bfly_i32(0xffffffff, v, mask, 31);
}
__device__ inline uint32 ballot(bool predicate) {
  return __nvvm_vote_ballot_sync(0xffffffff, predicate);
}

extern "C" __device__ int printf(const char* format, ...);
extern "C" __device__ void* malloc(decltype(sizeof 0) bytes);
extern "C" __device__ void free(void* block);
extern "C" __device__ __attribute__((noreturn)) void __assertfail(const char* message,
                                                                  const char* file, uint32 line,
                                                                  const char* function,
                                                                  unsigned long char_size);
