# SPDX-License-Identifier: Apache-2.0
"""PyTorch: matrix products in every type that cuBLAS has, in shapes that choose different
kernels."""

import checks
from checks import DEVICE, check, check_each

torch = checks.need("torch")
torch.manual_seed(1)
FLOATS = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
COMPLEX = {"complex64": torch.complex64, "complex128": torch.complex128}


def rand(*shape, kind=torch.float32):
    return torch.randn(
        *shape, device=DEVICE, dtype=torch.complex64 if kind.is_complex else torch.float32
    ).to(kind)


@check_each(**FLOATS, **COMPLEX)
def square(kind):
    return rand(2048, 2048, kind=kind) @ rand(2048, 2048, kind=kind)


@check_each(**FLOATS)
def odd_shapes(kind):
    """Sides that are no multiple of a tile, transposed operands, a long inner side (split-K), a
    vector."""
    a, b = rand(333, 77, kind=kind), rand(77, 1025, kind=kind)
    long = rand(64, 40000, kind=kind)
    return a @ b, a.T @ rand(333, 5, kind=kind), long @ long.T, b.T @ rand(77, kind=kind)


@check_each(**FLOATS)
def batched(kind):
    a, b = rand(48, 130, 70, kind=kind), rand(48, 70, 90, kind=kind)
    return torch.bmm(a, b), torch.baddbmm(rand(48, 130, 90, kind=kind), a, b, beta=0.5, alpha=2)


@check_each(**FLOATS)
def linear(kind):
    """cuBLASLt with a bias, and with an activation in its epilogue."""
    layer, x = torch.nn.Linear(768, 3072, device=DEVICE, dtype=kind), rand(512, 768, kind=kind)
    y = torch.nn.functional.gelu(layer(x), approximate="tanh")
    y.float().square().mean().backward()
    fused = torch.ops.aten._addmm_activation(layer.bias, x, layer.weight.T, use_gelu=True)
    return y, layer.weight.grad, layer.bias.grad, fused


@check
def tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        a = rand(1000, 3000)
        return a @ a.T, torch.bmm(rand(8, 128, 256), rand(8, 256, 128))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


@check
def reduced_precision_sums():
    flags = torch.backends.cuda.matmul
    flags.allow_fp16_reduced_precision_reduction, flags.allow_bf16_reduced_precision_reduction = (
        False,
        False,
    )
    half, brain = rand(512, 8192, kind=torch.float16), rand(512, 8192, kind=torch.bfloat16)
    return half @ half.T, brain @ brain.T


@check_each(e4m3=torch.float8_e4m3fn, e5m2=torch.float8_e5m2)
def fp8(kind):
    """Scales for the whole matrix, and one for each row; the second operand is column-major, as
    cuBLASLt wants it."""
    a = rand(512, 1024).to(kind)
    b = rand(768, 1024).to(torch.float8_e4m3fn).T
    one = torch.tensor(0.5, device=DEVICE)
    whole = torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    bias = rand(768, kind=torch.bfloat16)
    fast = torch._scaled_mm(
        a, b, scale_a=one, scale_b=one, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=True
    )
    return whole, fast


@check
def fp8_row_scales():
    a, b = rand(512, 1024).to(torch.float8_e4m3fn), rand(768, 1024).to(torch.float8_e4m3fn).T
    return torch._scaled_mm(
        a,
        b,
        scale_a=torch.rand(512, 1, device=DEVICE),
        scale_b=torch.rand(1, 768, device=DEVICE),
        out_dtype=torch.bfloat16,
    )


@check
def fp8_of_two_e5m2():
    """No such kernel: the refusal is the result."""
    a = rand(64, 64).to(torch.float8_e5m2)
    one = torch.tensor(1.0, device=DEVICE)
    try:
        return torch._scaled_mm(a, a.T, scale_a=one, scale_b=one)
    except (RuntimeError, ValueError) as error:
        return "refused", checks.error_line(error)


@check
def int8():
    a = torch.randint(-128, 127, (256, 512), device=DEVICE, dtype=torch.int8)
    b = torch.randint(-128, 127, (384, 512), device=DEVICE, dtype=torch.int8)
    return torch._int_mm(a, b.T)


@check
def other_integers():
    """CUDA has no such matrix product, and PyTorch says so."""
    a = torch.ones(4, 4, device=DEVICE, dtype=torch.int32)
    try:
        return (a @ a).sum().item()
    except RuntimeError as error:
        return "refused", checks.error_line(error)


@check
def shapes_that_do_not_fit():
    try:
        return rand(3, 4) @ rand(5, 6)
    except RuntimeError as error:
        return "refused", checks.error_line(error)


@check
def einsum_and_grouped():
    x, y = rand(8, 64, 32), rand(8, 32, 16)
    return (
        torch.einsum("bij,bjk->ik", x, y),
        torch.tensordot(x, y, dims=([0, 2], [0, 1])),
        torch.kron(x[0], y[0]),
    )


@check
def device():
    return (
        torch.cuda.get_device_name(0),
        torch.cuda.get_device_capability(0),
        torch.cuda.device_count(),
    )


checks.run()
