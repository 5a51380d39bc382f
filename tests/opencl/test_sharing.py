# SPDX-License-Identifier: Apache-2.0
"""Two tenants on one OpenCL device, and sudden deaths of all who take part."""

import os
import signal
import time
import unittest

from server import HAS_POCL, PROGRAM, OpenclServer, Working, run
from harness import ADDRESS_SANITIZED, THREAD_SANITIZED, eventually, is_running, listing

MIB = 1 << 20


@unittest.skipUnless(HAS_POCL, "PoCL (Debian's pocl-opencl-icd) is not installed")
@unittest.skipIf(THREAD_SANITIZED or ADDRESS_SANITIZED, "the loader is not sanitized")
class Sharing(unittest.TestCase):
    def setUp(self):
        self.server = OpenclServer("--warm", 1)
        self.addCleanup(self.server.stop)

    def shares(self, seconds):
        """What a quarter and three quarters had of the device, as the part of the quarter."""
        both = [
            Working(self.server, [PROGRAM, "work"], "-p", part, "-m", "64M")
            for part in ("0.25", "0.75")
        ]
        try:
            for each in both:
                each.kernels()  # begins when both are there
            both[0].kernels()
            both[1].kernels()
            quarter, rest = (sum(each.kernels() for _ in range(seconds)) for each in both)
        finally:
            for each in both:
                each.end()
        return quarter / (quarter + rest)

    def test_turns_of_a_quarter_and_three_quarters(self):
        """Within two points. Other programs of a busy machine come in between, so one of three
        measurements must be as exact."""
        seen = []
        for _ in range(3):
            seen.append(self.shares(5))
            if abs(seen[-1] - 0.25) <= 0.02:
                return
        self.fail(f"the quarter had {seen} of the device's time")

    def test_memory_of_two_tenants(self):
        """Each sees its own memory and no more, at the same time."""
        other = Working(self.server, [PROGRAM, "work"], "-p", "0.75", "-m", "96M")
        try:
            other.kernels()
            done = run(self.server, [PROGRAM, "memory"], "-p", "0.25", "-m", "64M")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn(f"{64 * MIB} bytes in all", done.stdout)
        finally:
            other.end()

    def test_full_slices(self):
        """Two tenants fill their slices. Each has all of its own to the last MiB, the listing has
        the sum, and what one had is free within a second of its death."""
        parts = (("0.25", 64), ("0.75", 96))
        both = [
            Working(self.server, [PROGRAM, "filled_memory"], "-p", part, "-m", f"{size}M")
            for part, size in parts
        ]
        try:
            for each, (_, size) in zip(both, parts):
                self.assertEqual(each.process.stdout.readline(), f"{size} pieces\n")
            self.assertEqual(self.used(), (sorted([64 * MIB, 96 * MIB]), 160 * MIB))
            both[0].process.kill()
            since = time.monotonic()
            eventually(lambda: self.used() == ([96 * MIB], 96 * MIB), 10, "its memory")
            self.assertLess(time.monotonic() - since, 1)
        finally:
            for each in both:
                each.end()

    def used(self):
        """Bytes of each lease, and of the device."""
        server = listing([self.server])
        slices = [each for lease in server["leases"] for each in lease["slices"]]
        leases = sorted(each["memory_used_bytes"] for each in slices)
        return leases, sum(each["memory_used_bytes"] for each in server["gpus"])

    def given_back(self, worker):
        """Within a second nothing is left of the session, and the device serves the next one."""
        since = time.monotonic()
        eventually(
            lambda: not is_running(worker) and not listing([self.server])["leases"],
            10,
            "the session's end",
        )
        took = time.monotonic() - since
        done = run(self.server, [PROGRAM, "kernels"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertLess(took, 1)

    def test_the_program_is_killed(self):
        working = Working(self.server, [PROGRAM, "work"])
        working.kernels()
        worker = self.server.session_worker()
        working.process.send_signal(signal.SIGKILL)
        working.end()
        self.given_back(worker)

    def test_the_worker_is_killed(self):
        """The program hears of it at once, and ends by itself."""
        working = Working(self.server, [PROGRAM, "work"])
        working.kernels()
        worker = self.server.session_worker()
        since = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        said = working.process.stdout.read()
        took = time.monotonic() - since
        self.assertNotEqual(working.process.wait(10), 0)
        working.end()
        self.assertIn("CL_DEVICE_NOT_AVAILABLE", said)
        self.assertLess(took, 1)
        self.given_back(worker)

    def test_the_server_is_killed(self):
        working = Working(self.server, [PROGRAM, "work"])
        working.kernels()
        worker = self.server.session_worker()
        self.server.process.kill()
        self.server.process.wait()
        working.process.stdout.read()
        self.assertNotEqual(working.process.wait(10), 0)
        working.end()
        eventually(lambda: not is_running(worker), 10, "the worker's end")


if __name__ == "__main__":
    unittest.main()
