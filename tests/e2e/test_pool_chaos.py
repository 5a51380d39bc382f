# SPDX-License-Identifier: Apache-2.0
"""A pool of real processes under faults: servers with software GPUs, three schedulers, and three
members of etcd where there is one. Each cycle kills, stops or restarts some of them while programs
come, wait and go. The seed is printed; TENDRIL_POOL_SEED repeats it. TENDRIL_POOL_CYCLES and
TENDRIL_POOL_SERVERS make it longer (scripts/longtest)."""

import datetime
import os
import random
import re
import signal
import sys
import threading
import time
import unittest

from harness import PROGRAMS, end, eventually, listing, needs_client, start
from pools import Etcd, Lab, policy

CYCLES = int(os.environ.get("TENDRIL_POOL_CYCLES", "10"))
SERVERS = int(os.environ.get("TENDRIL_POOL_SERVERS", "6"))
SEED = int(os.environ.get("TENDRIL_POOL_SEED", "0")) or random.randrange(1, 1 << 31)
CYCLE_S = 2.0
USERS = 5
DONE, LOST, KILLED = "done", "lost", "killed"


class Program:
    """One `tendril run`, and how it ended."""

    def __init__(self, lab, choice):
        self.slices = choice.choice((1, 1, 1, 2, 3))
        self.begun = time.monotonic()
        self.killed = False
        share, seconds = choice.choice(("0.2", "0.5", "1")), choice.choice(("0.3", "1", "2"))
        self.words = ["-v", "-n", str(self.slices), "-p", share, "--", "sleep", seconds]
        if choice.random() < 0.4:
            self.words[-2:] = [PROGRAMS / "vector_add"]
        self.process = lab.start(*self.words)

    def wait(self, seconds):
        """(its outcome, what it said)"""
        out = self.process.communicate(timeout=seconds)[0]
        self.ended = time.monotonic()
        self.servers = set()
        for line in re.findall(r"leases \d+ \(([^)]*)\)", out):
            self.servers |= set(line.split(", "))
        if self.process.returncode == 0:
            return DONE, out
        return KILLED if self.killed else LOST, out


class Faults:
    """What was done to servers, so that a program's loss can be judged."""

    def __init__(self):
        self.spans = {}  # server: [(from, to)]

    def begin(self, name):
        self.spans.setdefault(name, []).append([time.monotonic(), None])

    def finish(self, name):
        self.spans[name][-1][1] = time.monotonic()

    def hit(self, names, begun, ended):
        for name in names:
            for start_s, end_s in self.spans.get(name, ()):
                if start_s <= ended and (end_s is None or begun <= end_s + 15):
                    return True
        return False


