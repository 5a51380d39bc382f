# SPDX-License-Identifier: Apache-2.0
"""Clients, workers and the daemon are killed and stopped at random, over and over. Whatever dies,
nothing is left: no bytes on the GPU, no part of it, no file, no process. A cycle is one program
with what was drawn for it. Each round of cycles has a server of its own and ends with the daemon's
own fate. TENDRIL_SUPERVISOR_CYCLES sets the number of cycles (default 300),
TENDRIL_SUPERVISOR_SECONDS after how long no further round begins (default 60; 0: never).
TENDRIL_SEED repeats the choices of a run that failed."""

import collections
import contextlib
import ctypes
import os
import pathlib
import random
import signal
import tempfile
import time
import unittest

import harness
from harness import PROGRAMS, Server, eventually, start, tendril
from test_endurance import SEED, Holdings, Storm, tell

CYCLES = int(os.environ.get("TENDRIL_SUPERVISOR_CYCLES", "300"))
SECONDS_MAX = float(os.environ.get("TENDRIL_SUPERVISOR_SECONDS", "60"))
ROUND = 60  # cycles of one server
PR_SET_CHILD_SUBREAPER = 36
END_SECONDS = 10  # from the daemon's end to that of the last process under it


def adopt_orphans():
    """Processes that lose their parent become children of this one. So whatever a daemon leaves
    behind is seen here."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def living_orphans():
    """Reaps what has ended, and returns what has not. Call it when nothing of the test runs."""
    for pid in harness.children(os.getpid()):
        if not harness.is_running(pid):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return {pid: harness.command_line(pid)[:4] for pid in harness.children(os.getpid())}


class Places:
    """Folders and names where a server may leave something behind."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tendril-supervisor-")
        self.root = pathlib.Path(self.folder.name)
        self.root.chmod(0o755)
        self.runtime = self.root / "runtime"
        self.runtime.mkdir(0o700)

    def environment(self):
        return {
            "TENDRIL_MODULE_STORE": str(self.root / "images"),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "TMPDIR": str(self.runtime),
        }

    def left(self, port, daemon, killed):
        """Everything that should have ended with the daemon. Images of device code stay; a part of
        one does not. A daemon that is killed leaves the names of its sockets."""
        found = [path for path in self.runtime.rglob("*") if not path.is_dir()]
        found = [str(path) for path in found if not (killed and path.is_socket())]
        found += [str(path) for path in self.root.rglob("*.part")]
        if not killed:
            found += [str(path) for path in pathlib.Path("/run/tendril").glob(f"{port}/*")]
        names = pathlib.Path("/proc/net/unix").read_text(encoding="ascii").split()
        found += [name for name in names if f"tendril-{port}" in name]
        # A daemon that was killed cannot remove its groups. The next one does. They are empty.
        for processes in pathlib.Path("/sys/fs/cgroup").glob(
            f"**/tendril*{daemon}*/**/cgroup.procs"
        ):
            with contextlib.suppress(OSError):
                found += [f"{processes}: {pid}" for pid in processes.read_text().split()]
        return found


class Supervisor(Storm):
    """One cycle after another on one server, some of them at once."""

    PAUSES = ("program paused", "worker paused")
    FATES = (*Storm.FATES, *PAUSES, "program stopped, then killed", "run stopped, then killed")

    def program_of(self, process, with_worker):
        """The program under `tendril run`, once it is there, and attached if its worker matters."""
        deadline = time.monotonic() + 1
        while process.poll() is None and time.monotonic() < deadline:
            program = (harness.children(process.pid) or [None])[0]
            if program and not (with_worker and self.worker_of(program) is None):
                return program
            time.sleep(0.01)
        return None

    def strike(self, fate, process):
        program = self.program_of(process, fate.startswith("worker"))
        if program is None:
            return False
        if fate in Storm.FATES:
            return super().strike(fate, process)
        victim = {"program": program, "run": process.pid, "worker": self.worker_of(program)}[
            fate.split()[0]
        ]
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGSTOP)
            time.sleep(random.Random(f"{self.seed} {fate} {victim % 7}").random() * 0.3)
            os.kill(victim, signal.SIGCONT if fate in self.PAUSES else signal.SIGKILL)
            return True
        return False

    def judge(self, what, fate, status, out):
        """Who was only paused succeeds."""
        super().judge(what, "none" if fate in self.PAUSES else fate, status, out)
        if fate in self.PAUSES:
            self.outcomes[fate] += 1

    def cycles(self, first, count):
        with harness.concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(self.one, range(first, first + count)))


