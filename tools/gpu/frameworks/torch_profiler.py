# SPDX-License-Identifier: Apache-2.0
"""torch.profiler with CUDA activities. CUPTI needs the local driver, so remotely it may see no
kernels, but nothing may break.

What the profiler saw of the GPU goes into a `time` line, which is not compared. The check is
that the program under it works.
"""

import checks
from checks import check

torch = checks.need("torch")
from torch.profiler import ProfilerActivity, profile, record_function, schedule  # noqa: E402

torch.manual_seed(31)


def work():
    x = torch.randn(256, 256, device="cuda")
    for _ in range(5):
        x = torch.tanh(x @ x / 16)
    return x


@check
def host_only():
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        out = work()
    return out, any("aten::mm" in event.key for event in seen.key_averages())


@check
def with_cuda():
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True
    ) as seen:
        with record_function("the work"):
            out = work()
        torch.cuda.synchronize()
    kernels = sum("CUDA" in str(event.device_type) for event in seen.events())
    print(f"time of {kernels} things on the GPU seen by the profiler")
    return out, any("the work" in event.key for event in seen.key_averages()), work()


@check
def with_a_schedule():
    steps = []
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda _: steps.append("ready"),
    ) as seen:
        for _ in range(5):
            out = work()
            seen.step()
    return out, steps


@check
def older_interfaces():
    with torch.autograd.profiler.profile() as seen:
        out = work()
    with torch.cuda.nvtx.range("a range"):
        more = work()
    return out, more, len(seen.function_events) > 0


@check
def switches_of_the_cuda_profiler():
    torch.cuda.profiler.start()
    out = work()
    torch.cuda.profiler.stop()
    return out


checks.run()
