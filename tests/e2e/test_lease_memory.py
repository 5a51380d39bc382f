# SPDX-License-Identifier: Apache-2.0
"""The account of a lease whose processes lay out memory themselves: while all stand still, what is
charged is what the software GPU says is in use, and at no moment more than the quota. What one
process keeps for later, another one gets. TENDRIL_LEASE_MEMORY_SEEDS sets how many random runs
stand still after every step."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness
from harness import MIB, Server, eventually
from test_quota import sessions, taken

PROGRAM = pathlib.Path(__file__).with_name("support") / "lease_memory_program.py"
PROCESSES, THREADS, ROUNDS, STEPS = 4, 8, 20, 16  # 10,240 steps
SEEDS = int(os.environ.get("TENDRIL_LEASE_MEMORY_SEEDS", "0"))
SLICE_MIB = 640
INSTANCES_MIB = 4  # of each process


@harness.needs_client
@harness.needs_plain_client
class LeaseMemory(unittest.TestCase):
    def test_four_processes_with_eight_threads(self):
        self.random_steps(int(os.environ.get("TENDRIL_QUOTA_SEED", "1")), ROUNDS, STEPS)

    @unittest.skipUnless(SEEDS, "long: TENDRIL_LEASE_MEMORY_SEEDS says how many")
    def test_every_step(self):
        """Each thread makes one step. Then all stand still, 320 times."""
        for seed in range(2, 2 + SEEDS):
            self.random_steps(seed, ROUNDS * STEPS, 1)

    def random_steps(self, seed, rounds, steps):
        board = f"/dev/shm/tendril-lease-{os.getpid()}-{os.urandom(4).hex()}"
        self.addCleanup(pathlib.Path(board).unlink, missing_ok=True)
        errors = tempfile.TemporaryFile("w+")
        self.addCleanup(errors.close)
        environment = {"TENDRIL_SOFTGPU_BOARD": board, "TENDRIL_SOFTGPU_COSTS": "card"}
        # Instances of graphs lie in the reserve (docs/decisions/0020-what-a-driver-takes.md).
        reserve = PROCESSES * INSTANCES_MIB
        with Server("--turns", "off", environment=environment) as server:
            process = subprocess.Popen(
                [
                    *(harness.TENDRIL, "run", "--server", server.endpoint, "-m", f"{SLICE_MIB}M"),
                    *("--", sys.executable, "-B", PROGRAM),
                    *map(str, (seed, PROCESSES, THREADS, rounds, steps)),
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
                if slice_["memory_used_bytes"] > slice_["memory_bytes"]:  # whose it is
                    self.fail(f"{slice_} {taken(board)} {sessions(server)} {taken(board)}")
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
                while used != charged + reserve and time.monotonic() < deadline:
                    time.sleep(0.02)
                    used, charged = look()
                return used, charged, line

            with Watch(lambda: taken(board)[0]) as most_mib:
                answer = None
                for word in ["round"] * rounds + ["end"]:
                    used, charged, line = still(answer, word)
                    if used != charged + reserve:  # whose it is
                        line += [taken(board)[1], sessions(server)]
                    self.assertEqual(used, charged + reserve, f"seed {seed}: {line}")
                    answer = ""
                used, charged, line = still("quiet", "end")  # what waits for later goes
            self.assertLessEqual(most_mib(), SLICE_MIB + reserve, "of the GPU, at any moment")
            self.assertEqual(charged, 0, "residue")
            self.assertGreaterEqual(int(line[1]), 10_000)
            self.assertGreater(int(line[2]), 0, "it was not tight")
            process.communicate("\n", timeout=30)
            errors.seek(0)
            self.assertEqual(process.returncode, 0, errors.read())
            self.assertNotIn("the driver has no", server.log())
            eventually(server.settled, 10, "everything given back")


class Watch:
    """Looks at a number again and again. Gives a function that says the largest so far."""

    def __init__(self, look):
        self.look, self.most, self.over = look, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return lambda: self.most

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def watch(self):
        while not self.over.wait(0.02):
            self.most = max(self.most, self.look())


# Processes of one lease. The first line of stdin that begins with a number is for the process of
# that number. Each answers with one line.
FAMILY = """
import ctypes, os, subprocess, sys, threading
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
MIB = 1 << 20
if len(sys.argv) == 1:
    members = [subprocess.Popen([sys.executable, "-c", os.environ["FAMILY"], str(i)], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE) for i in range(2)]
    print(*(one.pid for one in members), flush=True)
    for line in sys.stdin:
        number, words = line.split(" ", 1)
        members[int(number)].stdin.write(words)
        members[int(number)].stdin.flush()
        print(members[int(number)].stdout.readline(), end="", flush=True)
    for one in members:
        one.stdin.close()
    sys.exit(max(one.wait() for one in members))
