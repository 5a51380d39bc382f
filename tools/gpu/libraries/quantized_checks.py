# SPDX-License-Identifier: Apache-2.0
"""bitsandbytes: weights and optimizer states in 8 and 4 bits, by its own library of kernels."""

import checks
from checks import check, check_each

torch = checks.need("torch")
bnb = checks.need("bitsandbytes")
from bitsandbytes import functional as F  # noqa: E402

torch.manual_seed(21)


def numbers(*shape, seed=1, dtype=torch.float16):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).cuda()


@check
def eight_bits_in_blocks():
    x = numbers(1024, 512, dtype=torch.float32)
    codes, state = F.quantize_blockwise(x)
    return codes, F.dequantize_blockwise(codes, state)


@check_each(nf4="nf4", fp4="fp4")
def four_bits(kind):
    x = numbers(512, 1024)
    codes, state = F.quantize_4bit(x, quant_type=kind, compress_statistics=True)
    return codes, F.dequantize_4bit(codes, state)


@check_each(many=64, one=1)
def linear_4bit(rows):
    layer = bnb.nn.Linear4bit(512, 256, bias=False, compute_dtype=torch.float16, quant_type="nf4")
    torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(3))
    layer = layer.cuda()
    return layer(numbers(rows, 512, seed=4))


@check
def linear_8bit():
    layer = bnb.nn.Linear8bitLt(512, 256, bias=False, has_fp16_weights=False, threshold=6.0)
    torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(5))
    layer = layer.half().cuda()
    return layer(numbers(64, 512, seed=6))


@check_each(adam="Adam8bit", lion="Lion8bit", paged="PagedAdamW8bit")
def optimizer(name):
    torch.manual_seed(9)
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)
    ).cuda()
    steps = getattr(bnb.optim, name)(model.parameters(), lr=1e-3)
    x, y, losses = numbers(64, 512, dtype=torch.float32), numbers(64, 64, dtype=torch.float32), []
    for _ in range(5):
        loss = torch.nn.functional.mse_loss(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return losses


checks.run()
