# SPDX-License-Identifier: Apache-2.0
"""A pool names its servers to each other: a program on several of them copies from worker to
worker, and no operator has written a list."""

import sys
import unittest

import harness
from harness import eventually
from support.pools import Lab, policy
from test_several_servers import COPIES, PREPARE

COPY = """
contexts, data = each(2), random.Random(1).randbytes(3 * MIB)
near, far = memory(0, 3 * MIB), memory(1, 3 * MIB)
write(0, near, data)
must(peer(far, 1, near, 0, 3 * MIB))
assert read(1, far, 3 * MIB) == data
tell("passed")
"""
DIRECT = "copies to and from it"  # in a server's log


@harness.needs_plain_client
class PoolPeers(unittest.TestCase):
    def copies(self, lab):
        """The output of a program that copies between two servers."""
        status, out, err = lab.run(
            "-n",
            "2",
            "--",
            sys.executable,
            "-c",
            PREPARE + COPIES + COPY,
            TENDRIL_TRANSPORT="tcp",
            TENDRIL_LOG="info",
        )
        self.assertEqual(status, 0, out + err)
        self.assertIn("passed", out)
        eventually(lambda: not lab.leases(), 10)
        return out + err

    def direct(self, lab):
        return sum(server.log().count(DIRECT) for server in lab.servers)

    def test_servers_of_a_pool_are_peers(self):
        with Lab() as lab:
            self.assertNotIn("has named", self.copies(lab))
            self.assertEqual(self.direct(lab), 1)
            # A server that starts again is another one for tokens.
            lab.servers[0].stop()
            lab.servers[0] = lab.lend("gpu1", 1, ())
            lab.await_servers()
            before = self.direct(lab)
            self.copies(lab)
            self.assertEqual(self.direct(lab), before + 1)

    def test_a_policy_and_a_server_may_refuse(self):
        with Lab(text=policy(pool="servers_are_peers = false")) as lab:
            self.assertIn("has named", self.copies(lab))
            lab.pools[0].apply(policy())
            self.copies(lab)
            eventually(lambda: (self.copies(lab), self.direct(lab))[1] > 0, 10)
        options = {f"gpu{i}": ("--pool-peers", "off") for i in (1, 2)}
        with Lab(options=options) as lab:
            self.assertIn("has named", self.copies(lab))
            self.assertEqual(self.direct(lab), 0)


if __name__ == "__main__":
    unittest.main()
