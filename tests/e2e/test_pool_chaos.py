# SPDX-License-Identifier: Apache-2.0
"""A pool of real processes under faults: servers with software GPUs, three schedulers, and three
members of etcd where there is one, with wires between all of them. Each cycle does one or two
things to them and undoes them, while programs come, wait and go. The seed and what it does are
printed; TENDRIL_POOL_SEED repeats it. TENDRIL_POOL_CYCLES and TENDRIL_POOL_SERVERS make it longer
(scripts/longtest)."""

import dataclasses
import datetime
import os
import pathlib
import random
import re
import signal
import sys
import threading
import time
import unittest

from harness import PROGRAMS, end, eventually, listing, needs_client
from support.pools import Etcd, Lab, policy, quietly

CYCLES = int(os.environ.get("TENDRIL_POOL_CYCLES", "10"))
SERVERS = int(os.environ.get("TENDRIL_POOL_SERVERS", "6"))
SEED = int(os.environ.get("TENDRIL_POOL_SEED", "0")) or random.randrange(1, 1 << 31)
CYCLE_S = 1.0 if CYCLES <= 10 else 2.0
LONG_EVERY, LONG_S = 10, 12  # longer than servers and schedulers count as silent
USERS = 5
DONE, LOST, KILLED = "done", "lost", "killed"
POLICIES = [
    policy("max_wall = '1h'"),
    policy("max_wall = '2h'\nmax_per_user = { leases = 3 }"),
    policy("max_wall = '1h'", "when_no_scheduler = 'refuse'"),
    policy("max_wal = '1h'"),  # wrong: it changes nothing
]


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
        for line in re.findall(r"leases \d+ \(([^)]*)\)|the lease on (\w+) was granted", out):
            self.servers |= set(", ".join(line).split(", "))
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
        for span in self.spans[name]:
            span[1] = span[1] or time.monotonic()

    def hit(self, names, begun, ended):
        for name in names:
            for start_s, end_s in self.spans.get(name, ()):
                if start_s <= ended and (end_s is None or begun <= end_s + 15):
                    return True
        return False


@dataclasses.dataclass
class Step:
    """What one cycle does, for how long."""

    deeds: list  # (name of a Deeds' method, what chooses its targets)
    rest_s: float


def plan(seed, cycles):
    """The same seed gives the same steps."""
    choice = random.Random(seed)
    steps = []
    for number in range(cycles):
        names = choice.sample(Deeds.ALL, choice.choice((1, 1, 2)))
        deeds = [(name, choice.randrange(1 << 30)) for name in names]
        rest_s = CYCLE_S * (0.3 + choice.random())
        if number % LONG_EVERY == LONG_EVERY // 2:
            rest_s = LONG_S + choice.random()
        steps.append(Step(deeds, rest_s))
    return steps


