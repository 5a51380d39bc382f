# SPDX-License-Identifier: Apache-2.0
"""A pool whose store, three members of etcd, is away: a gang that loses a server between hold and
commit, and programs that run while the quorum is lost. TENDRIL_POOL_QUORUM_S says for how long
(scripts/longtest)."""

import os
import re
import time
import unittest

from harness import NO_LEASE, PROGRAMS, end, eventually, needs_client, start, tendril
from support.pools import Etcd, Lab, quietly

QUORUM_S = int(os.environ.get("TENDRIL_POOL_QUORUM_S", "14"))


@needs_client
@unittest.skipUnless(Etcd.PRESENT, "etcd is not installed")
class StoreLost(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.etcd = Etcd()
        cls.addClassCleanup(cls.etcd.__exit__)
        cls.lab = Lab(servers=3, schedulers=2, etcd=cls.etcd, wired=True)
        cls.addClassCleanup(cls.lab.__exit__)

    def begin(self, *arguments):
        process = self.lab.start(*arguments)
        self.addCleanup(end, process)
        return process

    @staticmethod
    def two_of(servers):
        """Those that have a lease, if they are two."""
        found = [server for server in servers if server.leases()]
        return found if len(found) == 2 else None

    def test_a_gang_that_loses_a_server_between_hold_and_commit(self):
        """The store's answer is held up: the servers hold, and the grant is not stored."""
        lab = self.lab
        for pool in lab.pools:
            for wire in pool.stores:
                wire.hold()
        gang = self.begin("-v", "-n", "2", "--", "echo", "together")
        try:
            held = eventually(lambda: self.two_of(lab.servers), 4, "two holds")[0]
            held.kill()
        finally:
            for pool in lab.pools:
                for wire in pool.stores:
                    wire.mend()
        # It is given the two that are left, and has nothing of the first attempt.
        out = gang.communicate(timeout=60)[0]
        self.assertEqual(gang.returncode, 0, out)
        self.assertIn("together", out)
        names = re.search(r"leases \d+ \((gpu\d), (gpu\d)\)", out).groups()
        self.assertEqual({*names, held.name}, {"gpu1", "gpu2", "gpu3"})
        self.assertIn("retry request", "".join(pool.log() for pool in lab.pools))
        for server in lab.servers:
            if server is not held:
                eventually(lambda server=server: not server.leases(), 20, f"{server.name} empty")
        held.restart()
        lab.await_servers()

    def test_programs_do_not_notice_that_the_quorum_is_lost(self):
        lab = self.lab
        seconds = str(QUORUM_S * 2 + 60)
        gang = self.begin("-n", "2", "-p", "0.5", "--", PROGRAMS / "hold", "8", seconds)
        self.assertIn("holding", gang.stdout.readline())
        waiter = self.begin("-n", "2", "-p", "0.6", "--", "echo", "through")
        heard = [waiter.stdout.readline()]
        self.assertIn("waiting, position 1 of 1", heard[0])
        before = [lease["lease"] for lease in lab.leases()]
        begun = time.monotonic()
        self.etcd.stop(0, 1)
        try:
            # Servers lend by themselves; the schedulers say why they do not.
            local = ("run", "-p", "0.3", "--", "sleep", seconds)
            eventually(
                lambda: tendril(*local[:4], "true", server=lab.servers[0])[0] == 0, 25, "a lease"
            )
            alone = start(*local, server=lab.servers[0])
            self.addCleanup(end, alone)
            asked = time.monotonic()
            status, _, err = tendril("queue", TENDRIL_SERVERS=lab.addresses)
            self.assertEqual(status, 1)
            self.assertIn("decides nothing until the pool's store answers", err)
            self.assertLess(time.monotonic() - asked, 10)
            status, _, err = lab.run("--wait", "0", "--", "true")
            self.assertEqual(status, NO_LEASE)
            self.assertIn("decides nothing until the pool's store answers", err)
            time.sleep(max(0, QUORUM_S - (time.monotonic() - begun)))
        finally:
            self.etcd.go_on(0, 1)
        self.assertEqual([gang.poll(), waiter.poll(), alone.poll()], [None] * 3)
        leases = eventually(
            lambda: quietly(lambda: len(lab.leases()) == 2 and lab.leases()), 40, "both leases"
        )
        self.assertEqual([x["lease"] for x in leases if not x["local"]], before)
        gang.terminate()
        end(alone)
        held = gang.communicate(timeout=20)[0]
        self.assertNotIn("tendril:", held)
        self.assertGreater(held.count("held for"), QUORUM_S // 2)
        out = waiter.communicate(timeout=60)[0]
        self.assertEqual(waiter.returncode, 0, out)
        self.assertIn("decides nothing until the pool's store answers", out)
        self.assertIn("through", out)


if __name__ == "__main__":
    unittest.main()
