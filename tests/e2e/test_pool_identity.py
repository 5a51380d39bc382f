# SPDX-License-Identifier: Apache-2.0
"""A pool where everybody proves who he is: a scheduler that is the authority, two servers and users
with certificates; roles, accounts that lend and reclaim, programs without launcher, and users that
are revoked. And one where all know a secret."""

import json
import os
import pathlib
import subprocess
import sys

from harness import (
    DRIVER,
    NO_LEASE,
    PROGRAMS,
    Pool,
    Server,
    clean_environment,
    end,
    eventually,
    needs_client,
    needs_plain_client,
    start,
    tendril,
)
from support.pools import quietly
from test_identity import Folders

POLICY = """
[pool]
name = "lab"

[[account]]
name = "vision"
quota = 1

[[account]]
name = "nlp"
quota = 1

[[user_class]]
name = "batch"
preempt_mode = ["end"]
grace_time = "2s"
preempt_exempt_time = "4s"

[[assignment]]
match = "user = alice"
account = "vision"
user_classes = ["batch"]

[[assignment]]
match = "user = bob or user = dan"
account = "nlp"
user_classes = ["batch"]
"""

# A notebook: it imports everything first, and uses the GPU when its user runs a cell.
NOTEBOOK = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
print("ready", flush=True)
for cell in sys.stdin:
    print("status", cuda.cuInit(0), flush=True)
