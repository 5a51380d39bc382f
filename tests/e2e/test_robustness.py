# SPDX-License-Identifier: Apache-2.0
"""Sudden deaths on either side and connections that hang half open, one at a time: nothing hangs,
and the server goes on. test_endurance.py has many at once and for long."""

import os
import signal
import time
import unittest

import harness
from harness import PROGRAMS, Relay, Server, eventually, start, tendril

REAP_SECONDS = 1.0
SLACK_SECONDS = 3.0


def hold(server, *options, seconds=60, **environment):
    """A program that holds 16 MiB on the server; (process, pid of the program itself)."""
    process = start(
        "run",
        "-p",
        "0.3",
        *options,
        "--",
        str(PROGRAMS / "hold"),
        "16",
        str(seconds),
        server=server,
        **environment,
    )
    line = process.stdout.readline()
    if "holding" not in line:
        raise AssertionError("the program did not start: " + line + process.stdout.read())
    return process, harness.children(process.pid)[0]


@harness.needs_client
class Deaths(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.stop)

    def given_back(self, worker):
        """The lease and the session's worker are gone within a second (more where a busy machine's
        tools are slow)."""
        eventually(
            lambda: not harness.is_running(worker), REAP_SECONDS + SLACK_SECONDS, "the worker's end"
        )
        eventually(lambda: not self.server.leases(), 10, "the lease's end")
        status, out, err = tendril(
            "run", "--", str(PROGRAMS / "vector_add"), "1000", server=self.server
        )
        self.assertEqual(status, 0, out + err)

    def session_worker(self):
        """The worker of the one session, named in the log."""
        lines = [line for line in self.server.log().splitlines() if " on lease " in line]
        return int(lines[-1].rsplit("worker ", 1)[1])

    def test_program_killed(self):
        for transport in ("tcp", "shm"):
            with self.subTest(transport=transport):
                process, program = hold(self.server, TENDRIL_TRANSPORT=transport)
                worker = self.session_worker()
                os.kill(program, signal.SIGKILL)
                self.assertEqual(process.wait(5), 128 + signal.SIGKILL)
                process.stdout.close()
                self.given_back(worker)

    def test_run_killed_ends_the_program_too(self):
        process, program = hold(self.server)
        worker = self.session_worker()
        process.kill()
        process.wait()
        eventually(lambda: not harness.is_running(program), 10, "the program's end")
        process.stdout.close()
        self.given_back(worker)

    def test_worker_killed(self):
        for transport in ("tcp", "shm"):
            with self.subTest(transport=transport):
                process, _ = hold(self.server, TENDRIL_TRANSPORT=transport)
                worker = self.session_worker()
                os.kill(worker, signal.SIGKILL)
                out = process.stdout.read()
                self.assertNotEqual(process.wait(10), 0, out)
                process.stdout.close()
                self.given_back(worker)

    def test_worker_stopped_is_still_reaped(self):
        process, program = hold(self.server)
        worker = self.session_worker()
        os.kill(worker, signal.SIGSTOP)
        os.kill(program, signal.SIGKILL)
        process.wait(5)
        process.stdout.close()
        self.given_back(worker)

    def test_server_killed(self):
        for transport in ("tcp", "shm"):
            with self.subTest(transport=transport):
                server = Server()
                try:
                    process, _ = hold(server, TENDRIL_TRANSPORT=transport)
                    workers = server.workers()
                    server.process.kill()
                    server.process.wait()
                    out = process.stdout.read()
                    self.assertNotEqual(process.wait(10), 0, out)
                    self.assertIn("ended the lease or is gone", out)
                    process.stdout.close()
                    eventually(
                        lambda: not any(harness.is_running(w) for w in workers),
                        10,
                        "the workers' end",
                    )
                finally:
                    server.stop()

    def test_stopped_client_keeps_its_slice(self):
        process, program = hold(self.server, seconds=4, TENDRIL_TRANSPORT="tcp")
        os.kill(program, signal.SIGSTOP)
        time.sleep(2)
        self.assertEqual(len(self.server.leases()), 1)
        os.kill(program, signal.SIGCONT)
        self.assertIn("PASS", process.stdout.read())
        self.assertEqual(process.wait(10), 0)
        process.stdout.close()

    def test_others_go_on_when_one_dies(self):
        survivor, _ = hold(self.server, seconds=3)
        victim, program = hold(self.server)
        os.kill(program, signal.SIGKILL)
        victim.wait(5)
        victim.stdout.close()
        self.assertIn("PASS", survivor.stdout.read())
        self.assertEqual(survivor.wait(10), 0)
        survivor.stdout.close()


@harness.needs_client
class HalfOpen(unittest.TestCase):
    """Peers that vanish without a word. A relay that stops relaying and keeps its connections open
    makes them."""

    def test_client_behind_a_dead_relay_does_not_hold_the_others_up(self):
        with Server() as server, Relay(server.port) as relay:
            process = start(
                "run",
                "--server",
                f"127.0.0.1:{relay.port}",
                "-p",
                "0.3",
                "--",
                str(PROGRAMS / "hold"),
                "16",
                "60",
                TENDRIL_TRANSPORT="tcp",
            )
            self.assertIn("holding", process.stdout.readline())
            relay.freeze()
            # The kernel at the relay still acknowledges, so only the relay's end shows it.
            # Everybody else is served meanwhile.
            status, out, err = tendril(
                "run", "-p", "0.3", "--", str(PROGRAMS / "vector_add"), "1000", server=server
            )
            self.assertEqual(status, 0, out + err)
            relay.cut()
            eventually(server.idle, 10, "everything given back")
            harness.end(process)

    def test_attach_that_stops_half_way(self):
        with Server() as server, Relay(server.port, limit=1) as relay:
            # The control connection gets through and the program's connections do not. It must end
            # with a message and not hang.
            process = start(
                "run",
                "--server",
                f"127.0.0.1:{relay.port}",
                "-p",
                "0.3",
                "--",
                str(PROGRAMS / "vector_add"),
                "1000",
                TENDRIL_TRANSPORT="tcp",
            )
            self.assertNotEqual(process.wait(60), 0)
            self.assertTrue(process.stdout.read())
            process.stdout.close()
            relay.cut()
            eventually(server.idle, 10, "everything given back")


if __name__ == "__main__":
    unittest.main()
