# SPDX-License-Identifier: Apache-2.0
"""CuPy: cuBLAS, element-wise kernels by NVRTC, a raw kernel, reductions, sorting, FFT, the memory pool."""
import zlib

import cupy


def crc(array):
    return f"{zlib.crc32(cupy.ascontiguousarray(array).get().tobytes()):08x}"


x = (cupy.arange(1 << 20, dtype=cupy.float32) * 7919 % 1000).reshape(1024, 1024) / 1000
print("matmul", crc(x @ x))
print("element-wise", crc(cupy.sqrt(x) * 2 + cupy.sin(x)), "sum", float(x.astype(cupy.float64).sum()))
print("sort", crc(cupy.sort(x.ravel())), "fft", crc(cupy.fft.fft(x[0])))
double = cupy.RawKernel(r"""extern "C" __global__ void twice(float* v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) v[i] *= 2; }""", "twice")
y = x.copy()
double((4096,), (256,), (y, y.size))
print("raw kernel", bool((y == x * 2).all()))
with cupy.cuda.Stream(non_blocking=True) as stream:
    z = y + 1
    stream.synchronize()
print("stream", crc(z), cupy.get_default_memory_pool().used_bytes() > 0)
