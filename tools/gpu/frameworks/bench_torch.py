# SPDX-License-Identifier: Apache-2.0
"""PyTorch's figures for bench.py: lines of `name  value unit`. Medians or means after a warm-up."""

import time

import torch


def measured(function, times, settle=5):
    for _ in range(settle):
        function()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(times):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / times


def say(name, value, unit):
    print(f"{name:30}  {value:.2f} {unit}", flush=True)


one = torch.ones(1, device="cuda")
say("item()", measured(one.item, 1000) * 1e6, "us")
say("small add, enqueued", measured(lambda: one + 1, 5000) * 1e6, "us")
size = 38 << 20
pageable, pinned = (
    torch.empty(size, dtype=torch.uint8),
    torch.empty(size, dtype=torch.uint8).pin_memory(),
)
device = torch.empty(size, dtype=torch.uint8, device="cuda")
say("38 MB HtoD pageable", measured(lambda: device.copy_(pageable), 10) * 1e3, "ms")
say("38 MB HtoD pinned", measured(lambda: device.copy_(pinned, non_blocking=True), 10) * 1e3, "ms")
say("38 MB DtoH pinned", measured(lambda: pinned.copy_(device, non_blocking=True), 10) * 1e3, "ms")
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
say("4096 bf16 matmul", measured(lambda: x @ x, 50) * 1e6, "us")

layers = [torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh()) for _ in range(8)]
layers = torch.nn.Sequential(*layers).cuda()
small = torch.randn(64, 512, device="cuda")
with torch.no_grad():
    measured(lambda: layers(small), 3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layers(small)
    say("MLP of 8 layers, eager", measured(lambda: layers(small), 100) * 1e3, "ms")
    say("MLP of 8 layers, graph replay", measured(graph.replay, 200) * 1e3, "ms")

import torch_workloads  # noqa: E402 late, so that the figures above come even without torchvision

step = torch_workloads.WORKLOADS["resnet50-train-b64"]()
say("ResNet-50 training step, 64", measured(step, 20) * 1e3, "ms")
