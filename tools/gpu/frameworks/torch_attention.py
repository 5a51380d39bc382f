# SPDX-License-Identifier: Apache-2.0
"""PyTorch: fused attention in bf16 (flash and memory-efficient), layer norm, softmax, embedding."""
import zlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.manual_seed(6)


def crc(tensor):
    return f"{zlib.crc32(tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes()):08x}"


q, k, v = (torch.randn(4, 16, 1024, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
    with sdpa_kernel(backend):
        print(backend.name, crc(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)))
table = torch.nn.Embedding(5000, 256, device="cuda")
x = table(torch.randint(0, 5000, (8, 128), device="cuda"))
x = torch.nn.functional.layer_norm(x, (256,))
print("softmax", crc(torch.softmax(x, -1)), repr(x.double().square().sum().item()))
