# SPDX-License-Identifier: Apache-2.0
"""What a server does for its pool, whose scheduler is played here word by word: holds, commits,
claims, notices, local leases, and draining. So nothing here depends on how a pool decides."""

import json
import os
import queue
import signal
import socket
import struct
import tempfile
import time
import unittest

from harness import (
    LEASE,
    NO_LEASE,
    PROGRAMS,
    Control,
    Server,
    end,
    eventually,
    listing,
    needs_client,
    number,
    record,
    records,
    start,
    tendril,
)
from test_queueing import Actor

REPORT, CLAIM, NOTICE = 40, 41, 0x8001
HOLD, COMMIT, _, END, CHANGE, PAUSE, RESUME, TELL = range(1, 9)
CLAIMED, ENDED = 3, 4


def value(fields, tag, form="<Q", otherwise=0):
    return struct.unpack(form, fields[tag][0])[0] if tag in fields else otherwise


class Scheduler(Actor):
    """Plays the scheduler of one server. `entries`: its book as it was told."""

    def __init__(self, term=1, port=0):
        self.term, self.orders, self.next_id = term, queue.Queue(), term * 1000
        self.results, self.entries, self.facts, self.stored = {}, {}, {}, 0
        self.lent, self.next_lease, self.full, self.share = [], 500, 0, 500_000
        super().__init__(self.hear, port=port)

    def hear(self, peer, kind, body):
        if kind == LEASE:
            return peer.say(LEASE, self.lend())
        if kind != REPORT:
            return peer.say(kind)
        report = records(body)
        if 3 in report:
            self.entries = {}
        for facts in report.get(6, []):
            self.facts = records(facts)
        for entry in map(records, report.get(7, [])):
            self.entries[value(entry, 1)] = entry
        self.full += 3 in report
        for result in map(records, report.get(8, [])):
            self.results[value(result, 1)] = result
        orders = b""
        try:
            # Longer than a moment only if there is nothing else to say.
            orders = self.orders.get(timeout=0.1)
        except queue.Empty:
            pass
        answer = record(1, "lab") + record(2, "one") + number(3, self.term)
        return peer.say(
            REPORT, answer + number(4, 1, "<B") + orders + number(8, self.stored) + number(9, 0)
        )

    def ask(self, kind, *fields):
        """(code, records) of an order's result. What is lost with a connection is ordered again."""
        self.next_id += 1
        order = self.next_id
        body = [number(1, order), number(2, kind, "<B"), number(17, 1, "<B"), *fields]
        for _ in range(10):
            self.orders.put(record(7, body))
            try:
                eventually(lambda: order in self.results, 1)
                break
            except AssertionError:
                pass
        result = self.results[order]
        return value(result, 2, "<H"), result

    def hold(self, pool_lease, share=500_000, gpu=0, expires_ms=10_000):
        spec = [number(1, share, "<I"), number(2, 0)]
        who = [record(9, "spiffe://lab/user/alice"), record(10, "alice"), record(11, "vision")]
        where = [number(3, pool_lease), number(5, gpu, "<I")]
        return self.ask(HOLD, *where, record(6, spec), *who, number(13, expires_ms, "<I"))

    def commit(self, pool_lease, unclaimed_ms=60_000):
        """(code, lease, secret)"""
        code, result = self.ask(COMMIT, number(3, pool_lease), number(14, unclaimed_ms, "<I"))
        return code, value(result, 4), result.get(5, [b""])[0]

    def lend(self):
        """The answer to a client: half a GPU of the server."""
        self.next_lease += 1
        pool_lease = self.next_lease
        self.hold(pool_lease, share=self.share)
        _, lease, secret = self.commit(pool_lease)
        self.lent.append(lease)
        slices = record(5, number(1, 0, "<I") + number(2, 500_000, "<I") + number(3, 1 << 30))
        part = record(1, "gpu3") + record(2, self.facts[2][0]) + number(3, lease)
        return number(1, pool_lease) + record(4, part + record(4, secret) + slices)

    def processes(self):
        """Of the lease that it lent last."""
        return value(self.entries.get(self.lent[-1], {}), 12, "<I") if self.lent else 0

    def phase(self, lease):
        return value(self.entries.get(lease, {}), 3, "<B")




class MemberCase(unittest.TestCase):
    options = ()

    def setUp(self):
        self.scheduler = self.enterContext(Scheduler())
        self.server = self.enterContext(
            Server("--name", "gpu3", "--label", "rack=b7", *self.options, pool=[self.scheduler])
        )
        eventually(lambda: self.scheduler.facts, 10, "the first report")

    def claim(self, lease, secret):
        """(code, connection)"""
        control = self.enterContext(Control(self.server, hears_news=True))
        code, _ = control.ask(CLAIM, number(1, lease) + record(2, secret))
        return code, control

    def told(self, control):
        """(kind, text, seconds) of the next notice."""
        kind, _, body = control.message()
        self.assertEqual(kind, NOTICE)
        notice = records(body)
        return value(notice, 2, "<B"), notice[3][0].decode(), value(notice, 4)


