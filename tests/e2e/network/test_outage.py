# SPDX-License-Identifier: Apache-2.0
"""Sessions that outlast a cut of their network: programs, training and the conformance suite in bad
weather (support/weather.py), and what still ends a session. TENDRIL_CUTS: how many cuts these tests
want to see in all (scripts/longtest). TENDRIL_CUTS_SEED: of the weather; it is printed."""

import collections
import itertools
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import unittest

from harness import (
    BUILD,
    CLIENT,
    DRIVER,
    PROGRAMS,
    Server,
    clean_environment,
    end,
    eventually,
    start,
)
from support.relay import Wire
from support.steady import STEADY, SUITE, natively, program
from support.weather import Line, Weather

TOKEN = "a token of more than sixteen letters"
CUTS = int(os.environ.get("TENDRIL_CUTS", "40"))
SEED = int(os.environ.get("TENDRIL_CUTS_SEED", str(int(time.time()) % 100_000)))


@unittest.skipUnless(CLIENT.exists(), "the client library was not built")
class OutageTest(unittest.TestCase):
    def serve(self, *options, **more):
        server = Server(*options, **more)
        self.addCleanup(server.stop)
        return server

    def serve_sealed(self, *options, **more):
        folder = tempfile.TemporaryDirectory(prefix="tendril-outage-")
        self.addCleanup(folder.cleanup)
        token_file = pathlib.Path(folder.name, "token")
        token_file.touch(0o600)
        token_file.write_text(TOKEN, encoding="ascii")
        return self.serve("--token-file", token_file, "--encrypt", "always", *options, **more)

    def started(self, wire, *words, **environment):
        process = program(*words, TENDRIL_SERVERS=wire.endpoint, **environment)
        self.addCleanup(process.stderr.close)
        self.addCleanup(end, process)
        return process

    def finishes(self, process, timeout=300):
        out, err = process.communicate(timeout=timeout)
        self.assertEqual(process.returncode, 0, out[-3000:] + err[-3000:])
        return out

    def weathers(self, server, cuts, play, **how):
        """Plays programs in bad weather until it had so many cuts. `play(line, number)` runs one
        and looks at its results."""
        made, happened, began = 0, collections.Counter(), time.monotonic()
        with Line(server.port) as line:
            for number in itertools.count():
                seed = f"{SEED}/{self.id().rsplit('.', 1)[-1]}/{number}"
                weather = Weather(line, server, seed, cuts - made, **how)
                try:
                    with weather:
                        play(line, number)
                except AssertionError as failure:
                    log = server.log()[-2000:]
                    raise AssertionError(f"weather {seed}, {weather.happened}: {log}") from failure
                happened.update(weather.happened)
                made += weather.cuts
                if made >= cuts:
                    break
                self.assertLess(time.monotonic(), began + 60 + 3 * cuts, f"only {made} cuts")
        # A program that ends during a cut cannot say so.
        eventually(lambda: len(server.workers()) <= server.warm, 40, "everything given back")
        seconds = time.monotonic() - began
        print(f"outage: seed {SEED}, {self.id().rsplit('.', 1)[-1]}: {made} cuts", end=" ")
        print(f"in {number + 1} programs, {seconds:.0f} s: {dict(happened)}", flush=True)

    def write_the_same(self, server, cuts, **environment):
        expected = {words: natively(*words) for words in STEADY}

        def play(line, number):
            words = STEADY[number % len(STEADY)]
            out = self.finishes(self.started(line, *words, TENDRIL_SLICE="1/8", **environment))
            self.assertEqual(out, expected[words], words)

        self.weathers(server, cuts, play)

    def test_programs_write_the_same(self):
        self.write_the_same(self.serve("--outage", "15s", memory=8 << 30), CUTS * 4 // 10)

    def test_sealed_programs_write_the_same(self):
        server = self.serve_sealed("--outage", "15s", memory=8 << 30)
        self.write_the_same(server, CUTS * 2 // 10, TENDRIL_TOKEN=TOKEN)

    def test_training_has_the_same_weights(self):
        """All bits of all weights, and each loss."""
        server = self.serve("--outage", "15s", memory=8 << 30)
        with tempfile.TemporaryDirectory(prefix="tendril-outage-") as folder:
            here, there = (pathlib.Path(folder, name) for name in ("here", "there"))
            losses = natively("training_loop", "400", here)
            self.assertEqual(here.stat().st_size, 4160 * 4)

            def play(line, _):
                out = self.finishes(self.started(line, "training_loop", "400", there))
                self.assertEqual(out, losses)
                self.assertEqual(there.read_bytes(), here.read_bytes())
                there.unlink()

            self.weathers(server, CUTS * 2 // 10, play)

    @unittest.skipUnless(SUITE.exists(), "the suite was not built")
    def test_conformance(self):
        server = self.serve("--outage", "15s", gpus=2)

        def play(line, _):
            # Forked processes attach for themselves, and an attach that is cut fails.
            process = subprocess.Popen(
                [SUITE, "--gtest_brief=1", "--gtest_filter=-*Process*:*Ipc*:*Fork*"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=clean_environment(
                    LD_LIBRARY_PATH=str(CLIENT.parent),
                    TENDRIL_TRANSPORT="tcp",
                    TENDRIL_SERVERS=line.endpoint,
                    TENDRIL_GPUS="2",
                    TENDRIL_LOG="warning",
                ),
            )
            self.addCleanup(end, process)
            out, _ = process.communicate(timeout=900)
            self.assertEqual(process.returncode, 0, out[-4000:])

        self.weathers(server, CUTS * 2 // 10, play, shortest_s=0.05, longest_s=0.6)

    def test_a_cut_of_seconds_pauses_the_program_and_says_so(self):
        server = self.serve()
        with Wire(server.port) as wire:
            process = self.started(wire, "hold", "16", "6", TENDRIL_LOG="warning")
            eventually(lambda: process.stdout.readline().startswith("holding"), 20, "holding")
            wire.lose()
            time.sleep(2)
            self.assertEqual(len(server.leases()), 1)
            wire.mend()
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, err)
        self.assertIn("is cut; the program waits up to 30 s for it", err)
        self.assertIn("nothing was lost", err)
        self.assertIn("its client is back", server.log())

    def test_a_lease_of_run_keeps_its_place(self):
        """Also where the connection that holds it is cut, and others wait for the GPU."""
        server = self.serve()
        with Wire(server.port) as wire:
            process = start(
                "run",
                "--server",
                wire.endpoint,
                "--",
                str(PROGRAMS / "hold"),
                "16",
                "5",
                TENDRIL_TRANSPORT="tcp",
            )
            self.addCleanup(end, process)
            eventually(lambda: process.stdout.readline().startswith("holding"), 20, "holding")
            before = server.leases()[0]["lease"]
            for pause in (0, 0.5, 1):
                wire.lose()
                time.sleep(pause)
                wire.mend()
                eventually(lambda: len(wire.pairs) >= 7, 10, "all connections")
            self.assertEqual([lease["lease"] for lease in server.leases()], [before])
            out, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, out)
            self.assertIn("PASS", out)
        eventually(server.idle, 5, "everything given back")

    def test_a_killed_run_gives_its_lease_back_at_once(self):
        server = self.serve()
        process = start("run", "--", "sleep", "60", server=server)
        self.addCleanup(end, process)
        eventually(server.leases, 20, "its lease")
        process.send_signal(signal.SIGKILL)
        eventually(lambda: not server.leases(), 2, "its end")

    def test_a_cut_that_lasts_too_long_ends_the_session(self):
        server = self.serve("--outage", "1s")
        with Wire(server.port) as wire:
            process = self.started(wire, "hold", "16", "60", TENDRIL_LOG="warning")
            eventually(lambda: process.stdout.readline().startswith("holding"), 20, "holding")
            wire.lose()
            _, err = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0, err)
        self.assertIn("did not come back within 1 s", err)
        eventually(server.idle, 15, "everything given back")

    def test_without_an_outage_a_reset_ends_the_session(self):
        server = self.serve()
        with Wire(server.port) as wire:
            process = self.started(wire, "hold", "16", "60", TENDRIL_OUTAGE="off")
            eventually(lambda: process.stdout.readline().startswith("holding"), 20, "holding")
            wire.reset()
            process.communicate(timeout=30)
            self.assertNotEqual(process.returncode, 0)
        eventually(server.idle, 2, "everything given back")

    def test_the_servers_limit_holds(self):
        server = self.serve("--outage", "off")
        with Wire(server.port) as wire:
            process = self.started(wire, "hold", "16", "60")
            eventually(lambda: process.stdout.readline().startswith("holding"), 20, "holding")
            wire.reset()
            process.communicate(timeout=30)
            self.assertNotEqual(process.returncode, 0)
        eventually(server.idle, 2, "everything given back")

    def test_a_killed_program_gives_back_at_once(self):
        """At whatever it was: also with bytes that it had not read, which its kernel answers with a
        reset."""
        server = self.serve()
        chance = random.Random(3)
        for words in (("hold", "16", "60"), ("bandwidth", "64"), ("launch_rate", "100000")) * 2:
            process = program(*words, TENDRIL_SERVERS=server.endpoint)
            self.addCleanup(process.stderr.close)
            self.addCleanup(end, process)
            eventually(server.leases, 20, "its lease")
            time.sleep(chance.uniform(0.1, 0.6))
            process.send_signal(signal.SIGKILL)
            process.wait()
            eventually(lambda: not server.leases(), 2, f"the end of {words}")

    def test_a_dead_worker_is_told_at_once(self):
        server = self.serve()
        with Wire(server.port) as wire:
            process = self.started(wire, "hold", "16", "60")
            eventually(lambda: process.stdout.readline().startswith("holding"), 20, "holding")
            for worker in server.workers():
                os.kill(worker, signal.SIGKILL)
            process.communicate(timeout=10)
            self.assertNotEqual(process.returncode, 0)

    def test_a_repeated_request_to_come_again_is_refused(self):
        """Whoever listened and says the same again gets nothing, and does not disturb."""
        server = self.serve_sealed()
        with Wire(server.port) as wire:
            said = {}
            passing = wire.passing

            def listen(number, to_server, data):
                if to_server:
                    said.setdefault(number, bytearray()).extend(data)
                return passing(number, to_server, data)

            wire.passing = listen
            process = self.started(wire, "hold", "16", "5", TENDRIL_TOKEN=TOKEN)
            eventually(lambda: process.stdout.readline().startswith("holding"), 20, "holding")
            before = len(said)
            wire.reset()
            eventually(lambda: "its client is back" in server.log(), 10, "the client")
            again = [bytes(said[number])[:4096] for number in sorted(said) if number >= before]
            self.assertGreaterEqual(len(again), 6)
            for words in again:
                with wire.reach() as connection:
                    connection.settimeout(5)
                    connection.sendall(words)
                    try:
                        while connection.recv(4096):
                            pass
                    except ConnectionResetError:
                        pass
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, err)
        self.assertEqual(server.log().count("its client is back"), 1)


if __name__ == "__main__":
    unittest.main()
