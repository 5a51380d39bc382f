# SPDX-License-Identifier: Apache-2.0
"""CUDA runtimes of several releases, each in a process of its own: libcudart.so.11.0, .12 and .13, opened by name and called directly.

Argument 1: the folder with the libraries (`tools/gpu/prepare --runtimes` puts them into .gpu/runtimes); a library that is not there is
looked for where the system has it. Argument 2: the release for this process; without it one process is started for each.
"""
import ctypes
import os
import pathlib
import subprocess
import sys

import checks

LIBRARIES = {"11": "libcudart.so.11.0", "12": "libcudart.so.12", "13": "libcudart.so.13"}
TO_DEVICE, TO_HOST, WITHIN_DEVICE = 1, 2, 3  # cudaMemcpyKind
NON_BLOCKING, DISABLE_TIMING = 1, 2
PROPERTIES_BYTES = 8192  # more than cudaDeviceProp has in any release
ATTRIBUTES = {"threads of a block": 1, "warp": 10, "capability, major": 75, "capability, minor": 76, "processors": 16}


class Runtime:
    """A libcudart; a call that fails raises with the runtime's own name for the error."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.cudaGetErrorName.restype = ctypes.c_char_p

    def code(self, name, *arguments):
        return self.library.cudaGetErrorName(getattr(self.library, name)(*arguments)).decode()

    def __getattr__(self, name):
        def call(*arguments):
            said = self.code(name, *arguments)
            if said != "cudaSuccess":
                raise RuntimeError(f"{name}: {said}")
        return call

    def number(self, name, *arguments):
        value = ctypes.c_int(-1)
        getattr(self, name)(ctypes.byref(value), *arguments)
        return value.value

    def made(self, name, *arguments):
        handle = ctypes.c_void_p()
        getattr(self, name)(ctypes.byref(handle), *arguments)
        return handle


def versions(cuda):
    return {"runtime": cuda.number("cudaRuntimeGetVersion"), "driver": cuda.number("cudaDriverGetVersion"),
            "devices": cuda.number("cudaGetDeviceCount")}


def device(cuda):
    """The name stands first in cudaDeviceProp in every release; the rest moves about, so attributes tell it."""
    properties = ctypes.create_string_buffer(PROPERTIES_BYTES)
    try:
        cuda.cudaGetDeviceProperties_v2(properties, 0)
    except AttributeError:  # before 12 there was one version, in 13 there is one again
        cuda.cudaGetDeviceProperties(properties, 0)
    told = {name: cuda.number("cudaDeviceGetAttribute", number, 0) for name, number in ATTRIBUTES.items()}
    return {"name": properties.value.decode()} | told


def memory(cuda):
    size = 1 << 20
    there, copy = (cuda.made("cudaMalloc", ctypes.c_size_t(size)) for _ in range(2))
    sent = bytes(range(256)) * (size // 256)
    back = ctypes.create_string_buffer(size)
    cuda.cudaMemcpy(there, sent, ctypes.c_size_t(size), TO_DEVICE)
    cuda.cudaMemset(there, 7, ctypes.c_size_t(1000))
    cuda.cudaMemcpy(copy, there, ctypes.c_size_t(size), WITHIN_DEVICE)
    cuda.cudaMemcpy(back, copy, ctypes.c_size_t(size), TO_HOST)
    cuda.cudaFree(there)
    cuda.cudaFree(copy)
    return back.raw == b"\x07" * 1000 + sent[1000:]


def streams_and_events(cuda):
    size = 1 << 16
    stream = cuda.made("cudaStreamCreateWithFlags", NON_BLOCKING)
    begin, end = cuda.made("cudaEventCreate"), cuda.made("cudaEventCreate")
    other = cuda.made("cudaEventCreateWithFlags", DISABLE_TIMING)
    there = cuda.made("cudaMalloc", ctypes.c_size_t(size))
    pinned = cuda.made("cudaHostAlloc", ctypes.c_size_t(size), 0)
    cuda.cudaEventRecord(begin, stream)
    cuda.cudaMemsetAsync(there, 9, ctypes.c_size_t(size), stream)
    cuda.cudaMemcpyAsync(pinned, there, ctypes.c_size_t(size), TO_HOST, stream)
    cuda.cudaEventRecord(end, stream)
    cuda.cudaEventRecord(other, None)
    cuda.cudaStreamWaitEvent(stream, other, 0)
    cuda.cudaStreamSynchronize(stream)
    elapsed = ctypes.c_float(-1)
    cuda.cudaEventElapsedTime(ctypes.byref(elapsed), begin, end)
    good = ctypes.string_at(pinned, size) == b"\x09" * size
    untimed = cuda.code("cudaEventElapsedTime", ctypes.byref(elapsed), begin, other)
    for event in (begin, end, other):
        cuda.cudaEventDestroy(event)
    cuda.cudaStreamDestroy(stream)
    cuda.cudaFreeHost(pinned)
    cuda.cudaFree(there)
    return good, elapsed.value >= 0, untimed


def errors(cuda):
    pointer = ctypes.c_void_p()
    too_much = cuda.code("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(1 << 50))
    return too_much, cuda.code("cudaGetLastError"), cuda.code("cudaGetLastError"), cuda.code("cudaSetDevice", 1000)


def reset(cuda):
    cuda.cudaDeviceSynchronize()
    cuda.cudaDeviceReset()
    return memory(cuda)


def find(folder, name):
    """The carried library, or the system's; None where there is neither."""
    carried = pathlib.Path(folder) / name
    if carried.exists():
        return str(carried)
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    return name


def check_release(path):
    cuda = Runtime(path)
    for function in (versions, device, memory, streams_and_events, errors, reset):
        checks.REGISTERED.append((function.__name__, lambda function=function: function(cuda)))
    sys.argv[1:] = []
    checks.run()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.curdir
    if len(sys.argv) > 2:
        return check_release(find(folder, LIBRARIES[sys.argv[2]]))
    found = [release for release, name in LIBRARIES.items() if find(folder, name)]
    if not found:
        checks.skip(f"no libcudart in {folder}")
    worst = 0
    for release, name in LIBRARIES.items():
        if release not in found:
            print(f"{name} SKIPPED: it is not there", flush=True)
            continue
        print(f"== {name}", flush=True)
        done = subprocess.run([sys.executable, __file__, folder, release])
        print(f"exit {done.returncode}", flush=True)
        worst = worst or abs(done.returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
