# SPDX-License-Identifier: Apache-2.0
"""Leases as administrators see and change them while they live: ls and smi, lease set, metrics.
test_shares.py has how much time tenants get."""

import re
import socket
import subprocess
import sys
import unittest
import urllib.request

import harness
from harness import PROGRAMS, Server, eventually, tendril


# Takes pieces of 10 MiB until there are no more, says how many it has, and waits for a line: how
# many it is to have then.
TAKER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
held, most = [], 1000
while True:
    while len(held) > most:
        cuda.cuMemFree_v2(ctypes.c_uint64(held.pop()))
    while len(held) < most:
        result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(10 << 20))
        if result != 0:
            assert result == 2, result
            break
        held.append(address.value)
    total = ctypes.c_size_t()
    cuda.cuMemGetInfo_v2(None, ctypes.byref(total))
    print(len(held), total.value >> 20, flush=True)
    most = int(input())
"""


@harness.needs_client
class Leases(unittest.TestCase):
    """What administrators see of leases that live, and change."""

    @classmethod
    def setUpClass(cls):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            cls.metrics_port = probe.getsockname()[1]
        cls.server = Server("--metrics", f"127.0.0.1:{cls.metrics_port}")
        cls.holder = harness.start(
            "run",
            "-p",
            "0.25",
            "--cap",
            "--priority",
            "3",
            "--",
            PROGRAMS / "hold",
            "8",
            "60",
            server=cls.server,
        )
        cls.lease = eventually(
            lambda: [lease for lease in cls.server.leases() if lease["processes"]], 20
        )[0]

    @classmethod
    def tearDownClass(cls):
        harness.end(cls.holder)
        cls.server.stop()

    def change(self, *options):
        return tendril(
            "lease", "set", "--server", self.server.endpoint, str(self.lease["lease"]), *options
        )

    def metrics(self):
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10
        ) as answer:
            self.assertIn("version=0.0.4", answer.headers["Content-Type"])
            return answer.read().decode()

    def test_terms_and_time_are_listed(self):
        self.assertEqual((self.lease["policy"], self.lease["priority"]), ("cap", 3))
        had = eventually(
            lambda: [s for s in self.server.leases()[0]["slices"] if s["gpu_time_s"]], 20
        )[0]
        self.assertEqual(had["share"], 0.25)
        self.assertLess(had["share_delivered_10_s"], 0.5)
        self.assertGreaterEqual(had["queued_s"], 0)
        for command in ("ls", "smi"):
            status, out, _ = tendril(command, server=self.server)
            self.assertEqual(status, 0)
            self.assertIn("cap, +3", out)

    def test_terms_change_and_refusals_say_why(self):
        self.assertEqual(self.change("-p", "1/3", "--lend", "--priority", "0")[0], 0)
        lease = self.server.leases()[0]
        self.assertEqual(
            (lease["policy"], lease["priority"], lease["slices"][0]["share"]), ("lend", 0, 0.333333)
        )
        self.assertEqual(
            lease["slices"][0]["memory_bytes"], self.lease["slices"][0]["memory_bytes"]
        )
        self.assertEqual(self.change("--cap", "--priority", "3", "-p", "0.25")[0], 0)
        self.assertEqual(self.change()[0], 2)
        self.assertEqual(self.change("--priority", "101")[0], 2)
        self.assertEqual(self.change("--cap", "--lend")[0], 2)
        with harness.start(
            "run", "-p", "0.5", "--", PROGRAMS / "hold", "8", "60", server=self.server
        ) as other:
            eventually(lambda: len(self.server.leases()) == 2, 20)
            status, _, err = self.change("-p", "0.6")
            self.assertEqual(status, 1)
            self.assertIn("at most 0.50", err)
            harness.end(other)
        eventually(lambda: len(self.server.leases()) == 1, 10)
        status, _, err = tendril("lease", "set", "--server", self.server.endpoint, "4711", "--cap")
        self.assertEqual(status, 1)
        self.assertIn("no lease 4711", err)

    def test_memory_changes_while_a_program_runs(self):
        with Server() as server, subprocess.Popen(
            [harness.TENDRIL, "run", "-m", "100M", "--", sys.executable, "-c", TAKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=harness.clean_environment(TENDRIL_SERVERS=server.endpoint),
        ) as taker:

            def taken(most=None):
                if most is not None:
                    taker.stdin.write(f"{most}\n")
                    taker.stdin.flush()
                return tuple(int(word) for word in taker.stdout.readline().split())

            def change(*options):
                return tendril("lease", "set", "--server", server.endpoint, "1", *options)

            pieces, total = taken()
            self.assertEqual(total, 100)
            self.assertIn(pieces, (9, 10))
            self.assertEqual(change("-m", "200M")[0], 0)
            self.assertEqual(taken(1000), (pieces + 10, 200))
            status, _, err = change("-m", "100M")
            self.assertEqual(status, 1)
            self.assertIn("let its programs free memory first", err)
            self.assertEqual(taken(1000), (pieces + 10, 200), "refused: as it was")
            self.assertEqual(taken(3), (3, 200))
            self.assertEqual(change("-m", "100M", "-p", "0.1")[0], 0)
            slices = server.leases()[0]["slices"]
            self.assertEqual((slices[0]["memory_bytes"], slices[0]["share"]), (100 << 20, 0.1))
            self.assertEqual(taken(1000), (pieces, 100))
            status, _, err = change("-m", "900G")
            self.assertEqual(status, 1)
            self.assertIn("ask for at most", err)
            self.assertEqual(change("-m", "0")[0], 2)
            harness.end(taker)

    def test_metrics(self):
        text = self.metrics()
        self.assertRegex(
            text,
            r'(?m)^tendril_gpu_memory_total_bytes\{gpu="0",uuid="GPU-[0-9a-f-]+",model="[^"]+"\}'
            r" \d+$",
        )
        self.assertRegex(
            text,
            r'(?m)^tendril_lease_memory_used_bytes\{lease="%d",.*\} \d+$' % self.lease["lease"],
        )
        used = [
            float(line.split()[-1])
            for line in text.splitlines()
            if line.startswith("tendril_lease_gpu_seconds_total")
        ]
        eventually(
            lambda: float(
                re.search(r"(?m)^tendril_lease_gpu_seconds_total.* (\S+)$", self.metrics())[1]
            )
            > used[0],
            20,
        )
        refused = self.metrics()
        self.assertEqual(
            tendril("run", "-p", "1", "--", "true", server=self.server)[0], harness.NO_LEASE
        )
        count = re.compile(r"(?m)^tendril_lease_refusals_total (\d+)$")
        self.assertEqual(int(count.search(self.metrics())[1]), int(count.search(refused)[1]) + 1)


if __name__ == "__main__":
    unittest.main()
