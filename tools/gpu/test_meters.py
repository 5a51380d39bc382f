# SPDX-License-Identifier: Apache-2.0
"""Programs that take turns, with a workload that only sleeps, and the summary of their answers."""

import json
import os
import pathlib
import sys
import tempfile
import time
import unittest

import meters
import sealed
import sides
import starts
import steps

HERE = pathlib.Path(__file__).resolve().parent

PROGRAM = """
import os, sys, time
sys.path.insert(0, {folder!r})
import meter
def sleeps():
    return lambda: time.sleep(float(os.environ["STEP_S"]))
def ends():
    sys.stderr.write("this is the end\\n")
    os._exit(3)
def raises():
    raise ValueError("no such model")
meter.Meter({{"sleep": sleeps, "end": ends, "raise": raises}}, lambda: None).serve()
"""


def turn(*blocks, **more):
    return {"blocks": list(blocks), "trips": 2.0, "out": 10.0, "back": 1.0, "code": 0.0, **more}


class Whole:
    """Of gpu_run's Run what an experiment of several steps uses."""

    def __init__(self, folder):
        self.work = self.out = self.logs = self.binaries = pathlib.Path(folder)
        self.said, self.facts, self.environment = [], {}, lambda: {}
        self.say, self.left = self.said.append, lambda: 100


class Experiments(unittest.TestCase):
    def test_an_error_costs_its_step_only(self):
        with tempfile.TemporaryDirectory() as folder:
            s = steps.Steps(Whole(folder), HERE, "trial")
            three = [
                ("one", 10, lambda: 1),
                ("two", 10, lambda: [][0]),
                ("three", 10, lambda: 3),
                ("four", 200, lambda: 4),
            ]
            s.run_all(three, ())
            found = json.loads((pathlib.Path(folder) / "trial.json").read_text())["found"]
        self.assertEqual((found["one"], found["three"]), (1, 3))
        self.assertIn("IndexError", found["two"]["error"])
        self.assertNotIn("four", found)  # no time left

    def test_sealing_by_gigabyte_and_by_wait(self):
        turn = {"us": 500.0, "times": 2000, "processor_s": 0.5, "served_s": 0.25}
        copies = sealed.summary([turn] * 3, 1_000_000)
        self.assertEqual((copies["gb_per_s"], copies["client"], copies["server"]), (2, 0.25, 0.125))
        waits = sealed.summary([turn] * 3, 0)
        self.assertEqual((waits["client"], waits["server"]), (250, 125))


class Arithmetic(unittest.TestCase):
    def test_summary(self):
        seen = meters.summary([turn(1.0, 2.0, 3.0), turn(3.0, 4.0, 5.0, trips=4.0)])
        self.assertEqual((seen["q1"], seen["ms"], seen["q3"]), (2.25, 3.0, 3.75))
        self.assertEqual((seen["turns"], seen["blocks"], seen["trips"]), ([2.0, 4.0], 6, 3.0))

    def test_no_summary_of_what_failed(self):
        self.assertIsNone(meters.summary([turn(1.0), {"error": "gone"}]))
        self.assertIsNone(meters.summary([]))

    def test_a_turn_counts_against_its_neighbours(self):
        """A host that slows down by half after the first turn: ours is as fast as native in every
        turn."""
        native = meters.summary([turn(10.0), turn(20.0), turn(20.0)])
        ours = meters.summary([turn(15.0), turn(20.0)])
        _, least, most = meters.ratio(native, ours)
        self.assertEqual((least, most), (1.0, 1.0))

    def test_what_the_host_does_to_native_alone(self):
        native = meters.summary([turn(10.0), turn(20.0), turn(10.0), turn(10.0)])
        self.assertEqual(meters.own_spread(native), (0.5, 1.5))
        self.assertIsNone(meters.own_spread(meters.summary([turn(10.0), turn(20.0)])))

    def test_a_host_that_changes_once_does_not_decide(self):
        """Ours is a tenth faster in every turn, but more of native's turns were in the host's fast
        half."""
        native = meters.summary([turn(10.0), turn(10.0), turn(10.0), turn(20.0)])
        ours = meters.summary([turn(9.0), turn(9.0), turn(13.5)])
        self.assertAlmostEqual(meters.ratio(native, ours)[0], 10 / 9)


