# SPDX-License-Identifier: Apache-2.0
"""CuPy: element-wise kernels by NVRTC, raw kernels and modules, FFT, linear algebra, sparse
matrices, the memory pool, streams."""

import checks
from checks import check

cupy = checks.need("cupy")
cupy.random.seed(13)


def field(*shape, kind=cupy.float32):
    count = int(cupy.prod(cupy.array(shape)))
    return ((cupy.arange(count) * 7919 % 10007) / 5003 - 1).astype(kind).reshape(shape)


@check
def elementwise():
    x = field(1000, 1000)
    blend = cupy.ElementwiseKernel(
        "float32 x, float32 y", "float32 z", "z = x * 0.5f + y * y", "blend"
    )
    fused = cupy.fuse(lambda a, b: cupy.sqrt(cupy.abs(a)) * b + 2)
    return (
        cupy.sin(x) * 2 + x,
        blend(x, x.T),
        fused(x, x),
        cupy.where(x > 0, x, 0),
        (x * 100).astype(cupy.int8),
    )


@check
def reductions():
    x = field(512, 777, kind=cupy.float64)
    norm = cupy.ReductionKernel(
        "float64 x", "float64 y", "x * x", "a + b", "y = sqrt(a)", "0", "norm"
    )
    return (
        x.sum(),
        x.max(0),
        x.argmin(1),
        norm(x),
        cupy.cumsum(x[0]),
        x.std(),
        cupy.percentile(x, 30),
    )


@check
def raw_kernel():
    twice = cupy.RawKernel(
        r"""extern "C" __global__ void twice(float* v, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) v[i] *= 2; }""",
        "twice",
    )
    x = field(1 << 20)
    y = x.copy()
    twice((4096,), (256,), (y, y.size))
    return bool((y == x * 2).all()), y, twice.num_regs > 0, twice.max_threads_per_block


@check
def raw_module():
    module = cupy.RawModule(
        code=r"""
      __constant__ float weights[4];
      template <typename T> __global__ void weigh(const T* in, T* out, int n) {
        extern __shared__ char raw[]; T* tile = reinterpret_cast<T*>(raw);
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        tile[threadIdx.x] = i < n ? in[i] : T(0); __syncthreads();
        if (i < n) out[i] = tile[threadIdx.x ^ 1] * T(weights[i % 4]); }""",
        options=("-std=c++14",),
        name_expressions=["weigh<float>", "weigh<double>"],
    )
    weights = cupy.ndarray(4, cupy.float32, module.get_global("weights"))
    weights[...] = cupy.array([1, 2, 3, 4], dtype=cupy.float32)
    out = []
    for kind in (cupy.float32, cupy.float64):
        x, y = field(4096, kind=kind), cupy.empty(4096, dtype=kind)
        name = "weigh<float>" if kind == cupy.float32 else "weigh<double>"
        module.get_function(name)((32,), (128,), (x, y, 4096), shared_mem=128 * 8)
        out.append(y)
    return out


@check
def broken_kernel():
    try:
        cupy.RawKernel('extern "C" __global__ void broken() { nonsense; }', "broken").compile()
        return "not refused"
    except cupy.cuda.compiler.CompileException as error:
        return type(error).__name__, "nonsense" in str(error)


@check
def fft():
    x = field(64, 1000)
    return (
        cupy.fft.fft(x),
        cupy.fft.irfft(cupy.fft.rfft(x)),
        cupy.fft.fft2(x),
        cupy.fft.fftshift(cupy.fft.fftfreq(10)),
    )


@check
def linear_algebra():
    a = field(120, 120, kind=cupy.float64) + cupy.eye(120) * 60
    s = a @ a.T
    values, vectors = cupy.linalg.eigh(s)
    u, sizes, v = cupy.linalg.svd(a)
    return (
        a @ a,
        cupy.linalg.solve(a, a[:, :3]),
        cupy.linalg.inv(a),
        cupy.linalg.cholesky(s),
        values,
        sizes,
        bool(cupy.allclose(vectors * values @ vectors.T, s)),
        bool(cupy.allclose(u * sizes @ v, a)),
        cupy.linalg.det(a),
    )


