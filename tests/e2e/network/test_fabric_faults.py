# SPDX-License-Identifier: Apache-2.0
"""Programs, training and the conformance suite over RDMA cards (tests/cards) that go wrong at a
random work, in each way that cards do. Their results are those of a sound machine, bit for bit.
TENDRIL_FAULTS: how many faults these tests want to see in all (scripts/longtest). They print their
seed; TENDRIL_FAULTS_SEED repeats their choices: fault, work, program, what else is cut."""

import collections
import itertools
import os
import pathlib
import random
import subprocess
import tempfile
import threading
import time
import unittest

from harness import CLIENT, TENDRIL, Server, end, eventually
from support.cards import LIBRARY, Cards, Fault, remembered, worse_connections
from support.steady import STEADY, SUITE, natively, program
from support.weather import Line

FAULTS = int(os.environ.get("TENDRIL_FAULTS", "40"))
SEED = int(os.environ.get("TENDRIL_FAULTS_SEED", str(int(time.time()) % 100_000)))
PARTS = 31  # of the suite
STEPS = "60"
TRIAL_READS = 32  # of a session that gets RDMA, before it uses it (End::try_out)
ATTACH_S = 0.3  # after its connections are there
# After these a session that goes on does so over TCP.
FATAL = {
    Fault.UNANSWERED,
    Fault.ANSWER_LOST,
    Fault.NOT_READY,
    Fault.REMOTE_ACCESS,
    Fault.LOCAL_ACCESS,
    Fault.OTHER,
    Fault.PAIR_STOPS,
    Fault.CABLE_OUT,
    Fault.CARD_DIES,
}



class Round:
    """What a seed says of one program."""

    def __init__(self, seed, number, moves):
        self.seed, self.number = seed, number
        chance = random.Random(seed)
        self.fault, self.part = chance.choice(list(Fault)), chance.random()
        cut_s = chance.uniform(0, 0.1)
        self.cut_s = cut_s if chance.randrange(6) == 0 else None
        # Lines that go over to RDMA while the program runs, or are there from its beginning.
        self.moves = chance.randrange(4) == 0 and moves
        self.part_of_suite = chance.randrange(PARTS)


