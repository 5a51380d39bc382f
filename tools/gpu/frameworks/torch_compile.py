# SPDX-License-Identifier: Apache-2.0
"""torch.compile: a function through Inductor and Triton, against the same function run eagerly."""
import torch

torch.manual_seed(10)


def block(x, weight):
    y = torch.nn.functional.gelu(x @ weight)
    return (y - y.mean(-1, keepdim=True)) * torch.rsqrt(y.var(-1, keepdim=True) + 1e-5)


x = torch.randn(512, 1024, device="cuda")
weight = torch.randn(1024, 1024, device="cuda")
fast = torch.compile(block)(x, weight)
print(repr(fast.double().abs().sum().item()))
print("close to eager", torch.allclose(fast, block(x, weight), atol=1e-3))