"""


@needs_client
class Proven(Folders):
    @classmethod
    def setUpClass(cls):
        cls.shared = Folders()
        Folders.setUp(cls.shared)
        cls.addClassCleanup(cls.shared.doCleanups)
        cls.root_ = cls.shared.root
        cls.pool = Pool(
            "--identity", os.path.join(cls.root_, "a"), "--pool-name", "lab", policy=POLICY
        )
        cls.addClassCleanup(cls.pool.stop)
        cls.servers = []
        for name in ("gpu1", "gpu2"):
            cls.shared.joined(cls.pool, name, "a", name, "--role", "server")
            options = ("--identity", os.path.join(cls.root_, name))
            cls.servers.append(Server(*options, warm=0, pool=cls.pool))
            cls.addClassCleanup(cls.servers[-1].stop)
        for name in ("alice", "bob", "dan", "carol"):
            cls.shared.joined(cls.pool, name, "a", name)
        cls.shared.joined(cls.pool, "olga", "a", "olga", "--role", "operator")
        eventually(
            lambda: quietly(lambda: [x["state"] for x in cls.status()["servers"]] == ["up", "up"]),
            20,
            "both servers",
        )

    def setUp(self):
        self.root = self.root_
        eventually(lambda: quietly(lambda: not self.leases()), 20, "the end of all leases")

    @classmethod
    def settings(cls, name):
        return {
            "TENDRIL_IDENTITY": os.path.join(cls.root_, name),
            "TENDRIL_SERVERS": cls.pool.endpoint,
        }

    @classmethod
    def status(cls):
        return cls.pool.command("status", **cls.settings("a"))

    def leases(self, name="a"):
        return self.pool.command("status", **self.settings(name))["leases"]

    def run_as(self, name, *arguments):
        return tendril("run", *arguments, **self.settings(name))

    def begin(self, name, *arguments):
        process = start("run", *arguments, **self.settings(name))
        self.addCleanup(end, process)
        return process

    def holds(self, name, *arguments):
        process = self.begin(name, *arguments, "--", PROGRAMS / "hold", "8", "60")
        lines = []
        while not (lines and lines[-1].startswith("holding")):
            lines.append(process.stdout.readline())
            self.assertTrue(lines[-1], lines)
        return process

    def test_a_gang_over_two_servers_by_certificate(self):
        status, out, err = self.run_as("alice", "-v", "-n", "2", "--", PROGRAMS / "multi_gpu")
        self.assertEqual(status, 0, err)
        self.assertIn("2 devices", out)
        self.assertRegex(err, r"tendril: leases \d+ \(gpu1, gpu2\)")
        eventually(lambda: not self.leases(), 10, "the end of all leases")

    def test_who_is_in_no_account_gets_nothing(self):
        status, _, err = self.run_as("carol", "--", "true")
        self.assertEqual(status, NO_LEASE)
        self.assertIn("carol", err)
        status, _, err = self.run_as("nobody", "--", "true")
        self.assertEqual(status, NO_LEASE)
        self.assertEqual(err.count("\n"), 1, err)

    def test_what_is_lent_is_reclaimed(self):
        first, second = self.holds("alice"), self.holds("alice")
        used = {x["name"]: x["used"].get("any", 0) for x in self.status()["accounts"]}
        self.assertEqual((used["vision"], used["nlp"]), (2, 0))
        bob = self.begin("bob", "--", "echo", "got mine back")
        told = [bob.stdout.readline() for _ in range(2)]
        self.assertIn("waiting, position 1 of 1 for any (account nlp)", told[0])
        self.assertRegex(
            told[1],
            r"reason Quota: nlp holds 0\.0 of 1\.0 any, 1\.0 lent to vision; "
            r"those are reclaimed at \d\d:\d\d",
        )
        out = bob.communicate(timeout=30)[0]
        self.assertEqual(bob.returncode, 0, "".join(told) + out)
        self.assertIn("got mine back", out)
        # One of the two was over quota. It was warned, and the other one goes on.
        eventually(lambda: [first.poll(), second.poll()].count(None) == 1, 10, "the end of one")
        ended = first if first.poll() is not None else second
        self.assertIn("tendril: ", ended.stdout.read())

    def test_roles(self):
        for name, words, rule in (
            ("alice", ("drain", "gpu1"), "rule: "),
            ("olga", ("apply", os.path.join(self.pool.folder, "pool.toml")), "rule: "),
        ):
            status, _, err = tendril("pool", *words, **self.settings(name))
            self.assertEqual(status, 1)
            self.assertIn(rule, err)
        for words in (("drain", "gpu1", "a", "test"), ("undrain", "gpu1")):
            self.pool.command(*words, **self.settings("olga"))
        path = os.path.join(self.pool.folder, "pool.toml")
        self.pool.command("apply", path, **self.settings("a"))

    def test_others_names_are_not_shown(self):
        self.holds("alice")
        self.assertEqual(self.leases("olga")[0]["owner"], "alice")
        self.assertNotIn("alice", json.dumps(self.leases("bob")))
        lease = str(self.leases()[0]["lease"])
        status, _, err = tendril("pool", "release", lease, **self.settings("bob"))
        self.assertEqual(status, 1)
        self.assertIn("(rule: owner-or-operator)", err)
        self.assertEqual(len(self.leases()), 1)

    def test_a_user_cannot_lend(self):
        options = ("--identity", self.folder("bob"))
        server = self.enterContext(Server(*options, warm=0, pool=self.pool))
        eventually(lambda: "warning the pool: " in server.log(), 20, "the refusal")
        log = server.log()
        self.assertIn("certificate is foreign", log)
        cause = log.index("has the certificate of bob (user) and no server's of pool lab")
        self.assertLess(cause, log.index("warning the pool: "))
        self.assertIn("'tendril identity invite NAME --role server'", log[cause:])
        self.assertEqual(len(self.status()["servers"]), 2)

    @needs_plain_client
    def test_a_notebook_waits_at_its_first_call(self):
        first, second = self.holds("bob"), self.holds("bob")
        _, out, _ = tendril("env", "--json", **self.settings("alice"))
        notebook = subprocess.Popen(
            [sys.executable, "-c", NOTEBOOK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=clean_environment(**{**self.settings("alice"), **json.loads(out)}),
        )
        self.addCleanup(end, notebook)
        self.assertEqual(notebook.stdout.readline(), "ready\n")
        # It holds nothing and waits for nothing until it asks for a GPU.
        self.assertEqual(self.pool.queue(**self.settings("a"))["waiting"], [])
        notebook.stdin.write("cell\n")
        notebook.stdin.flush()
        self.assertIn("tendril: waiting, position 1 of 1", notebook.stdout.readline())
        # vision has its quota, so one of nlp's leases makes room.
        out = ""
        while "status 0" not in out:
            line = notebook.stdout.readline()
            self.assertTrue(line, out)
            out += line
        self.assertEqual(sorted(x["owner"] for x in self.leases()), ["alice", "bob"])
        eventually(lambda: [first.poll(), second.poll()].count(None) == 1, 10, "the end of one")
        notebook.communicate(timeout=20)
        eventually(lambda: len(self.leases()) == 1, 10, "the end of the notebook's lease")

    def test_who_is_revoked_loses_lease_and_place(self):
        held = self.holds("dan", "-n", "2")
        waits = self.begin("dan", "-n", "2", "--", "true")
        self.assertIn("waiting", waits.stdout.readline())
        status, _, err = self.identity("a", "identity", "revoke", "dan")
        self.assertEqual(status, 0, err)
        eventually(lambda: not self.leases(), 15, "the end of the lease")
        self.assertNotEqual(waits.wait(15), 0)
        self.assertNotEqual(held.wait(15), 0)
        status, _, err = self.run_as("dan", "--", "true")
        self.assertEqual(status, NO_LEASE)
        self.assertIn("revoked", err)


@needs_client
class Secret(Folders):
    def test_all_know_a_secret(self):
        token = self.folder("token")
        pathlib.Path(token).write_text("correct horse battery", encoding="ascii")
        os.chmod(token, 0o600)
        pool = self.enterContext(Pool("--token-file", token))
        known = {"TENDRIL_TOKEN_FILE": token, "TENDRIL_SERVERS": pool.endpoint}
        self.enterContext(Server("--token-file", token, "--name", "gpu1", warm=0, pool=pool))

        def states():
            return [x["state"] for x in pool.command("status", **known)["servers"]]

        eventually(lambda: quietly(lambda: states() == ["up"]), 20, "the server")
        status, out, err = tendril("run", "-v", "--", PROGRAMS / "vector_add", **known)
        self.assertEqual(status, 0, err)
        self.assertIn("(gpu1)", err)
        status, _, err = tendril("run", "--", "true", TENDRIL_SERVERS=pool.endpoint)
        self.assertEqual(status, NO_LEASE)
        self.assertIn("token", err)
        # A server without the secret is not let in.
        stranger = self.enterContext(Server("--name", "gpu2", warm=0, pool=pool))
        eventually(lambda: "token" in stranger.log(), 10, "the refusal")
        self.assertEqual(states(), ["up"])


if __name__ == "__main__":
    import unittest

    unittest.main()
