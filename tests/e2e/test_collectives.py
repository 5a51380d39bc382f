# SPDX-License-Identifier: Apache-2.0
"""The programs of tests/nccl through Tendril: their GPUs are of one server or of several, whose
workers run softnccl. What passes there natively passes here."""

import itertools
import os
import pathlib
import random
import sys
import tempfile
import time
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
class OnServers(unittest.TestCase):
    RANKS = 4
    MODES = ("group", "all", "threads", "processes", "nonblocking", "graph")

    @classmethod
    def setUpClass(cls):
        cls.both = cls.servers(2)
        cls.folder = tempfile.TemporaryDirectory(prefix="tendril-e2e-")
        cls.addClassCleanup(cls.folder.cleanup)

    @classmethod
    def servers(cls, count):
        """So many with a GPU for each rank together."""
        made = [Server("--nccl", SOFTNCCL, gpus=cls.RANKS // count, warm=0) for _ in range(count)]
        for server in made:
            cls.addClassCleanup(server.stop)
        return made

    def passes(self, *command, servers=None, gpus=RANKS):
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
        return output

    def script(self, name, *arguments):
        self.passes(sys.executable, FOLDER / name, *arguments)

    def check(self, head, cases, mode, servers):
        """Runs these cases, and sees that none was left out."""
        table = pathlib.Path(self.folder.name, "table")
        table.write_text(head + "".join("case " + one for one in cases), encoding="ascii")
        # Programs on one server keep their own NCCL. Who preloads ours gets the server's.
        preload = ("env", f"LD_PRELOAD={OURS}") if len(servers) == 1 else ()
        output = self.passes(*preload, CHECK, table, mode, servers=servers, gpus=self.RANKS)
        counted = f"{self.RANKS} ranks, {len(cases)} cases, {mode}: 0 wrong"
        self.assertIn(counted, output)

    def test_every_case_in_every_way(self):
        """The whole table, on 1, 2 and 4 servers, in each mode. Here every combination has a part
        of the cases, and every case runs once. With TENDRIL_NCCL_WHOLE=1 (scripts/longtest)
        every combination has all of them."""
        head, *cases = model.cases(self.RANKS).split("case ")
        random.Random(1).shuffle(cases)
        pools = (self.servers(1), self.both, self.servers(4))
        ways = list(itertools.product(self.MODES, pools))
        whole, ran = bool(os.environ.get("TENDRIL_NCCL_WHOLE")), 0
        for at, (mode, servers) in enumerate(ways):
            part = cases if whole else cases[at :: len(ways)]
            begun = time.monotonic()
            with self.subTest(mode=mode, servers=len(servers)):
                self.check(head, part, mode, servers)
            if whole:
                seconds = time.monotonic() - begun
                line = f"collectives: {len(part)} cases, {mode}, servers: {len(servers)}"
                print(f"{line}: {seconds:.1f} s", flush=True)
            ran += len(part)
        self.assertEqual(ran, len(cases) * (len(ways) if whole else 1))

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

    def test_training_equals_one_process(self):
        for kind in ("ddp", "fsdp", "tp"):
            for ranks, how in ((2, []), (4, ["graph"])):
                with self.subTest(kind=kind, ranks=ranks, how=how):
                    self.script("training.py", kind, ranks, *how)


if __name__ == "__main__":
    unittest.main()