@unittest.skipUnless(CLIENT.exists() and LIBRARY.exists(), "no client library, or no cards")
class FabricFaults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tendril-faults-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cards = Cards()
        self.addCleanup(self.cards.__exit__)
        # A card asks for two seconds: this machine may be busy.
        self.patience = {"TENDRIL_RDMA_TIMEOUT": "16"}
        # Copies that the cards do alone are among what goes wrong.
        lends = self.cards.environment(
            TENDRIL_RDMA_DEVICE="any", TENDRIL_GPUDIRECT="on", **self.patience
        )
        self.server = Server("--outage", "15s", gpus=2, memory=8 << 30, environment=lends)
        self.addCleanup(self.server.stop)
        self.line = Line(self.server.port)
        self.addCleanup(self.line.__exit__)
        self.way, self.known = None, None

    def runs(self, words, moves=False, **environment):
        """(stdout, stderr) of a program that ends well."""
        if self.way:  # after a failure it is gone
            self.way.write_text(self.known)
        more = self.cards.environment(
            TENDRIL_SERVERS=self.line.endpoint,
            TENDRIL_TRANSPORT="rdma,tcp" if moves else "rdma",
            XDG_CACHE_HOME=str(self.folder),
            **self.patience,
            **{"TENDRIL_LOG": "info", **environment},
        )
        process = program(*words, **more)
        try:
            out, err = process.communicate(timeout=300)
        finally:
            end(process)
        self.assertEqual(process.returncode, 0, out[-3000:] + err[-3000:])
        return out, err

    def remember(self):
        """That connections are slow here. So the lines of later programs go over at once."""
        self.runs(("streams_overlap", "300", "65536"), moves=True)
        self.way = remembered(self.folder)
        self.known = worse_connections(self.way.read_text())

    def works_of(self, play, now):
        """How many works cards do for a program without faults. On a busy machine a program may be
        over before its lines move; then it is played again."""
        done = 0
        for _ in range(5):
            before = self.cards.works
            self.assertNotIn("no rdma:", play(now))
            done = self.cards.works - before
            if done > TRIAL_READS:
                break
        return done

    def rounds(self, faults, play, moves=True, cuts_too=True):
        """`play(round)` runs a program, looks at its results and returns its stderr. It is played
        until it met so many faults."""
        name = self.id().rsplit(".", 1)[-1]
        met, back, cuts = collections.Counter(), collections.Counter(), 0
        works, began = {}, time.monotonic()
        if moves:
            self.remember()
        for number in itertools.count():
            now = Round(f"{SEED}/{name}/{number}", number, moves)
            now.cut_s = now.cut_s if cuts_too else None
            kind = (play.kind(now), now.moves)
            if kind not in works:  # once without a fault
                works[kind] = self.works_of(play, now)
                self.assertGreater(works[kind], TRIAL_READS, kind)
            returns = self.returns()
            said, happened, cut = self.plays(play, now, int(now.part * works[kind]))
            if happened:
                met[now.fault] += 1
                cuts += cut
                back[now.fault] += self.returns() > returns or "no rdma:" in said
            if met.total() >= faults:
                break
            self.assertLess(time.monotonic(), began + 120 + 20 * faults, f"only {met}")
        eventually(self.server.idle, 40, "everything given back")
        fatal, left = (sum(count[each] for each in FATAL) for count in (met, back))
        kinds = {fault.name: count for fault, count in met.items()}
        seconds = time.monotonic() - began
        print(f"faults: seed {SEED}, {name}: {met.total()} in {number + 1} programs,", end=" ")
        print(f"{left} of {fatal} that end RDMA did, {cuts} cuts besides,", end=" ")
        print(f"{seconds:.0f} s: {kinds}", flush=True)
        # Six of seven do: the others come with a program's last words. Few faults may have more.
        self.assertGreaterEqual(left, fatal // 3, "most end RDMA")

    def returns(self):
        """How often a session went on over TCP."""
        return self.server.log().count("its client is back")

    def plays(self, play, now, after_works):
        """(what it said, whether the fault happened, whether its connections were cut besides)"""
        happened, over, cuts = self.cards.happened, threading.Event(), []
        self.cards.arm(now.fault, after_works)
        before = (len(self.line.recorded), self.server.log().count(" on lease "))
        cutter = threading.Thread(target=self.cut, args=(now, happened, before, over, cuts))
        cutter.start()
        try:
            said = play(now)
        except (AssertionError, subprocess.TimeoutExpired) as failure:
            log = self.server.log()[-2000:]
            text = f"seed {now.seed}: {now.fault.name} after {after_works} works: {log}"
            raise AssertionError(text) from failure
        finally:
            over.set()
            cutter.join()
            self.cards.arm(0, 0)
            self.cards.set_cable(True)
        return said, self.cards.happened != happened, bool(cuts)

    def cut(self, now, happened, before, over, cuts):
        """The connections are cut after the fault, as soon as there is a session: an attach that is
        cut fails."""
        connections, sessions = before
        while now.cut_s is not None and not over.wait(0.01):
            begun = self.server.log().count(" on lease ") > sessions
            if self.cards.happened == happened or not begun or not self.line.is_whole(connections):
                continue
            if not over.wait(ATTACH_S + now.cut_s):
                cuts.append(self.line.reset())
            return

    def test_programs_write_the_same(self):
        programs = (*STEADY, ("large_copies", "1"))
        expected = {words: natively(*words) for words in programs}

        def play(now):
            words = play.kind(now)
            out, err = self.runs(words, now.moves, TENDRIL_SLICE="1/8")
            self.assertEqual(out, expected[words], words)
            return err

        play.kind = lambda now: programs[now.number % len(programs)]
        self.rounds(FAULTS // 2, play)

    def test_training_has_the_same_weights(self):
        """All bits of all weights, and each loss: a step that ran twice, or not at all, shows."""
        here, there = self.folder / "here", self.folder / "there"
        losses = natively("training_loop", STEPS, here)
        self.assertEqual(here.stat().st_size, 4160 * 4)

        def play(now):
            out, err = self.runs(("training_loop", STEPS, there), now.moves)
            self.assertEqual(out, losses)
            self.assertEqual(there.read_bytes(), here.read_bytes())
            there.unlink()
            return err

        play.kind = lambda now: "training"
        self.rounds(FAULTS // 4, play)

    @unittest.skipUnless(SUITE.exists(), "the suite was not built")
    def test_conformance(self):
        """In parts. Its processes attach for themselves, and an attach that is cut fails, so
        nothing is cut besides."""
        suite, tests = "", []
        for line in natively(SUITE, "--gtest_list_tests").splitlines():
            if not line.startswith(" "):
                suite = line.split("#")[0].strip()
            elif suite.endswith("."):
                tests.append(suite + line.split("#")[0].strip())

        def play(now):
            part = tests[now.part_of_suite :: PARTS]
            suite = (SUITE, "--gtest_brief=1", "--gtest_filter=" + ":".join(part))
            # Some write both streams into one pipe, in which a notice would come between.
            run = (TENDRIL, "run", "-n", "2", "--", *suite)
            out, err = self.runs(run, TENDRIL_LOG="error")
            self.assertIn(f"PASSED  ] {len(part)} tests", out)
            return err

        self.assertGreater(len(tests), 10 * PARTS)
        play.kind = lambda now: now.part_of_suite
        self.rounds(FAULTS // 4, play, moves=False, cuts_too=False)


if __name__ == "__main__":
    unittest.main()