class Member(MemberCase):
    def test_a_lease_from_its_hold_to_its_record(self):
        facts = self.scheduler.facts
        self.assertEqual(facts[1], [b"gpu3"])
        self.assertEqual(facts[2], [self.server.endpoint.encode()])
        self.assertEqual(facts[10], [b"rack=b7"])
        self.assertTrue(facts[8])
        gpu = records(facts[12][0])
        self.assertGreater(value(gpu, 11), 0)
        self.assertGreater(value(gpu, 16, "<I"), 0)
        code, result = self.scheduler.hold(7)
        lease = value(result, 4)
        self.assertEqual(code, 0, result)
        self.assertEqual(listing(self.server)["gpus"][0]["share_used"], 0.5)
        # What is only held is nobody's yet.
        self.assertNotEqual(self.claim(lease, b"guess")[0], 0)
        self.assertEqual(self.scheduler.hold(7)[1][4], result[4])
        self.assertNotEqual(self.scheduler.hold(8, share=600_000)[0], 0)
        code, lease, secret = self.scheduler.commit(7)
        self.assertEqual((code, len(secret)), (0, 32))
        self.assertNotEqual(self.claim(lease, b"guess")[0], 0)
        code, control = self.claim(lease, secret)
        self.assertEqual(code, 0)
        eventually(lambda: self.scheduler.phase(lease) == CLAIMED, 5, "the claim")
        entry = self.scheduler.entries[lease]
        self.assertEqual(entry[5], [b"alice"])
        self.assertEqual(entry[6], [b"vision"])
        self.scheduler.ask(TELL, number(3, 7), record(18, "soon over"), number(19, 60))
        self.assertEqual(self.told(control), (1, "soon over", 60))
        self.scheduler.ask(PAUSE, number(3, 7), record(18, "others first"), number(19, 30))
        self.assertEqual(self.told(control), (3, "others first", 30))
        self.scheduler.ask(RESUME, number(3, 7))
        self.assertEqual(self.told(control)[0], 4)
        code, _ = self.scheduler.ask(CHANGE, number(3, 7), number(15, 200_000, "<I"))
        self.assertEqual(code, 0)
        self.assertEqual(listing(self.server)["gpus"][0]["share_used"], 0.2)
        self.scheduler.ask(END, number(3, 7), record(18, "its time is over"))
        self.assertEqual(self.told(control), (6, "its time is over", 0))
        eventually(lambda: self.scheduler.phase(lease) == ENDED, 5, "the record")
        self.assertEqual(self.scheduler.entries[lease][20], [b"its time is over"])
        self.assertEqual(value(self.scheduler.entries[lease], 21), 1)
        self.assertEqual(listing(self.server)["gpus"][0]["share_used"], 0)

    def again(self):
        """The server's connection is lost, and it has reported in full again."""
        self.scheduler.full = 0
        self.scheduler.peers[-1].socket.shutdown(socket.SHUT_RDWR)
        eventually(lambda: self.scheduler.full, 10, "a full report")

    def test_what_is_not_committed_or_claimed_ends(self):
        self.assertEqual(self.scheduler.hold(7, expires_ms=500)[0], 0)
        self.assertEqual(self.scheduler.hold(8)[0], 0)
        code, lease, secret = self.scheduler.commit(8, unclaimed_ms=500)
        self.assertEqual(code, 0)
        eventually(lambda: not self.server.leases(), 10, "both end")
        self.assertNotEqual(self.scheduler.commit(7)[0], 0)
        self.assertNotEqual(self.claim(lease, secret)[0], 0)
        # A scheduler of an older term has nothing to say any more.
        self.scheduler.term = 0
        self.scheduler.orders.put(record(7, [number(1, 1), number(2, HOLD, "<B"), number(3, 9)]))
        eventually(lambda: "has spoken since" in self.server.log(), 5, "the refusal")
        self.assertEqual(self.server.leases(), [])

    def test_a_lease_ends_with_its_holders_connection(self):
        self.scheduler.hold(7)
        _, lease, secret = self.scheduler.commit(7)
        code, control = self.claim(lease, secret)
        self.assertEqual(code, 0)
        # Its holder again, after a cut that the server has not noticed. So the first connection's
        # end is not the lease's.
        code, again = self.claim(lease, secret)
        self.assertEqual(code, 0)
        control.socket.close()
        time.sleep(0.5)
        self.assertEqual(len(self.server.leases()), 1)
        again.socket.close()
        eventually(lambda: not self.server.leases(), 10, "the lease ends")
        eventually(lambda: self.scheduler.phase(lease) == ENDED, 5, "the record")
        # It is told again on each new connection, until it is stored.
        self.again()
        self.assertEqual(self.scheduler.phase(lease), ENDED)
        self.scheduler.stored = 1
        time.sleep(0.3)
        self.again()
        self.assertEqual(self.scheduler.phase(lease), 0)

    @needs_client
    def test_run_asks_the_pool_and_claims_here(self):
        for share in (500_000, 1_000_000):  # with turns, and with the whole GPU
            self.scheduler.share = share
            program = ("-p", "0.5", "--", PROGRAMS / "hold", "8", "60")
            self.scheduler.lent = []
            process = start("run", *program, TENDRIL_SERVERS=self.scheduler.endpoint)
            self.addCleanup(end, process)
            eventually(lambda: self.scheduler.processes() == 1, 20, "the program")
            lease = self.scheduler.lent[0]
            pool_lease = number(3, self.scheduler.next_lease)
            self.scheduler.ask(PAUSE, pool_lease, record(18, "paused for a while"))
            time.sleep(3)
            self.scheduler.ask(RESUME, pool_lease, record(18, "goes on"))
            time.sleep(1)
            process.terminate()
            out, _ = process.communicate(timeout=20)
            # It launches a kernel each second, and waits for it.
            during = out[out.index("paused for a while") : out.index("goes on")]
            self.assertLessEqual(during.count("held for"), 2, out)
            eventually(lambda of=lease: self.scheduler.phase(of) == ENDED, 10, "the end")

    def test_alone_it_lends_by_itself(self):
        def direct():
            return tendril("run", "-p", "0.2", "--", "true", server=self.server)

        status, _, err = direct()
        self.assertEqual(status, NO_LEASE)
        self.assertIn(f"TENDRIL_SERVERS={self.scheduler.endpoint}", err)
        administrators = next(
            os.path.join(self.server.sockets, name)
            for name in os.listdir(self.server.sockets)
            if "admin" in name
        )
        status, _, err = tendril("run", "-p", "0.2", "-s", f"unix:{administrators}", "--", "true")
        self.assertEqual(status, 0, err)
        self.scheduler.close()
        eventually(lambda: direct()[0] == 0, 20, "it lends by itself")


