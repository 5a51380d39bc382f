# SPDX-License-Identifier: Apache-2.0
"""JAX by stages, from finding the device to a training loop, so that the first line that differs
names the call that fails.

With the word preallocate: what changes if XLA takes most of the memory at the start, which is
its default. With JAX_STAGES_LOG=1 XLA says on stderr what it compiles, autotunes and tries.
"""

import os
import sys

if os.environ.get("JAX_STAGES_LOG"):
    os.environ |= {
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_MAX_VLOG_LEVEL": "2",
        "JAX_TRACEBACK_FILTERING": "off",
        "TF_CPP_VMODULE": "autotuner=5,gemm_fusion_autotuner=5,gemm_algorithm_picker=5,"
        "conv_algorithm_picker=5,autotuner_pass=5,gpu_codegen_backend=3,"
        "redzone_allocator=5,gpu_profiler=5,cuda_executor=3,cuda_blas_lt=5,cuda_dnn=3",
    }
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=4"

import checks  # noqa: E402
from checks import check, check_each  # noqa: E402
import jax_workloads  # noqa: E402

jax = checks.need("jax")
jnp = jax.numpy
PREALLOCATE = "preallocate" in sys.argv
if checks.DEVICE == "cpu":
    jax.config.update("jax_platforms", "cpu")


def normal(seed, *shape, kind=jnp.float32):
    return jax.random.normal(jax.random.PRNGKey(seed), shape, dtype=jnp.float32).astype(kind)


def stages():
    """In the order of dependence: no product before `product_*`, because XLA autotunes products."""
    check(devices)
    check(put_and_get)
    check(one_kernel)
    check(random_bits)
    check(jit_elementwise)
    check(reduction)
    check_each(fp32=jnp.float32, bf16=jnp.bfloat16, fp16=jnp.float16, fp64=jnp.float64)(product)
    check(product_and_activation)
    check(convolution)
    check(gradient)
    check(vmapped)
    check(scanned)
    check(control_flow)
    check(linear_algebra)
    check(fft_and_sort)
    check(attention)
    check(training_loop)
    check(transformer)
    check(donated)
    check(callback_on_the_host)
    check(out_of_memory)


def devices():
    return [device.platform for device in jax.devices()], [
        device.device_kind for device in jax.devices()
    ]


def put_and_get():
    import numpy

    x = jax.device_put(numpy.arange(1 << 20, dtype=numpy.float32))
    return x.block_until_ready()


def one_kernel():
    return jnp.arange(1000) + 1


def random_bits():
    key = jax.random.PRNGKey(12)
    return (
        jax.random.bits(key, (1000,)),
        jax.random.uniform(key, (1000,)),
        normal(12, 1024, 1024),
        jax.random.permutation(key, 100),
        jax.random.categorical(key, jnp.zeros((50, 10))),
    )


def jit_elementwise():
    x = normal(1, 1024, 1024)
    for _ in range(20):
        x = jax.jit(lambda a: a * 0.5 + 0.25)(x)
    return x, jax.jit(lambda a: jnp.tanh(a) + jnp.exp(-a * a))(x)


def reduction():
    x = normal(2, 1000, 777)
    return x.sum(), jax.jit(lambda a: (a.max(0), a.argmax(1), a.var(), jax.nn.softmax(a)))(x)


def product(kind):
    if kind == jnp.float64:
        with jax.enable_x64(True):
            x = normal(3, 512, 512).astype(jnp.float64)
            return x.dtype, jax.jit(jnp.matmul)(x, x)
    x = normal(3, 1024, 1024, kind=kind)
    return jax.jit(jnp.matmul)(x, x)


def product_and_activation():
    x = normal(4, 1024, 1024)
    return jax.jit(lambda a: jnp.tanh(a @ a).sum())(x), jax.jit(
        lambda a, b: jax.nn.gelu(a @ b + a[0])
    )(x, x)


