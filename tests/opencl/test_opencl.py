# SPDX-License-Identifier: Apache-2.0
"""OpenCL end to end: programs that know nothing of Tendril, on Debian's PoCL, natively and through
a real tendrild and worker. Without PoCL they are skipped."""

import ctypes.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from harness import (  # noqa: E402
    ADDRESS_SANITIZED,
    BUILD,
    PROGRAMS,
    TENDRIL,
    THREAD_SANITIZED,
    Daemon,
    clean_environment,
    listing,
)

PROGRAM = PROGRAMS / "tendril_opencl_program"
DEMO = pathlib.Path(__file__).resolve().parent / "demo.py"
PYTHON = "/usr/bin/python3"  # for which Debian's python3-pyopencl is
HAS_POCL = pathlib.Path("/etc/OpenCL/vendors/pocl.icd").exists() and ctypes.util.find_library(
    "OpenCL"
)
HAS_PYOPENCL = (
    os.path.exists(PYTHON)
    and subprocess.run([PYTHON, "-c", "import pyopencl"], capture_output=True).returncode == 0
)


class OpenclServer(Daemon):
    """`tendril serve --opencl` on a free port."""

    def __init__(self, *options, environment=None):
        words = ["serve", "--opencl", "--port", 0, "--audit-log", "off", "--sockets", "FOLDER/s"]
        super().__init__([*words, *options], environment)


def run(server, words, *options, **environment):
    """`tendril run`, for a program with the server's devices."""
    return subprocess.run(
        [TENDRIL, "run", *options, "--", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(TENDRIL_SERVERS=server.endpoint, **environment),
        check=False,
    )


def natively(words):
    with tempfile.TemporaryDirectory() as cache:
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=120,
            env=clean_environment(POCL_CACHE_DIR=cache),
            check=False,
        )


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

    def test_a_failed_command_says_so_later(self):
        """Nobody waits for a command. Its event and the next wait have the driver's error."""
        self.succeeds(run(self.server, [PROGRAM, "late_error"]), "0 failures")

    def test_what_is_lent(self):
        device = listing([self.server])["gpus"][0]
        self.assertGreater(device["memory_total_bytes"], 0)
        self.assertTrue(device["name"])

    def test_functions_that_are_not_there_say_so(self):
        done = run(self.server, [PROGRAM, "refused"])
        self.succeeds(done, "0 failures")
        self.assertIn("clCreateImage2D is not available through Tendril", done.stderr)

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
