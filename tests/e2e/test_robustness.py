# SPDX-License-Identifier: Apache-2.0
"""Sudden deaths on either side, connections that hang half open, and many cycles: nothing leaks, nothing hangs, the server goes on.
TENDRIL_CYCLES sets the number of attach/detach cycles (default 100)."""
import concurrent.futures
import os
import signal
import socket
import subprocess
import time
import unittest

import harness
from harness import PROGRAMS, Server, eventually, start, tendril

CYCLES = int(os.environ.get("TENDRIL_CYCLES", "100"))
REAP_SECONDS = 1.0


def hold(server, *options, seconds=60, **environment):
    """A program that holds 16 MiB on the server; (process, pid of the program itself)."""
    process = start("run", "-p", "0.3", *options, "--", str(PROGRAMS / "hold"), "16", str(seconds), server=server,
                    **environment)
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
        """The lease is gone and the session's worker with it, within a second (and some for a busy machine's tools)."""
        began = time.monotonic()
        eventually(lambda: not harness.is_running(worker), REAP_SECONDS + 0.5, "the worker's end")
        took = time.monotonic() - began
        eventually(lambda: not self.server.leases(), 2, "the lease's end")
        self.assertLess(took, REAP_SECONDS + 0.5)
        status, out, err = tendril("run", "--", str(PROGRAMS / "vector_add"), "1000", server=self.server)
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
        eventually(lambda: not harness.is_running(program), 2, "the program's end")
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
                    eventually(lambda: not any(harness.is_running(w) for w in workers), 2, "the workers' end")
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
    """Peers that vanish without a word, made with a relay that stops relaying and keeps its connections open."""

    def test_client_behind_a_dead_relay_does_not_hold_the_others_up(self):
        with Server() as server, Relay(server.port) as relay:
            process = start("run", "--server", f"127.0.0.1:{relay.port}", "-p", "0.3", "--",
                            str(PROGRAMS / "hold"), "16", "60", TENDRIL_TRANSPORT="tcp")
            self.assertIn("holding", process.stdout.readline())
            relay.freeze()
            # The kernel at the relay still acknowledges: only the relay's end tells. Everybody else is served meanwhile.
            status, out, err = tendril("run", "-p", "0.3", "--", str(PROGRAMS / "vector_add"), "1000", server=server)
            self.assertEqual(status, 0, out + err)
            relay.cut()
            eventually(server.idle, 3, "everything given back")
            harness.end(process)

    def test_attach_that_stops_half_way(self):
        with Server() as server, Relay(server.port, limit=1) as relay:
            # The control connection gets through, those of the program do not: it must end with a message, not hang.
            process = start("run", "--server", f"127.0.0.1:{relay.port}", "-p", "0.3", "--",
                            str(PROGRAMS / "vector_add"), "1000", TENDRIL_TRANSPORT="tcp")
            self.assertNotEqual(process.wait(60), 0)
            self.assertTrue(process.stdout.read())
            process.stdout.close()
            relay.cut()
            eventually(server.idle, 3, "everything given back")


class Relay:
    """Forwards TCP connections to a port until frozen. `limit`: later connections are accepted and never served."""

    def __init__(self, port, limit=None):
        self.target, self.limit, self.frozen, self.sockets = port, limit, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = concurrent.futures.ThreadPoolExecutor(64)
        self.threads.submit(self.accept)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cut()
        self.threads.shutdown(wait=False, cancel_futures=True)

    def accept(self):
        count = 0
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            count += 1
            self.sockets.append(near)
            if self.limit is not None and count > self.limit:
                continue
            far = socket.create_connection(("127.0.0.1", self.target))
            self.sockets.append(far)
            self.threads.submit(self.pump, near, far)
            self.threads.submit(self.pump, far, near)

    def pump(self, source, sink):
        try:
            while data := source.recv(65536):
                while self.frozen:
                    time.sleep(0.05)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def freeze(self):
        self.frozen = True

    def cut(self):
        for one in [self.listener, *self.sockets]:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()
        self.frozen = False


@harness.needs_client
class Cycles(unittest.TestCase):
    def attach_once(self, server, number):
        environment = harness.clean_environment(
            LD_LIBRARY_PATH=str(harness.CLIENT.parent), TENDRIL_SERVERS=server.endpoint, TENDRIL_SLICE="0.1",
            TENDRIL_TRANSPORT="tcp" if number % 2 else "shm")
        done = subprocess.run([PROGRAMS / "vector_add", "100"], capture_output=True, text=True, timeout=60,
                              env=environment, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_no_leak(self):
        with Server() as server, concurrent.futures.ThreadPoolExecutor(2) as pool:
            for number in range(10):
                self.assertEqual(self.attach_once(server, number)[0], 0)
            eventually(server.settled, 5)
            time.sleep(0.3)
            descriptors, resident = harness.descriptors(server.pid), harness.resident_kib(server.pid)
            for status, out in pool.map(lambda number: self.attach_once(server, number), range(CYCLES)):
                self.assertEqual(status, 0, out)
            eventually(server.settled, 5)
            eventually(lambda: harness.descriptors(server.pid) <= descriptors, 5, "as many descriptors as before")
            self.assertLess(harness.resident_kib(server.pid) - resident, 8192, "KiB more after the cycles")
            self.assertEqual(len([p for p in harness.children(server.pid) if not harness.is_running(p)]), 0, "zombies")

    def test_killed_at_random_moments(self):
        with Server() as server:
            for number in range(30):
                process = start("run", "-p", "0.3", "--", str(PROGRAMS / "hold"), "16", "60", server=server,
                                TENDRIL_TRANSPORT="tcp" if number % 2 else "shm")
                time.sleep(0.01 * (number % 15))
                process.kill()
                process.wait()
                process.stdout.close()
            eventually(server.idle, 5, "everything given back")
            status, out, err = tendril("run", "--", str(PROGRAMS / "vector_add"), "1000", server=server)
            self.assertEqual(status, 0, out + err)


if __name__ == "__main__":
    unittest.main()
