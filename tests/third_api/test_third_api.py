# SPDX-License-Identifier: Apache-2.0
"""A third API, end to end: a program that knows nothing of Tendril calls it through a real tendrild
and a worker that serves it. No line of client/core, worker/core, session or daemon knows it."""

import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from harness import BUILD, CLIENT, PROGRAMS, Server, clean_environment  # noqa: E402

PROGRAM = BUILD / "bin" / "tendril_abacus_program"
WORKER = BUILD / "bin" / "tendril_abacus_worker"


def run(server, program, **environment):
    return subprocess.run(
        [program],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(TENDRIL_SERVERS=server.endpoint, **environment),
        check=False,
    )


class ThirdApi(unittest.TestCase):
    def calls_work(self, transport):
        with Server("--worker", str(WORKER)) as server:
            done = run(server, PROGRAM, TENDRIL_TRANSPORT=transport)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr + server.log())
            self.assertIn("0 failures", done.stdout)

    def test_over_tcp(self):
        self.calls_work("tcp")

    def test_over_shared_memory(self):
        self.calls_work("shm")

    @unittest.skipUnless(
        CLIENT.exists() and PROGRAMS.joinpath("vector_add").exists(), "CUDA's client was not built"
    )
    def test_beside_cuda(self):
        """One worker executable serves both APIs, each in sessions of its own."""
        with Server("--worker", str(WORKER)) as server:
            for program in (PROGRAM, PROGRAMS / "vector_add"):
                done = run(server, program, LD_LIBRARY_PATH=str(CLIENT.parent))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr + server.log())

    def test_a_server_without_it_says_so(self):
        with Server() as server:
            done = run(server, PROGRAM)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn("abacus", done.stderr)


if __name__ == "__main__":
    unittest.main()
