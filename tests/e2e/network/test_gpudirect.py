# SPDX-License-Identifier: Apache-2.0
"""Copies that network cards do alone (GPUDirect), over cards that tests/cards plays and the
software GPU. Its device memory lies where no processor reaches it, so whoever touches it there
ends. No hardware has done this yet."""

import re
import unittest

from harness import CLIENT, PROGRAMS, Server, eventually, tendril
from support.cards import LIBRARY, Cards, Fault
from support.steady import SUITE, natively

LARGE = ("large_copies", "3")
# Of those that hold what is said of direct copies.
NAMES = "Copies*:HostMemory*:Stream*:Vmm*:Ipc*:MemoryTest*"
TOLD = r"GPUDirect: double0:1, unknown distance: to it ([0-9.]+)x, from it ([0-9.]+)x\n"
MEASURED = (
    r"GPUDirect: (no: )?double0:1, unknown distance: "
    r"to it [0-9.]+x( \(no\))?, from it [0-9.]+x( \(no\))?\n"
)


@unittest.skipUnless(CLIENT.exists() and LIBRARY.exists(), "no client library, or no cards")
class GpuDirect(unittest.TestCase):
    def setUp(self):
        self.cards = Cards()
        self.addCleanup(self.cards.__exit__)

    def serves(self, *options, ends=(), **environment):
        lends = self.cards.environment(*ends, TENDRIL_RDMA_DEVICE="any", **environment)
        server = Server(*options, gpus=2, memory=4 << 30, environment=lends)
        self.addCleanup(server.stop)
        return server

    def runs(self, server, *words, **environment):
        wanted = {"TENDRIL_TRANSPORT": "rdma", "TENDRIL_LOG": "info", **environment}
        more = self.cards.environment(**wanted)
        status, out, err = tendril("run", *words, server=[server], timeout=300, **more)
        self.assertEqual(status, 0, out[-3000:] + err[-3000:] + server.log()[-2000:])
        return out, err

    def copies(self, server, **environment):
        words = ("-p", "0.5", "--", str(PROGRAMS / LARGE[0]), LARGE[1])
        out, err = self.runs(server, *words, **environment)
        self.assertIn("over rdma (", err)
        self.assertEqual(out, natively(*LARGE))
        return err

    def test_a_card_that_passes_its_trial_copies(self):
        server = self.serves("--gpudirect", "on")
        self.copies(server)
        self.assertRegex(server.log(), TOLD)
        moved = re.search(r"GPUDirect: moved (\d+) MiB to GPUs and (\d+) MiB", server.log())
        self.assertTrue(moved, server.log()[-2000:])
        # Of 24 copies of 12 MiB and less: what somebody waits for, with nothing before it.
        self.assertGreater(int(moved[1]), 60)
        self.assertGreater(int(moved[2]), 60)

    def test_the_suite_passes_with_it(self):
        server = self.serves("--gpudirect", "on")
        passed = []
        for switch in ("rdma", "tcp"):
            out, _ = self.runs(
                server, "-n", "2", "--", SUITE, "--gtest_filter=" + NAMES, TENDRIL_TRANSPORT=switch
            )
            passed.append(re.findall(r"       OK \] (\S+)", out))
        self.assertGreater(len(passed[0]), 80)
        self.assertEqual(*passed)
        self.assertRegex(server.log(), TOLD)

    def test_whoever_measures_takes_the_better_one(self):
        """Whichever that is here."""
        server = self.serves()
        self.copies(server)
        told = re.search(MEASURED, server.log())
        self.assertTrue(told, server.log()[-2000:])
        neither, not_to, not_from = told.groups()
        self.assertEqual(neither is not None, bool(not_to and not_from))

    def test_doctor_says_so(self):
        server = self.serves("--gpudirect", "on")
        more = self.cards.environment(TENDRIL_TRANSPORT="rdma")
        status, out, err = tendril("doctor", server=server, timeout=300, **more)
        self.assertEqual(status, 0, out + err)
        self.assertRegex(" ".join(out.split()), "gpudirect ok double0:1, .*not exercised on hard")

    def test_off_is_off(self):
        server = self.serves("--gpudirect", "off")
        self.copies(server)
        self.assertNotIn("GPUDirect", server.log())

    def test_a_card_that_takes_no_dma_buf(self):
        server = self.serves("--gpudirect", "on", ends=("no-dma-buf",))
        self.copies(server)
        self.assertIn("GPUDirect: no: double0:1 takes no dma-buf", server.log())
        self.assertNotIn("GPUDirect: moved", server.log())

    def test_a_gpu_that_has_none(self):
        server = self.serves("--gpudirect", "on", TENDRIL_SOFTGPU_ATTRIBUTES="110:0")
        self.copies(server)
        self.assertIn("GPUDirect: no: the GPU or its driver has no GPUDirect", server.log())

    def test_a_card_that_fails_on_the_way_loses_nothing(self):
        """At works all over the program, its trial included."""
        server = self.serves("--gpudirect", "on", TENDRIL_RDMA_TIMEOUT="16")
        before = self.cards.works
        self.copies(server)
        works = self.cards.works - before
        faults = (Fault.UNANSWERED, Fault.ANSWER_LOST, Fault.REMOTE_ACCESS, Fault.PAIR_STOPS)
        met, fell_back = 0, 0
        for i, fault in enumerate(faults * 3):
            happened = self.cards.happened
            self.cards.arm(fault, works * (2 * i + 1) // (8 * len(faults)) + 40)
            err = self.copies(server, TENDRIL_RDMA_TIMEOUT="16")
            met += self.cards.happened - happened
            fell_back += "nothing was lost" in err
        # A busy machine leaves RDMA by itself before some of them.
        self.assertGreater(met, 2 * len(faults))
        self.assertGreater(fell_back, 2 * len(faults))
        eventually(server.idle, 40, "everything given back")


if __name__ == "__main__":
    unittest.main()
