# SPDX-License-Identifier: Apache-2.0
"""What people see on a terminal: `tendril top`, which shows what programs do, also in a pipe and as
JSON; and the line of `tendril run` while a program attaches or uploads for over a second, which is
never in the way of what the program writes."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
import unittest

import harness
from harness import MIB, PROGRAMS, TENDRIL, Server, clean_environment, eventually, tendril

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


CLEAR = "\r\033[K"
# Attaches, uploads once for long and often for short, works between uploads; says so, now on
# stdout, then on stderr.
UPLOADS = """
import os, sys, time
from ctypes import CDLL, byref, c_uint64, c_void_p, create_string_buffer
cuda = CDLL("libcuda.so.1")
def must(code):
    assert code == 0, code
def mark(text):
    os.write(1 + mark.count % 2, f"MARK {text}\\n".encode())
    mark.count += 1
mark.count = 0
mark("begins")
context, memory = c_void_p(), c_uint64()
must(cuda.cuInit(0))
mark("attached")
must(cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
must(cuda.cuMemAlloc_v2(byref(memory), 160 << 20))
data = create_string_buffer(160 << 20)
must(cuda.cuMemcpyHtoD_v2(memory, data, 160 << 20))
mark("one upload")
for turn in range(int(sys.argv[1])):
    must(cuda.cuMemcpyHtoD_v2(memory, data, 4 << 20))
    mark(f"piece {turn}")
must(cuda.cuCtxSynchronize())
mark("ends")
"""


@harness.needs_plain_client
@harness.needs_client
class Progress(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # No worker is ready, a context takes its time, and 40 MB/s reach the device.
        knobs = {"CONTEXT_MS": "1500", "MODE": "paced", "LINK_GBS": "0.04"}
        cls.server = Server(
            warm=0,
            memory=512 * MIB,
            environment={"TENDRIL_SOFTGPU_" + name: value for name, value in knobs.items()},
        )

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def command(self, pieces, *options):
        head = [TENDRIL, "run", "--server", self.server.endpoint, *options, "--"]
        return [*head, sys.executable, "-c", UPLOADS, str(pieces)]

    def environment(self, **more):
        return clean_environment(TENDRIL_TRANSPORT="tcp", TERM="xterm", **more)

    def spawn(self, command, terminal, **more):
        """With that terminal, which controls it."""
        return subprocess.Popen(
            command,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
            env=self.environment(**more),
        )

    def on_a_terminal(self, *words, **more):
        """What a person sees."""
        ours, theirs = pty.openpty()
        process = self.spawn(self.command(*words), theirs, **more)
        os.close(theirs)
        parts = []

        def read():
            try:
                while part := os.read(ours, 1 << 16):
                    parts.append(part)
            except OSError:
                pass  # nobody has it open any more

        reader = threading.Thread(target=read)
        reader.start()
        self.assertEqual(process.wait(timeout=120), 0, b"".join(parts))
        reader.join()
        os.close(ours)
        return b"".join(parts).decode().replace("\r\n", "\n")

    def test_a_line_comes_and_goes(self):
        seen = self.on_a_terminal(20, NO_COLOR="1")
        drawn = re.findall(r"\r\033\[K(tendril: [^\r\n]*)", seen)
        self.assertTrue(any("attaching to 127.0.0.1" in line for line in drawn), seen)
        self.assertTrue(
            any(re.search(r"uploaded \d+ MB of 168 MB, \d+ MB/s, \d+ s left", x) for x in drawn),
            seen,
        )
        self.assertTrue(any(re.search(r"uploaded \d+ MB, \d+ MB/s$", x) for x in drawn), seen)
        self.assertLess(max(map(len, drawn)), 80)
        # What the program writes begins on a line of its own, and nothing is left beside it.
        marks = list(re.finditer(r"MARK [^\n]*\n", seen))
        self.assertEqual(len(marks), 24, seen)
        for mark in marks:
            before = seen[: mark.start()]
            self.assertTrue(before == "" or before.endswith(("\n", CLEAR)), repr(before[-90:]))
        rest = re.sub(r"\r\033\[K(tendril: [^\r\n]*\r\033\[K)+", "", seen).replace(CLEAR, "")
        self.assertEqual(re.sub(r"MARK [^\n]*\n", "", rest), "", "nothing else is on the terminal")
        self.assertNotRegex(seen, r"\033\[[0-9;]*m")

    def test_no_terminal_no_line(self):
        done = subprocess.run(
            self.command(3),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=self.environment(),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((done.stdout + done.stderr).count("MARK"), 7)
        self.assertEqual(re.sub(r"MARK [^\n]*\n", "", done.stdout + done.stderr), "")

    def test_a_terminal_that_is_stopped_holds_nobody_up(self):
        ours, theirs = pty.openpty()
        termios.tcflow(theirs, termios.TCOOFF)  # Ctrl-S
        silent = ["sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh"]
        command = self.command(0)
        at = command.index("--") + 1
        process = self.spawn(command[:at] + silent + command[at:], theirs)
        self.addCleanup(harness.end, process)
        self.assertEqual(process.wait(timeout=90), 0)
        os.close(ours)
        os.close(theirs)

    def test_it_can_be_left_out(self):
        seen = self.on_a_terminal(0, "--no-progress")
        self.assertNotIn("tendril:", seen)
        self.assertNotIn("\033", seen)


if __name__ == "__main__":
    unittest.main()