class Audit(MemberCase):
    """The server's audit log says which leases the pool ended, by which order and why."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.audit = os.path.join(self.folder, "audit.log")
        self.options = ("--audit-log", self.audit)
        super().setUp()

    def ends(self):
        with open(self.audit, encoding="ascii") as file:
            lines = [json.loads(line) for line in file]
        return {line["object"]: line for line in lines if line["what"] == "end"}

    def test_the_ends_that_the_pool_orders(self):
        self.scheduler.hold(7)
        _, ended, secret = self.scheduler.commit(7)
        self.assertEqual(self.claim(ended, secret)[0], 0)
        self.scheduler.ask(END, number(3, 7), record(18, "eve reclaims her GPU"))
        self.scheduler.hold(8)
        _, unclaimed, _ = self.scheduler.commit(8, unclaimed_ms=300)
        self.scheduler.hold(9, expires_ms=300)  # nobody's lease yet: it is not written down
        eventually(lambda: len(self.ends()) == 2, 15, "two ends in the audit log")
        eventually(lambda: not self.server.leases(), 10, "no leases")
        ends = self.ends()
        self.assertEqual(set(ends), {f"lease {ended}", f"lease {unclaimed}"})
        line = ends[f"lease {ended}"]
        self.assertEqual((line["who"], line["rule"]), ("pool", "pool-order"))
        self.assertEqual(line["why"], "eve reclaims her GPU")
        self.assertEqual(line["owner"], "spiffe://lab/user/alice")
        self.assertRegex(line["from"], r"^order \d+ of term 1$")
        self.assertIn("nobody claimed it", ends[f"lease {unclaimed}"]["why"])


class Draining(MemberCase):
    options = ("--drain", "60s")

    def test_it_waits_for_the_leases(self):
        self.scheduler.hold(7)
        _, lease, secret = self.scheduler.commit(7)
        _, control = self.claim(lease, secret)
        self.server.process.send_signal(signal.SIGTERM)
        eventually(lambda: value(self.scheduler.facts, 11, "<B") == 1, 2, "the pool hears of it")
        self.assertNotEqual(self.scheduler.hold(8, share=100_000)[0], 0)
        self.assertIsNone(self.server.process.poll())
        control.socket.close()
        self.assertEqual(self.server.process.wait(10), 0)

    def test_a_second_signal_ends_it_at_once(self):
        self.scheduler.hold(7)
        _, lease, secret = self.scheduler.commit(7)
        _, control = self.claim(lease, secret)
        self.server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        self.assertIsNone(self.server.process.poll())
        self.server.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.server.process.wait(10), 0)
        control.socket.close()


class Limits(unittest.TestCase):
    def test_a_limit_says_why_before_it_ends_a_lease(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        policy = os.path.join(folder, "policy.toml")
        with open(policy, "w", encoding="utf-8") as file:
            file.write('[limits]\nlongest_lease = "4s"\n')
        server = self.enterContext(Server("--policy", policy))
        process = start("run", "-p", "0.5", "--", "sleep", "7", server=server)
        self.addCleanup(end, process)
        out, _ = process.communicate(timeout=30)
        self.assertRegex(out, "it ends in 1 s by a limit of this server")
        self.assertRegex(out, "it has lasted 4 s")


if __name__ == "__main__":
    unittest.main()
