# SPDX-License-Identifier: Apache-2.0
"""Copies between servers over RDMA cards that tests/cards plays: the same bytes as over TCP, a
cable that is pulled, cards that fail, and what keeps copies on TCP. Connections are better than
played cards, so most servers here are told to take RDMA (TENDRIL_WORKER_PASSAGE_WAY)."""

import os
import pathlib
import re
import time
import unittest

from harness import CLIENT, Server, eventually, listing, tendril
from support.cards import LIBRARY, Cards, Fault
from support.several import ProgramTest

SEED = int(os.environ.get("TENDRIL_FAULTS_SEED", str(int(time.time()) % 100_000)))
TOKEN = "a token of more than sixteen letters"
GOES = r"copies to and from \S+ go over ([^;]+); (.*)"

# Random copies of both servers' memory in both directions, as a model has them.
RANDOM = """
draw, SIZE, BUFFERS = random.Random(SEED), 5 * MIB, 3
places = [i % 2 for i in range(2 * BUFFERS)]
buffers = [memory(place, SIZE) for place in places]
model = [draw.randbytes(SIZE) for _ in places]
for place, buffer, data in zip(places, buffers, model):
    write(place, buffer, data)
streams = [stream(0), stream(1)]
step("begun")
until = time.monotonic() + SECONDS
turn = 0
while turn < TURNS or time.monotonic() < until:
    turn += 1
    to, source = draw.sample(range(len(buffers)), 2)
    if turn <= 2:  # between the servers
        to, source = turn - 1, 2 - turn
    size = draw.choice((1, 5000, MIB, 3 * MIB + 17))
    at, begin = draw.randrange(SIZE - size), draw.randrange(SIZE - size)
    which = places[to]
    enter(which)
    must(peer(ctypes.c_uint64(buffers[to].value + at), places[to],
              ctypes.c_uint64(buffers[source].value + begin), places[source], size, streams[which]))
    must(cuda.cuStreamSynchronize(streams[which]))
    whole = model[to]
    model[to] = whole[:at] + model[source][begin : begin + size] + whole[at + size :]
    if turn == 4:
        step("copying")
for place, buffer, data in zip(places, buffers, model):
    assert read(place, buffer, SIZE) == data, place
"""


