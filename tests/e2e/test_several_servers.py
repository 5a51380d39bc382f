# SPDX-License-Identifier: Apache-2.0
"""GPUs of several servers in one program: with which servers its processes are, and when."""

import ast
import pathlib
import shutil
import sys
import tempfile
import unittest

import harness
from harness import PROGRAMS, Server, eventually, listing, start

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


@harness.needs_plain_client
class SeveralServers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.near, cls.far = Server(gpus=4, warm=0), Server(gpus=4, warm=0)
        cls.addClassCleanup(cls.near.stop)
        cls.addClassCleanup(cls.far.stop)
        cls.both = [cls.near, cls.far]

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tendril-e2e-")
        self.addCleanup(shutil.rmtree, self.folder)

    def python(self, text, *arguments, server=None, **environment):
        """A running program. At each step it prints a name and waits until `go_on` names it."""
        process = start(
            "run",
            *arguments,
            "--",
            sys.executable,
            "-c",
            PREPARE + f"folder = {self.folder!r}\n" + text,
            server=server or self.both,
            TENDRIL_TRANSPORT="tcp",
            **environment,
        )
        self.addCleanup(harness.end, process)
        return process

    def comes_to(self, process, name):
        self.assertEqual(process.stdout.readline().strip(), name)

    def go_on(self, name):
        pathlib.Path(self.folder, name).touch()

    def test_a_rank_has_a_worker_where_it_has_its_gpu(self):
        hold = f"{PROGRAMS / 'hold'} 1 60"
        ranks = f"for i in 0 1 2 3 4 5 6 7; do CUDA_VISIBLE_DEVICES=$i {hold} & done; wait"
        run = start("run", "-n", "8", "--", "sh", "-c", ranks, server=self.both)
        self.addCleanup(harness.end, run)
        for _ in range(8):
            self.assertIn("holding", run.stdout.readline())
        self.assertEqual(processes(*self.both), [4, 4])
        self.assertEqual([len(server.workers()) for server in self.both], [4, 4])
        run.terminate()
        run.wait(20)
        for server in self.both:
            eventually(server.idle, 20)

    def test_a_program_is_with_a_server_from_the_first_context_there(self):
        run = self.python(
            """
before = look(range(8))
step("listed")
assert use(6) == 0
step("far")
assert use(1) == 0
step("near")
assert look(range(8)) == before
tell("passed")
""",
            "-n",
            "8",
        )
        for name, expected in (("listed", [0, 0]), ("far", [0, 1]), ("near", [1, 1])):
            self.comes_to(run, name)
            self.assertEqual(processes(*self.both), expected)
            self.go_on(name)
        self.comes_to(run, "passed")
        self.assertEqual(run.wait(20), 0)

    def test_devices_are_what_their_sessions_say(self):
        """With one server a session lists them, with several each server does."""
        tells = "tell(repr(look(range(%d))))"
        ahead = self.python(tells % 8, "-n", "8", "-p", "0.5").stdout.readline()
        apart = [
            self.python(tells % 4, "-n", "4", "-p", "0.5", server=[one]).stdout.readline()
            for one in self.both
        ]
        self.assertEqual(ast.literal_eval(ahead), sum(map(ast.literal_eval, apart), []))

    def test_servers_that_secure_attaching(self):
        secret = {"TENDRIL_TOKEN": "a-token-of-some-length"}
        with Server(environment=secret) as near, Server(environment=secret) as far:
            run = self.python(
                'step("listed"); assert use(1) == 0; step("used")',
                "-n",
                "2",
                server=[near, far],
                **secret,
            )
            for name, expected in (("listed", [0, 0]), ("used", [0, 1])):
                self.comes_to(run, name)
                self.assertEqual(processes(near, far, **secret), expected)
                self.go_on(name)
            self.assertEqual(run.wait(20), 0)

    def test_a_server_that_is_gone_before_its_first_context(self):
        with Server() as gone:
            run = self.python(
                """
step("listed")
assert use(4) == 46, "device unavailable"
assert use(0) == 0
tell("passed")
""",
                "-n",
                "5",
                server=[self.near, gone],
            )
            self.comes_to(run, "listed")
            gone.kill()
            self.go_on("listed")
            self.assertIn(f"127.0.0.1:{gone.port}", run.stdout.readline())
            self.assertIn("passed", run.stdout.read())


if __name__ == "__main__":
    unittest.main()
