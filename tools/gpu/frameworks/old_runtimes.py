# SPDX-License-Identifier: Apache-2.0
"""CUDA runtimes of several releases, each in a process of its own: libcudart.so.11.0, .12 and
.13, opened by name and called as compiled programs call them, with the registration of their
kernels.

Argument 1: the folder with the libraries (`tools/gpu/prepare --runtimes` puts them into
.gpu/runtimes). A library that is not there is looked for in the system. Argument 2: the
release for this process. Without it one process is started for each.
"""

import ctypes
import os
import pathlib
import struct
import subprocess
import sys

import checks

LIBRARIES = {"11": "libcudart.so.11.0", "12": "libcudart.so.12", "13": "libcudart.so.13"}
TO_DEVICE, TO_HOST, WITHIN_DEVICE = 1, 2, 3  # cudaMemcpyKind
NON_BLOCKING, DISABLE_TIMING = 1, 2
PROPERTIES_BYTES = 8192  # more than cudaDeviceProp has in any release
ATTRIBUTES = {
    "threads of a block": 1,
    "warp": 10,
    "capability, major": 75,
    "capability, minor": 76,
    "processors": 16,
}


# Device code for any release, in a fat binary, as its programs carry it.
PTX = b""".version 6.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 data, .param .u32 by, .param .u32 n) {
  .reg .pred %p;
  .reg .b32 %r<7>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [by];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r5, %r3, %r4, %r5;
  setp.ge.u32 %p, %r5, %r2;
  @%p ret;
  cvta.to.global.u64 %rd1, %rd1;
  mul.wide.u32 %rd2, %r5, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r6, [%rd3];
  add.u32 %r6, %r6, %r1;
  st.global.u32 [%rd3], %r6;
  ret;
}
"""


class Wrapper(ctypes.Structure):
    """What compiled programs hand to __cudaRegisterFatBinary."""

    _fields_ = [
        ("magic", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("unused", ctypes.c_void_p),
    ]


class Shape(ctypes.Structure):
    """dim3"""

    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


def fat_binary(text):
    """A container with one entry of PTX, not compressed, as nvcc writes it."""
    payload = text + b"\0" * (8 - len(text) % 8)
    entry = (
        struct.pack(
            "<HHIQIIHHIQQQQQQ", 1, 0x101, 80, len(payload), 0, 64, 0, 6, 70, 0, 0x11, 0, 0, 72, 0
        )
        + payload
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


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
    return {
        "runtime": cuda.number("cudaRuntimeGetVersion"),
        "driver": cuda.number("cudaDriverGetVersion"),
        "devices": cuda.number("cudaGetDeviceCount"),
    }


def device(cuda):
    """The name stands first in cudaDeviceProp in every release. The rest moves about, so
    attributes tell it."""
    properties = ctypes.create_string_buffer(PROPERTIES_BYTES)
    try:
        cuda.cudaGetDeviceProperties_v2(properties, 0)
    except AttributeError:  # before 12 there was one version, in 13 there is one again
        cuda.cudaGetDeviceProperties(properties, 0)
    told = {
        name: cuda.number("cudaDeviceGetAttribute", number, 0)
        for name, number in ATTRIBUTES.items()
    }
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


def registered_kernel(cuda):
    """What the start-up code of a compiled program does. The runtime keeps pointers to all of
    it, so it lives as long as `cuda`."""
    if not hasattr(cuda.library, "kept"):
        binary = ctypes.create_string_buffer(fat_binary(PTX))
        wrapper = Wrapper(0x466243B1, 1, ctypes.addressof(binary), None)
        host_function = ctypes.create_string_buffer(
            8
        )  # its address is the kernel's name to the runtime
        register = getattr(cuda.library, "__cudaRegisterFatBinary")
        register.restype = ctypes.c_void_p
        handle = ctypes.c_void_p(register(ctypes.byref(wrapper)))
        getattr(cuda.library, "__cudaRegisterFunction")(
            handle, host_function, b"add", b"add", -1, *[None] * 5
        )
        getattr(cuda.library, "__cudaRegisterFatBinaryEnd")(handle)
        cuda.library.kept = (host_function, wrapper, binary)
    return cuda.library.kept[0]


def kernel(cuda):
    n = 1000
    function = registered_kernel(cuda)
    there = cuda.made("cudaMalloc", ctypes.c_size_t(4 * n))
    back = (ctypes.c_uint * n)(*range(n))
    cuda.cudaMemcpy(there, back, ctypes.c_size_t(4 * n), TO_DEVICE)
    values = there, ctypes.c_uint(5), ctypes.c_uint(n)
    arguments = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in values])
    for _ in range(3):
        cuda.cudaLaunchKernel(
            function, Shape(4, 1, 1), Shape(256, 1, 1), arguments, ctypes.c_size_t(0), None
        )
    too_large = Shape(4096, 1, 1)
    refused = cuda.code(
        "cudaLaunchKernel", function, Shape(1, 1, 1), too_large, arguments, ctypes.c_size_t(0), None
    )
    cuda.code("cudaGetLastError")
    cuda.cudaMemcpy(back, there, ctypes.c_size_t(4 * n), TO_HOST)
    cuda.cudaFree(there)
    return list(back) == [i + 15 for i in range(n)], refused


def errors(cuda):
    pointer = ctypes.c_void_p()
    too_much = cuda.code("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(1 << 50))
    return (
        too_much,
        cuda.code("cudaGetLastError"),
        cuda.code("cudaGetLastError"),
        cuda.code("cudaSetDevice", 1000),
    )


def reset(cuda):
    cuda.cudaDeviceSynchronize()
    cuda.cudaDeviceReset()
    return memory(cuda), kernel(cuda)


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
    for function in (versions, device, memory, streams_and_events, kernel, errors, reset):
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
