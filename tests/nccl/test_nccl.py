# SPDX-License-Identifier: Apache-2.0
"""NCCL as programs see it, on the software GPU with softnccl and without Tendril: results against
the model, what is answered beside results, and small training steps. The same programs run on GPUs
with NCCL; that keeps the double honest."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import edges
import model

BUILD = pathlib.Path(os.environ.get("TENDRIL_BUILD_DIR", "build/dev")).resolve()
FOLDER = pathlib.Path(__file__).resolve().parent
CHECK = BUILD / "bin" / "programs" / "nccl_check"
BENCH = BUILD / "bin" / "programs" / "nccl_bench"
LIBRARIES = {"libcuda.so.1": "libtendril-softgpu.so", "libnccl.so.2": "libtendril-softnccl.so"}
SANITIZED = CHECK.exists() and any(
    library in CHECK.read_bytes() for library in (b"libtsan", b"libasan")
)
needs_plain_libraries = unittest.skipIf(SANITIZED, "python cannot load a sanitized library")


class Native(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tendril-nccl-")
        cls.addClassCleanup(cls.folder.cleanup)
        for name, file in LIBRARIES.items():
            os.symlink(BUILD / "lib" / file, os.path.join(cls.folder.name, name))

    def run_program(self, *command, told="", **variables):
        done = subprocess.run(
            [str(word) for word in command],
            input=told,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={
                **{key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ},
                "LD_LIBRARY_PATH": self.folder.name,
                "PYTHONDONTWRITEBYTECODE": "1",
                "TENDRIL_SOFTGPU_DEVICES": "4",
                **{key: str(value) for key, value in variables.items()},
            },
        )
        return done.returncode, done.stdout + done.stderr

    def expect_pass(self, *command, **variables):
        status, output = self.run_program(*command, **variables)
        self.assertEqual(status, 0, output)
        self.assertIn("PASS", output)
        return output

    def edge(self, scenario, **variables):
        return self.expect_pass(sys.executable, FOLDER / "edges.py", scenario, **variables)

    def table(self, ranks, whole=True):
        path = os.path.join(self.folder.name, f"table-{ranks}-{whole}")
        if not os.path.exists(path):
            with open(path, "w", encoding="ascii") as file:
                file.write(model.cases(ranks, whole=whole))
        return path


class Results(Native):
    def test_every_case_in_every_way(self):
        for ranks, mode in [
            (1, "group"),
            (2, "group"),
            (3, "processes"),
            (4, "group"),
            (4, "all"),
            (4, "threads"),
            (2, "graph"),
        ]:
            with self.subTest(ranks=ranks, mode=mode):
                self.expect_pass(CHECK, self.table(ranks), mode)

    def test_communicators_that_do_not_block(self):
        self.expect_pass(CHECK, self.table(3, whole=False), "nonblocking")

    def test_the_check_finds_one_wrong_bit(self):
        table = self.table(3, whole=False)
        # One of the first all-reduce, of which every rank has a result.
        status, output = self.run_program(CHECK, table, "group", TENDRIL_SOFTNCCL_FLIP=2)
        self.assertEqual(status, 1, output)
        self.assertIn(" 1 wrong", output)


class Bench(Native):
    """tools/gpu/servers.py relies on what it says."""

    FUNCTIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")

    def measured(self, mode, orders, **variables):
        status, output = self.run_program(BENCH, mode, 2, told="\n".join(orders), **variables)
        self.assertEqual(status, 0, output)
        return [json.loads(line[6:]) for line in output.splitlines() if line.startswith("meter ")]

    def test_every_function_is_timed_and_right(self):
        for mode in ("group", "threads", "processes"):
            functions = self.FUNCTIONS + (("copy",) if mode == "group" else ())
            orders = [f"measure {name} 4096 0.001" for name in functions]
            orders += [f"measure {name} 4096 0.001 graph" for name in self.FUNCTIONS]
            with self.subTest(mode=mode):
                answers = self.measured(mode, ["init", *orders, "end"])
                self.assertEqual(len(answers), len(orders) + 3)
                for answer in answers[2:-1]:
                    self.assertEqual(answer["wrong"], 0, answer)
                    self.assertEqual(len(answer["blocks"]), 5, answer)

    def test_a_wrong_bit_is_counted(self):
        # So short that every block is one call: the last of 12 calls of two ranks is looked at.
        orders = ["init", "measure all_reduce 4096 1e-9"]
        answers = self.measured("group", orders, TENDRIL_SOFTNCCL_FLIP=24)
        self.assertEqual(answers[-1]["wrong"], 1, answers)


class Model(unittest.TestCase):
    """The model knows numbers that others have written down."""

    def test_numbers(self):
        for kind, value, wanted in [
            ("int8", 200, "c8"),
            ("int32", -2, "feffffff"),
            ("float16", -3, "00c2"),
            ("float32", 0.625, "0000203f"),
            ("bfloat16", 1.5, "c03f"),
            ("float8e4m3", 448, "7e"),
            ("float8e5m2", -1, "bc"),
            ("float16", 2**-24, "0100"),
        ]:
            self.assertEqual(model.encode(kind, value).hex(), wanted, (kind, value))
        for kind, value in [("float8e4m3", 17), ("float16", 65536), ("bfloat16", 257)]:
            self.assertRaises(ValueError, model.encode, kind, value)


@needs_plain_libraries
class Edges(Native):
    def test_scenarios(self):
        for scenario in edges.SCENARIOS:
            with self.subTest(scenario=scenario.__name__):
                self.edge(scenario.__name__)

    def test_sequences_of_frameworks(self):
        for framework, ranks in (("torch", 4), ("tests", 3)):
            with self.subTest(framework=framework):
                self.expect_pass(sys.executable, FOLDER / "sequences.py", framework, ranks)

    def test_broken_lines_are_told(self):
        self.edge("lost_lines", TENDRIL_SOFTNCCL_LOSE=3)

    def test_ranks_that_differ_are_told(self):
        self.assertIn("call different operations", self.edge("different_calls"))

    def test_late_connections_and_a_short_queue_change_nothing(self):
        table = self.table(2, whole=False)
        knobs = {"TENDRIL_SOFTNCCL_CONNECT_DELAY_MS": 50, "TENDRIL_SOFTNCCL_QUEUE": 1}
        self.expect_pass(CHECK, table, "threads", **knobs)

    def test_calls_fail_as_wanted(self):
        for knob, wanted in [
            ("ncclAllReduce:2:3", 3),
            ("ncclCommInitRank:1+:2", 2),
            ("ncclBroadcast:1:3", 0),
        ]:
            with self.subTest(knob=knob):
                self.edge("knobs", TENDRIL_SOFTNCCL_FAIL=knob, WANTED=wanted)

    def test_versions_must_agree(self):
        output = self.edge("versions")
        self.assertIn("mismatched NCCL version", output)


@needs_plain_libraries
class Training(Native):
    def test_equal_to_one_process_bit_for_bit(self):
        for kind in ("ddp", "fsdp", "tp"):
            for ranks, how in ((2, []), (4, ["graph"])):
                with self.subTest(kind=kind, ranks=ranks, how=how):
                    self.expect_pass(sys.executable, FOLDER / "training.py", kind, ranks, *how)

    def test_a_wrong_bit_is_noticed(self):
        program = [sys.executable, FOLDER / "training.py", "ddp", 2]
        status, output = self.run_program(*program, TENDRIL_SOFTNCCL_FLIP=4)
        self.assertNotEqual(status, 0, output)
        self.assertIn("differs from one process", output)


if __name__ == "__main__":
    unittest.main()
