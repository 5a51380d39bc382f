# SPDX-License-Identifier: Apache-2.0
"""Programs that ask NVML: PyTorch's own queries, then nvidia-ml-py. Values that change from one
second to the next are shown as relations."""

import checks
from checks import check

torch = checks.need("torch")


def asked(function):
    """A number in a sane range, or the answer that came in its place."""

    def answer():
        value = function()
        print(f"time of {function.__name__}: {value}")
        return 0 <= value <= 10_000_000

    return answer


checks.REGISTERED += [
    (f"torch/{name}", asked(getattr(torch.cuda, name)))
    for name in ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate")
]


def library():
    try:
        import pynvml
    except ModuleNotFoundError:
        raise checks.Skipped("nvidia-ml-py is not installed") from None
    pynvml.nvmlInit()
    return pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)


@check
def what_it_is():
    nvml, gpu = library()
    return (
        nvml.nvmlDeviceGetCount(),
        nvml.nvmlDeviceGetName(gpu),
        nvml.nvmlDeviceGetCudaComputeCapability(gpu),
        nvml.nvmlSystemGetDriverVersion(),
        nvml.nvmlSystemGetCudaDriverVersion(),
    )


@check
def same_device_as_cuda():
    nvml, gpu = library()
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    by_uuid = nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(gpu))
    return uuid in nvml.nvmlDeviceGetUUID(gpu), nvml.nvmlDeviceGetIndex(by_uuid)


@check
def memory():
    nvml, gpu = library()
    before = nvml.nvmlDeviceGetMemoryInfo(gpu)
    block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    after = nvml.nvmlDeviceGetMemoryInfo(gpu)
    print(f"time of memory: {before.used} of {before.total}, then {after.used}")
    return (
        before.used + before.free <= before.total,
        after.used > before.used,
        block.numel(),
        before.total > 1 << 33,
    )


@check
def figures():
    nvml, gpu = library()
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    return (
        0 <= rates.gpu <= 100,
        0 < nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU) < 120,
        0 < nvml.nvmlDeviceGetPowerUsage(gpu) < 2_000_000,
        nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) > 0,
    )


@check
def own_process():
    """Natively this process is listed. In a container its number may be another one's."""
    nvml, gpu = library()
    torch.ones(1, device="cuda")
    listed = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    print(f"time of processes: {[process.pid for process in listed]}")
    return all(process.pid > 0 for process in listed)


@check
def beyond_the_last_device():
    nvml, _ = library()
    try:
        nvml.nvmlDeviceGetHandleByIndex(99)
        return "not refused"
    except nvml.NVMLError as error:
        return error.value, str(error)


checks.run()
