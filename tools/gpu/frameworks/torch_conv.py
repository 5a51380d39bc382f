# SPDX-License-Identifier: Apache-2.0
"""PyTorch: cuDNN convolutions forth and back, channels first and last, fp32 and bf16."""
import zlib

import torch

torch.manual_seed(2)
torch.backends.cudnn.deterministic = True


def crc(tensor):
    return f"{zlib.crc32(tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes()):08x}"


for kind, layout in ((torch.float32, torch.contiguous_format), (torch.bfloat16, torch.channels_last)):
    conv = torch.nn.Conv2d(32, 64, 3, padding=1, device="cuda", dtype=kind).to(memory_format=layout)
    x = torch.randn(8, 32, 56, 56, device="cuda", dtype=kind).to(memory_format=layout).requires_grad_()
    y = conv(x).relu()
    y.float().square().mean().backward()
    print(kind, layout, crc(y), crc(x.grad), crc(conv.weight.grad))
norm = torch.nn.BatchNorm2d(16, device="cuda")
y = torch.nn.functional.max_pool2d(norm(torch.randn(4, 16, 32, 32, device="cuda")), 2)
print("batch norm, pooling", crc(y), crc(norm.running_mean))
