# SPDX-License-Identifier: Apache-2.0
"""What `tendril run` does with a pool, whose part is played here word by word: the lines while it
waits, several schedulers, a lost one, claims, notices, signals and starting again. So nothing here
depends on how a pool decides. The peers are newer ones, with records that this build does not
know."""

import json
import os
import re
import signal
import socket
import struct
import tempfile
import threading
import time
import unittest

import harness
from harness import (
    HELLO,
    LEASE,
    NEWS,
    NO_LEASE,
    PROTOCOL,
    Server,
    end,
    eventually,
    needs_client,
    number,
    record,
    records,
    start,
    tendril,
)

CLAIM, NOTICE = 41, 0x8001
WARNING, REQUEUE, ENDED = 1, 5, 6
REFUSED, UNAVAILABLE = 3, 4
UNKNOWN = record(4711, "from a newer version")


class Peer:
    """One connection of a client to an Actor."""

    def __init__(self, connection):
        self.socket = connection

    def exactly(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the client has gone")
            data += more
        return data

    def message(self):
        """(kind, body)"""
        _, size, kind, _, _ = struct.unpack("<IIHHI", self.exactly(16))
        return kind, self.exactly(size)

    def say(self, kind, body=b"", code=0):
        self.socket.sendall(b"TNRD" + struct.pack("<IHHI", len(body), kind, code, 0) + body)

    def refuse(self, kind, text, code=REFUSED):
        self.say(kind, text.encode(), code)

    def news(self, place, of, queue="", reason="", begin="", text=""):
        body = record(1, text) + number(2, place, "<I") + number(3, of, "<I") + UNKNOWN
        for tag, each in ((4, queue), (5, reason), (6, begin)):
            if each:
                body += record(tag, each)
        self.say(NEWS, body)

    def notice(self, kind, text, in_s=0):
        body = number(1, 7) + number(2, kind, "<B") + record(3, text) + number(4, in_s) + UNKNOWN
        self.say(NOTICE, body)

    def has_gone(self):
        try:
            return not self.socket.recv(1)
        except OSError:
            return True


class Actor:
    """Listens, says hello and plays a pool's scheduler or a server: `act(peer, kind, body)` answers
    each request."""

    def __init__(self, act, pool="lab", schedules=True, port=0):
        self.act, self.pool, self.schedules = act, pool, schedules
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.endpoint = f"127.0.0.1:{self.port}"
        self.peers, self.requests = [], []
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for each in [self.listener, *[peer.socket for peer in self.peers]]:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            peer = Peer(connection)
            self.peers.append(peer)
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def hello(self):
        body = number(1, PROTOCOL | PROTOCOL << 16, "<I") + record(3, "0.9.0") + UNKNOWN
        if self.pool:
            body += record(22, self.pool) + number(23, 5) + number(24, self.schedules, "<B")
        return body

    def serve(self, peer):
        try:
            peer.message()
            peer.say(HELLO, self.hello())
            while True:
                kind, body = peer.message()
                self.requests.append((kind, records(body)))
                self.act(peer, kind, body)
        except OSError:
            pass

    def asked(self, kind=LEASE):
        return [body for each, body in self.requests if each == kind]


def slices(tag):
    return record(tag, number(1, 0, "<I") + number(2, 500_000, "<I") + number(3, 1 << 30))


def grant(lease_id, *servers, waited_s=0):
    """A pool's answer that names parts on these actors."""
    body = number(1, lease_id) + UNKNOWN
    for server in servers:
        part = record(1, server.name) + record(2, server.endpoint) + number(3, 7)
        body += record(4, part + record(4, b"s" * 16) + slices(5))
    return body + (number(5, waited_s) if waited_s else b"")


class Lender(Actor):
    """A server where anybody may claim."""

    def __init__(self, name, refuses=0):
        self.name, self.refuses, self.holders = name, refuses, []
        super().__init__(self.claim, pool="")

    def claim(self, peer, kind, _):
        if kind == CLAIM and self.refuses:
            self.refuses -= 1
            return peer.refuse(CLAIM, "no such lease")
        if kind == CLAIM:
            self.holders.append(peer)
            return peer.say(CLAIM, number(1, 7) + slices(3) + UNKNOWN)
        return peer.say(kind)


@needs_client
class Queueing(unittest.TestCase):
    def play(self, act, **more):
        return self.enterContext(Actor(act, **more))

    def lend(self, name="gpu3", **more):
        return self.enterContext(Lender(name, **more))

    def run_with(self, *arguments, pools, **environment):
        return tendril(
            "run", *arguments, TENDRIL_SERVERS=",".join(p.endpoint for p in pools), **environment
        )

    def start_with(self, *arguments, pools, **environment):
        process = start(
            "run", *arguments, TENDRIL_SERVERS=",".join(p.endpoint for p in pools), **environment
        )
        self.addCleanup(end, process)
        return process

    def wish(self, pool, at=-1):
        return records(pool.asked()[at][5][0])

    def test_lines_while_it_waits(self):
        lender, other = self.lend("gpu3"), self.lend("gpu5")

        def act(peer, _, __):
            quota = "Quota: vision holds 4.0 of 4.0 top, 2.0 lent to nlp"
            peer.news(3, 7, "top (account vision)", quota, "between 14:10 and 16:40")
            peer.news(3, 7, "top (account vision)", quota, "between 14:10 and 16:40")
            peer.news(1, 7, "top (account vision)", quota, "between 14:10 and 16:40")
            peer.say(LEASE, grant(412, lender, other, waited_s=1400))

        pool = self.play(act)
        status, out, err = self.run_with(
            "-n", "2", "-p", "0.5", "--", "sh", "-c", "echo $TENDRIL_SERVERS", pools=[pool]
        )
        self.assertEqual(status, 0, err)
        self.assertEqual(out, f"{lender.endpoint},{other.endpoint}\n")
        self.assertEqual(
            err.splitlines(),
            [
                "tendril: waiting, position 3 of 7 for top (account vision)",
                "tendril: reason Quota: vision holds 4.0 of 4.0 top, 2.0 lent to nlp",
                "tendril: start between 14:10 and 16:40",
                "tendril: waiting, position 1 of 7 for top (account vision)",
                "tendril: leases 412 (gpu3, gpu5) after 23 min",
            ],
        )

    def test_what_is_asked(self):
        lender = self.lend()
        pool = self.play(lambda peer, *_: peer.say(LEASE, grant(1, lender)))
        status, _, err = self.run_with(
            *("--filter", 'model ~ "H200"', "--class", "batch", "--max", "8h", "--spread"),
            *("--requeue", "--wait", "0", "--", "true"),
            pools=[pool],
            TENDRIL_ACCOUNT="vision",
            TENDRIL_CLASS="interactive",
        )
        self.assertEqual((status, err), (0, ""))
        wish = self.wish(pool)
        self.assertEqual(wish[1], [b'model ~ "H200"'])
        self.assertEqual(wish[2], [b"batch"])
        self.assertEqual(wish[3], [b"vision"])
        self.assertEqual(wish[4], [b"\3"])
        self.assertEqual(wish[5], [struct.pack("<Q", 28_800)])
        self.assertEqual((wish[6], wish[7]), ([b"\1"], [b"\1"]))
        self.assertEqual(len(wish[9][0]), 16)
        self.assertEqual(records(wish[10][0])[1], [b"cuda"])

    def test_wrong_wishes_are_refused_before_anybody_is_asked(self):
        pool = self.play(lambda peer, *_: peer.refuse(LEASE, "nobody should ask"))
        for words, part in (
            (["--wait", "soon"], "--wait: 'soon'"),
            (["--max", "0"], "--max"),
            (["--signal", "LOUD"], "--signal LOUD"),
            (["--pack", "--spread"], "--spread"),
        ):
            status, _, err = self.run_with(*words, "--", "true", pools=[pool])
            self.assertEqual(status, 2, err)
            self.assertIn(part, err)
        self.assertEqual(pool.requests, [])

    def test_a_refusal_is_the_pools_own(self):
        pool = self.play(lambda peer, *_: peer.refuse(LEASE, "NeverFits: no GPU has 900 GiB"))
        status, _, err = self.run_with("--", "true", pools=[pool])
        self.assertEqual(status, NO_LEASE)
        self.assertEqual(err, f"tendril: {pool.endpoint}: NeverFits: no GPU has 900 GiB\n")

    def test_who_does_not_wait_is_answered_at_once(self):
        pool = self.play(lambda peer, *_: peer.refuse(LEASE, "nothing is free", UNAVAILABLE))
        status, _, err = self.run_with("--wait", "0", "--", "true", pools=[pool])
        self.assertEqual((status, err), (NO_LEASE, f"tendril: {pool.endpoint}: nothing is free\n"))

    def test_it_waits_as_long_as_it_should(self):
        pool = self.play(lambda peer, *_: peer.news(2, 2, "any", "Resources: 0.0 of 1.0 free"))
        begun = time.monotonic()
        status, _, err = self.run_with("--wait", "1s", "--", "true", pools=[pool])
        self.assertEqual(status, NO_LEASE)
        self.assertIn("left the queue after 1 s", err)
        self.assertLess(time.monotonic() - begun, 10)
        eventually(pool.peers[-1].has_gone, 5, "the end of the request")

    def test_ctrl_c_leaves_the_queue(self):
        pool = self.play(lambda peer, *_: peer.news(2, 2, "any", "Resources"))
        process = self.start_with("--", "true", pools=[pool])
        self.assertIn("waiting", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(5), -signal.SIGINT)
        eventually(pool.peers[-1].has_gone, 5, "the end of the request")

    def test_the_one_that_schedules_is_found(self):
        lender = self.lend()
        standby = self.play(lambda peer, *_: peer.refuse(LEASE, "standby"), schedules=False)
        active = self.play(lambda peer, *_: peer.say(LEASE, grant(1, lender)))
        gone = self.play(None)
        gone.close()
        status, _, err = self.run_with("--", "true", pools=[standby, gone, active])
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(standby.requests, [])

    def test_a_scheduler_that_ends_before_its_hello_is_passed_over(self):
        lender = self.lend()
        ending = self.play(None)
        ending.serve = lambda peer: peer.socket.close()
        active = self.play(lambda peer, *_: peer.say(LEASE, grant(1, lender)))
        status, _, err = self.run_with("--", "true", pools=[ending, active])
        self.assertEqual((status, err), (0, ""))

    def test_a_lost_scheduler_costs_no_place(self):
        lender = self.lend()

        def die(peer, *_):
            peer.news(1, 2, "any", "Resources")
            first.schedules = False
            second.schedules = True
            peer.socket.shutdown(socket.SHUT_RDWR)

        first = self.play(die)
        second = self.play(lambda peer, *_: peer.say(LEASE, grant(9, lender)), schedules=False)
        status, _, err = self.run_with("--", "true", pools=[first, second])
        self.assertEqual(status, 0, err)
        self.assertEqual(self.wish(first)[9], self.wish(second)[9])
        self.assertIn("keeps its place", err)
        self.assertIn("tendril: leases 9 (gpu3)", err)

    def test_nobody_schedules_for_a_while(self):
        lender = self.lend()
        pool = self.play(lambda peer, *_: peer.say(LEASE, grant(9, lender)), schedules=False)
        threading.Timer(1.5, lambda: setattr(pool, "schedules", True)).start()
        status, _, err = self.run_with("--", "true", pools=[pool])
        self.assertEqual(status, 0, err)
        self.assertEqual(err.count("nobody schedules"), 1, err)

    def test_addresses_where_nobody_is(self):
        gone = self.play(None)
        gone.close()
        status, _, err = self.run_with("--", "true", pools=[gone])
        self.assertEqual(status, NO_LEASE)
        self.assertIn(gone.endpoint, err)

    def test_pools_and_servers_do_not_mix(self):
        lender = self.lend()
        pool = self.play(lambda peer, *_: peer.socket.shutdown(socket.SHUT_RDWR))
        for order in ([pool, lender], [lender, pool]):
            lender.act = lambda peer, kind, _: peer.say(kind, record(1, "gpu3"))
            pool.schedules = False
            status, _, err = self.run_with("-n", "2", "--", "true", pools=order)
            self.assertEqual(status, NO_LEASE)
            if order[0] is pool:
                self.assertIn("is a GPU server, and others here are a pool", err)
            else:
                self.assertIn("is a pool, and others here are GPU servers", err)

    def test_other_descriptions_of_the_calls_are_refused_before_a_lease(self):
        def act(peer, kind, _):
            api = record(1, "cuda") + number(2, 4711)
            peer.say(kind, record(1, "gpu3") + record(2, "0.9.0") + record(9, api))

        server = self.play(act, pool="")
        status, _, err = self.run_with("--", "true", pools=[server])
        self.assertEqual(status, NO_LEASE)
        self.assertIn("runs Tendril 0.9.0 and this is", err)
        self.assertIn("install the same version on both", err)
        self.assertEqual(server.asked(), [])

    def test_a_newer_client_is_served(self):
        with Server() as server:
            peer = Peer(harness.raw_connection(server))
            self.addCleanup(peer.socket.close)
            peer.say(HELLO, number(1, PROTOCOL | (PROTOCOL + 1) << 16, "<I") + UNKNOWN)
            self.assertEqual(peer.message()[0], HELLO)
            share = record(2, number(1, 250_000, "<I") + number(2, 0) + UNKNOWN)
            wish = record(5, record(1, "true") + UNKNOWN)
            peer.say(LEASE, number(1, 1, "<I") + share + wish + UNKNOWN)
            kind, body = peer.message()
            self.assertEqual(kind, LEASE)
            self.assertEqual(len(records(body)[3]), 1, body)
            self.assertEqual(len(server.leases()), 1)

    def test_what_cannot_be_claimed_is_asked_for_again(self):
        lender, bad = self.lend("gpu3"), self.lend("gpu5", refuses=1)
        lease_ids = iter((20, 21, 22))
        pool = self.play(lambda peer, *_: peer.say(LEASE, grant(next(lease_ids), lender, bad)))
        status, _, err = self.run_with("-n", "2", "--", "true", pools=[pool])
        self.assertEqual(status, 0, err)
        self.assertIn("the lease on gpu5 was granted and could not be had", err)
        self.assertEqual(len(pool.asked()), 2)
        self.assertEqual(self.wish(pool, 0)[9], self.wish(pool, 1)[9])
        # The first claim on the other server was given back.
        eventually(lender.holders[0].has_gone, 5, "the end of the first claim")

    def test_the_same_lease_twice_is_not_claimed_for_ever(self):
        bad = self.lend("gpu5", refuses=1000)
        pool = self.play(lambda peer, *_: peer.say(LEASE, grant(20, bad)))
        status, _, err = self.run_with("--", "true", pools=[pool])
        self.assertEqual(status, NO_LEASE)
        self.assertGreater(len({bytes(self.wish(pool, i)[9][0]) for i in range(3)}), 1)
        self.assertLess(len(pool.asked()), 8)

    def test_notices_are_printed_and_signal_in_time(self):
        lender = self.lend()
        pool = self.play(lambda peer, *_: peer.say(LEASE, grant(1, lender)))
        script = "trap 'echo saved; exit 5' USR1; echo up; while :; do sleep 0.1; done"
        events = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "events")
        options = ("--signal", "USR1@2m", "--events", events)
        process = self.start_with(*options, "--", "sh", "-c", script, pools=[pool])
        self.assertEqual(process.stdout.readline(), "up\n")
        lender.holders[0].notice(WARNING, "the lease reaches its longest time", 121)
        begun = time.monotonic()
        self.assertEqual(process.wait(10), 5)
        self.assertGreater(time.monotonic() - begun, 0.8)
        out = process.stdout.read()
        self.assertIn("tendril: the lease reaches its longest time (in 2 min)\n", out)
        self.assertIn("saved\n", out)
        with open(events, encoding="utf-8") as lines:
            told = [json.loads(line) for line in lines]
        self.assertEqual([(x["event"], x["in_s"]) for x in told], [("warning", 121)])

    def test_requeue_starts_the_same_command_again(self):
        lender, other = self.lend("gpu3"), self.lend("gpu5")
        grants = iter((lender, other))
        pool = self.play(lambda peer, *_: peer.say(LEASE, grant(1, next(grants))))
        script = "echo start $TENDRIL_RESTART_COUNT; [ $TENDRIL_RESTART_COUNT = 1 ] || exec sleep 6"
        process = self.start_with("--requeue", "--", "sh", "-c", script, pools=[pool])
        self.assertEqual(process.stdout.readline(), "start 0\n")
        lender.holders[0].notice(REQUEUE, "nlp reclaims 1.0 top", 30)
        self.assertEqual(process.wait(10), 0)
        out = process.stdout.read()
        self.assertIn("nlp reclaims 1.0 top", out)
        self.assertIn("start 1\n", out)
        self.assertNotEqual(self.wish(pool, 0)[9], self.wish(pool, 1)[9])
        self.assertEqual(self.wish(pool, 1)[8], [struct.pack("<I", 1)])

    def test_without_requeue_a_lost_server_is_told_and_the_program_goes_on(self):
        lender, other = self.lend("gpu3"), self.lend("gpu5")
        pool = self.play(lambda peer, *_: peer.say(LEASE, grant(1, lender, other)))
        process = self.start_with("-n", "2", "--", "sh", "-c", "sleep 1; exit 3", pools=[pool])
        eventually(lambda: lender.holders and other.holders, 10)
        lender.close()
        self.assertEqual(process.wait(10), 3)
        self.assertRegex(process.stdout.read(), re.escape(lender.endpoint) + ".*GPUs there are lo")

    def test_with_requeue_a_lost_server_starts_it_again(self):
        lender, other = self.lend("gpu3"), self.lend("gpu5")
        grants = iter((lender, other))
        pool = self.play(lambda peer, *_: peer.say(LEASE, grant(1, next(grants))))
        script = '[ "$TENDRIL_RESTART_COUNT" = 1 ] || exec sleep 60'
        process = self.start_with("--requeue", "--", "sh", "-c", script, pools=[pool])
        eventually(lambda: lender.holders, 10)
        lender.close()
        self.assertEqual(process.wait(10), 0)

    def test_the_last_word_of_a_lease_is_said_once(self):
        lender, other = self.lend("gpu3"), self.lend("gpu5")
        pool = self.play(lambda peer, *_: peer.say(LEASE, grant(1, lender, other)))
        process = self.start_with("-n", "2", "--", "sleep", "2", pools=[pool])
        eventually(lambda: lender.holders and other.holders, 10)
        for server in (lender, other):
            server.holders[0].notice(ENDED, "lease 1 was idle for 30 min")
            server.close()
        self.assertEqual(process.wait(10), 0)
        lines = process.stdout.read().splitlines()
        self.assertEqual(lines, ["tendril: lease 1 was idle for 30 min"])

    def test_programs_without_launcher_get_variables(self):
        status, out, err = tendril(
            *("env", "--filter", "memory >= 40G", "--class", "batch", "--wait", "10m", "--pack"),
            *("--account", "vision", "--max", "8h"),
            TENDRIL_SERVERS="pool1,pool2",
        )
        self.assertEqual(status, 0, err)
        for line in (
            "export TENDRIL_FILTER='memory >= 40G'",
            "export TENDRIL_CLASS=batch",
            "export TENDRIL_ACCOUNT=vision",
            "export TENDRIL_LAYOUT=pack",
            "export TENDRIL_MAX=28800s",
            "export TENDRIL_WAIT=600s",
        ):
            self.assertIn(line, out)


if __name__ == "__main__":
    unittest.main()
