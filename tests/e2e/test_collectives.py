# SPDX-License-Identifier: Apache-2.0
"""The programs of tests/nccl through Tendril: their GPUs are of two servers, whose workers run
softnccl. What passes there natively passes here."""

import os
import pathlib
import sys
import tempfile
import unittest

import harness
from harness import BUILD, Server, tendril

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "nccl"
sys.path.insert(0, str(FOLDER))
import edges  # noqa: E402
import model  # noqa: E402

CHECK = BUILD / "bin" / "programs" / "nccl_check"
SOFTNCCL = BUILD / "lib" / "libtendril-softnccl.so"
OURS = harness.CLIENT.parent / "nccl" / "libnccl.so.2"


@harness.needs_plain_client
@unittest.skipUnless(
    all(file.exists() for file in (SOFTNCCL, CHECK, OURS)), "NCCL's libraries are not built"
)
class OnTwoServers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.both = [Server("--nccl", SOFTNCCL, gpus=2, warm=0) for _ in range(2)]
        cls.singles = [Server("--nccl", SOFTNCCL, gpus=1, warm=0) for _ in range(2)]
        for server in cls.both + cls.singles:
            cls.addClassCleanup(server.stop)
        cls.folder = tempfile.TemporaryDirectory(prefix="tendril-e2e-")
        cls.addClassCleanup(cls.folder.cleanup)

    def passes(self, *command, servers=None, gpus=4):
        status, output, problems = tendril(
            "run",
            "-n",
            str(gpus),
            "--",
            *(str(word) for word in command),
            server=servers or self.both,
            timeout=120,
            TENDRIL_TRANSPORT="tcp",
            PYTHONDONTWRITEBYTECODE="1",
        )
        self.assertEqual(status, 0, output + problems)
        self.assertIn("PASS", output)

    def script(self, name, *arguments):
        self.passes(sys.executable, FOLDER / name, *arguments)

    def test_ranks_in_one_call_in_threads_and_in_processes(self):
        table = self.table(4, whole=False)
        for mode in ("all", "threads", "nonblocking", "processes", "graph"):
            with self.subTest(mode=mode):
                self.passes(CHECK, table, mode)

    def table(self, ranks, whole):
        path = pathlib.Path(self.folder.name, f"table-{ranks}-{whole}")
        if not path.exists():
            path.write_text(model.cases(ranks, whole=whole), encoding="ascii")
        return path

    def test_every_function_type_operator_and_root(self):
        """Every fifth case of the whole table; all of them with TENDRIL_NCCL_WHOLE=1."""
        head, *cases = self.table(2, whole=True).read_text(encoding="ascii").split("case ")
        step = 1 if os.environ.get("TENDRIL_NCCL_WHOLE") else 5
        table = pathlib.Path(self.folder.name, "some")
        table.write_text(head + "".join("case " + one for one in cases[::step]), encoding="ascii")
        self.passes(CHECK, table, "group", gpus=2, servers=self.singles)

    def test_one_server(self):
        """Programs there keep their own NCCL. Who preloads ours gets the server's."""
        with Server("--nccl", SOFTNCCL, gpus=2, warm=0) as one:
            for mode in ("group", "processes"):
                with self.subTest(mode=mode):
                    check = ("env", f"LD_PRELOAD={OURS}", CHECK, self.table(2, whole=False), mode)
                    self.passes(*check, servers=[one], gpus=2)

    def test_sequences_of_frameworks(self):
        for framework in ("torch", "tests"):
            with self.subTest(framework=framework):
                self.script("sequences.py", framework, 4)

    def test_scenarios(self):
        for scenario in edges.SCENARIOS:
            with self.subTest(scenario=scenario.__name__):
                self.script("edges.py", scenario.__name__)

    def test_two_jobs_at_once_on_shared_slices(self):
        steps = [sys.executable, FOLDER / "training.py"]
        jobs = [
            harness.start("run", "-n", "4", "-p", "0.4", "--", *command, server=self.both)
            for command in ([*steps, "ddp", "2"], [*steps, "tp", "4", "graph"])
        ]
        for job in jobs:
            self.addCleanup(harness.end, job)
            output = job.stdout.read()
            self.assertIn("PASS", output)
            self.assertEqual(job.wait(60), 0, output)

    def test_four_servers(self):
        four = [Server("--nccl", SOFTNCCL, gpus=1, warm=0) for _ in range(4)]
        for server in four:
            self.addCleanup(server.stop)
        for mode in ("all", "processes"):
            with self.subTest(mode=mode):
                self.passes(CHECK, self.table(4, whole=False), mode, servers=four)

    def test_training_equals_one_process(self):
        for kind in ("ddp", "fsdp", "tp"):
            for ranks, how in ((2, []), (4, ["graph"])):
                with self.subTest(kind=kind, ranks=ranks, how=how):
                    self.script("training.py", kind, ranks, *how)


if __name__ == "__main__":
    unittest.main()
