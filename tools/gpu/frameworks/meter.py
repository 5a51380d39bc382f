# SPDX-License-Identifier: Apache-2.0
"""The measured end of tools/gpu/meters.py: a process that makes workloads and runs them on
command. Several such processes, each on another side, take turns within seconds, so that the
host's changes touch all of them alike.

Commands come as lines on stdin. Each is answered by one line `meter {json}`: what was asked,
and figures or `error`. A workload is a function that returns its step. `synchronize` waits
until the device is done.
"""

import ctypes
import gc
import json
import os
import resource
import sys
import time

SETTLE = 3
BLOCK_S = 0.04  # steps are timed in blocks of about this length; longer steps one by one
STARTED = time.time()


class Counters:
    """What Tendril's client has sent so far (client/cuda/runtime/export_table.cc); a real driver
    has none."""

    def __init__(self):
        self.read = None
        try:
            driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            return
        table, name = ctypes.POINTER(ctypes.c_void_p)(), ctypes.create_string_buffer(
            b"tendril counters", 16
        )
        if driver.cuGetExportTable(ctypes.byref(table), name) == 0 and table:
            self.read = ctypes.CFUNCTYPE(
                ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t
            )(table[1])

    def now(self):
        """Round trips, bytes out, bytes in, bytes of code uploaded."""
        values = (ctypes.c_uint64 * 7)()
        if self.read is not None:
            self.read(values, 7)
        return values[1], values[3], values[4], values[6]


def memory():
    """Megabytes that this process has: resident, of them its own alone, and shared with others."""
    held = {}
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            name, _, rest = line.partition(":")
            if name in ("VmRSS", "RssAnon", "RssShmem", "VmHWM"):
                held[name] = int(rest.split()[0]) / 1024
    return held


class SameProcessors:
    """While sides are compared, the threads that make a step's time (Python's and autograd's)
    have one processor each, the same on every side. Processors of a shared host differ by
    half, for seconds at a time. Threads of a driver or of Tendril run anywhere.
    """

    def __init__(self):
        self.anywhere = os.sched_getaffinity(0)
        self.first = 0  # how many processors other ranks of the program have

    def threads(self):
        found = [(0, 1)]
        for thread in os.listdir("/proc/self/task"):
            try:
                with open(
                    f"/proc/self/task/{thread}/comm", encoding="ascii", errors="replace"
                ) as name:
                    if name.read().startswith("pt_autograd"):
                        found.append((int(thread), 2))
            except OSError:
                pass  # it has ended
        return found

    def __enter__(self):
        if len(self.anywhere) >= 8:  # with few, everybody would wait for everybody
            for thread, place in self.threads():
                chosen = sorted(self.anywhere)[-place - self.first]
                os.sched_setaffinity(thread, {chosen})

    def __exit__(self, *_):
        for thread, _ in self.threads():
            os.sched_setaffinity(thread, self.anywhere)


class Meter:
    def __init__(self, workloads, synchronize, extra=None, released=lambda: None):
        self.workloads, self.synchronize, self.released = workloads, synchronize, released
        self.counters, self.step, self.each_s, self.processors = (
            Counters(),
            None,
            0.0,
            SameProcessors(),
        )
        self.commands = {
            "setup": self.setup,
            "measure": self.measure,
            "idle": self.idle,
            **(extra or {}),
        }

    def setup(self, name):
        """Makes the workload and runs it until its first steps' costs are paid."""
        self.step = None
        gc.collect()
        self.released()
        begun = time.perf_counter()
        step = self.workloads[name]()
        for _ in range(SETTLE):
            step()
        self.synchronize()
        made = time.perf_counter()
        for _ in range(SETTLE):
            step()
        self.synchronize()
        self.step, self.each_s = step, (time.perf_counter() - made) / SETTLE
        return {"seconds": made - begun, "ms": self.each_s * 1e3}

    def measure(self, seconds):
        """Milliseconds of a step for each block of steps, after a short warm-up, because others
        have used the GPU since."""
        with self.processors:
            return self.measured(self.step, float(seconds))

    def measured(self, step, seconds):
        count = max(1, round(BLOCK_S / self.each_s))
        until = time.perf_counter() + seconds / 5
        while time.perf_counter() < until:
            for _ in range(
                count
            ):  # as they will be measured: a program that never waits runs seconds ahead of the GPU
                step()
            self.synchronize()
        blocks, before = [], self.counters.now()
        begun = at = time.perf_counter()
        while at - begun < seconds or len(blocks) < 2:
            for _ in range(count):
                step()
            self.synchronize()
            now = time.perf_counter()
            blocks.append((now - at) / count * 1e3)
            at = now
        names = ("trips", "out", "back", "code")
        each = [
            (after - then) / count / len(blocks) for after, then in zip(self.counters.now(), before)
        ]
        return {"blocks": blocks, "steps": count, **dict(zip(names, each))}

    def idle(self, seconds):
        """The processor time that this process takes while its program does nothing, as a share of
        one processor; its memory."""
        time.sleep(0.5)
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        time.sleep(float(seconds))
        after, took = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - begun
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"cpu": used / took, "memory": memory()}

    def serve(self):
        """Until stdin ends. An error is reported and costs its workload only."""
        self.say("hello", {"seconds": time.time() - STARTED})
        for line in self.commands_of():
            words = line.split()
            try:
                answer = self.commands[words[0]](*words[1:])
            except Exception as error:  # whatever a framework raises
                answer = {
                    "error": (
                        f"{type(error).__name__}:"
                        f" {(str(error).strip().splitlines() or [''])[0][:300]}"
                    )
                }
            self.say(line.strip(), answer)

    def commands_of(self):
        return sys.stdin

    @staticmethod
    def say(what, answer):
        print("meter " + json.dumps({"command": what, **answer}), flush=True)
