# SPDX-License-Identifier: Apache-2.0
"""Triton: kernels compiled here and launched through Triton's own launcher, from a vector sum to
fused attention."""

import checks
from checks import check, check_each

torch = checks.need("torch")
triton = checks.need("triton")
import triton.language as tl  # noqa: E402

torch.manual_seed(11)


@triton.jit
def add_kernel(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(a + at, mask=mask) + tl.load(b + at, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x, out, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    top = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + at, top / tl.sum(top, axis=0), mask=at < columns)


@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    stride_a,
    stride_b,
    stride_c,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(
            a + rows[:, None] * stride_a + (k + inner)[None, :],
            mask=(rows[:, None] < M) & ((k + inner)[None, :] < K),
            other=0.0,
        )
        right = tl.load(
            b + (k + inner)[:, None] * stride_b + columns[None, :],
            mask=((k + inner)[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(left, right, total)
    tl.store(
        c + rows[:, None] * stride_c + columns[None, :],
        total.to(c.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@triton.jit
def attention_kernel(q, k, v, out, length, scale, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """One block of queries of one head against all keys, with the running maximum and sum."""
    head = tl.program_id(1) * length * WIDTH
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lanes = tl.arange(0, WIDTH)
    query = tl.load(q + head + rows[:, None] * WIDTH + lanes[None, :])
    top = tl.full((BLOCK,), -1e30, dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    gathered = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BLOCK, BLOCK):
        others = start + tl.arange(0, BLOCK)
        key = tl.load(k + head + others[:, None] * WIDTH + lanes[None, :])
        value = tl.load(v + head + others[:, None] * WIDTH + lanes[None, :])
        scores = tl.dot(query, tl.trans(key)) * scale
        scores = tl.where(rows[:, None] >= others[None, :], scores, -1e30)
        higher = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp(scores - higher[:, None])
        keep = tl.exp(top - higher)
        total = total * keep + tl.sum(weights, axis=1)
        gathered = gathered * keep[:, None] + tl.dot(weights.to(value.dtype), value)
        top = higher
    tl.store(
        out + head + rows[:, None] * WIDTH + lanes[None, :],
        (gathered / total[:, None]).to(query.dtype),
    )


@triton.jit
def count_kernel(values, bins, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + at, mask=at < n, other=0)
    tl.atomic_add(bins + value, 1, mask=at < n)


@check
def vector_add():
    n = 1_000_003
    a, b = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    out = torch.empty_like(a)
    for _ in range(5):
        add_kernel[(triton.cdiv(n, 1024),)](a, b, out, n, BLOCK=1024)
    return torch.equal(out, a + b), out


@check
def softmax():
    x = torch.randn(1823, 781, device="cuda")
    out = torch.empty_like(x)
    softmax_kernel[(len(x),)](x, out, x.stride(0), x.shape[1], BLOCK=1024, num_warps=8)
    return torch.allclose(out, x.softmax(-1), atol=1e-6), out


def multiply(kernel, kind, **options):
    M, N, K = 500, 700, 300
    a, b = torch.randn(M, K, device="cuda").to(kind), torch.randn(K, N, device="cuda").to(kind)
    c = torch.empty(M, N, device="cuda", dtype=kind)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))
    kernel[grid](a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), **options)
    return torch.allclose(c.float(), (a @ b).float(), atol=0.3, rtol=0.03), c


@check_each(fp16=torch.float16, bf16=torch.bfloat16, fp32=torch.float32)
def matmul(kind):
    return multiply(matmul_kernel, kind, BM=64, BN=64, BK=32, num_stages=3)


@check
def autotuned_matmul():
    """Triton times its configurations with events and takes the fastest. So only closeness is
    the same each time."""
    configurations = [
        triton.Config({"BM": bm, "BN": bn, "BK": 32}, num_warps=warps)
        for bm, bn, warps in ((32, 64, 4), (64, 64, 4), (128, 64, 8))
    ]
    return multiply(
        triton.autotune(configurations, key=["M", "N", "K"])(matmul_kernel), torch.float16
    )[0]


@check_each(fp16=torch.float16, bf16=torch.bfloat16)
def fused_attention(kind):
    q, k, v = (torch.randn(2, 4, 512, 64, device="cuda").to(kind) for _ in range(3))
    out = torch.empty_like(q)
    attention_kernel[(512 // 64, 8)](q, k, v, out, 512, 0.125, BLOCK=64, WIDTH=64)
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return torch.allclose(out.float(), plain.float(), atol=0.02), out


@check
def atomics():
    values = torch.randint(0, 100, (1 << 20,), device="cuda")
    bins = torch.zeros(100, device="cuda", dtype=torch.int64)
    count_kernel[(triton.cdiv(len(values), 1024),)](values, bins, len(values), BLOCK=1024)
    return torch.equal(bins, torch.bincount(values, minlength=100)), bins


@check
def on_a_stream_and_in_a_graph():
    a, out, graph = (
        torch.ones(5000, device="cuda"),
        torch.zeros(5000, device="cuda"),
        torch.cuda.CUDAGraph(),
    )
    with torch.cuda.stream(torch.cuda.Stream()):
        add_kernel[(5,)](a, a, out, 5000, BLOCK=1024)
        torch.cuda.current_stream().synchronize()
    first = out.clone()
    with torch.cuda.graph(graph):
        add_kernel[(5,)](a, out, out, 5000, BLOCK=1024)
    for _ in range(7):
        graph.replay()
    return first, out


@check
def what_was_compiled():
    a = torch.ones(64, device="cuda")
    kernel = add_kernel[(1,)](a, a, a, 64, BLOCK=64)
    return kernel.metadata.shared, kernel.n_regs > 0, kernel.n_spills, sorted(kernel.asm)


checks.run()
