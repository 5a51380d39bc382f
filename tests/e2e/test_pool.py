# SPDX-License-Identifier: Apache-2.0
"""A pool of real processes, as its users meet it: where leases are, who waits and why, what ends
them, and what a lost scheduler or server costs."""

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
import unittest

from harness import (
    LEASE,
    NEWS,
    NO_LEASE,
    PROGRAMS,
    PROTOCOL,
    Control,
    clean_environment,
    end,
    eventually,
    needs_client,
    needs_plain_client,
    number,
    record,
    records,
    start,
    tendril,
)
from support.pools import Lab, policy
from test_pool_member import REPORT
from test_queueing import UNKNOWN

HOLD = (PROGRAMS / "hold", "8")  # and the seconds
MISMATCH = 7
# One slice of a quarter, by hand.
REQUEST = number(1, 1, "<I") + record(2, [number(1, 250_000, "<I"), number(2, 0)])


class PoolTest(unittest.TestCase):
    LAB = None  # options of the one that the class' tests share

    @classmethod
    def setUpClass(cls):
        if cls.LAB is not None:
            cls.lab_ = Lab(**cls.LAB)
            cls.addClassCleanup(cls.lab_.__exit__)

    def lab(self, text=None, **more):
        """The shared one, empty, under this policy; or one of its own."""
        if more:
            return self.enterContext(Lab(text=text, **more))
        eventually(lambda: not self.lab_.leases(), 10, "the end of the last test's leases")
        self.lab_.pools[0].apply(text or policy())
        return self.lab_

    def begin(self, lab, *arguments, **environment):
        """A run in the background, which ends with the test."""
        process = lab.start(*arguments, **environment)
        self.addCleanup(end, process)
        return process

    def holds(self, lab, *options, seconds=60):
        """A run that holds its lease; returns when its program uses it."""
        process = self.begin(lab, *options, "--", *HOLD, str(seconds))
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("holding"):
                return process
        self.fail("it did not start: " + "".join(lines))

    def waits(self, lab, *options, program=("true",)):
        """A run that waits; (process, its first two lines)."""
        process = self.begin(lab, *options, "--", *program)
        return process, [process.stdout.readline() for _ in range(2)]


@needs_client
class Placement(PoolTest):
    LAB = {"options": {"gpu2": ("--label", "rack=b7")}}

    def test_a_gang_over_two_servers(self):
        status, out, err = self.lab_.run("-n", "2", "--", PROGRAMS / "multi_gpu")
        self.assertEqual(status, 0, err)
        self.assertIn("2 devices", out)
        status, out, err = self.lab_.run("-v", "-n", "2", "--", "true")
        self.assertRegex(err, r"tendril: leases \d+ \(gpu\d, gpu\d\)")
        eventually(lambda: not self.lab_.leases(), 10, "the end of all leases")

    def test_filters_choose_servers(self):
        for words, name in ((["label.rack = b7"], "gpu2"), (['server = "gpu1"'], "gpu1")):
            status, _, err = self.lab_.run("-v", "-p", "0.5", "--filter", *words, "--", "true")
            self.assertEqual(status, 0, err)
            self.assertIn(f"({name})", err)

    def test_what_never_fits_is_refused_at_once(self):
        for words in (
            ["-n", "3"],
            ["-n", "2", "--one-server"],
            ["--filter", 'model = "abacus"'],
            ["-m", "900G"],
        ):
            status, _, err = self.lab_.run(*words, "--", "true")
            self.assertEqual(status, NO_LEASE, err)
            self.assertRegex(err, "never has room|no GPU of any")
        status, _, err = self.lab_.run("--filter", "model ~", "--", "true")
        self.assertEqual(status, NO_LEASE)
        self.assertIn("column", err)

    def test_layouts(self):
        for layout, servers in (("--spread", 2), ("--pack", 1)):
            status, _, err = self.lab_.run("-v", "-n", "1", "-p", "0.2", layout, "--", "true")
            self.assertEqual(status, 0, err)
        status, _, err = self.lab_.run("-v", "-n", "2", "-p", "0.2", "--spread", "--", "true")
        self.assertEqual((status, err.count("GPU 0 of")), (0, servers + 1), err)

    def test_other_descriptions_of_the_calls_are_refused_before_a_lease(self):
        pool = self.lab_.pools[0]
        with Control(pool, hears_news=True) as client:
            api = record(10, [record(1, "cuda"), number(2, 4711)])
            code, answer = client.ask(LEASE, REQUEST + record(5, api))
        self.assertEqual(code, MISMATCH, answer)
        self.assertRegex(answer, b"NeverFits: no server .* understands this client's calls of cuda")
        self.assertIn(b"use the client of that version", answer)
        self.assertEqual(self.lab_.leases(), [])

    def test_neighbours_of_the_next_minor_version(self):
        """A client and a server with a newer protocol and records that this build does not know."""
        pool = self.lab_.pools[0]
        newest = {"newest": PROTOCOL + 1, "more": UNKNOWN}
        with Control(pool, **newest) as server, Control(pool, True, **newest) as client:
            gpu = record(12, [number(1, 0, "<I"), record(2, "soft"), number(5, 8 << 30), UNKNOWN])
            facts = [record(1, "newer"), record(2, "127.0.0.1:1"), record(5, "9.9"), gpu, UNKNOWN]
            report = number(1, 7) + number(2, 1) + number(3, 1, "<B") + record(6, facts) + UNKNOWN
            self.assertEqual(server.ask(REPORT, report)[0], 0)
            eventually(lambda: self.lab_.states()["newer"] != "silent", 5, "the newer server")
            client.send(LEASE, REQUEST + record(5, record(1, "server = gpu1") + UNKNOWN) + UNKNOWN)
            kind = NEWS
            while kind == NEWS:
                kind, code, body = client.message()
            self.assertEqual((kind, code), (LEASE, 0), body)
            self.assertEqual(records(records(body)[4][0])[1], [b"gpu1"])
        self.lab_.command("forget", "newer")
        eventually(lambda: len(self.lab_.leases()) == 1, 10, "the end of the last test's leases")
        lease = str(self.lab_.leases()[0]["lease"])
        self.lab_.command("release", lease)
        eventually(lambda: not self.lab_.leases(), 10)

    def test_servers_send_their_users_to_the_pool(self):
        status, _, err = tendril("run", "--", "true", server=self.lab_.servers[0])
        self.assertEqual(status, NO_LEASE)
        self.assertIn(self.lab_.pools[0].endpoint, err)


