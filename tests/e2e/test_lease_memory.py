# SPDX-License-Identifier: Apache-2.0
"""The account of a lease whose processes lay out memory themselves: while all stand still, what is
charged is what the software GPU says is in use."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import harness
from harness import MIB, Server, eventually
from test_quota import sessions, taken

PROGRAM = pathlib.Path(__file__).with_name("support") / "lease_memory_program.py"
PROCESSES, THREADS, ROUNDS, STEPS = 4, 8, 20, 16  # 10,240 steps
SLICE_MIB = 640
INSTANCES_MIB = 4  # of each process


@harness.needs_client
@harness.needs_plain_client
class LeaseMemory(unittest.TestCase):
    def test_four_processes_with_eight_threads(self):
        seed = int(os.environ.get("TENDRIL_QUOTA_SEED", "1"))
        board = f"/dev/shm/tendril-lease-{os.getpid()}-{os.urandom(4).hex()}"
        self.addCleanup(pathlib.Path(board).unlink, missing_ok=True)
        errors = tempfile.TemporaryFile("w+")
        self.addCleanup(errors.close)
        environment = {"TENDRIL_SOFTGPU_BOARD": board, "TENDRIL_SOFTGPU_COSTS": "card"}
        with Server("--turns", "off", environment=environment) as server:
            process = subprocess.Popen(
                [
                    *(harness.TENDRIL, "run", "--server", server.endpoint, "-m", f"{SLICE_MIB}M"),
                    *("--", sys.executable, "-B", PROGRAM),
                    *map(str, (seed, PROCESSES, THREADS, ROUNDS, STEPS)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=harness.clean_environment(),
            )
            self.addCleanup(harness.end, process)

            def look():
                slice_ = server.leases()[0]["slices"][0]
                self.assertLessEqual(slice_["memory_used_bytes"], slice_["memory_bytes"])
                return taken(board)[0], slice_["memory_used_bytes"] / MIB

            def still(answer, word):
                """Answers, and reads the next line."""
                if answer is not None:
                    process.stdin.write(answer + "\n")
                    process.stdin.flush()
                line = process.stdout.readline().split()
                if not line or line[0] != word:
                    errors.seek(0)
                    self.fail(f"seed {seed}: {line} {errors.read()[-3000:]}{server.log()[-1000:]}")
                used, charged = look()
                # What pools keep goes back when somebody waits, and the worker sees it later.
                deadline = time.monotonic() + 3
                while used != charged + PROCESSES * INSTANCES_MIB and time.monotonic() < deadline:
                    time.sleep(0.02)
                    used, charged = look()
                return used, charged, line

            # Instances of graphs lie in the reserve (docs/decisions/0020-what-a-driver-takes.md).
            reserve = PROCESSES * INSTANCES_MIB
            answer = None
            for word in ["round"] * ROUNDS + ["end"]:
                used, charged, line = still(answer, word)
                if used != charged + reserve:  # whose it is
                    line += [taken(board)[1], sessions(server)]
                self.assertEqual(used, charged + reserve, f"seed {seed}: {line}")
                answer = ""
            used, charged, line = still("quiet", "end")  # what waits for the next allocation goes
            self.assertEqual(charged, 0, "residue")
            self.assertGreaterEqual(int(line[1]), 10_000)
            self.assertGreater(int(line[2]), 0, "it was not tight")
            process.communicate("\n", timeout=30)
            errors.seek(0)
            self.assertEqual(process.returncode, 0, errors.read())
            self.assertNotIn("the driver has no", server.log())
            eventually(server.settled, 10, "everything given back")


if __name__ == "__main__":
    unittest.main()
