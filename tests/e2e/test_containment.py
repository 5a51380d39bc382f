# SPDX-License-Identifier: Apache-2.0
"""How a server keeps its workers apart, seen from outside: users, namespaces, filters, cgroups,
environments. tests/subverted tries from inside."""

import os
import pathlib
import tempfile
import unittest

import harness
from harness import PROGRAMS, Server, end, eventually, start, status_field, tendril

GROUPS = next(
    (
        pathlib.Path(place)
        for place in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
        if pathlib.Path(place, "cgroup.controllers").exists()
    ),
    None,
)


def hold(test, server):
    """A program that holds a slice; its worker is one more than before."""
    before = set(server.workers())
    process = start("run", "-p", "0.3", "--", PROGRAMS / "hold", "16", "60", server=server)
    test.addCleanup(end, process)
    test.assertIn("holding", process.stdout.readline())
    return process, before


@harness.needs_client
class Containment(unittest.TestCase):
    def test_workers_are_confined(self):
        secret = "a secret of the daemon's own"
        with Server(warm=2, environment={"TENDRIL_UNKNOWN": secret}) as server:
            eventually(server.settled, 20, "warm workers")
            workers = server.workers()
            for pid in workers:
                # A worker confines itself before it takes a client, not before it is seen.
                eventually(lambda pid=pid: status_field(pid, "Seccomp") == ["2"], 5, "the filter")
                self.assertEqual(status_field(pid, "NoNewPrivs"), ["1"])
                self.assertEqual(set(status_field(pid, "CapPrm")[0]), {"0"})
                if os.geteuid() == 0:
                    environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
                    self.assertNotIn(secret.encode(), environment)
            if os.geteuid() == 0:
                users = {status_field(pid, "Uid")[0] for pid in workers}
                self.assertEqual(len(users), 2)
                self.assertNotIn("0", users)

    def test_a_lease_has_a_cgroup_that_ends_with_it(self):
        if GROUPS is None or not os.access(GROUPS / "cgroup.procs", os.W_OK):
            self.skipTest("no cgroup v2 that this user may write")
        own = GROUPS / f"tendril-e2e-{os.getpid()}"
        own.mkdir()
        self.addCleanup(own.rmdir)
        with Server("--cgroup", str(own)) as server:
            process, _ = hold(self, server)
            [lease] = eventually(
                lambda: list(own.glob("tendril-*/lease-*")), 5, "the lease's cgroup"
            )
            [pid] = [int(word) for word in (lease / "cgroup.procs").read_text().split()]
            self.assertIn(pid, server.workers())
            end(process)
            eventually(lambda: not lease.exists(), 10, "the end of the lease's cgroup")
        self.assertEqual([path for path in own.iterdir() if path.is_dir()], [])

    def test_a_drivers_calls_are_learned(self):
        with tempfile.TemporaryDirectory() as folder:
            names = pathlib.Path(folder, "calls")
            with Server("--learn-filter", str(names)) as server:
                status, out, err = tendril(
                    "run", "--", PROGRAMS / "vector_add", "1000", server=server
                )
                self.assertEqual(status, 0, out + err)
                self.assertIn("may make any system call", server.log())
            self.assertRegex(names.read_text(), r"\A([a-z0-9_]+\n)*\Z")
            names.write_text("getpriority\nno_such_call\n")
            with Server("--filter", str(names)) as server:
                self.assertEqual(
                    tendril("run", "--", PROGRAMS / "vector_add", "1000", server=server)[0], 0
                )


if __name__ == "__main__":
    unittest.main()
