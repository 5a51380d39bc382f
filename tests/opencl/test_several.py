# SPDX-License-Identifier: Apache-2.0
"""Contexts with devices of several servers: programs that know nothing of Tendril, with results
that are compared with those of one native device. On Debian's PoCL; without it they are skipped."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest

from server import (
    HAS_POCL,
    HAS_PYOPENCL,
    PROGRAM,
    PROGRAMS,
    PYTHON,
    WHOLE,
    OpenclServer,
    natively,
    run,
)
from harness import (
    ADDRESS_SANITIZED,
    TENDRIL,
    THREAD_SANITIZED,
    clean_environment,
    eventually,
    is_running,
    listing,
)

DEMO = pathlib.Path(__file__).resolve().parent / "several_demo.py"
SEVERAL = PROGRAMS / "tendril_several_program"
# Of tests/opencl/program.cc: on the last device, in a context that has them all.
ON_THE_LAST = """kernels large_copies large_reads_beside_work copies_that_wait copies_on_the_device
    rectangles mappings sub_buffers events user_events callbacks builds_again includes
    errors threads markers sub_devices images image_information image_kernels
    image_copies image_mappings image_of_a_buffer old_wait printing""".split()


@unittest.skipUnless(HAS_POCL, "PoCL (Debian's pocl-opencl-icd) is not installed")
@unittest.skipIf(THREAD_SANITIZED or ADDRESS_SANITIZED, "the loader is not sanitized")
class Several(unittest.TestCase):
    SERVERS = 3

    @classmethod
    def setUpClass(cls):
        cls.servers = [OpenclServer("--warm", 1) for _ in range(cls.SERVERS)]

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers:
            server.stop()

    def on(self, count, words, says="0 failures", seconds=200, **environment):
        some = self.servers[:count]
        names = ",".join(server.endpoint for server in some)
        done = run(
            some[0], words, "-n", str(count), seconds=seconds, TENDRIL_SERVERS=names, **environment
        )
        logs = "".join(server.log() for server in some)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + logs)
        self.assertIn(says, done.stdout)
        return done

    def test_all_natively(self):
        """The program itself is right."""
        done = natively([SEVERAL, "all"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_all(self):
        for transport in ("tcp", "shm"):
            with self.subTest(transport):
                self.on(2, [SEVERAL, "all"], TENDRIL_TRANSPORT=transport)

    def test_statistics(self):
        """A buffer of 2^16 numbers goes to and fro: ten times to the second server and, since the
        last kernel ran there, nine times to the first."""
        done = self.on(2, [SEVERAL, "chain"], TENDRIL_STATS="1")
        bytes_of_one = 4 * 2**16
        for server, times in zip(self.servers, (9, 10)):
            self.assertIn(
                f"server {server.endpoint} got content from other servers: "
                f"{times} times, {times * bytes_of_one} bytes\n",
                done.stderr,
            )
        done = self.on(1, [SEVERAL, "chain"], TENDRIL_STATS="1")
        self.assertNotIn("other servers", done.stderr)

    def test_random_graphs(self):
        """The same bytes as on one native device, however commands are spread."""
        words = [SEVERAL, "graphs", "1", "7", "200"]
        wanted = natively(words)
        self.assertEqual(wanted.stdout.count("graph "), 6, wanted.stdout + wanted.stderr)
        for count, transport in ((1, "tcp"), (2, "tcp"), (3, "shm")):
            with self.subTest(f"{count} servers over {transport}"):
                done = self.on(count, words, TENDRIL_TRANSPORT=transport)
                self.assertEqual(done.stdout, wanted.stdout)

    def test_what_a_program_does_on_one_device(self):
        for part in ON_THE_LAST:
            with self.subTest(part):
                self.on(2, [PROGRAM, part], ALL_DEVICES="1")

    @unittest.skipUnless(HAS_PYOPENCL, "Debian's python3-pyopencl is not installed")
    def test_pyopencl(self):
        done = natively([PYTHON, DEMO])
        self.assertEqual(done.stdout, "1 devices, 0 failures\n", done.stderr)
        for transport in ("tcp", "shm"):
            with self.subTest(transport):
                self.on(2, [PYTHON, DEMO], "2 devices, 0 failures", TENDRIL_TRANSPORT=transport)

    @unittest.skipUnless(shutil.which("clinfo"), "Debian's clinfo is not installed")
    def test_clinfo(self):
        """It makes a context of all devices, and asks everything of each."""
        done = self.on(2, ["clinfo", "-l"], "Platform #0")
        self.assertEqual(done.stdout.count("Platform #"), 1, done.stdout)
        self.assertEqual(done.stdout.count("Device #"), 2, done.stdout)
        done = self.on(2, ["clinfo"], "Number of devices                                 2")
        self.assertEqual(len(re.findall("^  Device Name ", done.stdout, re.M)), 2, done.stdout)
        # What it makes of the platform alone has both devices.
        self.assertRegex(done.stdout, r"clCreateContextFromType\(NULL, \w+_ALL\) +Success \(2\)")

    @unittest.skipUnless(shutil.which("clpeak"), "Debian's clpeak is not installed")
    @unittest.skipUnless(WHOLE, "60,000 round trips for each device: in scripts/longtest opencl")
    def test_clpeak(self):
        """It puts all devices into one context, builds for one after the other, and asks for the
        logs of all."""
        done = self.on(2, ["clpeak", "--kernel-latency"], "Platform: ", seconds=600)
        for line in (r"Device: ", r"Kernel launch latency : +\d"):
            self.assertEqual(len(re.findall(line, done.stdout)), 2, done.stdout + done.stderr)

    def test_a_context_for_each(self):
        """Servers with the same driver are one platform. A context may be on one all the same."""
        self.on(2, [PROGRAM, "two_servers"])

    def test_refusals(self):
        done = self.on(2, [SEVERAL, "refusals"])
        self.assertIn("clSVMAlloc is not available through Tendril: the context has", done.stderr)

    def held(self, part):
        """The part, until it waits for a line."""
        names = ",".join(server.endpoint for server in self.servers[:2])
        process = subprocess.Popen(
            [TENDRIL, "run", "-n", "2", "--", SEVERAL, part],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(TENDRIL_SERVERS=names),
        )
        self.addCleanup(process.kill)
        return process

    def test_nothing_is_left(self):
        """Of what was made and released again, no byte is charged, while the program lives."""
        process = self.held("again")
        self.assertEqual(process.stdout.readline(), "released\n")

        def used():
            leases = [lease for server in self.servers[:2] for lease in listing([server])["leases"]]
            self.assertEqual(len(leases), 2)
            return [each["memory_used_bytes"] for lease in leases for each in lease["slices"]]

        eventually(lambda: used() == [0, 0], 10, "the end of all memory")
        said, errors = process.communicate("\n", timeout=60)
        self.assertEqual(process.returncode, 0, said + errors)

    def test_death_of_one_server(self):
        """What needs it fails at once, and says so. The other goes on."""
        process = self.held("survive")
        self.assertEqual(process.stdout.readline(), "ready\n")
        worker = self.servers[0].session_worker()
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: not is_running(worker), 10, "the worker's end")
        said, errors = process.communicate("\n", timeout=60)
        self.assertEqual(process.returncode, 0, said + errors)
        self.assertIn("CL_DEVICE_NOT_AVAILABLE", errors)


if __name__ == "__main__":
    unittest.main()
