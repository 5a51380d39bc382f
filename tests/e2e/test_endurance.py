# SPDX-License-Identifier: Apache-2.0
"""A server that is used for long and badly: many attach cycles, sudden deaths on either side at
random moments, strangers' bytes at the port while programs work, a full disk. What it holds is
measured before and after, and printed. scripts/test runs a short form, scripts/longtest the long
one. TENDRIL_CYCLES sets the attach cycles (default 100), TENDRIL_STORM_SECONDS the length of
each storm (default 8). TENDRIL_SEED repeats the choices of a run that failed."""

import collections
import concurrent.futures
import contextlib
import functools
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import harness
from harness import MIB, PROGRAMS, Relay, Server, eventually, start, tendril

CYCLES = int(os.environ.get("TENDRIL_CYCLES", "100"))
STORM_SECONDS = float(os.environ.get("TENDRIL_STORM_SECONDS", "8"))
SEED = int(os.environ.get("TENDRIL_SEED", str(random.SystemRandom().randrange(1 << 32))))
# More than this after any number of cycles is a leak. Less is an allocator's habit, or a sanitizer
# that keeps a history.
RESIDENT_KIB_MAX = 65536 if harness.THREAD_SANITIZED or harness.ADDRESS_SANITIZED else 8192
PATIENCE_SECONDS = 20  # connections that say nothing are dropped after 10
OUTAGE_SECONDS = 5
CLIENT_SECONDS_MAX = 40  # a program of the storm that takes longer counts as hanging
# The daemon's pools of threads. They grow to a few threads when they are needed.
POOLS = ("requests", "lists", "leases", "attaches")
WORK = (
    ("vector_add", "5000"),
    ("hold", "16", "1"),
    ("streams_overlap",),
    ("reduction", "20000"),
    ("bandwidth", "2"),
)


def tell(line):
    """One line that scripts/longtest shows."""
    print("endurance: " + line, flush=True)


def thread_names(pid):
    names = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            names.append(task.joinpath("comm").read_text().strip())
    return names


class Holdings:
    """What a server at rest holds, seen from outside: in the daemon and in the processes under
    it."""

    def __init__(self, server):
        self.server = server
        eventually(server.settled, 10, "the server at rest")
        self.before = self.look()
        for _ in range(
            50
        ):  # a worker that has just begun still opens things: look until two looks agree
            time.sleep(0.2)
            last, self.before = self.before, self.look()
            if self.before == last:
                break

    def look(self):
        gpus = harness.listing(self.server, "smi")["gpus"]
        pid = self.server.pid
        below = harness.children(pid)
        return {
            "descriptors": harness.descriptors(pid),
            "threads": sum(name not in POOLS for name in thread_names(pid)),
            "processes": len(below),
            "zombies": sum(not harness.is_running(child) for child in below),
            "resident KiB": harness.resident_kib(pid),
            "shared KiB": harness.shared_memory_kib(pid),
            "GPU MiB": sum(gpu["memory_used_bytes"] for gpu in gpus) // MIB,
            "GPU share": sum(gpu["share_used"] for gpu in gpus),
        }

    def no_more(self, test, what):
        """After `what` there is no more of anything, once the time limits of connections that were
        left open are over."""
        try:
            eventually(self.server.settled, PATIENCE_SECONDS, "the server at rest again")
        except AssertionError as error:
            lines = self.server.log().splitlines()
            left = harness.listing(self.server)["leases"]
            test.fail("\n".join([f"{error} after {what}: {left}", *lines[-20:]]))
        room = {"resident KiB": RESIDENT_KIB_MAX}
        after = {}

        def as_before():
            after.update(self.look())
            return all(
                after[name] <= value + room.get(name, 0) for name, value in self.before.items()
            )

        try:
            eventually(as_before, PATIENCE_SECONDS, "no more than before")
        except AssertionError:
            test.fail(f"after {what} there is more than before: {self.before} -> {after}")
        finally:
            tell(
                f"{what}: "
                + ", ".join(f"{name} {self.before[name]} -> {after[name]}" for name in after)
            )


