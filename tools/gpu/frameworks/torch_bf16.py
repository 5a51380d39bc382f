# SPDX-License-Identifier: Apache-2.0
"""PyTorch: matrix products in bf16, fp16, fp64 and TF32; the whole result as a checksum."""
import zlib

import torch

torch.manual_seed(1)


def crc(tensor):
    return f"{zlib.crc32(tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes()):08x}"


for kind in (torch.bfloat16, torch.float16, torch.float64):
    a = torch.randn(2048, 2048, device="cuda").to(kind)
    b = torch.randn(2048, 2048, device="cuda").to(kind)
    c = a @ b
    print(kind, crc(c), c.double().sum().item())
torch.backends.cuda.matmul.allow_tf32 = True
a = torch.randn(1000, 3000, device="cuda")
print("tf32", crc(a @ a.T))
x = torch.randn(1 << 20, device="cuda")
print("sort", crc(torch.sort(x).values), "cumsum", crc(x.cumsum(0)), "topk", torch.topk(x, 5).values.tolist())
print(torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0), torch.cuda.device_count())
