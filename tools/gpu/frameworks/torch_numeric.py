# SPDX-License-Identifier: Apache-2.0
"""PyTorch without networks and products: FFT, sparse, linear algebra, sorting, scans, random
numbers, indexing."""

import checks
from checks import DEVICE, check, check_each

torch = checks.need("torch")
torch.manual_seed(12)
FLOATS = {"fp32": torch.float32, "fp64": torch.float64}


def rand(*shape, kind=torch.float32):
    return torch.randn(*shape, device=DEVICE, dtype=kind)


def positive(size, kind):
    a = rand(size, size, kind=kind)
    return a @ a.T / size + torch.eye(size, device=DEVICE, dtype=kind)


@check_each(complex64=torch.complex64, complex128=torch.complex128)
def fft(kind):
    x = rand(64, 1024, kind=kind)
    return (
        torch.fft.fft(x),
        torch.fft.ifft2(x[:, :100]),
        torch.fft.fft(x[:, :997]),
        torch.fft.fftn(x[:8, :8]),
    )


@check_each(**FLOATS)
def real_fft(kind):
    x = rand(32, 2000, kind=kind)
    return (
        torch.fft.rfft(x),
        torch.fft.irfft(torch.fft.rfft(x)),
        torch.stft(
            x, 256, return_complex=True, window=torch.hann_window(256, device=DEVICE, dtype=kind)
        ),
    )


@check_each(**FLOATS)
def decompositions(kind):
    """Vectors are known up to a sign. So the check shows values and what the vectors give back."""
    a = rand(200, 120, kind=kind)
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    q, r = torch.linalg.qr(a)
    again = u * s @ vh
    close = torch.allclose(again, a, atol=1e-3), torch.allclose(q @ r, a, atol=1e-3)
    return s, r.abs(), close


@check_each(**FLOATS)
def eigenvalues(kind):
    a = positive(150, kind)
    values, vectors = torch.linalg.eigh(a)
    return (
        values,
        torch.allclose(vectors * values @ vectors.T, a, atol=1e-3),
        torch.linalg.eigvalsh(a[:32, :32]),
    )


@check_each(**FLOATS)
def solving(kind):
    a, b = positive(256, kind), rand(256, 8, kind=kind)
    lower = torch.linalg.cholesky(a)
    lu, pivots = torch.linalg.lu_factor(a)
    return (
        torch.linalg.solve(a, b),
        lower,
        torch.cholesky_solve(b, lower),
        lu,
        pivots,
        torch.linalg.inv(a),
        torch.linalg.slogdet(a),
        torch.linalg.lstsq(a, b).solution,
    )


@check
def solving_in_batches():
    a = torch.stack([positive(24, torch.float32) for _ in range(64)])
    return (
        torch.linalg.solve(a, rand(64, 24, 3)),
        torch.linalg.cholesky(a),
        torch.linalg.eigvalsh(a),
    )


@check
def singular_matrix():
    try:
        return torch.linalg.solve(torch.zeros(4, 4, device=DEVICE), rand(4, 1))
    except RuntimeError as error:
        return "refused", checks.error_line(error)


@check
def not_positive_definite():
    try:
        return torch.linalg.cholesky(-torch.eye(5, device=DEVICE))
    except RuntimeError as error:
        return "refused", checks.error_line(error)


@check_each(coo="coo", csr="csr")
def sparse(layout):
    dense = rand(300, 200) * (torch.rand(300, 200, device=DEVICE) < 0.05)
    a = dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()
    b = rand(200, 64)
    return a @ b, torch.allclose(a @ b, dense @ b, atol=1e-4), a.to_dense(), (a @ b[:, 0])


@check
def sparse_product():
    a = (rand(256, 256) * (torch.rand(256, 256, device=DEVICE) < 0.02)).to_sparse_csr()
    return (a @ a).to_dense()


@check
def semi_structured():
    """2:4 sparsity through cuSPARSELt or CUTLASS."""
    from torch.sparse import to_sparse_semi_structured

    mask = torch.tensor([0, 0, 1, 1], device=DEVICE).tile(256, 64).bool()
    a = to_sparse_semi_structured((rand(256, 256).half() * mask))
    return torch.mm(a, rand(256, 128).half())


@check
def sorting():
    x = rand(1 << 20)
    whole = torch.arange(100_000, device=DEVICE).flip(0)
    return (
        torch.sort(x),
        torch.topk(x, 100).values,
        torch.argsort(x.view(1024, 1024), dim=1, stable=True),
        x.median(),
        torch.kthvalue(x, 12345).values,
        torch.sort(whole).values,
        torch.unique((x * 10).long(), return_counts=True),
    )


@check
def scans_and_sums():
    x = rand(1 << 20)
    return (
        x.cumsum(0),
        x[:1000].cumprod(0),
        x.sum(),
        x.std(),
        x.double().prod(),
        x.view(1024, -1).max(1),
        x.norm(3),
    )


@check
def random_numbers():
    torch.cuda.manual_seed(99)
    generator = torch.Generator(DEVICE).manual_seed(7)
    state = torch.cuda.get_rng_state()
    first = torch.rand(1000, device=DEVICE)
    torch.cuda.set_rng_state(state)
    return (
        torch.equal(first, torch.rand(1000, device=DEVICE)),
        torch.randperm(10_000, device=DEVICE),
        torch.randn(999, device=DEVICE, generator=generator),
        torch.randint(0, 50, (333,), device=DEVICE),
        torch.bernoulli(torch.full((500,), 0.3, device=DEVICE)),
        torch.poisson(torch.full((500,), 4.0, device=DEVICE)),
        torch.multinomial(torch.ones(100, device=DEVICE), 20),
        torch.empty(300, device=DEVICE).exponential_(),
    )


@check
def indexing():
    x, at = rand(1000, 64), torch.randint(0, 1000, (5000,), device=DEVICE)
    torch.use_deterministic_algorithms(True)
    try:
        out = torch.zeros(1000, 64, device=DEVICE).index_add_(0, at, x[at])
        return (
            x[at],
            out,
            x.gather(1, at.view(-1, 5)[:, :5] % 64),
            torch.nonzero(x > 2),
            x[x > 1],
            x.masked_fill(x > 0, 1),
            torch.where(x > 0, x, -x),
        )
    finally:
        torch.use_deterministic_algorithms(False)


@check
def histogram_and_search():
    x = torch.randint(0, 1000, (1 << 18,), device=DEVICE)
    edges = torch.arange(0, 1000, 10, device=DEVICE)
    return (
        torch.bincount(x),
        torch.searchsorted(edges, x),
        torch.bucketize(x, edges),
        torch.histc(x.float(), 50),
    )


checks.run()