@needs_client
class Queue(PoolTest):
    LAB = {"servers": 1}

    def test_who_waits_is_told_and_goes_in_order(self):
        lab = self.lab()
        first = self.holds(lab)
        second, told = self.waits(lab, program=("sh", "-c", "echo second; sleep 1"))
        self.assertIn("tendril: waiting, position 1 of 1", told[0])
        self.assertIn("tendril: reason Resources", told[1])
        third, told = self.waits(lab, program=("echo", "third"))
        self.assertIn("position 2 of 2", told[0])
        self.assertEqual([each["place"] for each in lab.waiting()], [1, 2])
        status, _, err = lab.run("--wait", "0", "--", "true")
        self.assertEqual(status, NO_LEASE)
        self.assertIn("has nothing free for this request now", err)
        first.terminate()
        self.assertIn("second", second.communicate(timeout=20)[0])
        out = third.communicate(timeout=20)[0]
        self.assertIn("tendril: waiting, position 1 of 1", out)
        self.assertRegex(out, r"tendril: leases \d+ \(gpu1\) after \d+ s\nthird")

    def test_watching_the_queue(self):
        lab = self.lab()
        self.holds(lab)
        watches = {
            words: start(*words, "--watch", "--interval", "0.1", TENDRIL_SERVERS=lab.addresses)
            for words in (("queue",), ("pool", "status", "--json"), ("ls",))
        }
        for process in watches.values():
            self.addCleanup(end, process)
        first = {words: process.stdout.readline() for words, process in watches.items()}
        self.assertEqual(json.loads(first["pool", "status", "--json"])["waiting"], 0)
        waiting, _ = self.waits(lab)
        queue = watches["queue",]
        self.assertTrue(any("Resources" in line for line in queue.stdout))
        status = watches["pool", "status", "--json"]
        self.assertTrue(any(json.loads(line)["waiting"] == 1 for line in status.stdout))
        end(waiting)
        self.assertTrue(any("nobody waits" in line for line in queue.stdout))
        for process in watches.values():
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            self.assertEqual(process.wait(10), 0)

    def test_what_is_held_starts_when_it_is_let_go(self):
        lab = self.lab()
        first = self.holds(lab)
        waiting, _ = self.waits(lab)
        number = str(lab.waiting()[0]["request"])
        self.assertTrue(lab.command("hold", number, "too", "large")["held"])
        line = next(each for each in waiting.stdout if "held by" in each)
        self.assertRegex(line, r"waiting: Schedule: held by \S+: too large")
        end(first)
        eventually(lambda: not lab.leases(), 10)
        time.sleep(0.5)
        self.assertEqual([each["held"] for each in lab.waiting()], [True])
        lab.command("unhold", number)
        waiting.stdout.read()
        self.assertEqual(waiting.wait(10), 0)

    def test_an_operator_requeues_a_program(self):
        lab = self.lab(policy('grace_time = "1s"\n'))
        counts = ("sh", "-c", "echo run ${TENDRIL_RESTART_COUNT:-0}; exec sleep 60")
        program = self.begin(lab, "--requeue", "--", *counts)
        self.assertTrue(any("run 0" in line for line in program.stdout))
        lab.command("requeue", str(lab.leases()[0]["lease"]), "another", "driver")
        lines = []
        for line in program.stdout:
            lines.append(line)
            if "run 1" in line:
                break
        self.assertIn("another driver", "".join(lines))

    def test_ctrl_c_leaves_the_queue(self):
        lab = self.lab()
        self.holds(lab)
        second, _ = self.waits(lab)
        eventually(lambda: len(lab.waiting()) == 1, 5)
        second.send_signal(signal.SIGINT)
        eventually(lambda: not lab.waiting(), 5, "an empty queue")

    def test_limits_of_a_user(self):
        lab = self.lab(text=policy("max_per_user = { leases = 1 }"))
        first = self.holds(lab, "-p", "0.5")
        second, told = self.waits(lab, "-p", "0.5")
        self.assertIn("reason UserLimit", told[1])
        first.terminate()
        self.assertEqual(second.wait(20), 0)

    @needs_plain_client
    def test_without_launcher_the_first_call_waits_and_children_share(self):
        lab = self.lab()
        first = self.holds(lab)
        _, out, _ = tendril("env", "--json", TENDRIL_SERVERS=lab.addresses)
        script = (
            "import ctypes, subprocess, sys; assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0; "
            f"sys.exit(subprocess.call(['{PROGRAMS / 'vector_add'}']))"
        )
        program = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=clean_environment(**json.loads(out)),
        )
        self.addCleanup(end, program)
        self.assertIn("tendril: waiting, position 1 of 1", program.stdout.readline())
        first.terminate()
        out = program.communicate(timeout=30)[0]
        self.assertEqual(program.returncode, 0, out)
        eventually(lambda: not lab.leases(), 10, "the end of the lease")


