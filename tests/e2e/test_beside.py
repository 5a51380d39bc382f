# SPDX-License-Identifier: Apache-2.0
"""What one thread of a program must not do to another: launches beside a large copy, and beside calls that wait for the GPU."""
import re
import unittest

import harness
from harness import PROGRAMS, Server, tendril

LINK = "100:100"  # 100 us each way and 100 MB/s: 256 MiB take 2.7 s


@harness.needs_client
class Beside(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def beside(self, what, **environment):
        """How long the other thread was held up, and the longest launch beside it."""
        status, out, err = tendril("run", "--", str(PROGRAMS / "beside"), what, server=self.server, **environment)
        self.assertEqual(status, 0, out + err)
        numbers = re.search(r": ([0-9.]+) s, [0-9]+ launches, worst ([0-9.]+) s", out)
        return float(numbers[1]), float(numbers[2])

    def test_launches_go_on_beside_a_copy_over_a_slow_link(self):
        for transport in ("tcp", "shm"):
            for what in ("copy", "back"):
                with self.subTest(transport=transport, what=what):
                    took, worst = self.beside(what, TENDRIL_TRANSPORT=transport, TENDRIL_LINK=LINK)
                    self.assertGreater(took, 2.0, "the link was not shaped")
                    self.assertLess(worst, took / 4)

    def test_launches_go_on_beside_calls_that_wait_for_the_gpu(self):
        for transport in ("tcp", "shm"):
            with self.subTest(transport=transport):
                self.beside("free", TENDRIL_TRANSPORT=transport)


if __name__ == "__main__":
    unittest.main()