class Deeds:
    """Faults, and what administrators do. Each is done to a lab, and returns (what it did, what
    undoes it)."""

    STORE = ["kill_member", "lose_quorum", "hold_member", "cut_store", "slow_store", "fill_store"]
    ALL = [
        *("kill_server", "stop_server", "renew_server", "drain_server", "cut_reports"),
        *("hold_reports", "slow_reports", "cut_way", "kill_scheduler", "stop_scheduler"),
        *("cut_scheduler", "cut_users", "hold_users", "apply_policy", *STORE),
    ]

    UNDONE_LAST = ["fill_store", "drain_server"]  # that needs a quorum, and a store with room

    def __init__(self, lab, etcd, faults):
        self.lab, self.etcd, self.faults = lab, etcd, faults

    def do(self, name, seed):
        if self.etcd is None and name in self.STORE:
            name = "kill_scheduler"
        what, undo = getattr(self, name)(random.Random(seed))
        return f"{name} {what}", undo

    # ---- servers. What a fault may cost programs is noted ----

    def server(self, choice, is_fault=True):
        server = choice.choice(self.lab.servers)
        if is_fault:
            self.faults.begin(server.name)
        return server

    def kill_server(self, choice):
        server = self.server(choice)
        server.kill()
        return server.name, lambda: self.restart(server)

    def stop_server(self, choice):
        server = self.server(choice)
        server.process.send_signal(signal.SIGSTOP)

        def undo():
            server.process.send_signal(signal.SIGCONT)
            self.faults.finish(server.name)

        return server.name, undo

    def renew_server(self, choice):
        """A rolling upgrade: it drains, and ends after two seconds at the latest."""
        server = self.server(choice)
        server.process.terminate()

        def undo():
            server.process.send_signal(signal.SIGCONT)  # if it was stopped, too
            server.process.wait(30)
            self.restart(server)

        return server.name, undo

    def restart(self, server):
        if server.process.poll() is not None:
            server.restart()
        self.faults.finish(server.name)

    def drain_server(self, choice):
        name = self.server(choice, is_fault=False).name
        quietly(lambda: self.lab.command("drain", name, "a test"))
        return name, lambda: eventually(
            lambda: quietly(lambda: self.lab.command("undrain", name)), 40, f"{name} undrained"
        )

    def on_wires(self, wires, deed):
        for wire in wires:
            deed(wire)

        def undo():
            for wire in wires:
                wire.mend()

        return undo

    def cut_reports(self, choice):
        server = self.server(choice, is_fault=False)
        return server.name, self.on_wires(server.reports, lambda wire: wire.cut())

    def hold_reports(self, choice):
        server = self.server(choice, is_fault=False)
        return server.name, self.on_wires(server.reports, lambda wire: wire.hold())

    def slow_reports(self, choice):
        server = self.server(choice, is_fault=False)
        return server.name, self.on_wires(server.reports, lambda wire: wire.slow(0.2))

    def cut_way(self, choice):
        """Its leases end with their holders' connections."""
        server = self.server(choice)
        undo = self.on_wires(server.ways, lambda wire: wire.cut())

        def mend():
            undo()
            self.faults.finish(server.name)

        return server.name, mend

    # ---- schedulers ----

    def scheduler(self, choice):
        index = choice.randrange(len(self.lab.pools))
        return index, self.lab.pools[index]

    def kill_scheduler(self, choice):
        index, pool = self.scheduler(choice)
        pool.kill()
        return index, lambda: pool.process.poll() is None or pool.restart()

    def stop_scheduler(self, choice):
        index, pool = self.scheduler(choice)
        pool.process.send_signal(signal.SIGSTOP)
        return index, lambda: pool.process.send_signal(signal.SIGCONT)

    def cut_scheduler(self, choice):
        """From all servers."""
        index, _ = self.scheduler(choice)
        wires = [server.reports[index] for server in self.lab.servers]
        return index, self.on_wires(wires, lambda wire: wire.cut())

    def cut_users(self, choice):
        index, pool = self.scheduler(choice)
        return index, self.on_wires(pool.ways, lambda wire: wire.cut())

    def hold_users(self, choice):
        index, pool = self.scheduler(choice)
        return index, self.on_wires(pool.ways, lambda wire: wire.hold())

    def apply_policy(self, choice):
        """By SIGHUP: all schedulers read the file."""
        index = choice.randrange(len(POLICIES))
        for pool in self.lab.pools:
            pool.write("pool.toml", POLICIES[index])
            if pool.process.poll() is None:
                pool.process.send_signal(signal.SIGHUP)
        if index == len(POLICIES) - 1:  # a scheduler that starts must find a right one
            time.sleep(0.3)
            for pool in self.lab.pools:
                pool.write("pool.toml", POLICIES[0])
        return index, lambda: None

    # ---- the store ----

    def kill_member(self, choice):
        index = choice.randrange(3)
        self.etcd.kill(index)
        return index, lambda: self.etcd.begin(index)

    def lose_quorum(self, choice):
        indexes = choice.sample(range(3), 2)
        self.etcd.stop(*indexes)
        return indexes, lambda: self.etcd.go_on(*indexes)

    def hold_member(self, choice):
        """The others do not reach it."""
        index = choice.randrange(3)
        return index, self.on_wires([self.etcd.lines[index]], lambda wire: wire.hold())

    def cut_store(self, choice):
        """From one scheduler."""
        index, pool = self.scheduler(choice)
        return index, self.on_wires(pool.stores, lambda wire: wire.cut())

    def slow_store(self, choice):
        index, pool = self.scheduler(choice)
        return index, self.on_wires(pool.stores, lambda wire: wire.slow(0.3))

    def fill_store(self, _):
        if not any(self.alarm("ACTIVATE", member) for member in range(3)):
            return "(it was away)", lambda: None
        return "", lambda: eventually(
            lambda: any(self.alarm("DEACTIVATE", member) for member in range(3)), 40, "room"
        )

    def alarm(self, action, member):
        try:
            self.etcd.alarm(action, member)
            return True
        except OSError:  # it is killed, or has no quorum
            return False


