# SPDX-License-Identifier: Apache-2.0
"""Sessions over RDMA on a card of this machine, hard or soft, and what keeps them from it. Machines
without one skip all. scripts/rdma-guest runs this in an emulated machine with soft RoCE, and names
in TENDRIL_RDMA_INTERFACE the network interface below it, which the tests then take down."""

import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from harness import BUILD, CLIENT, PROGRAMS, Server, clean_environment, tendril

DEVICES = pathlib.Path("/sys/class/infiniband")
INTERFACE = os.environ.get("TENDRIL_RDMA_INTERFACE", "")
SUITE = BUILD / "bin" / "tendril_conformance"
# An emulated machine is ten times slower than this one.
PATIENCE_S = 500


def set_link(state):
    subprocess.run(["ip", "link", "set", INTERFACE, state], check=True)


@unittest.skipUnless(
    DEVICES.is_dir() and any(DEVICES.iterdir()), "this machine has no RDMA device: nothing was run"
)
class Rdma(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(gpus=2, environment={"TENDRIL_RDMA_DEVICE": "any"})

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def attaches(self, server=None, limit_locked_kib=None, **environment):
        """What a program that ends well says of its session."""
        environment.setdefault("TENDRIL_TRANSPORT", "rdma")
        words = [str(PROGRAMS / "vector_add")]
        if limit_locked_kib:
            # The limit does not hold for who may lock memory, as root may.
            words = ["setpriv", "--bounding-set=-ipc_lock", "bash", "-c"] + [
                f"ulimit -l {limit_locked_kib} && exec {words[0]}"
            ]
        status, out, err = tendril(
            "run",
            "-p",
            "0.5",
            "--",
            *words,
            server=server or self.server,
            timeout=PATIENCE_S,
            TENDRIL_LOG="info",
            **environment,
        )
        self.assertEqual(status, 0, out + err)
        return next(line for line in err.splitlines() if "attached to" in line)

    def test_what_was_measured_is_said(self):
        said = self.attaches()
        self.assertIn("over rdma", said)
        self.assertIn("a read takes", said)
        _, out, err = tendril(
            "doctor", server=self.server, timeout=PATIENCE_S, TENDRIL_TRANSPORT="rdma"
        )
        self.assertIn("a read takes", out + err)

    def test_it_is_measured_against_tcp(self):
        """While the program runs, and twice: the second time what is remembered decides."""

        def tried(cache):
            status, out, err = tendril(
                "run",
                "-p",
                "0.5",
                "--",
                str(PROGRAMS / "streams_overlap"),
                "300",
                "65536",
                server=self.server,
                timeout=PATIENCE_S,
                TENDRIL_LOG="info",
                TENDRIL_TRANSPORT="rdma,tcp",
                XDG_CACHE_HOME=cache,
            )
            self.assertEqual(status, 0, out + err)
            self.assertRegex(err, "attached to .* over tcp .*rdma is tried meanwhile")
            return err

        with tempfile.TemporaryDirectory() as cache:
            said = tried(cache)
            self.assertRegex(said, r"calls over (rdma|tcp) \(.* times\), bulk data over")
            ways = list(pathlib.Path(cache, "tendril", "ways").iterdir())
            self.assertEqual(len(ways), 1)
            # Connections that are worse than anything.
            known = ways[0].read_text()
            ways[0].write_text(re.sub(r"(-2 \d+) .*", r"\1 1000000 0.000001 1 1", known, count=1))
            said = tried(cache)
            self.assertIn("calls over rdma", said)
            self.assertIn("bulk data over rdma", said)

    def test_programs_on_one_host_share_memory_anyhow(self):
        self.assertNotIn("rdma", self.attaches(TENDRIL_TRANSPORT="auto"))

    def test_each_end_may_refuse(self):
        for device, why in (("none", "switches it off"), ("mlx9", "no RDMA device 'mlx9'")):
            said = self.attaches(TENDRIL_RDMA_DEVICE=device)
            self.assertIn("over tcp", said)
            self.assertIn(why, said)
        for arguments, why in (
            ((), "the server lends no RDMA device"),
            (("--trusted-network", "10.0.0.0/8", "--rdma", "off"), "switches it off"),
        ):
            with Server(*arguments) as server:
                said = self.attaches(server)
                self.assertIn("over tcp", said)
                self.assertIn(why, said)

    def test_a_server_that_trusts_a_network_lends_its_cards(self):
        with Server("--trusted-network", "10.0.0.0/8") as server:
            self.assertIn("over rdma", self.attaches(server))

    def test_without_locked_memory_it_says_so(self):
        said = self.attaches(limit_locked_kib=64)
        self.assertIn("over tcp", said)
        self.assertIn("ulimit -l", said)

    def test_conformance(self):
        names = os.environ.get("TENDRIL_RDMA_CONFORMANCE", "*")
        status, out, err = tendril(
            "run",
            "-n",
            "2",
            "--",
            str(SUITE),
            "--gtest_brief=1",
            "--gtest_filter=" + names,
            server=self.server,
            timeout=PATIENCE_S,
            TENDRIL_TRANSPORT="rdma",
            TENDRIL_LOG="info",
        )
        self.assertEqual(status, 0, out[-4000:] + err[-4000:])
        self.assertIn("over rdma", err)

    @unittest.skipUnless(INTERFACE, "no interface was named that may be taken down")
    def test_a_link_that_is_down_at_attach(self):
        set_link("down")
        try:
            said = self.attaches()
        finally:
            set_link("up")
        self.assertIn("over tcp", said)
        self.assertIn("is down", said)

    def passes_over_a_lost_link(self, program, wait_s, **environment):
        """The link goes down while it runs. It ends well, over TCP, and `ls` says so meanwhile."""
        process = subprocess.Popen(
            program,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=clean_environment(
                LD_LIBRARY_PATH=str(CLIENT.parent),
                TENDRIL_TRANSPORT="rdma",
                TENDRIL_SERVERS=self.server.endpoint,
                TENDRIL_LOG="info",
                **environment,
            ),
        )
        try:
            deadline = time.monotonic() + 60
            while not any("rdma" in lease["links"] for lease in self.server.leases()):
                self.assertLess(time.monotonic(), deadline, "it got no RDMA")
                time.sleep(0.2)
            time.sleep(wait_s)
            self.assertIsNone(process.poll(), "it ended before the link did")
            set_link("down")
            links, out = [], ""
            while process.poll() is None and "tcp" not in links:
                links = [lease["links"] for lease in self.server.leases()]
                time.sleep(0.2)
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            set_link("up")
            process.kill()
        self.assertEqual(process.returncode, 0, out[-3000:])
        self.assertIn("over rdma", out)
        self.assertRegex(out, "RDMA to .* failed .*the program connects over TCP")
        self.assertIn("nothing was lost", out)
        self.assertIn("tcp", links)
        deadline = time.monotonic() + 60
        while not self.server.idle():
            self.assertLess(time.monotonic(), deadline, "the server keeps the lease")
            time.sleep(0.5)

    @unittest.skipUnless(INTERFACE, "no interface was named that may be taken down")
    def test_a_link_that_goes_down_in_mid_launch(self):
        self.passes_over_a_lost_link([PROGRAMS / "streams_overlap", "1000", "65536"], 3)

    @unittest.skipUnless(INTERFACE, "no interface was named that may be taken down")
    def test_a_link_that_goes_down_in_mid_copy(self):
        self.passes_over_a_lost_link([PROGRAMS / "copy_sizes", "100"], 3)


class Forbidden(unittest.TestCase):
    """Needs no card: the policy comes first."""

    def test_a_policy_forbids_it_and_says_so(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as policy:
            policy.write("[limits]\nrdma = false\n")
            policy.flush()
            lends = {"TENDRIL_RDMA_DEVICE": "any"}
            with Server("--policy", policy.name, environment=lends) as server:
                _, out, err = tendril("doctor", server=server, TENDRIL_TRANSPORT="rdma,tcp")
        self.assertRegex(out + err, "tcp: .*no rdma: the server's policy forbids RDMA to ")


if __name__ == "__main__":
    unittest.main()
