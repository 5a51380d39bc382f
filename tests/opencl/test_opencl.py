# SPDX-License-Identifier: Apache-2.0
"""OpenCL end to end: programs that know nothing of Tendril, on Debian's PoCL, natively and through
a real tendrild and worker. Without PoCL they are skipped."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from server import HAS_POCL, HAS_PYOPENCL, PROGRAM, PYTHON, OpenclServer, natively, run
from harness import ADDRESS_SANITIZED, BUILD, THREAD_SANITIZED, clean_environment, listing
from support.relay import Relay

DEMO = pathlib.Path(__file__).resolve().parent / "demo.py"


@unittest.skipUnless(HAS_POCL, "PoCL (Debian's pocl-opencl-icd) is not installed")
@unittest.skipIf(THREAD_SANITIZED or ADDRESS_SANITIZED, "the loader is not sanitized")
class Opencl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = OpenclServer("--warm", 1)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def succeeds(self, done, text):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + self.server.log())
        self.assertIn(text, done.stdout)

    def test_program_natively(self):
        """The program itself is right."""
        done = natively([PROGRAM])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_program_over_tcp(self):
        self.succeeds(run(self.server, [PROGRAM], TENDRIL_TRANSPORT="tcp"), "0 failures")

    def test_program_over_shared_memory(self):
        self.succeeds(run(self.server, [PROGRAM], TENDRIL_TRANSPORT="shm"), "0 failures")

    @unittest.skipUnless(HAS_PYOPENCL, "Debian's python3-pyopencl is not installed")
    def test_pyopencl(self):
        with tempfile.TemporaryDirectory() as home:  # it keeps what it compiled
            done = run(self.server, [PYTHON, DEMO], HOME=home, XDG_CACHE_HOME=home)
        self.succeeds(done, "the same")

    def test_memory_is_the_slices(self):
        """A quarter of the device is a device of that size, and an allocation beyond it fails."""
        done = run(self.server, [PROGRAM, "memory"], "-p", "0.25", "-m", "64M")
        self.succeeds(done, "67108864 bytes in all")

    def test_fine_grain_is_refused(self):
        self.succeeds(run(self.server, [PROGRAM, "shared_refusals"]), "0 failures")

    def test_the_old_wait_of_a_queue(self):
        self.succeeds(run(self.server, [PROGRAM, "old_wait"]), "0 failures")

    def test_what_is_lent(self):
        device = listing([self.server])["gpus"][0]
        self.assertGreater(device["memory_total_bytes"], 0)
        self.assertTrue(device["name"])

    def test_functions_that_are_not_there_say_so(self):
        done = run(self.server, [PROGRAM, "refused"])
        self.succeeds(done, "0 failures")
        self.assertIn("clEnqueueNativeKernel is not available through Tendril", done.stderr)

    def test_queues_on_devices_are_refused(self):
        self.succeeds(run(self.server, [PROGRAM, "queues_on_the_device"]), "0 failures")

    def test_no_command_waits_for_an_answer(self):
        """Of 12,000 calls the server answers a few. An answer has 16 bytes at least."""
        with Relay(self.server.port) as relay:
            options = {"TENDRIL_TRANSPORT": "tcp", "TENDRIL_SERVERS": relay.endpoint}
            self.succeeds(run(self.server, [PROGRAM, "many_commands"], **options), "0 failures")
            answered = sum(len(to_client) for _, to_client in relay.recorded)
        self.assertLess(answered, 2000 * 16)

    def test_statistics(self):
        """What the program has sent, at its end."""
        done = run(self.server, [PROGRAM, "kernels"], TENDRIL_STATS="1")
        self.succeeds(done, "0 failures")
        line = rf"tendril: server {self.server.endpoint} over \w+: \d+ calls sent, \d+ round trips"
        self.assertRegex(done.stderr, line)

    def test_what_kernels_print(self):
        """It is on the program's output, before the wait for the kernel is over."""
        wanted = natively([PROGRAM, "printing"]).stdout
        self.assertIn("the kernel says 1\nthe program has waited for 1\n", wanted)
        for transport in ("tcp", "shm"):
            with self.subTest(transport):
                done = run(self.server, [PROGRAM, "printing"], TENDRIL_TRANSPORT=transport)
                self.assertEqual(done.stdout, wanted, done.stderr)

    def test_the_library_alone(self):
        """Without `tendril run`: a loader is pointed at the library, which takes its lease."""
        folder = BUILD / "lib" / "client" / "opencl"
        done = subprocess.run(
            [PROGRAM, "kernels"],
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environment(
                TENDRIL_SERVERS=self.server.endpoint,
                OCL_ICD_VENDORS=str(folder),
                LD_LIBRARY_PATH=str(folder),
            ),
            check=False,
        )
        self.succeeds(done, "0 failures")


if __name__ == "__main__":
    unittest.main()
