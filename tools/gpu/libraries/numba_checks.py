# SPDX-License-Identifier: Apache-2.0
"""Numba: kernels in Python, compiled here and launched through numba-cuda."""

import math

import checks
from checks import check

np = checks.need("numpy")
np.row_stack = np.vstack  # it has dropped the name, which Numba still uses
numba = checks.need("numba")
from numba import cuda, float32  # noqa: E402

SIDE = 16


@cuda.jit
def add(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + math.sqrt(b[i])


@cuda.jit
def multiply(a, b, out):
    left = cuda.shared.array((SIDE, SIDE), float32)
    right = cuda.shared.array((SIDE, SIDE), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for step in range(a.shape[1] // SIDE):
        left[ty, tx] = a[y, step * SIDE + tx]
        right[ty, tx] = b[step * SIDE + ty, x]
        cuda.syncthreads()
        for k in range(SIDE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    out[y, x] = total


@cuda.jit
def histogram(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, values[i] & 63, 1)


@cuda.jit
def divide(a, out):
    out[cuda.grid(1)] = 1 // a[cuda.grid(1)]


@cuda.jit
def fold(a):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    for _ in range(4):
        value = a[(i + 1) % a.size]
        grid.sync()
        a[i] = value + 1
        grid.sync()


def numbers(*shape, seed=1):
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


@check
def vector():
    a, b = numbers(100_003), numbers(100_003, seed=2)
    out = np.zeros_like(a)
    add[(a.size + 255) // 256, 256](a, b, out)
    return out


@check
def tiles():
    a, b = numbers(256, 256), numbers(256, 256, seed=2)
    out = cuda.device_array((256, 256), np.float32)
    multiply[(16, 16), (SIDE, SIDE)](cuda.to_device(a), cuda.to_device(b), out)
    return out.copy_to_host()


@check
def atomics():
    counts = np.zeros(64, np.int32)
    values = np.random.default_rng(3).integers(0, 1 << 20, 50_000).astype(np.int32)
    histogram[(values.size + 127) // 128, 128](values, counts)
    return counts, int(counts.sum())


@check
def reduction():
    total = cuda.reduce(lambda a, b: a + b)
    return float(total(np.arange(10_000, dtype=np.float64)))


@check
def streams():
    out = []
    for seed in range(4):
        stream = cuda.stream()
        with stream.auto_synchronize():
            a = cuda.to_device(numbers(5000, seed=seed), stream=stream)
            b = cuda.device_array_like(a, stream=stream)
            add[20, 256, stream](a, a, b)
            out.append(b.copy_to_host(stream=stream))
    return out


@check
def pinned_and_mapped():
    pinned, mapped = cuda.pinned_array(1000, np.float32), cuda.mapped_array(1000, np.float32)
    pinned[:] = numbers(1000)
    mapped[:] = 0
    add[4, 256](cuda.to_device(pinned), pinned, mapped)
    cuda.synchronize()
    return np.array(mapped)


@check
def events_and_memory():
    begin, end = cuda.event(), cuda.event()
    begin.record()
    vector_again = cuda.to_device(numbers(1000))
    end.record()
    end.synchronize()
    free, total = cuda.current_context().get_memory_info()
    return begin.elapsed_time(end) >= 0, free < total, vector_again.size


@check
def grid_wide_barrier():
    a = cuda.to_device(np.arange(512, dtype=np.int64))
    fold[2, 256](a)
    return a.copy_to_host()


@check
def random_states():
    from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

    @cuda.jit
    def draw(states, out):
        i = cuda.grid(1)
        out[i] = xoroshiro128p_uniform_float32(states, i)

    out = cuda.device_array(256, np.float32)
    draw[1, 256](create_xoroshiro128p_states(256, seed=5), out)
    return out.copy_to_host()


@check
def ufunc():
    @numba.vectorize(["float32(float32, float32)"], target="cuda")
    def hypot(a, b):
        return math.sqrt(a * a + b * b)

    return hypot(numbers(4000), numbers(4000, seed=2))


@check
def division_by_zero():
    out = cuda.device_array(32, np.int32)
    divide[1, 32](np.ones(32, np.int32), out)
    return out.copy_to_host()


checks.run()
