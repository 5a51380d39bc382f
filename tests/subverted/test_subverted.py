# SPDX-License-Identifier: Apache-2.0
"""A worker that its tenant has taken over reaches nothing: no file, no process, no socket. Under
root it has a user of its own; otherwise it is in a namespace."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import harness  # noqa: E402
from harness import BUILD, DRIVER, PROGRAMS, Server, eventually, start, tendril  # noqa: E402

WORKER = BUILD / "bin" / "tendril_subverted_worker"
SOMEBODY = 12345
FEWEST = 45  # attempts


def free_port_below_32768():
    for port in range(21000, 21100):
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("no port is free")


class Subverted(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tendril-subverted-"))
        self.token = self.folder / "token"
        self.token.write_text("squeamish ossifrage")
        self.token.chmod(0o600)
        self.store = self.folder / "store"
        self.environment = {
            "TENDRIL_WORKER_SECRET": str(self.token),
            "TENDRIL_WORKER_STORE": str(self.store),
            "TENDRIL_TOKEN_FILE": str(self.token),
        }

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def attempts(self, server, **environment):
        """Attaches a program and returns what the worker tried."""
        program = start(
            "run",
            "--",
            PROGRAMS / "vector_add",
            server=server,
            TENDRIL_TOKEN_FILE=str(self.token),
            **environment,
        )
        try:
            eventually(lambda: "attempts are over" in server.log(), 60, "the end of the attempts")
        finally:
            harness.end(program)
        return re.findall(r"attempt (.*): (held|BROKEN) (.*)", server.log())

    def holds(self, attempts):
        self.assertGreaterEqual(len(attempts), FEWEST)
        self.assertEqual([a for a in attempts if a[1] != "held"], [])

    def test_with_a_user_of_its_own(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        with Server(
            "--worker",
            str(WORKER),
            "--images",
            str(self.store),
            warm=2,
            environment=self.environment | {"TENDRIL_WORKER_NETWORK": "own"},
        ) as server:
            attempts = self.attempts(server)
            self.assertIn("see the machine's network", [what for what, _, _ in attempts])
            self.holds(attempts)

    def test_with_a_network_for_nccl(self):
        """It reaches TCP of the servers that were named, and no services there."""
        if os.geteuid() != 0:
            self.skipTest("needs root")
        elsewhere = socket.create_server(("127.0.0.2", 0))
        service = socket.create_server(("127.0.0.1", free_port_below_32768()))
        self.addCleanup(elsewhere.close)
        self.addCleanup(service.close)
        with Server(
            "--worker",
            str(WORKER),
            "--images",
            str(self.store),
            "--nccl",
            BUILD / "lib" / "libtendril-softnccl.so",
            environment=self.environment
            | {
                "TENDRIL_WORKER_NETWORK": "nccl",
                "TENDRIL_WORKER_ELSEWHERE": str(elsewhere.getsockname()[1]),
                "TENDRIL_WORKER_SERVICE": str(service.getsockname()[1]),
            },
        ) as server:
            if "whatever this machine reaches" in server.log():
                self.skipTest("this kernel, or this container, does not bound a worker's network")
            ours = str(harness.CLIENT.parent / "nccl" / "libnccl.so.2")
            attempts = self.attempts(server, LD_PRELOAD=ours)
            self.assertIn("a server that was not named", [what for what, _, _ in attempts])
            self.holds(attempts)

    def test_in_a_namespace(self):
        """The daemon of an ordinary user."""
        become = {"user": SOMEBODY, "group": SOMEBODY} if os.geteuid() == 0 else {}
        if become:
            for path in (self.folder, self.token):
                os.chown(path, SOMEBODY, SOMEBODY)
        with Server(
            "--worker",
            str(WORKER),
            "--images",
            str(self.store),
            warm=2,
            environment=self.environment,
            become=become,
        ) as server:
            self.assertIn("user namespaces", server.log())
            self.holds(self.attempts(server))


class Refusals(unittest.TestCase):
    def refuses(self, *options, what, driver=DRIVER):
        done = subprocess.run(
            [harness.TENDRIL, "serve", "--driver", driver, "--port", "0", *options],
            capture_output=True,
            text=True,
            timeout=60,
            env=harness.clean_environment(TENDRIL_MODULE_STORE="off"),
            check=False,
        )
        self.assertNotEqual(done.returncode, 0)
        for word in (*what, "--weak-isolation"):
            self.assertIn(word, done.stderr)

    def test_workers_with_the_daemons_user(self):
        self.refuses("--worker-user", "none", what=["refusing to serve"])

    def test_workers_that_cannot_use_the_gpus(self):
        """A driver that no other user may read."""
        if os.geteuid() != 0:
            self.skipTest("needs root")
        with tempfile.TemporaryDirectory() as folder:
            driver = pathlib.Path(folder) / DRIVER.name
            shutil.copy(DRIVER, driver)
            self.refuses(driver=driver, what=["refusing to serve", "sandbox"])

    def test_weak_isolation_says_so(self):
        with Server("--worker-user", "none", "--weak-isolation") as server:
            self.assertIn("may reach other tenants", server.log())
            self.assertEqual(
                tendril("run", "--", PROGRAMS / "vector_add", "1000", server=server)[0], 0
            )


if __name__ == "__main__":
    unittest.main()