@harness.needs_client
class Cycles(unittest.TestCase):
    def attach_once(self, server, number):
        environment = harness.clean_environment(
            LD_LIBRARY_PATH=str(harness.CLIENT.parent),
            TENDRIL_SERVERS=server.endpoint,
            TENDRIL_SLICE="0.1",
            TENDRIL_TRANSPORT="tcp" if number % 2 else "shm",
        )
        done = subprocess.run(
            [PROGRAMS / "vector_add", "100"],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def test_no_leak(self):
        with Server() as server, concurrent.futures.ThreadPoolExecutor(2) as pool:
            attach = functools.partial(self.attach_once, server)
            self.assertEqual([status for status, _ in pool.map(attach, range(20))], [0] * 20)
            before, began = Holdings(server), time.monotonic()
            for status, out in pool.map(attach, range(CYCLES)):
                self.assertEqual(status, 0, out)
            took = time.monotonic() - began
            before.no_more(self, f"{CYCLES} attach cycles in {took:.0f} s")


class Strangers:
    """Peers that send what was recorded on the wire: cut off, changed or continued with noise.
    Often they just stay."""

    HELD_MAX = 24

    def __init__(self, server, chance):
        self.server, self.chance, self.held, self.count = server, chance, [], 0
        with Relay(server.port) as relay:
            status, out, err = tendril(
                "run",
                "-p",
                "0.05",
                "--server",
                f"127.0.0.1:{relay.port}",
                "--",
                str(PROGRAMS / "vector_add"),
                "100",
                TENDRIL_TRANSPORT="tcp",
            )
            if status != 0:
                raise AssertionError(out + err)
            self.heard = [bytes(sent) for sent in relay.sent if sent]

    def bytes_of_one(self):
        heard = bytearray(self.chance.choice(self.heard))
        kind = self.chance.randrange(4)
        if kind == 0:
            return self.chance.randbytes(self.chance.randrange(1, 5000))
        if kind == 1:
            return heard[: self.chance.randrange(len(heard))]
        if kind == 2:
            return heard + self.chance.randbytes(self.chance.randrange(1, 5000))
        for _ in range(self.chance.randrange(1, 8)):
            heard[self.chance.randrange(len(heard))] = self.chance.randrange(256)
        return heard

    def visit(self):
        self.count += 1
        connection = harness.raw_connection(self.server)
        with contextlib.suppress(OSError):  # it may be sent away before it has said everything
            connection.sendall(self.bytes_of_one())
        leaving = self.chance.randrange(3)
        if leaving == 0:  # half open: says no more, and never closes
            self.held.append(connection)
            while len(self.held) > self.HELD_MAX:
                self.held.pop(0).close()
            return
        if leaving == 1:  # a reset in place of an end
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    def leave(self):
        for connection in self.held:
            connection.close()


class Storm:
    """Programs on one server that are left alone or die at a random moment. The processes that
    serve them die, too."""

    FATES = (
        "none",
        "none",
        "program killed",
        "run killed",
        "worker killed",
        "worker stopped",
        "run terminated",
    )

    def __init__(self, server, seed):
        self.server, self.seed, self.outcomes, self.wrong = server, seed, collections.Counter(), []

    def worker_of(self, program):
        found = re.findall(rf"pid {program}\), worker (\d+)", self.server.log())
        return int(found[-1]) if found else None

    def strike(self, fate, process):
        """Does to one program what was drawn for it."""
        program = (harness.children(process.pid) or [None])[0] if process.poll() is None else None
        worker = self.worker_of(program) if program else None
        victims = {
            "program killed": [(program, signal.SIGKILL)],
            "run killed": [(process.pid, signal.SIGKILL)],
            "worker killed": [(worker, signal.SIGKILL)],
            "run terminated": [(process.pid, signal.SIGTERM)],
            "worker stopped": [(worker, signal.SIGSTOP), (program, signal.SIGKILL)],
        }[fate]
        if any(pid is None for pid, _ in victims):
            return False
        with contextlib.suppress(ProcessLookupError):
            for pid, what in victims:
                os.kill(pid, what)
            return True
        return False

    def about(self, process):
        """What is known of a program that hangs: its threads and where they sleep, and the server's
        log about it."""
        pids, words = [process.pid, *harness.children(process.pid)], []
        for pid in pids:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    words.append(
                        " ".join(
                            task.joinpath(name).read_text().strip() for name in ("comm", "wchan")
                        )
                    )
        lines = self.server.log().splitlines()
        words += [line for line in lines if any(re.search(rf"\b{pid}\b", line) for pid in pids)]
        return "\n".join([*words, str(harness.listing(self.server)["leases"]), *lines[-15:]])

    def one(self, number):
        chance = random.Random(f"{self.seed} {number}")
        fate, work = chance.choice(self.FATES), chance.choice(WORK)
        process = start(
            "run",
            "-p",
            "0.05",
            "--",
            str(PROGRAMS / work[0]),
            *work[1:],
            server=self.server,
            TENDRIL_TRANSPORT=chance.choice(("tcp", "shm")),
        )
        moment = chance.random() * chance.choice((0.06, 0.6))
        try:
            struck = False
            if fate != "none":
                time.sleep(moment)
                struck = self.strike(fate, process)
            out, _ = process.communicate(timeout=CLIENT_SECONDS_MAX)
            self.judge(
                f"{number}: {' '.join(work)}, {fate} after {moment:.3f} s",
                fate if struck else "none",
                process.returncode,
                out,
            )
        except subprocess.TimeoutExpired:
            self.wrong.append(
                f"{number}: {' '.join(work)}, {fate} after {moment:.3f} s: hangs:"
                f" {self.about(process)}"
            )
        finally:
            harness.end(process)

    def judge(self, what, fate, status, out):
        """A program that was left alone succeeds. One whose worker died says what happened and
        where, and ends."""
        kind = "succeeded" if status == 0 else "failed"
        if (
            status == harness.NO_LEASE and "free" in out
        ):  # a stranger has leased the GPUs for the moment
            kind = "refused"
        elif fate == "none" and not (status == 0 and "PASS" in out):
            self.wrong.append(f"{what}: status {status}: {out}")
        elif fate == "worker killed" and status != 0 and self.server.endpoint not in out:
            self.wrong.append(
                f"{what}: status {status} without a message that names the server: {out}"
            )
        self.outcomes[f"{fate}, {kind}"] += 1

    def rage(self, seconds, threads=3, meanwhile=lambda: None):
        deadline = time.monotonic() + seconds
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            running, number = set(), 0
            while time.monotonic() < deadline:
                while len(running) < threads:
                    running.add(pool.submit(self.one, number))
                    number += 1
                meanwhile()
                done, running = concurrent.futures.wait(
                    running, 0.02, concurrent.futures.FIRST_COMPLETED
                )
                for one in done:
                    one.result()
            for one in running:
                one.result()
        return number


@harness.needs_client
class SuddenDeaths(unittest.TestCase):
    def test_programs_and_workers_among_strangers(self):
        # A stranger that takes a lease and then resets its connection looks like a cut network.
        with Server("--outage", f"{OUTAGE_SECONDS}s", gpus=2) as server:
            self.assertEqual(
                tendril("run", "--", str(PROGRAMS / "vector_add"), "100", server=server)[0], 0
            )
            strangers = Strangers(server, random.Random(SEED))
            before, storm = Holdings(server), Storm(server, SEED)
            count = storm.rage(STORM_SECONDS, meanwhile=strangers.visit)
            strangers.leave()
            tell(
                f"storm of {STORM_SECONDS:.0f} s, seed {SEED}: {count} programs, {strangers.count}"
                " strangers: "
                + "; ".join(f"{kind}: {n}" for kind, n in sorted(storm.outcomes.items()))
            )
            self.assertEqual(storm.wrong, [], f"TENDRIL_SEED={SEED}")
            self.assertGreater(storm.outcomes["none, succeeded"], 0)
            self.assertGreater(strangers.count, 20)
            before.no_more(self, "the storm")

    def test_servers(self):
        """If the server is killed, everybody who is attached, attaching or leaving comes to an end,
        and so do all workers."""
        chance, rounds = random.Random(SEED), 0
        deadline = time.monotonic() + STORM_SECONDS / 2
        while time.monotonic() < deadline or rounds < 3:
            rounds += 1
            with Server() as server, contextlib.ExitStack() as cleanup:
                programs = []
                for number in range(3):
                    programs.append(
                        start(
                            "run",
                            "-p",
                            "0.2",
                            "--",
                            str(PROGRAMS / "hold"),
                            "16",
                            "60",
                            server=server,
                            TENDRIL_TRANSPORT=("tcp", "shm")[number % 2],
                        )
                    )
                    cleanup.callback(harness.end, programs[-1])
                time.sleep(chance.random() * chance.choice((0.1, 0.8)))
                below = harness.children(server.pid)
                server.process.kill()
                server.process.wait()
                for program in programs:
                    out, _ = program.communicate(timeout=20)
                    self.assertNotEqual(program.returncode, 0, out)
                    self.assertIn(server.endpoint, out, f"TENDRIL_SEED={SEED}, round {rounds}")
                eventually(
                    lambda: not any(harness.is_running(pid) for pid in below), 5, "the workers' end"
                )
        tell(f"{rounds} servers killed with 3 programs each: all ended with a message")


@contextlib.contextmanager
def small_disk(kib):
    """A folder on a file system of its own; None without the rights for that."""
    with tempfile.TemporaryDirectory() as folder:
        mounted = (
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=700", "tmpfs", folder],
                capture_output=True,
                check=False,
            ).returncode
            == 0
        )
        try:
            yield pathlib.Path(folder) if mounted else None
        finally:
            if mounted:
                subprocess.run(["umount", "-l", folder], check=True)


