# SPDX-License-Identifier: Apache-2.0
"""PyTorch: scaled_dot_product_attention with each back end forced, forwards and backwards. A
back end that refuses a shape must refuse it here."""

import checks
from checks import DEVICE, check, check_each

torch = checks.need("torch")
F = torch.nn.functional
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

torch.manual_seed(6)
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
HALVES = (torch.float16, torch.bfloat16)


def heads(*shape, kind):
    return [torch.randn(*shape, device=DEVICE).to(kind).requires_grad_() for _ in range(3)]


def attend(backend, kind, shape=(2, 8, 512, 64), **options):
    q, k, v = heads(*shape, kind=kind)
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, **options), (q, k, v)


@check_each(**BACKENDS)
def causal(backend):
    return [attend(backend, kind, is_causal=True)[0] for kind in HALVES]


@check_each(**BACKENDS)
def whole(backend):
    return [attend(backend, kind, shape=(2, 4, 300, 128))[0] for kind in HALVES]


@check_each(**BACKENDS)
def gradients(backend):
    """The gradient of q adds in an order that may change from run to run. So sums are shown too,
    for the spread."""
    out, inputs = attend(backend, torch.bfloat16, is_causal=True)
    out.float().square().mean().backward()
    return [x.grad for x in inputs]


@check_each(**BACKENDS)
def fp32(backend):
    """Flash and cuDNN have no fp32: they refuse."""
    try:
        return attend(backend, torch.float32)[0]
    except RuntimeError as error:
        return "refused", checks.error_line(error)


@check_each(efficient=SDPBackend.EFFICIENT_ATTENTION, math=SDPBackend.MATH)
def with_mask(backend):
    mask = torch.rand(1, 1, 256, 256, device=DEVICE) > 0.3
    return attend(backend, torch.bfloat16, shape=(2, 4, 256, 64), attn_mask=mask)[0]


@check
def chosen_by_pytorch():
    q, k, v = heads(4, 16, 1024, 64, kind=torch.bfloat16)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@check
def around_attention():
    table = torch.nn.Embedding(5000, 256, device=DEVICE)
    x = F.layer_norm(table(torch.randint(0, 5000, (8, 128), device=DEVICE)), (256,))
    return (
        x,
        torch.softmax(x, -1),
        F.rms_norm(x, (256,)),
        torch.logsumexp(x, -1),
        F.gelu(x),
        F.silu(x),
    )


checks.run()