@needs_client
class Ends(PoolTest):
    LAB = {"servers": 1}

    def test_idle_leases_end_with_a_warning(self):
        lab = self.lab(
            text=policy('idle_unused_timeout = "2s"\nidle_grace = "2s"\nidle_action = ["end"]'),
        )
        process = self.begin(lab, "--", "sleep", "60")
        eventually(lambda: lab.leases(), 10)
        eventually(lambda: not lab.leases(), 20, "the end of the idle lease")
        process.terminate()
        out = process.communicate(timeout=10)[0]
        self.assertEqual(out.count("tendril: "), 2, out)

    def test_the_longest_time(self):
        lab = self.lab(text=policy('warn_time = "2s"'))
        script = "trap 'echo saved; exit 0' USR1; echo up; while :; do sleep 0.1; done"
        process = self.begin(lab, "--max", "4s", "--signal", "USR1@1", "--", "sh", "-c", script)
        out = process.communicate(timeout=20)[0]
        self.assertIn("saved", out)
        self.assertEqual(process.returncode, 0)

    def test_a_released_lease_says_so(self):
        lab = self.lab()
        process = self.holds(lab)
        lease = lab.leases()[0]["lease"]
        lab.command("release", str(lease))
        out = process.communicate(timeout=20)[0]
        self.assertIn("tendril: ", out)
        eventually(lambda: not lab.leases(), 10)