cuda = ctypes.CDLL("libcuda.so.1")
def must(code):
    assert code == 0, code
device, context, held, over = c_int(), c_void_p(), [], threading.Event()
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
def take(mib):
    p = c_uint64()
    result = cuda.cuMemAlloc_v2(byref(p), c_size_t(mib * MIB))
    if result == 0:
        held.append(p)
    return result
def work():
    must(cuda.cuCtxSetCurrent(context))
    p = c_uint64()
    while not over.is_set():
        for mib in (2, 6, 10):
            if cuda.cuMemAlloc_v2(byref(p), c_size_t(mib * MIB)) == 0:
                must(cuda.cuMemsetD8_v2(p, 1, c_size_t(mib * MIB)))
                must(cuda.cuMemFree_v2(p))
        must(cuda.cuCtxSynchronize())
for line in sys.stdin:
    word, *rest = line.split()
    if word == "take":
        print(max(take(int(mib)) for mib in rest), flush=True)
    elif word == "free":
        while held:
            must(cuda.cuMemFree_v2(held.pop()))
        print("freed", flush=True)
    elif word == "info":
        free, total = c_size_t(), c_size_t()
        must(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
        print(free.value // MIB, total.value // MIB, flush=True)
    elif word == "work":
        threading.Thread(target=work).start()
        print("works", flush=True)
over.set()
"""


@harness.needs_client
@harness.needs_plain_client
class TakingBack(unittest.TestCase):
    """Two processes of a lease of 512 MiB. One keeps what it has freed, and what is paid ahead."""

    def family(self, server, transport):
        process = subprocess.Popen(
            [
                *(harness.TENDRIL, "run", "--server", server.endpoint, "-m", "512M", "--"),
                *(sys.executable, "-c", FAMILY),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=harness.clean_environment(TENDRIL_TRANSPORT=transport, FAMILY=FAMILY),
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(harness.end, process)
        pids = [int(word) for word in process.stdout.readline().split()]

        def ask(number, *words):
            process.stdin.write(f"{number} {' '.join(map(str, words))}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        def leave():
            process.stdin.close()
            self.assertEqual(process.wait(20), 0)

        return pids, ask, leave

    def charged_mib(self, server):
        return server.leases()[0]["slices"][0]["memory_used_bytes"] // MIB

    def test_a_process_that_does_nothing(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport), Server() as server:
                _, ask, leave = self.family(server, transport)
                self.assertEqual(ask(0, "take", *[20] * 10, 1), "0")
                self.assertEqual(ask(0, "free"), "freed")
                self.assertGreater(self.charged_mib(server), 100, "it keeps most of that")
                self.assertEqual(ask(1, "take", 512), "0", "the whole quota")
                # Blocks are made behind what is paid ahead.
                eventually(lambda: self.charged_mib(server) == 512, 10, "all of it charged")
                self.assertEqual(ask(0, "take", 2), "2")
                self.assertEqual(ask(1, "free"), "freed")
                self.assertEqual(ask(0, "take", 500), "0", "and the other way round")
                leave()

    def test_free_memory_counts_what_others_keep(self):
        with Server() as server:
            _, ask, leave = self.family(server, "shm")
            self.assertEqual(ask(0, "take", *[20] * 10), "0")
            self.assertEqual(ask(0, "free"), "freed")
            self.assertEqual(ask(1, "info"), "512 512")
            leave()

    def test_a_process_that_works(self):
        with Server() as server:
            _, ask, leave = self.family(server, "shm")
            self.assertEqual(ask(0, "take", *[20] * 10), "0")
            self.assertEqual(ask(0, "free"), "freed")
            self.assertEqual(ask(0, "work"), "works")
            for _ in range(10):
                self.assertEqual(ask(1, "take", 480), "0")
                self.assertEqual(ask(1, "free"), "freed")
            leave()

    def test_a_process_that_is_stopped_holds_others_up_for_a_moment(self):
        with Server() as server:
            pids, ask, leave = self.family(server, "shm")
            self.assertEqual(ask(0, "take", *[20] * 10), "0")
            self.assertEqual(ask(0, "free"), "freed")
            os.kill(pids[0], signal.SIGSTOP)
            began = time.monotonic()
            self.assertEqual(ask(1, "take", 512), "2")
            self.assertLess(time.monotonic() - began, 8)
            began = time.monotonic()
            self.assertEqual(ask(1, "take", 512), "2", "nobody waits for it again")
            self.assertLess(time.monotonic() - began, 1)
            os.kill(pids[0], signal.SIGCONT)
            eventually(lambda: ask(1, "take", 512) == "0", 10, "it has answered")
            leave()


if __name__ == "__main__":
    unittest.main()
