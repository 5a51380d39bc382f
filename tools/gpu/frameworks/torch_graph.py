# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a captured CUDA graph replayed many times, with new input copied into its buffers."""
import torch

torch.manual_seed(5)
layers = [torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh()) for _ in range(8)]
layers = torch.nn.Sequential(*layers).cuda()
x = torch.randn(64, 512, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.no_grad(), torch.cuda.stream(side):
    for _ in range(3):
        layers(x)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph):
    y = layers(x)
for step in range(100):
    x.copy_(torch.full((64, 512), step / 100.0))
    graph.replay()
    if step % 20 == 0:
        print(step, repr(y.double().sum().item()))
with torch.no_grad():
    print("as without a graph", torch.equal(y, layers(x)))
