# SPDX-License-Identifier: Apache-2.0
"""The memory quota on every path, against a software GPU whose memory costs what it costs on a card
(docs/decisions/0020-what-a-driver-takes.md). The server has promised every byte. So whatever one
program takes beyond its charge, another one misses."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import harness
import test_memory
from harness import MIB, Server, eventually, tendril

CONTEXT_MIB, CODE_MIB = 24, 32
# of a thread's local memory, by 4 processors of 2,048 threads
LOCAL_RESIDUE = (6000 - 1024) * 4 * 2048 + 2 * MIB
GRAPH_RESIDUE = 4 * MIB  # of quota_program.py
PROGRAM = pathlib.Path(__file__).with_name("support") / "quota_program.py"


def card(memory=2048 * MIB, costs="card", context_mib=CONTEXT_MIB, **more):
    """A server with one GPU, and the board that shows what is really taken."""
    board = f"/dev/shm/tendril-quota-{os.getpid()}-{os.urandom(4).hex()}"
    environment = {
        "TENDRIL_SOFTGPU_BOARD": board,
        "TENDRIL_SOFTGPU_COSTS": costs,
        "TENDRIL_SOFTGPU_CONTEXT_MB": str(context_mib),
        "TENDRIL_SOFTGPU_DEVICES": "1",
        "TENDRIL_SOFTGPU_MEMORY_MB": str(memory // MIB),
    }
    options = ("--code-memory", f"{CODE_MIB}M", "--turns", "off")
    server = Server(*options, memory=memory, environment=environment, **more)
    return server, board


def taken(board):
    """What the device's memory is used for: in all, and by process, in MiB."""
    text = subprocess.run(
        [harness.BUILD / "bin" / "tendril-softgpu", "show"],
        env={"TENDRIL_SOFTGPU_BOARD": board},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    total = int(re.search(r", (\d+) of \d+ MiB", text).group(1))
    return total, {int(p): int(m) for p, m in re.findall(r"process (\d+): (\d+) MiB", text)}


def sessions(server):
    status, out, err = tendril("top", "--once", "--interval", "0.1", "--json", server=server)
    if status != 0:
        raise AssertionError(err)
    return json.loads(out)["servers"][0]["sessions"]


# Each took memory that nobody had been charged for: bytes that take 512 each, contexts, the stack
# of kernels, streams, graphs, the heap of kernels. MiB of the slice, and what its program does.
ATTACKS = (
    (
        80,
        """
count, p = 0, c_uint64()
while count < 60_000 and cuda.cuMemAlloc_v2(byref(p), c_size_t(1)) == 0:
    count += 1
assert 30_000 < count < 60_000 and free_bytes() < 2 * MIB, (count, free_bytes())
""",
    ),
    (
        200,
        """
count, other = 0, c_void_p()
while cuda.cuCtxCreate_v2(byref(other), 0, device) == 0:
    count += 1
assert 2 <= count <= 6, count
must(cuda.cuCtxSetCurrent(main_context))
""",
    ),
    (
        200,
        """
assert cuda.cuCtxSetLimit(0, c_size_t(100_000)) == OUT_OF_MEMORY
must(cuda.cuCtxSetLimit(0, c_size_t(8192)))
assert free_bytes() <= before - 7 * 8 * MIB, free_bytes()
""",
    ),
    (
        200,
        """
made, before = [], free_bytes()
while len(made) < 600:
    made.append(c_void_p())
    if cuda.cuStreamCreate(byref(made[-1]), 1) or cuda.cuCtxSynchronize():
        break
assert 100 < len(made) < 500, len(made)
""",
    ),
    (
        200,
        """
graph, made = make_graph(2, 50, 40), []
while len(made) < 200:
    made.append(c_void_p())
    got = cuda.cuGraphInstantiateWithFlags(byref(made[-1]), graph, c_uint64(0))
    if got != 0:
        break
assert got == OUT_OF_MEMORY and 2 <= len(made) < 40, (got, len(made))
""",
    ),
    (
        200,
        """
assert cuda.cuCtxSetLimit(2, c_size_t(before)) == OUT_OF_MEMORY
mib = before // MIB
while cuda.cuCtxSetLimit(2, c_size_t(mib * MIB)) != 0:
    mib -= 1
assert mib > before // MIB * 2 // 3, (mib, before)
module, function = c_void_p(), c_void_p()
must(cuda.cuModuleLoadData(byref(module), HEAP_KERNEL))
must(cuda.cuModuleGetFunction(byref(function), module, b"heap"))
must(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
must(cuda.cuCtxSynchronize())
""",
    ),
)


# A stream that waits for this program, which waits for a line of its stdin.
STOPPED = """
go_on, least = threading.Event(), 32
waits = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: go_on.wait())
nothing = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: None)
one, another = c_void_p(), c_void_p()
must(cuda.cuStreamCreate(byref(one), 1))
must(cuda.cuStreamCreate(byref(another), 1))
def stop(stream):
    must(cuda.cuLaunchHostFunc(stream, waits, None))
def take(mib, stream, pool=None):
    p = c_uint64()
    if pool is None:
        return cuda.cuMemAllocAsync(byref(p), c_size_t(mib * MIB), stream), p
    return cuda.cuMemAllocFromPoolAsync(byref(p), c_size_t(mib * MIB), pool, stream), p
def say(word):
    print(word, flush=True)
    sys.stdin.readline()
free_mib()
must(cuda.cuLaunchHostFunc(one, nothing, None))  # it may take memory itself
p = c_uint64()
big = free_mib() * 2 // 3 // least * least
assert big > 0
"""

# Each took memory that a stream had still to free, or pieces of which a part was paid.
STOPPED_ATTACKS = {
    "another stream": """
got, p = take(big, one)
must(got)
stop(one)
must(cuda.cuMemFreeAsync(p, one))
assert take(big, another)[0] == 2
say("held")
go_on.set()
got, p = take(big, another)  # waits for that stream
must(got)
""",
    "a pool that is gone": """
pool, props = c_void_p(), PoolProps(1, 0, where)
must(cuda.cuMemPoolCreate(byref(pool), byref(props)))
got, p = take(big, one, pool)
must(got)
stop(one)
must(cuda.cuMemFreeAsync(p, one))
must(cuda.cuMemPoolDestroy(pool))
assert cuda.cuMemAlloc_v2(byref(p), c_size_t(big * MIB)) == 2
say("held")
go_on.set()
must(cuda.cuCtxSynchronize())
must(cuda.cuMemAlloc_v2(byref(p), c_size_t(big * MIB)))
""",
    "a pool that is gone before its block": """
pool, props = c_void_p(), PoolProps(1, 0, where)
must(cuda.cuMemPoolCreate(byref(pool), byref(props)))
got, p = take(big, one, pool)
must(got)
stop(one)
must(cuda.cuMemPoolDestroy(pool))
must(cuda.cuMemFreeAsync(p, one))
assert cuda.cuMemAlloc_v2(byref(p), c_size_t(big * MIB)) == 2
say("held")
go_on.set()
must(cuda.cuCtxSynchronize())
must(cuda.cuMemAlloc_v2(byref(p), c_size_t(big * MIB)))
""",
    "graphs in two streams": """
def make(stream):
    graph, run, p = c_void_p(), c_void_p(), c_uint64()
    must(cuda.cuStreamBeginCapture_v2(stream, 2))
    must(cuda.cuMemAllocAsync(byref(p), c_size_t(big * MIB), stream))
    must(cuda.cuMemFreeAsync(p, stream))
    must(cuda.cuStreamEndCapture(stream, byref(graph)))
    must(cuda.cuGraphInstantiateWithFlags(byref(run), graph, c_uint64(0)))
    return run
first, second = make(one), make(another)
stop(one)
for _ in range(3):  # one after the other they share the memory
    must(cuda.cuGraphLaunch(first, one))
assert (cuda.cuGraphLaunch(second, another) or cuda.cuStreamSynchronize(another)) == 2
say("held")
go_on.set()
must(cuda.cuGraphLaunch(second, another))
must(cuda.cuCtxSynchronize())
must(cuda.cuGraphLaunch(first, one))
must(cuda.cuCtxSynchronize())
""",
    "a part of a piece": """
must(cuda.cuMemAlloc_v2(byref(p), c_size_t((free_mib() - 20) * MIB)))
stop(one)
got, p = take(2, one)
say("held")
go_on.set()
must(cuda.cuCtxSynchronize())
if got == 0:
    must(cuda.cuMemFreeAsync(p, one))
""",
}


@harness.needs_client
@harness.needs_plain_client
class Quota(unittest.TestCase):
    def start(self, **more):
        server, board = card(**more)
        self.addCleanup(pathlib.Path(board).unlink, missing_ok=True)
        self.addCleanup(server.stop)
        return server, board

    def begin(self, server, share, *words, stderr=None):
        """Python with these words, as a tenant with this share. Its pipes are text."""
        process = subprocess.Popen(
            [
                *(harness.TENDRIL, "run", "--server", server.endpoint, *share, "--"),
                *(sys.executable, "-B", *words),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=harness.clean_environment(),
        )
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        harness.end(process)
        process.stdin.close()

    def check(self, server, board):
        """At a moment when no program does anything."""
        total, by_process = taken(board)
        charged, used = {}, {}
        for lease in server.leases():
            charged[lease["lease"]] = sum(s["memory_used_bytes"] for s in lease["slices"])
            quota = sum(s["memory_bytes"] for s in lease["slices"])
            self.assertLessEqual(charged[lease["lease"]], quota, "more is charged than promised")
        for session in sessions(server):
            mib = by_process.get(session["worker_pid"], 0)
            used[session["lease"]] = used.get(session["lease"], 0) + mib
        for lease, mib in used.items():
            self.assertLessEqual(mib, charged[lease] / MIB + 1, "more is taken than charged")
        return total

    def test_eight_programs_at_random(self):
        seed = int(os.environ.get("TENDRIL_QUOTA_SEED", "1"))
        steps = int(os.environ.get("TENDRIL_QUOTA_STEPS", "12"))
        server, board = self.start()
        programs = []
        for i in range(8):
            errors = tempfile.TemporaryFile("w+")
            self.addCleanup(errors.close)
            words = (PROGRAM, str(seed * 8 + i), str(steps))
            process = self.begin(server, ("-p", "0.125"), *words, stderr=errors)
            programs.append((process, errors))
        refusals = 0
        for step in range(steps + 1):
            for process, errors in programs:
                line = process.stdout.readline()
                if not line.startswith("step" if step < steps else "end"):
                    errors.seek(0)
                    what = errors.read()[-2000:] + server.log()[-2000:]
                    self.fail(f"seed {seed}, step {step}: {line}{what}")
                if step == steps:
                    _, had, refused, residue = line.split()
                    refusals += int(refused)
                    self.assertGreater(int(had), 0)
                    self.assertLessEqual(
                        int(residue), LOCAL_RESIDUE + GRAPH_RESIDUE, "not given back"
                    )
            self.check(server, board)
            for process, _ in programs:
                process.stdin.write("\n")
                process.stdin.flush()
        for process, _ in programs:
            self.assertEqual(process.wait(30), 0)
            process.stdin.close()
        self.assertGreater(refusals, 0, "it was not tight")
        self.assertNotIn("the driver has no", server.log())
        eventually(server.settled, 10, "everything given back")
        eventually(lambda: taken(board)[0] == CONTEXT_MIB, 5, "only the warm worker's context left")

    def test_the_attacks_of_the_audit(self):
        """Each took memory that nobody had been charged for."""
        server, board = self.start(memory=1024 * MIB)
        head = PROGRAM.read_text(encoding="utf-8").split("if __name__")[0]
        for size, text in ATTACKS:
            program = head + "must(begin())\nbefore = free_bytes()\n" + text + "\nsay('held')\n"
            process = self.begin(server, ("-m", f"{size}M"), "-c", program)
            self.assertEqual(process.stdout.readline(), "held\n", text)
            self.check(server, board)
            self.assertLessEqual(taken(board)[0], size + CONTEXT_MIB)
            process.communicate("\n")
            self.assertEqual(process.returncode, 0)
            eventually(server.settled, 10, "everything given back")

    def test_memory_that_streams_have_still_to_free(self):
        """It counts until they get there, and is waited for, but not for ever."""
        for costs, context_mib in (("card", CONTEXT_MIB), ("card", 0), ("bytes", 0)):
            server, board = self.start(memory=1024 * MIB, costs=costs, context_mib=context_mib)
            for name, text in STOPPED_ATTACKS.items():
                if name.startswith("graphs") and costs == "bytes":
                    continue  # then that GPU takes their memory when they are made
                with self.subTest(name, costs=costs, context_mib=context_mib):
                    self.attack_stopped(server, board, text, context_mib)

    def attack_stopped(self, server, board, text, context_mib):
        program = test_memory.PROGRAM + STOPPED + text + "say('end')"
        process = self.begin(server, ("-m", "200M"), "-c", program)
        for word in ("held", "end"):
            self.assertEqual(process.stdout.readline(), word + "\n")
            self.check(server, board)
            self.assertLessEqual(taken(board)[0], 200 + context_mib)
            process.stdin.write("\n")
            process.stdin.flush()
        self.assertEqual(process.wait(30), 0)
        eventually(server.settled, 10, "everything given back")

    def test_processes_that_the_slice_cannot_hold_are_refused(self):
        server, board = self.start(memory=1024 * MIB)
        script = (
            "for i in 1 2 3 4 5; do "
            f"'{harness.PROGRAMS}/hold' 8 20 2>&1 & done; wait; echo; "
            f"'{harness.PROGRAMS}/hold' 8 0 && echo afterwards"
        )
        process = harness.start("run", "-m", "200M", "--", "sh", "-c", script, server=server)
        self.addCleanup(harness.end, process)
        # 56 MiB and 8 for each: three fit
        eventually(lambda: len(sessions(server)) == 3, 20, "three of five")
        refused = lambda: server.log().count("no room for another process")
        eventually(lambda: refused() == 2, 20, "two refused")
        self.check(server, board)
        for session in sessions(server):
            os.kill(session["pid"], 9)
        out, _ = process.communicate(timeout=60)
        self.assertIn("no room for another process: its 3 hold", out)
        self.assertIn("take a larger slice (-m)", out)
        self.assertIn("afterwards", out)


class PageableAccess(unittest.TestCase):
    """A GPU whose kernels reach all memory of their worker process is not lent to others."""

    def test_serve_refuses_or_warns(self):
        claim = {"TENDRIL_SOFTGPU_ATTRIBUTES": "88:1"}
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("0123456789abcdefghij\n")
            file.flush()
            with self.assertRaises(AssertionError) as refused:
                Server("--token-file", file.name, environment=claim)
            self.assertIn("refusing to lend to others: kernels on GPU 0", str(refused.exception))
            options = ("--token-file", file.name, "--allow-pageable-access")
            with Server(*options, environment=claim) as server:
                self.assertIn("kernels on GPU 0 can read and write all memory", server.log())
            with Server("--token-file", file.name) as server:
                self.assertNotIn("kernels on GPU", server.log())
        with Server(environment=claim) as server:
            self.assertIn("kernels on GPU 0 can read and write all memory", server.log())
            _, out, err = tendril("doctor", "--no-attach", server=server)
            self.assertIn("its kernels reach all memory of their worker process", out + err)


if __name__ == "__main__":
    unittest.main()
