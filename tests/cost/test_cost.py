# SPDX-License-Identifier: Apache-2.0
"""What must not creep up: instructions of the client and of the worker for each launch (callgrind
counts them), round trips and bytes for each step of a training loop. Limits are in
baseline.json. Times are not judged here: they depend on the machine.
"""

import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from harness import BUILD, CLIENT, DRIVER, PROGRAMS, Server, clean_environment  # noqa: E402

BASELINE = json.loads(pathlib.Path(__file__).with_name("baseline.json").read_text(encoding="ascii"))
STATS = re.compile(
    r"(\d+) calls sent, (\d+) round trips, (\d+) sends, (\d+) bytes out, (\d+) bytes in"
)
LAUNCHES = 1000
STEPS = 20


def instructions(argv, function, environment):
    """Instructions inside `function` and what it calls, over all of the program."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind")
        done = subprocess.run(
            [
                "valgrind",
                "--tool=callgrind",
                "--collect-atstart=no",
                f"--toggle-collect={function}",
                f"--callgrind-out-file={out}",
                "-q",
                *argv,
            ],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        totals = re.search(
            r"^(?:summary|totals): (\d+)", pathlib.Path(out).read_text(encoding="latin-1"), re.M
        )
        return int(totals[1])


class Cost(unittest.TestCase):
    def hold(self, name, value):
        """At most the baseline and its tolerance. A value far below should become the baseline."""
        limit = BASELINE[name]["limit"]
        tolerance = BASELINE[name]["tolerance"]
        print(f"cost: {name} {value:.4g} (limit {limit}, tolerance {tolerance})", file=sys.stderr)
        self.assertLessEqual(
            value, limit * (1 + tolerance), f"{name} has grown; if meant, raise it in baseline.json"
        )
        self.assertGreaterEqual(
            value, limit * (0.8 - tolerance), f"{name} has shrunk: lower it in baseline.json"
        )

    def attached(self, server, transport, **more):
        return clean_environment(
            **{
                "LD_LIBRARY_PATH": str(CLIENT.parent),
                "TENDRIL_SERVERS": server.endpoint,
                "TENDRIL_TRANSPORT": transport,
                **more,
            }
        )

    @unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
    def test_instructions_of_a_launch_in_the_client(self):
        launches = (
            20 + 5 * 200 + LAUNCHES + LAUNCHES
        )  # launch_rate: first ones, bursts, each waited for, sustained
        with Server() as server, tempfile.TemporaryDirectory() as folder:
            # Without debug information, because valgrind does not read clang's.
            subprocess.run(
                ["strip", "-g", "-o", os.path.join(folder, CLIENT.name), str(CLIENT)], check=True
            )
            for transport in ("tcp", "shm"):
                used = instructions(
                    [str(PROGRAMS / "launch_rate"), str(LAUNCHES)],
                    "cuLaunchKernel",
                    self.attached(server, transport, LD_LIBRARY_PATH=folder),
                )
                self.hold(f"client_instructions_per_launch_{transport}", used / launches)

    @unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
    def test_instructions_of_a_launch_in_the_worker(self):
        launches = 20000
        for variant in ("warm", "gated"):  # gated: in a turn of a shared GPU
            used = instructions(
                [
                    str(BUILD / "bin/tendril_executor_bench"),
                    str(DRIVER),
                    str(launches),
                    "1",
                    variant,
                ],
                "tendril::worker::cuda::Executor::run*",
                clean_environment(),
            )
            self.hold(
                "worker_instructions_per_launch" + ("_" + variant) * (variant != "warm"),
                used / launches,
            )

    def each_step(self, server, transport, program):
        """Calls, round trips, sends, bytes out and bytes in of one step of a program that has run
        for a while."""
        counts = []
        for steps in (STEPS, 2 * STEPS):
            done = subprocess.run(
                [str(PROGRAMS / program), str(steps)],
                capture_output=True,
                text=True,
                env=self.attached(server, transport, TENDRIL_STATS="1"),
                timeout=60,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            counts.append([int(word) for word in STATS.search(done.stderr).groups()])
        return [(b - a) / STEPS for a, b in zip(*counts)]

    def test_round_trips_and_bytes_of_a_training_step(self):
        with Server() as server:
            for transport in ("tcp", "shm"):
                _, round_trips, _, out, back = self.each_step(server, transport, "training_step")
                self.hold(f"round_trips_per_step_{transport}", round_trips)
                self.hold(f"bytes_per_step_{transport}", out + back)

    def test_round_trips_of_inference_that_is_fed(self):
        with Server() as server:
            for transport in ("tcp", "shm"):
                _, round_trips, *_ = self.each_step(server, transport, "fed_inference")
                self.hold(f"round_trips_of_fed_inference_{transport}", round_trips)

    def test_a_graph_is_changed_and_its_result_read_without_round_trips(self):
        with Server() as server:
            _, round_trips, *_ = self.each_step(server, "tcp", "changed_graph")
            self.hold("round_trips_per_step_of_changed_graph", round_trips)

    def test_copies_use_the_same_pages_again(self):
        """A first touch of a page costs as much as copying it several times. So buffers on the way
        stay small and are used again."""
        with Server() as server:
            for transport in ("tcp", "shm"):
                faults = []
                for rounds in (6, 14):
                    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
                    subprocess.run(
                        [str(PROGRAMS / "copy_sizes"), str(rounds)],
                        env=self.attached(server, transport),
                        check=True,
                        capture_output=True,
                        timeout=60,
                    )
                    faults.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before)
                each = (faults[1] - faults[0]) / 8
                print(
                    f"cost: client's page faults of a round of copies over {transport}: {each:.0f}",
                    file=sys.stderr,
                )
                self.assertLess(each, 60, "of 677 pages that are copied")

    def test_temporary_memory_of_a_stream_needs_nobody(self):
        with Server() as server:
            calls, round_trips, *_ = self.each_step(server, "tcp", "stream_memory")
            self.hold("round_trips_per_step_of_stream_memory", round_trips)
            self.hold("calls_per_step_of_stream_memory", calls)

    def test_memory_is_used_again_without_asking(self):
        with Server() as server:
            for transport in ("tcp", "shm"):  # one of them is the step's own wait
                _, round_trips, *_ = self.each_step(server, transport, "host_memory")
                self.hold(f"round_trips_per_step_of_host_memory_{transport}", round_trips)
            for transport in ("tcp", "shm"):
                calls, round_trips, *_ = self.each_step(server, transport, "device_memory")
                self.hold(f"round_trips_per_step_of_device_memory_{transport}", round_trips)
                self.hold(f"calls_per_step_of_device_memory_{transport}", calls)


if __name__ == "__main__":
    unittest.main()
