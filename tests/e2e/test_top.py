# SPDX-License-Identifier: Apache-2.0
"""tendril top: it shows what programs do, in a pipe, on a terminal and as JSON."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
import unittest

import harness
from harness import PROGRAMS, TENDRIL, Server, clean_environment, eventually, tendril

# Says what its own library counted, and waits.
COUNTED = """
import sys
from ctypes import CDLL, CFUNCTYPE, POINTER, byref, create_string_buffer
from ctypes import c_int, c_size_t, c_uint64, c_void_p
cuda = CDLL("libcuda.so.1")
def must(code):
    assert code == 0, code
context, memory = c_void_p(), c_uint64()
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
must(cuda.cuMemAlloc_v2(byref(memory), 4 << 20))
for _ in range(1000):
    must(cuda.cuMemsetD32Async(memory, 7, 16, None))
must(cuda.cuMemcpyHtoD_v2(memory, create_string_buffer(1 << 20), 1 << 20))
must(cuda.cuCtxSynchronize())
table, values = POINTER(c_void_p)(), (c_uint64 * 6)()
must(cuda.cuGetExportTable(byref(table), create_string_buffer(b"tendril counters", 16)))
CFUNCTYPE(c_size_t, POINTER(c_uint64), c_size_t)(table[1])(values, 6)
print(*values, flush=True)
sys.stdin.read()
"""


@harness.needs_client
class Top(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(gpus=2)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def once(self, *options):
        status, out, err = tendril("top", "--once", "--json", *options, server=self.server)
        self.assertEqual((status, out.count("\n")), (0, 1), err)
        return json.loads(out)["servers"][0]

    @harness.needs_plain_client
    def test_the_server_counts_what_the_client_counts(self):
        for transport in ("tcp", "shm"):
            command = [
                TENDRIL,
                "run",
                "--server",
                self.server.endpoint,
                "--",
                sys.executable,
                "-c",
                COUNTED,
            ]
            with subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=clean_environment(TENDRIL_TRANSPORT=transport),
            ) as program:
                calls, trips, _, sent, received, _ = map(int, program.stdout.readline().split())
                session = self.once("--interval", "0.2")["sessions"][0]
                program.stdin.close()
                self.assertEqual(program.wait(20), 0)
            self.assertGreater(calls, 1000)
            self.assertEqual((session["calls"], session["round_trips"]), (calls, trips), transport)
            # What attaching took, and credit, are counted at one end only.
            self.assertAlmostEqual(session["bytes_to_gpu"], sent, delta=4096)
            self.assertAlmostEqual(session["bytes_from_gpu"], received, delta=4096)
            self.assertEqual(session["calls_per_s"], 0)
            self.assertEqual(session["slices"][0]["memory_used_bytes"], 4 << 20)
            self.assertEqual(session["pid"] == session["worker_pid"], False)

    def test_rates_of_a_program_that_launches(self):
        program = harness.start(
            "run", "-p", "0.5", "--", PROGRAMS / "training_step", "1000000", server=self.server
        )
        try:
            eventually(lambda: self.once("--interval", "0.1")["sessions"], 20)
            session = self.once()["sessions"][0]
        finally:
            harness.end(program)
        self.assertTrue(0 < session["launches_per_s"] < session["calls_per_s"], session)
        self.assertTrue(0 < session["round_trips_per_s"] < session["launches_per_s"], session)
        self.assertTrue(0 < session["waiting"] <= 1, session)
        self.assertTrue(0 < session["server_processors"] < 64, session)
        self.assertTrue(0 < session["gpu_share_delivered"] <= 1.1, session)
        self.assertEqual(
            (session["program"], session["slices"][0]["share"]), ("training_step", 0.5)
        )

    def test_pictures_follow_each_other_in_a_pipe_until_a_signal(self):
        program = harness.start("top", "--interval", "0.1", server=self.server)
        try:
            heads = [
                next(line for line in program.stdout if line.startswith(self.server.endpoint))
                for _ in range(3)
            ]
            program.send_signal(signal.SIGINT)
            rest = program.stdout.read()
            self.assertEqual(program.wait(10), 0)
        finally:
            harness.end(program)
        self.assertTrue(all("leases" in head for head in heads), heads)
        self.assertNotIn("\033", "".join(heads) + rest)

    def test_a_key_ends_it_and_the_terminal_is_as_before(self):
        ours, its = pty.openpty()
        before = termios.tcgetattr(its)
        program = subprocess.Popen(
            [TENDRIL, "top", "--server", self.server.endpoint],
            stdin=its,
            stdout=its,
            env=clean_environment(),
        )
        try:
            seen, until = b"", time.monotonic() + 20
            while b"leases" not in seen and time.monotonic() < until:
                if select.select([ours], [], [], 0.2)[0]:
                    seen += os.read(ours, 4096)
            self.assertIn(b"\033[H", seen)
            os.write(ours, b"q")
            self.assertEqual(program.wait(10), 0)
            self.assertEqual(termios.tcgetattr(its)[3], before[3])
        finally:
            harness.end(program)
            os.close(ours)
            os.close(its)

    def test_nobody_to_ask(self):
        status, _, err = tendril("top", "--once", "--server", "127.0.0.1:1")
        self.assertEqual(status, 1)
        self.assertIn("127.0.0.1:1", err)


if __name__ == "__main__":
    unittest.main()
