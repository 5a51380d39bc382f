# SPDX-License-Identifier: Apache-2.0
"""A program whose process, or whose worker, is checkpointed meanwhile. For tools/gpu/pauses.py.

    checkpointed.py GIGABYTES

Fills so many gigabytes with a pattern, says `ready`, and then launches and waits every few
milliseconds, until it reads a line. Then it says how often, the longest that one took, and whether
memory and addresses are what they were. `checkpointer.py` does it to the process.
"""

import sys
import threading
import time
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

import driver_api as api
from driver_api import GIB, cuda, must

CHUNK = 2 * GIB


def main():
    size = int(float(sys.argv[1]) * 1e9) & ~((2 << 20) - 1)
    api.begin()
    counter, held = api.Counter(), []
    while size > 0:
        address = api.allocate(min(size, CHUNK))
        if address is None:
            raise RuntimeError("no room on the GPU")
        held.append((address, min(size, CHUNK)))
        size -= CHUNK
    for number, (address, length) in enumerate(held):
        api.fill(address, length, 0xABC00000 + number)
    must(cuda.cuCtxSynchronize())
    stream, event = c_void_p(), c_void_p()
    must(cuda.cuStreamCreate(byref(stream), c_uint(1)))
    must(cuda.cuEventCreate(byref(event), c_uint(0)))
    told = threading.Event()
    api.say("ready", {"bytes": sum(length for _, length in held)})
    threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
    waits, longest, wrong, code = 0, 0.0, 0, 0
    small, value = held[0][0], c_uint(0)
    while not told.is_set() and code == 0:
        begun = time.monotonic()
        number = waits & 0xFFFF
        code = (
            cuda.cuMemsetD32Async(c_uint64(small), c_uint(number), c_size_t(1024), stream)
            or cuda.cuEventRecord(event, stream)
            or cuda.cuEventSynchronize(event)
            or cuda.cuMemcpyDtoH_v2(byref(value), c_uint64(small), c_size_t(4))
        )
        wrong += value.value != number
        longest, waits = max(longest, time.monotonic() - begun), waits + 1
        time.sleep(0.005)
    facts = {"waits": waits, "longest_s": longest, "wrong": wrong, "code": code}
    if code == 0:
        api.fill(small, 4096, 0xABC00000)
        counted = [
            counter.count(address, length, 0xABC00000 + number)[0] * 4 == length
            for number, (address, length) in enumerate(held)
        ]
        facts["contents_right"] = all(counted)
    api.say("done", facts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