@unittest.skipUnless(CLIENT.exists() and LIBRARY.exists(), "no client library, or no cards")
class PassagesOverRdma(ProgramTest):
    def setUp(self):
        super().setUp()
        self.cards = Cards()
        self.addCleanup(self.cards.__exit__)
        self.peers = pathlib.Path(self.folder, "peers")
        self.peers.touch()

    def serve(self, *options, lends=True, way="rdma", **environment):
        # A card asks for two seconds: this machine may be busy.
        more = {"TENDRIL_WORKER_PASSAGE_LINES": "2", "TENDRIL_RDMA_TIMEOUT": "16", **environment}
        if way:
            more["TENDRIL_WORKER_PASSAGE_WAY"] = way
        if lends:
            more = self.cards.environment(TENDRIL_RDMA_DEVICE="any", **more)
        server = Server("--peers", self.peers, *options, warm=0, environment=more)
        self.addCleanup(server.stop)
        return server

    def pair(self, *options, far=(), far_lends=True, **more):
        """Two servers; the first one connects to the second."""
        both = [self.serve(*options, **more), self.serve(*far, lends=far_lends, **more)]
        self.peers.write_text("".join(f"{one.endpoint}\n" for one in both), encoding="utf-8")
        return both

    def begins(self, both, turns=30, seconds=0, seed=SEED, **environment):
        """A program that copies, and has come to its first copy."""
        words = f"SEED, SECONDS, TURNS = {seed}, {seconds}, {turns}\n"
        run = self.copying(words + RANDOM, both, **environment)
        self.comes_to(run, "begun")
        self.go_on("begun")
        self.comes_to(run, "copying")
        return run

    def goes(self, server):
        """What its log says of the passage, one after the other: (way, text)."""
        return re.findall(GOES, server.log())

    def says(self, server, count=1):
        deadline = time.monotonic() + 30
        while len(self.goes(server)) < count:
            self.assertLess(time.monotonic(), deadline, server.log()[-2000:])
            time.sleep(0.05)
        return self.goes(server)[count - 1]

    def ends(self, run, both, **environment):
        self.go_on("copying")
        self.passes(run, 120)
        for server in both:
            eventually(lambda one=server: not listing(one, **environment)["leases"], 30)
            eventually(lambda one=server: not one.workers(), 30)

    def stays_on_tcp(self, both, said, other_said=None, **environment):
        run = self.begins(both, turns=6, **environment)
        way, text = self.says(both[0])
        self.assertEqual(way, "tcp")
        self.assertRegex(text, said)
        if other_said:
            self.assertRegex(self.says(both[1])[1], other_said)
        self.ends(run, both, **environment)

    def test_the_bytes_are_those_of_a_model(self):
        both = self.pair()
        run = self.begins(both)
        for server in both:
            self.assertEqual(self.says(server)[0], "rdma")
            (lease,) = listing(server)["leases"]
            self.assertEqual([each["way"] for each in lease["passages"]], ["rdma"])
            self.assertIn("in clear over rdma", tendril("ls", server=[server])[1])
        before = self.cards.works
        self.ends(run, both)
        self.assertGreater(self.cards.works - before, 30)
        self.assertEqual([len(self.goes(server)) for server in both], [1, 1])

    def test_a_cable_is_pulled(self):
        both = self.pair()
        run = self.begins(both, seconds=4)
        self.says(both[0])
        self.go_on("copying")
        before = self.cards.works
        eventually(lambda: self.cards.works > before + 40, 20)
        self.cards.set_cable(False)
        self.passes(run, 120)
        for server in both:
            way, text = self.says(server, 2)
            self.assertEqual(way, "tcp")
            self.assertRegex(text, r"RDMA failed \(.*\); they go on over TCP")
            eventually(server.idle, 30)

    def test_cards_fail(self):
        """In each way that cards do, at a random work. Copies are those of sound cards."""
        both = self.pair()
        left = met = 0
        for fault in Fault:
            with self.subTest(fault=fault.name, seed=SEED):
                for name in ("begun", "copying"):
                    pathlib.Path(self.folder, name).unlink(missing_ok=True)
                before = len(self.goes(both[0]))
                run = self.begins(both, turns=24, seed=SEED + fault)
                self.says(both[0], before + 1)
                happened = self.cards.happened
                self.cards.arm(fault, (SEED * 31 + fault * 7) % 30)
                self.ends(run, both)
                met += self.cards.happened > happened
                self.cards.arm(0, 0)
                self.cards.set_cable(True)
                left += len(self.goes(both[0])) > before + 1
        self.assertGreater(met, len(Fault) * 2 // 3)
        self.assertGreaterEqual(left, 3, "most faults end RDMA, but some come with the last words")

    def test_what_was_measured_is_remembered(self):
        """The better way is taken, and not measured again. A failure forgets it."""
        both = self.pair(way=None)
        for _ in range(2):
            for name in ("begun", "copying"):
                pathlib.Path(self.folder, name).unlink(missing_ok=True)
            run = self.begins(both, turns=6)
            eventually(lambda: self.goes(both[0]), 30)
            self.ends(run, both)
        (one, other) = eventually(lambda: len(self.goes(both[0])) == 2 and self.goes(both[0]), 20)
        numbers = r"copies over (rdma|tcp) \(([\d.e+]+) GB/s; (rdma|tcp) ([\d.e+]+) GB/s"
        self.assertRegex(one[1], numbers)
        self.assertEqual(re.search(numbers, one[1]).groups(), re.search(numbers, other[1]).groups())
        self.assertEqual(one[0], other[0])

    def test_the_policy_forbids_it(self):
        policy = pathlib.Path(self.folder, "policy.toml")
        policy.write_text("[limits]\nrdma = false\n", encoding="utf-8")
        forbids = "no RDMA: .*the server's policy forbids RDMA"
        with self.subTest("at the end that connects"):
            self.stays_on_tcp(self.pair("--policy", policy), forbids)
        for name in ("begun", "copying"):
            pathlib.Path(self.folder, name).unlink(missing_ok=True)
        with self.subTest("at the other end"):
            both = self.pair(far=("--policy", policy))
            self.stays_on_tcp(both, "no RDMA: the other server: .*policy forbids RDMA", forbids)

    def test_a_server_that_lends_no_card(self):
        both = self.pair(far_lends=False)
        self.stays_on_tcp(both, "no RDMA: the other server: the server lends no RDMA device")

    def test_sealed_copies_stay_on_tcp(self):
        options = ("--token-file", pathlib.Path(self.folder, "token"), "--encrypt", "always")
        options[1].write_text(TOKEN, encoding="utf-8")
        options[1].chmod(0o600)
        both = self.pair(*options, "--rdma", "any", far=(*options, "--rdma", "any"))
        self.stays_on_tcp(both, "no RDMA: they are sealed", TENDRIL_TOKEN=TOKEN)
        self.assertEqual(self.cards.works, 0)

    def test_an_operator_wants_tcp(self):
        both = self.pair(way="tcp")
        run = self.begins(both, turns=6)
        self.ends(run, both)
        self.assertEqual((self.goes(both[0]), self.cards.works), ([], 0))


if __name__ == "__main__":
    unittest.main()
