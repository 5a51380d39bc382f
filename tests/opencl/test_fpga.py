# SPDX-License-Identifier: Apache-2.0
"""The life of an FPGA, played by the tests' own driver: no compiler, binaries and built-in kernels,
queues in order, a slow reconfiguration. It is found by a loader, as any driver is."""

import os
import pathlib
import tempfile
import time
import unittest

from server import HAS_LOADER, OpenclServer, Working, natively, run
from harness import ADDRESS_SANITIZED, BUILD, PROGRAMS, THREAD_SANITIZED
from harness import Pool, eventually, listing, tendril
from support.page_client import OpenApi, PageClient, free_port
from support.relay import Relay

FPGA = BUILD / "lib" / "libtendril-test-fpga.so"
PROGRAM = PROGRAMS / "tendril_fpga_program"


@unittest.skipUnless(HAS_LOADER, "an OpenCL loader (Debian's ocl-icd-libopencl1) is not installed")
@unittest.skipIf(THREAD_SANITIZED or ADDRESS_SANITIZED, "the loader is not sanitized")
class Fpga(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.vendors = tempfile.TemporaryDirectory()
        os.chmod(cls.vendors.name, 0o755)
        pathlib.Path(cls.vendors.name, "fpga.icd").write_text(f"{FPGA}\n")
        cls.found = {"OCL_ICD_VENDORS": cls.vendors.name}
        cls.server = OpenclServer("--warm", 1, environment=cls.found)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.vendors.cleanup()

    def succeeds(self, done, text="0 failures"):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + self.server.log())
        self.assertIn(text, done.stdout)

    def test_natively(self):
        """The program is right, and so is the driver."""
        self.succeeds(natively([PROGRAM, "life"], **self.found))
        self.succeeds(natively([PROGRAM, "fault"], **self.found))

    def test_what_is_lent(self):
        device = listing([self.server])["gpus"][0]
        self.assertEqual(device["name"], "Tendril test FPGA")
        self.assertEqual(device["memory_total_bytes"], 256 << 20)
        self.assertEqual(device["type"], "accelerator")
        self.assertEqual(device["opencl_version"], "1.2")
        self.assertEqual(device["extensions"], "cl_tendril_test_bitstream")

    def test_the_page(self):
        """A server's page and a pool's say what kind of device it is."""
        ports = [free_port(), free_port()]
        with Pool("--page", f"127.0.0.1:{ports[0]}") as pool:
            options = ["--pool", pool.endpoint, "--page", f"127.0.0.1:{ports[1]}"]
            member = OpenclServer(*options, environment=self.found)
            try:
                for port in ports:
                    page = PageClient(port)
                    servers = eventually(lambda: page.get("servers")["servers"], 20, "the server")
                    answer = page.get(f"servers/{servers[0]['name']}")
                    self.assertEqual(answer["gpus"][0]["type"], "accelerator")
                    path = ("get", "/servers/{name}", 200, answer)
                    self.assertEqual(OpenApi().problems(*path), [])
            finally:
                member.stop()

    def test_doctor(self):
        """It says of a server with OpenCL devices what is there, and takes a slice of one."""
        status, out, err = tendril("doctor", TENDRIL_SERVERS=self.server.endpoint)
        self.assertEqual(status, 0, out + err)
        self.assertIn("1 OpenCL device: Tendril test FPGA (accelerator)", out)
        self.assertIn("attached in", out)
        self.assertNotIn("CUDA", out)

    def test_filters_of_requests(self):
        """A pool gives the device to who asks for its kind, and nothing to who asks for another."""
        with Pool() as pool:
            member = OpenclServer("--pool", pool.endpoint, environment=self.found)
            try:
                wanted = "type = accelerator and extension ~ bitstream and opencl >= 1.2"
                options = ["--opencl", "--wait", "10s", "--filter"]
                self.succeeds(run(pool, [PROGRAM, "life"], *options, wanted))
                options[2] = "0"
                done = run(pool, [PROGRAM, "life"], *options, "type = gpu")
                self.assertNotEqual(done.returncode, 0)
            finally:
                member.stop()

    def test_life(self):
        for transport in ("tcp", "shm"):
            with self.subTest(transport):
                self.succeeds(run(self.server, [PROGRAM, "life"], TENDRIL_TRANSPORT=transport))

    def test_a_second_start_sends_no_configuration(self):
        """The server keeps it by its content. The first program sends it, another one a hash."""
        sent = []
        with tempfile.TemporaryDirectory() as cache:
            os.chmod(cache, 0o711)  # workers may be other users
            server = OpenclServer("--images", f"{cache}/images", environment=self.found)
            try:
                for size in (3_000_000, 3_000_000, 3_000_004):
                    with Relay(server.port) as relay:
                        words = [PROGRAM, "large", str(size)]
                        options = {"TENDRIL_TRANSPORT": "tcp", "TENDRIL_SERVERS": relay.endpoint}
                        self.succeeds(run(server, words, **options))
                        sent.append(sum(len(to_server) for to_server, _ in relay.recorded))
            finally:
                server.stop()
        self.assertGreater(sent[0], 3_000_000)
        self.assertLess(sent[1], 100_000)
        self.assertGreater(sent[2], 3_000_000)  # another content

    def test_programs_in_a_language_of_the_device(self):
        """By the function of OpenCL 2.1, or of an extension before; with specialization constants.
        The tables of an old driver end before functions of later versions."""
        for version in ("1.2", "2.2"):
            found = {**self.found, "OCL_ICD_TEST_FPGA_LANGUAGE": version}
            words = [PROGRAM, "language", version]
            with self.subTest(version):
                self.succeeds(natively(words, **found))
                server = OpenclServer(environment=found)
                try:
                    self.succeeds(run(server, words))
                    self.succeeds(run(server, [PROGRAM, "life"]))
                finally:
                    server.stop()

    def test_a_failed_command_says_so_later(self):
        """Nobody waits for a command. Its event and the next wait have the driver's error."""
        self.succeeds(run(self.server, [PROGRAM, "late_error"]))

    def test_copies_in_mapped_memory(self):
        """Drivers that tell no event of a batch before its last wait, whose mappings come late,
        fail when they run, or are refused. The worker copies as natively."""
        for maps in ("batches", "late", "failing", "refusing"):
            found = {**self.found, "OCL_ICD_TEST_FPGA_MAPS": maps}
            self.succeeds(natively([PROGRAM, "copies"], **found))
            server = OpenclServer("--warm", 1, environment=found)
            try:
                for transport in ("tcp", "shm"):
                    with self.subTest(f"{maps} over {transport}"):
                        options = {"TENDRIL_TRANSPORT": transport}
                        done = run(server, [PROGRAM, "copies"], seconds=20, **options)
                        self.succeeds(done)
            finally:
                server.stop()

    def test_a_driver_that_waits_when_it_is_flushed(self):
        """The worker does not flush what the program holds back with an event of its own."""
        found = {**self.found, "OCL_ICD_TEST_FPGA_FLUSH": "waits", "OCL_ICD_TEST_FPGA_MAPS": "late"}
        self.succeeds(natively([PROGRAM, "held"], **found))
        server = OpenclServer("--warm", 1, environment=found)
        try:
            for transport in ("tcp", "shm"):
                with self.subTest(transport):
                    options = {"TENDRIL_TRANSPORT": transport}
                    self.succeeds(run(server, [PROGRAM, "held"], seconds=20, **options))
                    self.succeeds(run(server, [PROGRAM, "copies"], seconds=20, **options))
        finally:
            server.stop()

    def test_turns(self):
        """Each tenant configures the device for itself. One has a quarter of its time."""
        seen = []
        for _ in range(3):
            both = [
                Working(self.server, [PROGRAM, "work", "4000"], "-p", part, "-m", "64M")
                for part in ("0.25", "0.75")
            ]
            try:
                for each in both:
                    each.kernels()
                both[0].kernels()
                both[1].kernels()
                quarter, rest = (sum(each.kernels() for _ in range(3)) for each in both)
            finally:
                for each in both:
                    each.end()
            seen.append(quarter / (quarter + rest))
            if abs(seen[-1] - 0.25) <= 0.02:
                return
        self.fail(f"the quarter had {seen} of the device's time")

    def test_a_fault_is_the_tenants_own(self):
        """Who breaks the device hears of it, and the other one goes on."""
        other = Working(self.server, [PROGRAM, "work", "1000"], "-p", "0.5", "-m", "64M")
        try:
            other.kernels()
            self.succeeds(run(self.server, [PROGRAM, "fault"], "-p", "0.5", "-m", "64M"))
            other.kernels()
            self.assertGreater(other.kernels(), 0)
        finally:
            other.end()
        self.succeeds(run(self.server, [PROGRAM, "life"]))

    def test_release(self):
        """A tenant ends, and the next one has the whole device."""
        first = Working(self.server, [PROGRAM, "work", "1000"])
        first.kernels()
        first.end()
        since = time.monotonic()
        self.succeeds(run(self.server, [PROGRAM, "life"]))
        self.assertLess(time.monotonic() - since, 20)


if __name__ == "__main__":
    unittest.main()
