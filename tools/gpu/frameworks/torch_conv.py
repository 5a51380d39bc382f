# SPDX-License-Identifier: Apache-2.0
"""PyTorch: cuDNN convolutions forwards and backwards in every layout and type, its benchmark
mode, normalisation and pooling."""

import checks
from checks import DEVICE, check, check_each

torch = checks.need("torch")
F = torch.nn.functional
torch.manual_seed(2)
KINDS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
torch.backends.cudnn.deterministic = True


def forth_and_back(layer, *shape, kind=torch.float32, layout=torch.contiguous_format):
    layer = layer.to(DEVICE, kind).to(memory_format=layout)
    x = torch.randn(*shape, device=DEVICE).to(kind).to(memory_format=layout).requires_grad_()
    y = layer(x)
    y.float().square().mean().backward()
    return y, x.grad, layer.weight.grad


@check_each(**KINDS, fp64=torch.float64)
def channels_first(kind):
    return forth_and_back(torch.nn.Conv2d(32, 64, 3, padding=1), 8, 32, 56, 56, kind=kind)


@check_each(**KINDS)
def channels_last(kind):
    return forth_and_back(
        torch.nn.Conv2d(32, 64, 3, padding=1), 8, 32, 56, 56, kind=kind, layout=torch.channels_last
    )


@check_each(
    strided=dict(stride=2, kernel_size=5),
    dilated=dict(dilation=2, kernel_size=3),
    one=dict(kernel_size=1),
    grouped=dict(groups=4, kernel_size=3),
    depthwise=dict(groups=32, kernel_size=3),
)
def kinds_of_2d(options):
    return forth_and_back(torch.nn.Conv2d(32, 64, **options), 4, 32, 40, 40)


@check
def one_and_three_dimensions():
    return (
        forth_and_back(torch.nn.Conv1d(16, 32, 7), 4, 16, 500),
        forth_and_back(torch.nn.Conv3d(8, 16, 3), 2, 8, 16, 24, 24),
    )


@check
def transposed():
    return forth_and_back(torch.nn.ConvTranspose2d(32, 16, 4, stride=2), 4, 32, 20, 20)


@check_each(**KINDS)
def benchmark_mode(kind):
    """cuDNN times its algorithms and takes the fastest, so only closeness to the answer without
    timing can be asked for."""
    conv = torch.nn.Conv2d(64, 128, 3, padding=1, device=DEVICE, dtype=kind)
    x = torch.randn(16, 64, 28, 28, device=DEVICE).to(kind)
    with torch.no_grad():
        expected = conv(x)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = False, True
        try:
            found = [conv(x) for _ in range(3)]
        finally:
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    tolerance = 1e-3 if kind is torch.float32 else 3e-2
    return [torch.allclose(each, expected, atol=tolerance, rtol=tolerance) for each in found]


@check
def batch_norm_and_pooling():
    norm = torch.nn.BatchNorm2d(16, device=DEVICE)
    x = torch.randn(4, 16, 32, 32, device=DEVICE, requires_grad=True)
    y = F.max_pool2d(norm(x), 2)
    y.square().sum().backward()
    return (
        y,
        norm.running_mean,
        norm.weight.grad,
        x.grad,
        F.avg_pool2d(x, 3),
        F.adaptive_avg_pool2d(x, 5),
    )


@check
def other_layers():
    x = torch.randn(4, 16, 30, 30, device=DEVICE)
    return (
        F.group_norm(x, 4),
        F.instance_norm(x),
        F.interpolate(x, scale_factor=2, mode="bilinear"),
        F.grid_sample(x, torch.rand(4, 9, 9, 2, device=DEVICE) * 2 - 1, align_corners=False),
        F.pixel_shuffle(x, 2),
    )


@check
def connectionist_temporal_classification():
    """cuDNN's CTC loss, which wants its lengths on the host."""
    log_probs = torch.randn(50, 4, 20, device=DEVICE).log_softmax(2)
    targets = torch.randint(1, 20, (4 * 10,), dtype=torch.int32)
    lengths = torch.full((4,), 10, dtype=torch.int32)
    return F.ctc_loss(
        log_probs, targets, torch.full((4,), 50, dtype=torch.int32), lengths, reduction="none"
    )


@check
def versions():
    return torch.backends.cudnn.is_available(), torch.backends.cudnn.version()


checks.run()