class Plan(unittest.TestCase):
    def test_a_seed_repeats_its_steps(self):
        self.assertEqual(plan(SEED, CYCLES), plan(SEED, CYCLES))
        self.assertNotEqual(plan(SEED, CYCLES), plan(SEED + 1, CYCLES))


@needs_client
class Chaos(unittest.TestCase):
    def setUp(self):
        print(f"pool: TENDRIL_POOL_SEED={SEED} cycles {CYCLES} servers {SERVERS}", file=sys.stderr)
        self.faults, self.counts, self.problems, self.left = Faults(), {}, [], None
        self.etcd = self.enterContext(Etcd()) if Etcd.PRESENT else None
        if self.etcd is None:
            print("pool: no etcd here: the schedulers share SQLite", file=sys.stderr)
        drains = {f"gpu{i + 1}": ("--drain", "2s") for i in range(SERVERS)}
        self.lab = self.enterContext(
            Lab(SERVERS, 1, 3, POLICIES[0], etcd=self.etcd, options=drains, wired=True)
        )
        self.deeds = Deeds(self.lab, self.etcd, self.faults)
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
                outcome, out = program.wait(120)
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

    def cycle(self, number, step):
        undos, last = [], Deeds.UNDONE_LAST
        try:
            for name, seed in step.deeds:
                what, undo = self.deeds.do(name, seed)
                undos.insert(0, (last.index(name) if name in last else -1, undo))
                print(f"pool: cycle {number}: {what}, {step.rest_s:.1f} s", file=sys.stderr)
            time.sleep(step.rest_s)
            self.check_books()
        finally:
            for _, undo in sorted(undos, key=lambda each: each[0]):
                undo()

    # ---- what must hold ----

    def check_books(self):
        """No GPU is promised twice, by the servers' own books."""
        for server in self.lab.servers:
            if self.is_stopped(server):
                continue
            try:
                gpus = listing(server, "smi")["gpus"]
            except AssertionError:
                continue
            for gpu in gpus:
                self.assertLessEqual(gpu["share_used"], 1.0, server.name)

    @staticmethod
    def is_stopped(server):
        stat = pathlib.Path(f"/proc/{server.process.pid}/stat")
        return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] in "TZ"

    def settled(self):
        self.left = self.lab.leases() + self.lab.waiting()
        return not self.left

    def test_chaos(self):
        seeds = random.Random(-SEED)
        users = [threading.Thread(target=self.use, args=(seeds.random(),)) for _ in range(USERS)]
        for user in users:
            user.start()
        try:
            for number, step in enumerate(plan(SEED, CYCLES)):
                self.cycle(number, step)
                self.assertEqual(self.problems, [])
        finally:
            self.stopping.set()
            for user in users:
                user.join(150)
        self.assertEqual(self.problems, [])
        # A client that was killed has claimed nothing: its grant comes within 13 s (holds have 5 s,
        # commits 8 s), lasts for 60 s (wire::kUnclaimedMs), and its end is in the next report.
        begun = time.monotonic()
        try:
            eventually(lambda: quietly(self.settled), 75, "the end of all leases")
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.left}") from late
        print(f"pool: nothing is left after {time.monotonic() - begun:.0f} s", file=sys.stderr)
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
            self.assertLessEqual(min(granted), 100, "a machine with other work: the best counts")

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
