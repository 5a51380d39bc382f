# SPDX-License-Identifier: Apache-2.0
"""The conformance suite through Tendril: on every transport, and as if the server were far away."""

import unittest

import harness
from harness import BUILD, Server, tendril

SUITE = BUILD / "bin" / "tendril_conformance"
# Under sanitizers all processes have their heaps at one place, so a worker cannot have the
# program's own pages at their addresses.
NOT_SANITIZED = ("HostMemoryTest.*Regist*", "CallbackTest.GivingUpHostMemoryWaits")
# Under the thread sanitizer there may be no terabyte of addresses for copies of pageable memory,
# and most of the free rest belongs to the sanitizer. It ends a process that asks for memory there
# ("mmap at bad address", status 66). A worker does so for a copy whose address nobody knows
# (CopiesTest.NothingIsThere).
NOT_UNDER_TSAN = (
    "GraphTest.*Pageable*",
    "CaptureTest.*Pageable*",
    "CopiesTest.NothingIsThere",
    "CallbackTest.GraphsWithHostFunctionsGoOnWhileFreeing",
)
# A forked child has the locks of its memory as other threads held them. It also looks for leaks
# with threads that it does not have.
NOT_UNDER_ASAN = ("ForkProcess.*",)
BUT = "-" + ":".join(
    (NOT_UNDER_TSAN + NOT_SANITIZED if harness.THREAD_SANITIZED else ())
    + (NOT_UNDER_ASAN + NOT_SANITIZED if harness.ADDRESS_SANITIZED else ())
)
FILTER = "*" + BUT


@unittest.skipUnless(
    harness.CLIENT.exists() and SUITE.exists(), "the client library or the suite was not built"
)
class Conformance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(gpus=2)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def passes(self, server=None, **environment):
        status, out, err = tendril(
            "run",
            "-n",
            "2",
            "--",
            str(SUITE),
            "--gtest_brief=1",
            "--gtest_filter=" + FILTER,
            server=server or self.server,
            timeout=240,
            **environment,
        )
        self.assertEqual(status, 0, out[-4000:] + err[-4000:])

    def test_tcp(self):
        self.passes(TENDRIL_TRANSPORT="tcp")

    def test_sealed_tcp(self):
        token = "a token of more than sixteen letters"
        options = ("--encrypt", "always")
        with Server(*options, gpus=2, environment={"TENDRIL_TOKEN": token}) as server:
            self.passes(server, TENDRIL_TRANSPORT="tcp", TENDRIL_TOKEN=token)

    def test_shared_memory(self):
        self.passes(TENDRIL_TRANSPORT="shm")

    @unittest.skipIf(
        harness.THREAD_SANITIZED, "the sanitizer leaves few addresses to the process itself"
    )
    def test_addresses_such_as_processes_have(self):
        """Addresses like those of an NVIDIA GPU's memory. AddressesProcess has memory of the
        program there."""
        suites = ("Addresses", "Copies", "HostMemory", "Ipc", "Memory", "Pool", "Vmm")
        memory = ":".join(f"{suite}*" for suite in suites)
        with Server(gpus=2, environment={"TENDRIL_SOFTGPU_ADDRESSES": "process"}) as server:
            for transport in ("tcp", "shm"):
                status, out, err = tendril(
                    "run",
                    "-n",
                    "2",
                    "--",
                    str(SUITE),
                    "--gtest_brief=1",
                    "--gtest_filter=" + memory + BUT,
                    server=server,
                    timeout=120,
                    TENDRIL_TRANSPORT=transport,
                )
                self.assertEqual(status, 0, transport + out[-4000:] + err[-4000:])

    def test_two_tenants_in_turns(self):
        """Half of each GPU for each: all work passes the gate and waits for its turn there."""
        command = [
            "run",
            "-n",
            "2",
            "-p",
            "0.5",
            "--",
            str(SUITE),
            "--gtest_brief=1",
            "--gtest_filter=" + FILTER,
        ]
        both = [harness.start(*command, server=self.server) for _ in range(2)]
        for one in both:
            self.addCleanup(harness.end, one)
        for one in both:
            out, _ = one.communicate(timeout=240)
            self.assertEqual(one.returncode, 0, out[-4000:])

    def test_a_distant_server(self):
        self.passes(TENDRIL_TRANSPORT="tcp", TENDRIL_LINK="1000:100")


if __name__ == "__main__":
    unittest.main()
