# SPDX-License-Identifier: Apache-2.0
"""Waits and copies of one program, with the processor time that it took for them. For
tools/gpu/sealed.py, which starts one on each side and gives them turns (meter.py's commands).

`wait SECONDS`: a kernel and its wait. `copy KIND BYTES SECONDS`: KIND is pinned or pageable, then
`-to` or `-from` the GPU. Answers say microseconds each, and processor seconds of the whole time.
"""

import ctypes
import resource
import statistics
import time
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

import driver_api as api
import meter
from driver_api import MIB, cuda, must
from memory_taker import EMPTY

MOST = 256 * MIB


def processor_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Line:
    def __init__(self):
        api.begin()
        self.kernel, self.at = api.function(EMPTY, "empty"), api.allocate(MOST)
        pinned = c_void_p()
        must(cuda.cuMemHostAlloc(byref(pinned), c_size_t(MOST), c_uint(0)))
        self.pageable = ctypes.create_string_buffer(MOST)
        self.host = {"pinned": pinned.value, "pageable": ctypes.addressof(self.pageable)}
        ctypes.memset(self.host["pinned"], 5, MOST)
        ctypes.memset(self.host["pageable"], 5, MOST)

    def repeat(self, step, seconds):
        for _ in range(3):
            step()
        times, begun, used = [], time.perf_counter(), processor_s()
        at = begun
        while at - begun < float(seconds) or len(times) < 3:
            step()
            now = time.perf_counter()
            times.append(now - at)
            at = now
        return {
            "us": statistics.median(times) * 1e6,
            "times": len(times),
            "seconds": at - begun,
            "processor_s": processor_s() - used,
        }

    def wait(self, seconds):
        nothing = c_uint64(0)

        def step():
            must(api.launch(self.kernel, 1, 32, nothing))
            must(cuda.cuCtxSynchronize())

        return self.repeat(step, seconds)

    def copy(self, kind, size, seconds):
        where, _, way = kind.partition("-")
        host, bytes_each = c_void_p(self.host[where]), c_size_t(int(size))
        gpu = c_uint64(self.at)

        def step():
            if way == "to":
                must(cuda.cuMemcpyHtoD_v2(gpu, host, bytes_each))
            else:
                must(cuda.cuMemcpyDtoH_v2(host, gpu, bytes_each))
            must(cuda.cuCtxSynchronize())

        return self.repeat(step, seconds) | {"bytes": int(size)}


def main():
    line = Line()
    meter.Meter({}, lambda: None, {"wait": line.wait, "copy": line.copy}).serve()


if __name__ == "__main__":
    main()