@harness.needs_client
class FullDisk(unittest.TestCase):
    def test_store_of_device_code(self):
        with small_disk(8) as folder:
            if folder is None:
                self.skipTest("mounting a small file system takes root")
            with Server("--images", str(folder)) as server:
                for _ in range(3):
                    status, out, err = tendril(
                        "run", "--", str(PROGRAMS / "streams_overlap"), server=server
                    )
                    self.assertEqual(status, 0, out + err)
                self.assertRegex(
                    server.log(), f"cannot write .* to {folder} .No space left.*kept in memory"
                )
                self.assertEqual([path.name for path in folder.rglob("*.part")], [])

    def test_everything_that_programs_and_servers_write(self):
        """On a full disk logs, recordings, statistics and traces lose lines. Programs and server go
        on."""
        with small_disk(8) as folder, open("/dev/full", "wb") as full:
            if folder is None:
                self.skipTest("mounting a small file system takes root")
            with contextlib.suppress(OSError):
                (folder / "filler").write_bytes(bytes(MIB))
            with Server(
                "--worker-user",
                "none",
                "--weak-isolation",
                environment={"TENDRIL_RECORD": str(folder)},
            ) as server:
                more = {"TENDRIL_STATS": str(folder / "statistics"), "TENDRIL_TRACE": "1"}
                done = subprocess.run(
                    [
                        harness.TENDRIL,
                        "run",
                        "--server",
                        server.endpoint,
                        "--",
                        PROGRAMS / "vector_add",
                        "1000",
                    ],
                    stdout=subprocess.PIPE,
                    stderr=full,
                    text=True,
                    timeout=60,
                    env=harness.clean_environment(**more),
                    check=False,
                )
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertIn("PASS", done.stdout)
                self.assertEqual(
                    tendril("run", "--", str(PROGRAMS / "vector_add"), "1000", server=server)[0], 0
                )


if __name__ == "__main__":
    unittest.main()
