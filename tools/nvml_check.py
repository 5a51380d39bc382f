#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks Tendril's libnvidia-ml what monitoring tools ask, through the real bindings (package
nvidia-ml-py), and compares its devices with those of Tendril's libcuda. People run it; CI
does not. It needs a server and the environment of a client:

    LD_LIBRARY_PATH=build/dev/lib/client TENDRIL_SERVERS=host tools/nvml_check.py [--no-cuda]
"""

import ctypes
import sys
import time

import pynvml as nvml

SYSTEM = [
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
]
DEVICE = [
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetDisplayActive",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
]


def ask(name, *arguments):
    try:
        answer = getattr(nvml, name)(*arguments)
    except nvml.NVMLError as error:
        answer = f"({error})"
    print(f"  {name:44} {answer}")


def nvml_devices():
    """(uuid, bus id, bytes of memory) of each device."""
    rows = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        rows.append(
            (
                nvml.nvmlDeviceGetUUID(handle).lower(),
                nvml.nvmlDeviceGetPciInfo(handle).busId[-12:].lower(),
                nvml.nvmlDeviceGetMemoryInfo(handle).total,
            )
        )
    return rows


def cuda_devices():
    cuda = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        sys.exit("cuInit failed")
    rows = []
    for ordinal in range(count.value):
        uuid, bus, total = (
            (ctypes.c_ubyte * 16)(),
            ctypes.create_string_buffer(32),
            ctypes.c_size_t(),
        )
        cuda.cuDeviceGetUuid_v2(uuid, ordinal)
        cuda.cuDeviceGetPCIBusId(bus, 32, ordinal)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(total), ordinal)
        text = bytes(uuid).hex()
        text = "-".join(["gpu", text[:8], text[8:12], text[12:16], text[16:20], text[20:]])
        rows.append((text, bus.value.decode()[-12:].lower(), total.value))
    return rows


def main():
    nvml.nvmlInit()
    print("system")
    for name in SYSTEM:
        ask(name)
    for index in range(nvml.nvmlDeviceGetCount()):
        print(f"device {index}")
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        ask("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU)
        ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM)
        ask("nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_MEM)
        ask("nvmlDeviceGetMemoryInfo", handle, nvml.nvmlMemory_v2)
        for name in DEVICE:
            ask(name, handle)
    if "--no-cuda" not in sys.argv:
        cuda = cuda_devices()
        time.sleep(0.2)  # NVML learns of the slices that cuInit attached
        nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0))
        shown = nvml_devices()
        print(
            "agrees with libcuda" if shown == cuda else f"DIFFERS:\n  NVML {shown}\n  CUDA {cuda}"
        )
        return shown != cuda
    nvml.nvmlShutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