@harness.needs_client
class SuddenEnds(unittest.TestCase):
    def end_daemon(self, server, fate):
        """The daemon's own fate, with programs attached."""
        seconds = "1" if fate == "paused" else "60"
        programs = [
            start(
                *("run", "-p", "0.2", "--", str(PROGRAMS / "hold"), "16", seconds),
                server=server,
                TENDRIL_TRANSPORT=transport,
            )
            for transport in ("tcp", "shm", "tcp")
        ]
        try:
            time.sleep(random.Random(f"{SEED} {fate} {server.pid % 7}").random() * 0.8)
            if fate == "paused":
                os.kill(server.pid, signal.SIGSTOP)
                time.sleep(0.5)
                os.kill(server.pid, signal.SIGCONT)
            else:
                server.process.send_signal(signal.SIGKILL if fate == "killed" else signal.SIGTERM)
                server.process.wait(20)
            for program in programs:
                out, _ = program.communicate(timeout=40)
                succeeded = program.returncode == 0
                self.assertEqual(succeeded, fate == "paused", f"daemon {fate}: {out}")
        finally:
            for program in programs:
                harness.end(program)

    def one_round(self, first, count, fate, places, outcomes):
        with Server(gpus=2, environment=places.environment()) as server:
            self.assertEqual(
                tendril("run", "--", str(PROGRAMS / "vector_add"), "100", server=server)[0], 0
            )
            before, supervisor = Holdings(server), Supervisor(server, SEED)
            supervisor.cycles(first, count)
            self.assertEqual(supervisor.wrong, [], f"TENDRIL_SEED={SEED}")
            before.no_more(self, f"cycles {first} to {first + count - 1}")
            outcomes.update(supervisor.outcomes)
            self.end_daemon(server, fate)
            outcomes[f"daemon {fate}"] += 1
            if fate == "paused":
                before.no_more(self, "the daemon's pause")
        eventually(lambda: not living_orphans(), END_SECONDS, "the end of all processes")
        left = places.left(server.port, server.pid, fate == "killed")
        self.assertEqual(left, [], f"daemon {fate}, TENDRIL_SEED={SEED}")

    def test_nothing_is_left(self):
        adopt_orphans()
        places, outcomes, done = Places(), collections.Counter(), 0
        self.addCleanup(places.folder.cleanup)
        began = time.monotonic()
        while done < CYCLES and not (0 < SECONDS_MAX < time.monotonic() - began):
            count = min(ROUND, CYCLES - done)
            fate = ("killed", "paused", "terminated")[done // ROUND % 3]
            self.one_round(done, count, fate, places, outcomes)
            done += count
        kinds = "; ".join(f"{kind}: {n}" for kind, n in sorted(outcomes.items()))
        tell(f"{done} cycles in {time.monotonic() - began:.0f} s, seed {SEED}: {kinds}")


class ManyLeases(unittest.TestCase):
    LEASES, END_SECONDS = 4000, 2.0

    def test_thousands_end_at_once(self):
        """All shares of four GPUs are promised in small slices. When their connection closes, a
        request for everything is granted at once."""
        share = 4 * 1_000_000 // self.LEASES
        small = ("--context-memory", "1", "--code-memory", "1")
        with Server(*small, gpus=4, memory=1 << 38) as server:
            everything = [harness.number(1, 4, "<I"), self.slice_of(1_000_000)]
            with harness.Control(server) as control:
                one = [harness.number(1, 1, "<I"), self.slice_of(share)]
                for _ in range(self.LEASES):
                    code, reply = control.ask(harness.LEASE, b"".join(one))
                    self.assertEqual(code, 0, reply)
                began = time.monotonic()
            with harness.Control(server) as control:
                # The server may not have noticed yet that the connection is closed.
                eventually(
                    lambda: control.ask(harness.LEASE, b"".join(everything))[0] == 0,
                    20,
                    "a lease of everything",
                )
            took = time.monotonic() - began
            tell(f"{self.LEASES} leases ended in {took:.2f} s")
            self.assertLess(took, self.END_SECONDS)

    @staticmethod
    def slice_of(share_millionths):
        parts = [harness.number(1, share_millionths, "<I"), harness.number(2, 0)]
        return harness.record(2, parts)


if __name__ == "__main__":
    unittest.main()
