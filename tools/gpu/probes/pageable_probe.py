# SPDX-License-Identifier: Apache-2.0
"""Whether kernels reach the memory of their process without having been given it (HMM, ATS). For
tools/gpu/security.py.

Says the device's attributes, then lets a kernel read plain memory of the program, an address of the
program's code, and addresses that its worker may have. Each read is a child of its own, because a
refused one ends its context.
"""

import ctypes
import subprocess
import sys
from ctypes import c_uint, c_uint64

import driver_api as api
from driver_api import cuda

ATTRIBUTES = {
    "managed": 83,
    "concurrent managed": 89,
    "pageable": 88,
    "pageable by the host's tables": 100,
    "host register": 99,
}


def read(where):
    api.begin()
    counter = api.Counter()
    plain = ctypes.create_string_buffer(b"\x07" * 8192)
    address = {
        "memory": (ctypes.addressof(plain) + 4095) & ~4095,
        "code": ctypes.cast(cuda.cuInit, ctypes.c_void_p).value & ~4095,
    }.get(where) or int(where, 16)
    to = c_uint64(counter.to)
    asked = c_uint64(address), c_uint64(16), c_uint(0x07070707), to
    code = api.launch(counter.kernel, 1, 32, *asked) or cuda.cuCtxSynchronize()
    api.say("read", {"code": code})


def main():
    if len(sys.argv) > 1:
        return read(sys.argv[1])
    api.begin()
    found = {name: api.attribute(number) for name, number in ATTRIBUTES.items()}
    # Where the kernel puts a program, its heap, and the first libraries.
    for where in ("memory", "code", "0x400000", "0x555555554000", "0x7ffff7fc0000"):
        done = subprocess.run(
            [sys.executable, __file__, where], capture_output=True, text=True, timeout=30
        )
        found[f"read of {where}"] = done.stdout.strip() or f"exit {done.returncode}"
    api.say("found", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
