# SPDX-License-Identifier: Apache-2.0
"""Triton: a kernel compiled here, loaded as machine code and launched through Triton's own launcher."""
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(a + at, mask=mask) + tl.load(b + at, mask=mask), mask=mask)


torch.manual_seed(11)
n = 1_000_003
a, b = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
out = torch.empty_like(a)
for _ in range(5):
    add_kernel[(triton.cdiv(n, 1024),)](a, b, out, n, BLOCK=1024)
print("equal", torch.equal(out, a + b), repr(out.double().sum().item()))