@check
def products():
    x = field(512, 512)
    half = x.astype(cupy.float16)
    return (
        x @ x,
        half @ half,
        cupy.einsum("ij,kj->ik", x, x),
        cupy.tensordot(x.reshape(8, 64, 512), x, 1),
        cupy.dot(x[0], x[1]),
    )


@check
def sparse():
    from cupyx.scipy import sparse as matrices

    dense = field(300, 200) * (field(300, 200) > 0.9)
    a = matrices.csr_matrix(dense)
    b = field(200, 16)
    return (
        a.nnz,
        a @ b,
        a.dot(b[:, 0]),
        a.T.tocsr().toarray(),
        (a @ a.T).toarray(),
        a.tocoo().tocsc().sum(0),
    )


@check
def sorting():
    x = field(1 << 20)
    return (
        cupy.sort(x),
        cupy.argsort(x[:5000]),
        cupy.unique((x * 100).astype(cupy.int32)),
        cupy.partition(x, 1000)[1000],
    )


@check
def random_numbers():
    generator = cupy.random.default_rng(5)
    return (
        cupy.random.rand(1000),
        cupy.random.randint(0, 9, 1000),
        generator.standard_normal(1000),
        cupy.random.permutation(99),
    )


@check
def memory_pool():
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        block = cupy.zeros(10_000_000, dtype=cupy.uint8)
        used, total = pool.used_bytes(), pool.total_bytes()
        del block
        after = pool.used_bytes()
        pool.free_all_blocks()
        limited = cupy.cuda.MemoryPool()
    limited.set_limit(size=1 << 20)
    with cupy.cuda.using_allocator(limited.malloc):
        try:
            cupy.zeros(1 << 22, dtype=cupy.uint8)
            said = "not refused"
        except cupy.cuda.memory.OutOfMemoryError as error:
            said = type(error).__name__
    return used, total, after, pool.total_bytes(), said


@check
def other_memory():
    out = []
    for allocator in (cupy.cuda.MemoryAsyncPool().malloc, cupy.cuda.malloc_managed):
        with cupy.cuda.using_allocator(allocator):
            out.append(cupy.arange(100_000) * 2)
    pinned = cupy.cuda.alloc_pinned_memory(4096)
    import numpy

    host = numpy.frombuffer(pinned, dtype=numpy.float32, count=1024)
    host[...] = numpy.arange(1024)
    out.append(cupy.asarray(host) + 1)
    return out


@check
def streams_and_events():
    x, begin, end = field(1 << 20), cupy.cuda.Event(), cupy.cuda.Event()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.wait_event(cupy.cuda.Stream.null.record())
        begin.record()
        for _ in range(20):
            x = x * 1.01 + 0.5
        end.record()
        stream.synchronize()
    print(f"time between the events {cupy.cuda.get_elapsed_time(begin, end):.3f} ms")
    called = []
    stream.launch_host_func(called.append, 7)
    stream.synchronize()
    return x, stream.done, called, begin.done


@check
def graph_capture():
    x, stream = field(1000), cupy.cuda.Stream(non_blocking=True)
    with stream:
        y = x * 2
        stream.begin_capture()
        cupy.multiply(x, 2, out=y)
        cupy.add(y, 1, out=x)
        graph = stream.end_capture()
        for _ in range(4):
            graph.launch(stream)
        stream.synchronize()
    return x


@check
def out_of_memory():
    try:
        cupy.zeros(1 << 50, dtype=cupy.uint8)
        return "not refused"
    except cupy.cuda.memory.OutOfMemoryError as error:
        return type(error).__name__, cupy.arange(5).sum()


@check
def images_and_filters():
    from cupyx.scipy import ndimage, signal

    x = field(128, 128)
    return (
        ndimage.gaussian_filter(x, 2),
        ndimage.rotate(x, 30, order=1),
        signal.convolve2d(x, x[:5, :5], mode="same"),
    )


@check
def device():
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return (
        cupy.cuda.runtime.getDeviceCount(),
        properties["name"].decode(),
        cupy.cuda.Device(0).compute_capability,
    )


checks.run()
