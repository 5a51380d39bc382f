# SPDX-License-Identifier: Apache-2.0
"""What tests of programs with GPUs of several servers share: two servers, and words of programs."""

import pathlib
import shutil
import sys
import tempfile
import unittest

import harness
from harness import Server, listing, start

PREPARE = f"""
import ctypes, os, sys, time
from ctypes import byref, c_int, c_size_t, c_void_p
cuda = ctypes.CDLL("{harness.CLIENT}")
def must(result):
    assert result == 0, result
def look(ordinals):
    seen = []
    for i in ordinals:
        name, uuid = ctypes.create_string_buffer(100), ctypes.create_string_buffer(16)
        bus, memory, value = ctypes.create_string_buffer(20), c_size_t(), c_int()
        must(cuda.cuDeviceGetName(name, 100, i))
        must(cuda.cuDeviceGetUuid_v2(uuid, i))
        must(cuda.cuDeviceGetPCIBusId(bus, 20, i))
        must(cuda.cuDeviceTotalMem_v2(byref(memory), i))
        values = [
            value.value if cuda.cuDeviceGetAttribute(byref(value), which, i) == 0 else None
            for which in range(1, 160)
        ]
        seen.append((name.value, uuid.raw, bus.value, memory.value, values))
    return seen
def use(ordinal):
    context, low, high, limit = c_void_p(), c_int(), c_int(), c_size_t()
    result = cuda.cuDevicePrimaryCtxRetain(byref(context), ordinal)
    if result == 0:
        must(cuda.cuCtxSetCurrent(context))
        must(cuda.cuCtxGetStreamPriorityRange(byref(low), byref(high)))
        must(cuda.cuCtxGetLimit(byref(limit), 0))
        assert high.value < low.value and limit.value > 0, (low, high, limit)
    return result
def tell(what):
    print(what, flush=True)
def step(name):
    tell(name)
    while not os.path.exists(os.path.join(folder, name)):
        time.sleep(0.02)
must(cuda.cuInit(0))
"""


def processes(*servers, **environment):
    """How many are with each server."""
    return [
        sum(lease["processes"] for lease in listing(one, **environment)["leases"])
        for one in servers
    ]


class ProgramTest(unittest.TestCase):
    """Programs that stop at steps, until the test lets them go on."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tendril-e2e-")
        self.addCleanup(shutil.rmtree, self.folder)

    def python(self, text, *arguments, server, **environment):
        """A running program. At each step it prints a name and waits until `go_on` names it."""
        process = start(
            "run",
            *arguments,
            "--",
            sys.executable,
            "-c",
            PREPARE + f"folder = {self.folder!r}\n" + text,
            server=server,
            TENDRIL_TRANSPORT="tcp",
            **environment,
        )
        self.addCleanup(harness.end, process)
        return process

    def copying(self, text, server, **environment):
        """One that has a GPU of each of two servers, and the words of COPIES."""
        text = COPIES + "contexts = each(2)\n" + text + '\ntell("passed")\n'
        return self.python(text, "-n", "2", server=server, **environment)

    def comes_to(self, process, name):
        line = process.stdout.readline().strip()
        self.assertEqual(line, name, "" if line == name else process.stdout.read())

    def passes(self, process, seconds=60):
        """What it printed until its end."""
        output = process.stdout.read()
        self.assertEqual(
            (process.wait(seconds), output.strip().split("\n")[-1]), (0, "passed"), output
        )
        return output

    def go_on(self, name):
        pathlib.Path(self.folder, name).touch()


class TwoServers(ProgramTest):
    OPTIONS, GPUS, ENVIRONMENT = (), 4, {}

    @classmethod
    def setUpClass(cls):
        words = {"gpus": cls.GPUS, "warm": 0, "environment": cls.ENVIRONMENT}
        cls.both = [Server(*cls.OPTIONS, **words) for _ in range(2)]
        cls.near, cls.far = cls.both
        for server in cls.both:
            cls.addClassCleanup(server.stop)

    def python(self, text, *arguments, server=None, **environment):
        return super().python(text, *arguments, server=server or self.both, **environment)


COPIES = """
import random
def each(count):
    contexts = []
    for i in range(count):
        context = c_void_p()
        must(cuda.cuDevicePrimaryCtxRetain(byref(context), i))
        contexts.append(context)
    return contexts
def enter(i):
    must(cuda.cuCtxSetCurrent(contexts[i]))
def memory(i, size):
    enter(i)
    address = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(byref(address), c_size_t(size)))
    return address
def stream(i):
    enter(i)
    made = c_void_p()
    must(cuda.cuStreamCreate(byref(made), 1))
    return made
def event(i):
    enter(i)
    made = c_void_p()
    must(cuda.cuEventCreate(byref(made), 2))
    return made
def write(i, address, data):
    enter(i)
    must(cuda.cuMemcpyHtoD_v2(address, data, c_size_t(len(data))))
def read(i, address, size):
    enter(i)
    data = ctypes.create_string_buffer(size)
    must(cuda.cuMemcpyDtoH_v2(data, address, c_size_t(size)))
    return data.raw
def peer(to, i, source, j, size, on=None):
    if on is None:
        return cuda.cuMemcpyPeer(to, contexts[i], source, contexts[j], c_size_t(size))
    return cuda.cuMemcpyPeerAsync(to, contexts[i], source, contexts[j], c_size_t(size), on)
MIB = 1 << 20
"""
