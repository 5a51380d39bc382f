# SPDX-License-Identifier: Apache-2.0
"""torch.compile: functions and a training step through Inductor and Triton. With the word
autotune: mode max-autotune, reduced."""

import sys

import checks
from checks import check

torch = checks.need("torch")
checks.need("triton")
F = torch.nn.functional
AUTOTUNE = "autotune" in sys.argv


def block(x, weight):
    y = F.gelu(x @ weight)
    return (y - y.mean(-1, keepdim=True)) * torch.rsqrt(y.var(-1, keepdim=True) + 1e-5)


def operands(kind=torch.float32):
    torch.manual_seed(10)
    return torch.randn(512, 1024, device="cuda", dtype=kind), torch.randn(
        1024, 1024, device="cuda", dtype=kind
    )


def compiled():
    @check
    def normalised_product():
        x, weight = operands()
        fast = torch.compile(block)(x, weight)
        return fast, torch.allclose(fast, block(x, weight), atol=1e-3)

    @check
    def training_step():
        torch.manual_seed(11)
        model = torch.nn.Sequential(
            torch.nn.Linear(128, 256),
            torch.nn.GELU(),
            torch.nn.LayerNorm(256),
            torch.nn.Linear(256, 10),
        ).cuda()
        fast, optimizer = torch.compile(model), torch.optim.AdamW(model.parameters(), lr=1e-3)
        x, labels, losses = (
            torch.randn(64, 128, device="cuda"),
            torch.randint(0, 10, (64,), device="cuda"),
            [],
        )
        for _ in range(5):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(fast(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    @check
    def sizes_that_change():
        function = torch.compile(lambda x: (x.softmax(-1) * 2).sum(0), dynamic=True)
        return [
            function(torch.arange(n * 7, device="cuda", dtype=torch.float32).view(n, 7))
            for n in (5, 64, 100)
        ]

    @check
    def reduce_overhead():
        """Inductor records CUDA graphs."""
        x, weight = operands()
        function = torch.compile(block, mode="reduce-overhead")
        with torch.no_grad():
            return [function(x + step, weight).clone() for step in range(4)]


def autotuned():
    @check
    def autotune():
        """Which of its kernels is fastest may change from run to run, so only closeness is
        shown."""
        from torch._inductor import config

        config.max_autotune_gemm_backends = "ATEN,TRITON"
        config.max_autotune_gemm_search_space = "DEFAULT"
        x, weight = operands(torch.bfloat16)
        fast = torch.compile(
            lambda a, b: F.relu(a[:256, :512] @ b[:512, :256]), mode="max-autotune"
        )
        with torch.no_grad():
            outs = [fast(x, weight).clone() for _ in range(3)]
        plain = F.relu(x[:256, :512] @ weight[:512, :256])
        return [torch.allclose(out, plain, atol=0.5, rtol=0.05) for out in outs]


autotuned() if AUTOTUNE else compiled()
checks.run()