@needs_client
class Chaos(unittest.TestCase):
    def setUp(self):
        print(f"pool: TENDRIL_POOL_SEED={SEED} cycles {CYCLES} servers {SERVERS}", file=sys.stderr)
        self.choice = random.Random(SEED)
        self.faults, self.counts, self.problems = Faults(), {}, []
        self.etcd = self.enterContext(Etcd()) if Etcd.PRESENT else None
        if self.etcd is None:
            print("pool: no etcd here: the schedulers share SQLite", file=sys.stderr)
        self.lab = self.enterContext(
            Lab(
                servers=SERVERS,
                schedulers=3,
                text=policy("max_wall = '1h'"),
                store=self.etcd.store if self.etcd else None,
            )
        )
        self.stopping = threading.Event()

    # ---- those who use it ----

    def use(self, seed):
        choice = random.Random(seed)
        while not self.stopping.is_set():
            program = Program(self.lab, choice)
            if choice.random() < 0.15:  # somebody changes his mind, or his machine dies
                time.sleep(choice.random() * 2)
                program.killed = True
                number = choice.choice((signal.SIGINT, signal.SIGKILL, signal.SIGTERM))
                program.process.send_signal(number)
            try:
                outcome, out = program.wait(90)
            except Exception as problem:  # pylint: disable=broad-except
                self.problems.append(f"{program.words}: {problem}")
                end(program.process)
                return
            self.counts[outcome] = self.counts.get(outcome, 0) + 1
            if outcome is LOST and not self.faults.hit(
                program.servers, program.begun, program.ended
            ):
                self.problems.append(f"{program.words}: {program.process.returncode}: {out}")

    # ---- those who break it ----

    def break_server(self):
        server = self.choice.choice(self.lab.servers)
        self.faults.begin(server.name)
        server.kill()
        self.rest()
        server.restart()
        self.faults.finish(server.name)

    def stop_server(self):
        server = self.choice.choice(self.lab.servers)
        self.faults.begin(server.name)
        server.process.send_signal(signal.SIGSTOP)
        self.rest()
        server.process.send_signal(signal.SIGCONT)
        self.faults.finish(server.name)

    def break_scheduler(self):
        pool = self.choice.choice(self.lab.pools)
        pool.kill()
        self.rest()
        pool.restart()

    def stop_scheduler(self):
        pool = self.choice.choice(self.lab.pools)
        pool.process.send_signal(signal.SIGSTOP)
        self.rest()
        pool.process.send_signal(signal.SIGCONT)

    def break_store(self):
        if self.etcd is None:
            return self.break_scheduler()
        index = self.choice.randrange(3)
        self.etcd.kill(index)
        self.rest()
        return self.etcd.begin(index)

    def lose_quorum(self):
        if self.etcd is None:
            return self.stop_scheduler()
        gone = self.choice.sample(range(3), 2)
        for index in gone:
            self.etcd.members[index].send_signal(signal.SIGSTOP)
        self.rest()
        for index in gone:
            self.etcd.members[index].send_signal(signal.SIGCONT)
        return None

    def rest(self):
        time.sleep(CYCLE_S * (0.3 + self.choice.random()))

    # ---- what must hold ----

    def check_books(self):
        """No GPU is promised twice, by the servers' own books."""
        for server in self.lab.servers:
            try:
                gpus = listing(server, "smi")["gpus"]
            except AssertionError:
                continue
            for gpu in gpus:
                self.assertLessEqual(gpu["share_used"], 1.0, server.name)

    def settled(self):
        return not self.lab.leases() and not self.lab.waiting()

    def test_chaos(self):
        users = [
            threading.Thread(target=self.use, args=(self.choice.random(),)) for _ in range(USERS)
        ]
        for user in users:
            user.start()
        try:
            kinds = [self.break_server, self.stop_server, self.break_scheduler]
            kinds += [self.stop_scheduler, self.break_store, self.lose_quorum]
            for _ in range(CYCLES):
                self.choice.choice(kinds)()
                self.check_books()
                self.assertEqual(self.problems, [])
        finally:
            self.stopping.set()
            for user in users:
                user.join(120)
        self.assertEqual(self.problems, [])
        eventually(lambda: self.quietly(self.settled), 40, "the end of all leases")
        for server in self.lab.servers:
            eventually(lambda server=server: not server.leases(), 20, f"{server.name} empty")
        self.assertGreaterEqual(self.counts.get(DONE, 0), CYCLES // 2, self.counts)
        print(f"pool: ended {self.counts}", file=sys.stderr)
        # The pool still works, on all servers.
        self.lab.await_servers(30)
        gang = self.lab.start("-n", str(SERVERS), "--wait", "30s", "--", "sleep", "60")
        self.addCleanup(end, gang)
        eventually(lambda: [x["state"] for x in self.lab.leases()] == ["running"], 30, "a gang")
        parts = {part["server"]: part["lease"] for part in self.lab.leases()[0]["parts"]}
        for server in self.lab.servers:
            self.assertEqual([each["lease"] for each in server.leases()], [parts[server.name]])

    @staticmethod
    def quietly(question):
        """No answer is False: another scheduler is just taking over."""
        try:
            return question()
        except AssertionError:
            return False


GANG = int(os.environ.get("TENDRIL_POOL_GANG", "8"))


@needs_client
class Gang(unittest.TestCase):
    def test_a_gang_over_many_servers(self):
        """Prints how long it takes from the start of `run` to the start of its program."""
        with Lab(servers=GANG) as lab:
            times = {}
            for slices in (1, GANG):
                taken = []
                for _ in range(5):
                    begun = time.monotonic()
                    status, out, err = lab.run("-n", str(slices), "--", "date", "+%s.%N")
                    self.assertEqual(status, 0, err)
                    taken.append(float(out) - time.time() + time.monotonic() - begun)
                    eventually(lambda: not lab.leases(), 10, "the end of the gang")
                times[slices] = min(taken) * 1000
            granted = self.granted_ms(lab.pool.log())
            text = ", ".join(f"{slices} slices {ms:.0f} ms" for slices, ms in times.items())
            print(f"pool: to the program's start, best of 5: {text}", file=sys.stderr)
            print(f"pool: from request to grant, gangs: {granted} ms", file=sys.stderr)

    @staticmethod
    def granted_ms(log):
        """From the request's arrival to its grant on all servers, by the scheduler's log."""
        line = re.compile(r"(\S+)Z info (submit request|grant lease) (\d+)")
        arrived, took = None, []
        for stamp, what, _ in line.findall(log):
            at = datetime.datetime.fromisoformat(stamp)
            if what == "submit request":
                arrived = at
            else:
                took.append(round((at - arrived).total_seconds() * 1000))
        return took[-5:]


if __name__ == "__main__":
    unittest.main()