def convolution():
    image, weights = normal(5, 4, 32, 32, 16), normal(6, 3, 3, 16, 32)
    return jax.jit(
        lambda a, b: jax.lax.conv_general_dilated(
            a, b, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    )(image, weights)


def gradient():
    x = normal(7, 512, 512)
    return (
        jax.jit(jax.grad(lambda a: jnp.square(jnp.tanh(a)).mean()))(x),
        jax.grad(lambda a: (a @ a).sum())(x[:64, :64]),
    )


def vmapped():
    return jax.jit(jax.vmap(lambda a, b: jnp.dot(a, b) + a.sum()))(
        normal(8, 100, 32), normal(9, 100, 32)
    )


def scanned():
    carry, out = jax.lax.scan(
        lambda c, v: (c * 0.9 + v, c.sum()), jnp.zeros(16), jnp.ones((50, 16))
    )
    return carry, out


def control_flow():
    loop = jax.jit(
        lambda n: jax.lax.while_loop(
            lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 1.5 + s[0]), (0, 1.0)
        )
    )
    branch = jax.jit(lambda x: jax.lax.cond(x.sum() > 0, lambda a: a * 2, lambda a: -a, x))
    return (
        loop(20),
        branch(jnp.ones(5)),
        branch(-jnp.ones(5)),
        jax.lax.fori_loop(0, 10, lambda i, v: v + i, jnp.zeros(3)),
    )


def linear_algebra():
    a = normal(10, 64, 64)
    s = a @ a.T + 64 * jnp.eye(64)
    return (
        jnp.linalg.cholesky(s),
        jnp.linalg.solve(s, a),
        jnp.linalg.eigvalsh(s),
        jnp.linalg.svd(a, compute_uv=False),
        jnp.abs(jnp.linalg.qr(a)[1]),
    )


def fft_and_sort():
    x = normal(11, 64, 1000)
    return (
        jnp.fft.fft(x),
        jnp.sort(x, axis=1),
        jnp.argsort(x[0]),
        jnp.cumsum(x, axis=1),
        jax.lax.top_k(x, 5),
    )


def attention():
    q, k, v = (normal(seed, 2, 128, 4, 64, kind=jnp.bfloat16) for seed in (12, 13, 14))
    return jax.jit(lambda a, b, c: jax.nn.dot_product_attention(a, b, c, is_causal=True))(q, k, v)


def training_loop():
    """Two layers learn which of two sums is larger."""
    x = normal(15, 512, 32)
    labels = (x[:, :16].sum(1) > x[:, 16:].sum(1)).astype(jnp.float32)
    weights = {"one": normal(16, 32, 64) * 0.2, "two": normal(17, 64) * 0.2}

    def loss(w):
        logits = jnp.tanh(x @ w["one"]) @ w["two"]
        return jnp.mean(jnp.logaddexp(0.0, logits) - labels * logits)

    @jax.jit
    def step(w):
        value, slope = jax.value_and_grad(loss)(w)
        return jax.tree.map(lambda a, b: a - 0.5 * b, w, slope), value

    losses = []
    for _ in range(30):
        weights, value = step(weights)
        losses.append(float(value))
    return losses[::6], weights


def transformer():
    """Layers in a scan, and products of libraries: XLA makes graphs of them, with graphs as
    nodes."""
    step = jax_workloads.transformer_train(2, 64)
    # The gradient of the words is added up in any order. The fourth loss was 6.1368 to 6.1382 in
    # three native runs.
    return [round(step(), 2) for _ in range(4)]


def donated():
    step = jax.jit(lambda a: a * 2 + 1, donate_argnums=0)
    x = jnp.ones((1000, 1000))
    for _ in range(5):
        x = step(x)
    return x


def callback_on_the_host():
    import numpy

    shape = jax.ShapeDtypeStruct((100,), jnp.float32)
    return jax.jit(lambda a: jax.pure_callback(lambda v: numpy.asarray(v) * 3, shape, a * 2) + 1)(
        jnp.arange(100.0)
    )


def out_of_memory():
    try:
        return jax.jit(lambda: jnp.ones((1 << 20, 1 << 20)))().sum()
    except Exception as error:
        return "refused", type(error).__name__, str(error).split(":")[0], jnp.ones(8).sum()


def preallocate():
    """Most of the memory is taken once the first array exists."""
    x = normal(20, 2048, 2048)
    y = jax.jit(lambda a: jnp.tanh(a) @ a.T)(x).block_until_ready()
    stats = jax.local_devices()[0].memory_stats() or {}
    limit, used = stats.get("bytes_limit", 0), stats.get("bytes_in_use", 0)
    return y, limit > 1 << 32, 0 < used < limit


def large_array():
    x = jnp.ones((1 << 31,), dtype=jnp.uint8)
    return int(x[-1]), int(x[:1000].sum())


if PREALLOCATE:
    checks.REGISTERED += [("preallocate", preallocate), ("preallocate/large_array", large_array)]
else:
    stages()
checks.run()
