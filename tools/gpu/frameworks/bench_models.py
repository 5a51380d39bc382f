# SPDX-License-Identifier: Apache-2.0
"""PyTorch's models under tools/gpu/meters.py, for the groups speed and network. meter.py
describes the commands.

Two more commands: `line` measures the way to the GPU as this process sees it, `busy` the time
of a step in which the GPU works.
"""

import statistics
import sys
import time

import checks
import meter
from checks import DEVICE

torch = checks.need("torch")
import torch_workloads  # noqa: E402

LINE_BYTES = 64 << 20


def line():
    """An empty wait, and 64 MB each way."""
    synchronize = torch_workloads.synchronize
    synchronize()
    waits = []
    for _ in range(50):
        begun = time.perf_counter()
        synchronize()
        waits.append(time.perf_counter() - begun)
    host = torch.empty(LINE_BYTES, dtype=torch.uint8).fill_(1)
    there = host.to(DEVICE)
    rates = []
    for target, source in ((there, host), (host, there)):
        seconds = []
        for _ in range(3):  # the first one also makes buffers
            synchronize()
            begun = time.perf_counter()
            target.copy_(source)
            synchronize()
            seconds.append(time.perf_counter() - begun)
        rates.append(LINE_BYTES / min(seconds) / 1e6)
    return {
        "wait_us": statistics.median(waits) * 1e6,
        "mb_per_s_out": rates[0],
        "mb_per_s_back": rates[1],
    }


def busy():
    """Milliseconds of a step that kernels and copies take on the GPU. The rest of the step's
    time is spent waiting for the program."""
    from torch.profiler import ProfilerActivity, profile

    steps = 1 if METER.each_s > 0.1 else 3
    for _ in range(2):  # the first time also makes the profiler
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(steps):
                METER.step()
            torch_workloads.synchronize()
    return {"ms": sum(event.self_device_time_total for event in seen.key_averages()) / steps / 1e3}


if DEVICE == "cuda" and not torch.cuda.is_available():
    sys.exit("no GPU: torch.cuda.is_available() is false")
METER = meter.Meter(
    torch_workloads.WORKLOADS,
    torch_workloads.synchronize,
    {"line": line, "busy": busy},
    torch_workloads.released,
)
METER.serve()