@needs_client
class Losses(PoolTest):
    def test_one_of_two_servers_is_lost(self):
        lab = self.lab(servers=2)
        gang = self.holds(lab, "-n", "2", "-p", "0.2")
        staying = self.holds(lab, "--filter", 'server = "gpu2"', "-p", "0.5", seconds=4)
        lost = self.holds(lab, "--filter", 'server = "gpu1"', "-p", "0.5")
        lab.servers[0].kill()
        status, _, err = lab.run("-v", "-p", "0.5", "--", PROGRAMS / "vector_add")
        self.assertEqual(status, 0, err)
        self.assertIn("(gpu2)", err)
        self.assertNotEqual(lost.wait(20), 0)
        self.assertEqual(staying.wait(20), 0)
        # A gang is told, and its program decides whether it goes on.
        gang.terminate()
        self.assertIn("the program's GPUs there are lost", gang.communicate(timeout=20)[0])

    def test_an_upgrade_of_one_server_after_the_other(self):
        drains = ("--drain", "30s")
        lab = self.lab(servers=2, options={"gpu1": drains, "gpu2": drains})
        for index, server in enumerate(lab.servers):
            other = lab.servers[1 - index].name
            here = ("--filter", f'server = "{server.name}"')
            holder = self.holds(lab, *here, "-p", "0.5", seconds=2)
            server.process.terminate()
            eventually(lambda server=server: self.is_draining(lab, server.name), 5, "the drain")
            status, _, err = lab.run("-v", "-p", "0.5", "--", PROGRAMS / "vector_add")
            self.assertEqual(status, 0, err)
            self.assertIn(f"({other})", err)
            self.assertEqual(holder.wait(20), 0)
            self.assertEqual(server.process.wait(20), 0)
            server.restart()
            lab.await_servers()

    @staticmethod
    def is_draining(lab, name):
        return {each["name"]: each["draining"] for each in lab.status()["servers"]}[name]

    def test_a_lost_server_requeues_who_asked_for_it(self):
        lab = self.lab(servers=2)
        script = 'echo "start $TENDRIL_RESTART_COUNT"; exec sleep 60'
        process = self.begin(lab, "-v", "--requeue", "--", "sh", "-c", script)
        where = process.stdout.readline()
        lab.servers[int(where.split("(gpu")[1][0]) - 1].kill()
        while "start 1" not in (line := process.stdout.readline()):
            self.assertNotEqual(line, "")

    def test_another_scheduler_takes_over(self):
        lab = self.lab(schedulers=2)
        holder = self.holds(lab, "-n", "2", seconds=25)
        waiter, _ = self.waits(lab, "-p", "0.5", program=("echo", "through"))
        before = lab.leases()
        scheduling = next(
            each for each in lab.pools if each.command("status")["scheduler"] is not None
        )
        begun = time.monotonic()
        scheduling.kill()
        eventually(lambda: self.status_or_none(lab), 15, "another scheduler")
        self.assertLess(time.monotonic() - begun, 12)
        eventually(lambda: len(lab.leases()) == 1, 15, "the lease that ran")
        self.assertEqual(lab.leases()[0]["lease"], before[0]["lease"])
        self.assertEqual(len(lab.waiting()), 1)
        # Whoever schedules speaks for all addresses.
        status, out, err = tendril("ls", "--json", TENDRIL_SERVERS=lab.addresses)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(len(json.loads(out)["servers"]), 1)
        released = tendril("release", str(before[0]["lease"]), TENDRIL_SERVERS=lab.addresses)
        self.assertEqual(released, (0, "", ""))
        self.assertNotEqual(holder.wait(20), 0)
        out = waiter.communicate(timeout=30)[0]
        self.assertIn("through", out)
        self.assertEqual(waiter.returncode, 0, out)

    @staticmethod
    def status_or_none(lab):
        try:
            return lab.status()
        except AssertionError:
            return None

    @staticmethod
    def used(lab):
        """The records of ended leases, from the store."""
        uri = f"file:{lab.pools[0].folder}/pool.db?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as store:
            rows = store.execute("SELECT CAST(key AS TEXT), value FROM entries").fetchall()
        return [json.loads(value) for key, value in rows if key.startswith("used/")]

    def test_without_a_scheduler_servers_lend_by_themselves(self):
        lab = self.lab(servers=2)
        holder = self.holds(lab, "-p", "0.5")
        lab.servers.sort(key=lambda server: not server.leases())
        lab.pools[0].kill()

        def lends(server):
            return tendril("run", "-p", "0.5", "--", "true", server=server)[0] == 0

        for server in lab.servers:
            eventually(lambda server=server: lends(server), 20, "a lease without the pool")
        # What ended is counted when a scheduler is back, though the server starts again before.
        eventually(lambda: not lab.servers[1].leases(), 10, "the end of the lease")
        lab.servers[1].kill()
        lab.servers[1].restart()
        local = start("run", "-p", "0.4", "--", "sleep", "30", server=lab.servers[0])
        self.addCleanup(end, local)
        eventually(lambda: len(lab.servers[0].leases()) == 2, 10)
        lab.pools[0].restart()
        lab.await_servers()
        eventually(lambda: len(lab.leases()) == 2, 15, "both leases in the pool's books")
        names = {server.name for server in lab.servers}
        eventually(lambda: {x["server"] for x in self.used(lab)} == names, 15, "what ended")
        self.assertEqual({(x["local"], x["exact"]) for x in self.used(lab)}, {(True, True)})
        self.assertIsNone(holder.poll())


if __name__ == "__main__":
    unittest.main()