class Threads(unittest.TestCase):
    def test_who_runs_is_seen_and_where(self):
        def busy():  # on a machine whose other programs leave it enough
            before, until = meters.running_times(), time.monotonic() + 0.3
            while time.monotonic() < until:
                pass
            found = meters.busy_threads(before, meters.running_times())
            return [entry for entry in found if entry[1] == os.getpid() and entry[3] > 0.1]

        mine = next(filter(None, (busy() for _ in range(30))), [])
        self.assertEqual(len(mine), 1)
        _, _, processor, share = mine[0]
        self.assertIn(processor, range(os.cpu_count()))
        self.assertGreater(share, 0.1)

    def test_who_sleeps_is_not(self):
        before = meters.running_times()
        time.sleep(0.3)
        busy = meters.busy_threads(before, meters.running_times())
        self.assertNotIn(os.getpid(), [entry[1] for entry in busy])


class Processes(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        frameworks = pathlib.Path(__file__).resolve().parent / "frameworks"
        self.script = self.folder / "program.py"
        self.script.write_text(PROGRAM.format(folder=str(frameworks)))
        self.said = []
        self.field = meters.Field(self.said.append)
        self.addCleanup(self.field.end)

    def start(self, name, step_s):
        side = sides.Side(name, self.folder, self.folder / "logs", dict(os.environ))
        self.field.start(
            side, "try", [sys.executable, "-B", str(self.script)], {"STEP_S": str(step_s)}
        )

    def test_who_is_slower_is_found_slower(self):
        self.start("native", 0.004)
        self.start("other", 0.012)
        self.assertTrue(self.field.ready(20))
        turns = self.field.compare("sleep", 2, 0.1, 20)
        self.assertEqual(
            {name: len(answers) for name, answers in turns.items()}, {"native": 3, "other": 2}
        )
        native, other = (meters.summary(turns[name]) for name in ("native", "other"))
        self.assertGreaterEqual(native["ms"], 4)
        self.assertLess(meters.ratio(native, other)[0], 0.7)
        self.assertEqual(self.said, [])

    def test_what_fails_is_told_and_the_rest_goes_on(self):
        self.start("native", 0.002)
        self.start("other", 0.002)
        self.assertTrue(self.field.ready(20))
        self.assertEqual(self.field.compare("raise", 1, 0.05, 20), {})
        self.assertIn("setup raise on other: ValueError: no such model", self.said)
        self.assertEqual(
            self.field.meters[1].ask("setup end", 20), {"error": "ended with 3: this is the end"}
        )
        self.assertEqual(list(self.field.compare("sleep", 1, 0.05, 20)), ["native"])

    def test_no_answer_ends_it(self):
        self.start("native", 30)
        self.assertTrue(self.field.ready(20))
        self.assertEqual(self.field.compare("sleep", 1, 0.05, 0.5), {})
        self.assertIsNotNone(self.field.meters[0].process.poll())

    def test_time_of_processes_that_have_ended_counts(self):
        watch = starts.Usage(os.getpid())
        told = starts.first_line(
            sides.Side("native", self.folder, self.folder / "logs", dict(os.environ)),
            "burn",
            [sys.executable, "-c", "print('x'); sum(range(5_000_000))"],
            20,
        )
        self.assertEqual((told["line"], told["status"]), ("x", 0))
        self.assertGreater(told["cpu"], 0.03)
        self.assertGreaterEqual(watch.since(), told["cpu"] - 0.05)


if __name__ == "__main__":
    unittest.main()
