# SPDX-License-Identifier: Apache-2.0
"""PyTorch: streams, events, pinned copies, memory figures that must agree with each other, and errors."""
import torch

torch.manual_seed(4)
streams = [torch.cuda.Stream() for _ in range(4)]
host = [torch.randn(1 << 18).pin_memory() for _ in streams]
results, events = [], []
for stream, data in zip(streams, host):
    with torch.cuda.stream(stream):
        device = data.to("cuda", non_blocking=True)
        for _ in range(20):
            device = device * 1.01 + 0.5
        results.append(device)
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        events.append(event)
for event in events:
    torch.cuda.current_stream().wait_event(event)
print(repr(torch.stack(results).double().sum().item()))
print("elapsed is a time", events[0].elapsed_time(events[-1]) > -1e6, all(event.query() for event in events))
free, total = torch.cuda.mem_get_info()
print("memory", 0 < free <= total, torch.cuda.memory_allocated() > 0)
back = torch.empty(1 << 18).pin_memory()
back.copy_(results[0], non_blocking=True)
torch.cuda.synchronize()
print(repr(back.double().sum().item()))
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("out of memory is reported")
index = torch.randint(0, 1000, (1 << 20,), device="cuda")
print(torch.bincount(index).max().item(), index.unique().numel())
