# SPDX-License-Identifier: Apache-2.0
"""NCCL between GPUs of several servers: groups, charging, losses, versions. softnccl is in the
workers, and our library in the program."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import harness
from support import relay
from support import several
from harness import BUILD, Server, eventually, start

NCCL = """
nccl = ctypes.CDLL("libnccl.so.2")  # preloaded under that name
nccl.ncclGetLastError.restype = ctypes.c_char_p
class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
FLOAT, SUM, COUNT = 7, 0, 1000
def works(result):
    assert result == 0, (result, nccl.ncclGetLastError(None))
class Rank:
    def __init__(self, rank, device):
        self.rank, self.context, self.stream = rank, c_void_p(), c_void_p()
        self.memory, self.comm = ctypes.c_uint64(), c_void_p()
        must(cuda.cuDevicePrimaryCtxRetain(byref(self.context), device))
        self.enter()
        must(cuda.cuStreamCreate(byref(self.stream), 1))
        must(cuda.cuMemAlloc_v2(byref(self.memory), 4 * COUNT))
        self.write([rank + i for i in range(COUNT)])
    def enter(self):
        must(cuda.cuCtxSetCurrent(self.context))
    def write(self, values):
        self.enter()
        data = (ctypes.c_float * COUNT)(*values)
        must(cuda.cuMemcpyHtoD_v2(self.memory, data, ctypes.c_size_t(4 * COUNT)))
    def read(self):
        self.enter()
        must(cuda.cuStreamSynchronize(self.stream))
        data = (ctypes.c_float * COUNT)()
        must(cuda.cuMemcpyDtoH_v2(data, self.memory, ctypes.c_size_t(4 * COUNT)))
        return list(data)
    def begin(self, ranks, id):
        self.enter()
        return nccl.ncclCommInitRank(byref(self.comm), ranks, id, self.rank)
    def all_reduce(self, operation=SUM):
        memory, count = self.memory, ctypes.c_size_t(COUNT)
        return nccl.ncclAllReduce(memory, memory, count, FLOAT, operation, self.comm, self.stream)
    def state(self):
        state = c_int()
        works(nccl.ncclCommGetAsyncError(self.comm, byref(state)))
        return state.value
def new_id():
    id = UniqueId()
    works(nccl.ncclGetUniqueId(byref(id)))
    return id
def group(calls):
    works(nccl.ncclGroupStart())
    for call in calls:
        works(call())
    works(nccl.ncclGroupEnd())
def all_here(ranks):
    made, id = [Rank(i, i) for i in range(ranks)], new_id()
    group([lambda one=one: one.begin(ranks, id) for one in made])
    return made
def expected(ranks, factor=1):
    return [float(factor * sum(rank + i for rank in range(ranks))) for i in range(COUNT)]
"""

FACTS = pathlib.Path(__file__).resolve().parents[2] / "api" / "nccl"
SOFTNCCL = BUILD / "lib" / "libtendril-softnccl.so"


def cached(name):
    """A file of a wheel that somebody has unpacked below .cache/wheels (tests/e2e/README.md)."""
    wheels = pathlib.Path(__file__).resolve().parents[2] / ".cache" / "wheels"
    return next(iter(sorted(wheels.rglob(name))), None)


# A communicator begins, connects, ends; more of them than there is room for.
CHARGED_EXACTLY = """
MIB = 1 << 20
def free(rank):
    rank.enter()
    sizes = c_size_t(), c_size_t()
    must(cuda.cuMemGetInfo_v2(byref(sizes[0]), byref(sizes[1])))
    return sizes[0].value // MIB
me, far = Rank(0, 0), Rank(1, 1)
before, comms = free(me), []
def begin_two():
    id = new_id()
    group([lambda: me.begin(2, id), lambda: far.begin(2, id)])
begin_two()
assert (free(me), free(far)) == (before - 100, before - 100), (before, free(me), free(far))
group([me.all_reduce, far.all_reduce])  # they connect
assert (free(me), free(far)) == (before - 150, before - 150), (before, free(me), free(far))
far.enter()
must(cuda.cuStreamSynchronize(far.stream))
works(nccl.ncclCommAbort(far.comm))
works(nccl.ncclCommAbort(me.comm))
assert (free(me), free(far)) == (before, before), (before, free(me), free(far))
def more():
    me.comm = c_void_p()
    result = me.begin(1, new_id())
    comms.append(me.comm)
    return result
while True:
    result = more()
    if result:
        break
    assert len(comms) < 20
assert len(comms) == before // 100 + 1, (before, len(comms))
assert result == 1, result  # ncclUnhandledCudaError
why = nccl.ncclGetLastError(None)
assert b"no memory for what NCCL takes" in why and b"cuMemAlloc" in why, why
left = free(me)
assert left == before % 100, (before, left)
block = ctypes.c_uint64()
assert cuda.cuMemAlloc_v2(byref(block), c_size_t((left + 4) * MIB)) == 2
for comm in comms[:2]:
    works(nccl.ncclCommDestroy(comm))
# The next one begins. There is no room for its connections.
begin_two()
blocks = []
while free(me) > 40:  # small ones, because free memory may lie in pieces
    me.enter()
    must(cuda.cuMemAlloc_v2(byref(block), c_size_t(10 * MIB)))
    blocks.append(block.value)
works(nccl.ncclGroupStart())
works(me.all_reduce())
works(far.all_reduce())
assert nccl.ncclGroupEnd() == 1
for comm in [*comms[2:-1], me.comm, far.comm]:
    works(nccl.ncclCommAbort(comm))
me.enter()
for block in blocks:
    must(cuda.cuMemFree_v2(ctypes.c_uint64(block)))
assert (free(me), free(far)) == (before, before), (before, free(me), free(far))
tell("passed")
"""


@harness.needs_plain_client
@unittest.skipUnless(SOFTNCCL.exists(), "softnccl is not built")
class Nccl(several.TwoServers):
    """NCCL between servers: softnccl in the workers, and our library in the program."""

    OPTIONS, GPUS = ("--nccl", SOFTNCCL), 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.spare = Server(*cls.OPTIONS, gpus=1, warm=0)
        cls.addClassCleanup(cls.spare.stop)

    def passes(self, text, *arguments):
        run = self.python(NCCL + text + '\ntell("passed")\n', *arguments)
        output = run.stdout.read()
        self.assertEqual((run.wait(30), output.strip()), (0, "passed"), output)

    def test_one_process_drives_all_ranks_in_groups(self):
        self.passes(
            """
ranks = all_here(4)
group([one.all_reduce for one in ranks])
assert all(one.read() == expected(4) for one in ranks)
for one in ranks:
    one.write([one.rank + i for i in range(COUNT)])
half, operations = ctypes.c_float(0.5), [c_int() for _ in ranks]
for one, operation in zip(ranks, operations):
    works(nccl.ncclRedOpCreatePreMulSum(byref(operation), byref(half), FLOAT, 1, one.comm))
group([lambda i=i: ranks[i].all_reduce(operations[i]) for i in range(4)])
assert all(one.read() == expected(4, 0.5) for one in ranks)
parts = []
for one in ranks:
    part = c_void_p()
    parts.append(part)
def split(i):
    return nccl.ncclCommSplit(ranks[i].comm, i % 2, i, byref(parts[i]), None)
group([lambda i=i: split(i) for i in range(4)])
for one, part in zip(ranks, parts):
    place, places = c_int(), c_int()
    works(nccl.ncclCommUserRank(part, byref(place)))
    works(nccl.ncclCommCount(part, byref(places)))
    assert (place.value, places.value) == (one.rank // 2, 2)
    works(nccl.ncclCommDestroy(one.comm))
    one.comm = part
    one.write([one.rank + i for i in range(COUNT)])
group([one.all_reduce for one in ranks])
assert ranks[3].read() == [float(1 + 3 + 2 * i) for i in range(COUNT)]
for one in ranks:
    assert one.state() == 0
    works(nccl.ncclCommDestroy(one.comm))
assert nccl.ncclCommCount(ranks[0].comm, byref(c_int())) == 4, "a communicator that is gone"
""",
            "-n",
            "4",
        )

    def in_processes(self, ranks, text):
        """A process for each rank, with a communicator and the words of NCCL."""
        rank = f"""
import sys
rank, name = int(os.environ["RANK"]), os.path.join({self.folder!r}, "id")
me = Rank(rank, 0)
if rank == 0:
    with open(name + ".new", "wb") as file:
        file.write(bytes(new_id()))
    os.rename(name + ".new", name)
while not os.path.exists(name):
    time.sleep(0.02)
with open(name, "rb") as file:
    works(me.begin({ranks}, UniqueId.from_buffer_copy(file.read())))
{text}
tell("passed")
works(nccl.ncclCommDestroy(me.comm))
"""
        path = pathlib.Path(self.folder, "rank.py")
        path.write_text(several.PREPARE + NCCL + rank, encoding="utf-8")
        one = f"RANK=$i CUDA_VISIBLE_DEVICES=$i {sys.executable} {path}"
        numbers = " ".join(str(number) for number in range(ranks))
        line = f"for i in {numbers}; do {one} & done; wait"
        run = start("run", "-n", str(ranks), "--", "sh", "-c", line, server=self.both)
        self.addCleanup(harness.end, run)
        # Several programs write to one pipe: a line's end may come after another's line.
        self.assertEqual(run.stdout.read().replace("\n", ""), "passed" * ranks)
        self.assertEqual(run.wait(30), 0)

    def test_a_process_for_each_rank(self):
        self.in_processes(
            4,
            """
works(me.all_reduce())
assert me.read() == expected(4)
""",
        )

    def test_what_nccl_has_done_before_is_not_awaited(self):
        """And keeps its place among the other calls of the program."""
        self.in_processes(
            4,
            """
INT, CALLS = 2, 200
table, kept = ctypes.POINTER(c_void_p)(), ctypes.c_uint64()
must(cuda.cuGetExportTable(byref(table), ctypes.create_string_buffer(b"tendril counters", 16)))
counters = ctypes.CFUNCTYPE(c_size_t, ctypes.POINTER(ctypes.c_uint64), c_size_t)(table[1])
def round_trips():
    values = (ctypes.c_uint64 * 7)()
    counters(values, 7)
    return values[1]
must(cuda.cuMemAlloc_v2(byref(kept), c_size_t(4 * CALLS)))
def add_up(i):
    memory, count = me.memory, ctypes.c_size_t(COUNT)
    must(cuda.cuMemsetD32Async(memory, i + rank, count, me.stream))
    works(nccl.ncclAllReduce(memory, memory, count, INT, SUM, me.comm, me.stream))
    last = ctypes.c_uint64(memory.value + 4 * (COUNT - 1))
    to = ctypes.c_uint64(kept.value + 4 * i)
    must(cuda.cuMemcpyDtoDAsync_v2(to, last, c_size_t(4), me.stream))
add_up(0)
before = round_trips()
for i in range(CALLS):
    add_up(i)
asked = round_trips() - before
must(cuda.cuStreamSynchronize(me.stream))
found = (c_int * CALLS)()
must(cuda.cuMemcpyDtoH_v2(found, kept, c_size_t(4 * CALLS)))
assert list(found) == [4 * i + 6 for i in range(CALLS)], list(found)
assert asked == 0, asked
""",
        )

    def test_abort_frees_a_thread_that_waits_for_its_peer(self):
        self.passes(
            """
import threading
ranks, results = all_here(4), []
def alone():
    results.append(ranks[0].all_reduce())
    ranks[0].enter()
    cuda.cuStreamSynchronize(ranks[0].stream)
waits = threading.Thread(target=alone)
waits.start()
time.sleep(0.5)
begun = time.monotonic()
works(nccl.ncclCommAbort(ranks[0].comm))
waits.join(10)
assert not waits.is_alive() and time.monotonic() - begun < 5
for one in ranks[1:]:
    works(nccl.ncclCommAbort(one.comm))
""",
            "-n",
            "4",
        )

    def test_who_waits_for_a_dead_worker_is_told(self):
        run = self.python(
            NCCL + """
ranks = all_here(4)
group([one.all_reduce for one in ranks])
ranks[0].read()
step("together")
far = [one for one in ranks if one.state() != 0]
for _ in range(100):
    if all(one.state() == 6 for one in ranks[2:]):
        break
    time.sleep(0.02)
assert [one.state() for one in ranks[2:]] == [6, 6], [one.state() for one in ranks]
tell("passed")
os._exit(0)
""",
            "-n",
            "4",
        )
        self.comes_to(run, "together")
        for worker in self.far.workers():
            os.kill(worker, signal.SIGKILL)
        self.go_on("together")
        self.assertIn("passed", run.stdout.read())

    def test_a_dead_server_is_told_to_the_other_ranks(self):
        """While a rank waits inside of a collective. Its own ranks are told, too."""
        with Server(*self.OPTIONS, gpus=1, warm=0) as doomed:
            run = self.python(
                NCCL + """
ranks = all_here(2)
group([one.all_reduce for one in ranks])
ranks[0].read()
works(ranks[0].all_reduce())
step("waiting")
end = time.monotonic() + 5
while not all(one.state() == 6 for one in ranks) and time.monotonic() < end:
    time.sleep(0.02)
assert [one.state() for one in ranks] == [6, 6], [one.state() for one in ranks]
for one in ranks:
    nccl.ncclCommAbort(one.comm)
tell("passed")
os._exit(0)
""",
                "-n",
                "2",
                server=[self.spare, doomed],
            )
            self.comes_to(run, "waiting")
            doomed.kill()
            self.go_on("waiting")
            self.assertIn("passed", run.stdout.read())

    def test_a_step_costs_the_client_the_same_bytes_whatever_the_size(self):
        """And far less than a megabyte."""

        def step_bytes(count):
            run = self.python(
                NCCL.replace("COUNT = 7, 0, 1000", f"COUNT = 7, 0, {count}") + """
ranks = all_here(4)
def steps():
    for _ in range(10):
        group([one.all_reduce for one in ranks])
    for one in ranks:
        one.enter()
        must(cuda.cuStreamSynchronize(one.stream))
steps()
step("before")
steps()
step("after")
""",
                "-n",
                "4",
            )
            seen = []
            for name in ("before", "after"):
                self.comes_to(run, name)
                out = harness.tendril("top", "--once", "--json", server=self.both)[1]
                lists = json.loads(out)["servers"]
                sessions = [one for each in lists for one in each["sessions"]]
                seen.append(sum(one["bytes_to_gpu"] + one["bytes_from_gpu"] for one in sessions))
                self.go_on(name)
            self.assertEqual(run.wait(20), 0)
            return (seen[1] - seen[0]) / 10

        small, large = step_bytes(1000), step_bytes(1_000_000)
        self.assertGreater(small, 0)
        self.assertLess(large, 20_000)
        self.assertLess(abs(large - small), 2_000)

    def test_what_fails_and_is_not_awaited_is_the_communicators_state(self):
        """And what the next call answers."""
        fails = {"TENDRIL_SOFTNCCL_FAIL": "ncclAllReduce:5+:3"}
        with Server(*self.OPTIONS, gpus=1, warm=0, environment=fails) as failing:
            run = self.python(
                NCCL + """
me = Rank(0, 0)
works(me.begin(1, new_id()))
for _ in range(4):
    works(me.all_reduce())
me.read()
assert me.state() == 0, me.state()
assert me.all_reduce() == 0  # it goes ahead
end = time.monotonic() + 5
while me.state() == 0 and time.monotonic() < end:
    time.sleep(0.01)
assert me.state() == 3, me.state()
assert me.all_reduce() == 3
works(nccl.ncclCommAbort(me.comm))
tell("passed")
""",
                "-n",
                "2",
                server=[failing, self.spare],
            )
            output = run.stdout.read()
            self.assertEqual((run.wait(30), output.strip()), (0, "passed"), output)

    def test_a_communicator_is_charged_what_it_takes(self):
        """Exactly, from when it takes it until it has ended, however it ends. A slice without room
        refuses it with NCCL's own error."""
        takes = {"TENDRIL_SOFTNCCL_BUFFER_MB": "100", "TENDRIL_SOFTNCCL_PEER_MB": "50"}
        with Server(*self.OPTIONS, memory=1 << 30, environment=takes) as one:
            with Server(*self.OPTIONS, memory=1 << 30, environment=takes) as other:
                run = self.python(
                    NCCL + CHARGED_EXACTLY,
                    "-n",
                    "2",
                    server=[one, other],
                )
                output = run.stdout.read()
                self.assertEqual((run.wait(20), output.strip()), (0, "passed"), output)
                for server in (one, other):
                    self.assertNotIn("estimate", server.log())

    def test_an_operator_may_charge_an_estimate(self):
        """Until the communicator is destroyed, by what is said to be its cost."""
        costs = {"TENDRIL_WORKER_NCCL_MB": "100"}
        with Server(*self.OPTIONS, memory=1 << 30, environment=costs) as one:
            with Server(*self.OPTIONS, memory=1 << 30, environment=costs) as other:
                run = self.python(
                    NCCL + """
def free():
    sizes = c_size_t(), c_size_t()
    must(cuda.cuMemGetInfo_v2(byref(sizes[0]), byref(sizes[1])))
    return sizes[0].value
me = Rank(0, 0)
before, comms = free(), []
def more():
    me.comm = c_void_p()
    result = me.begin(1, new_id())
    comms.append(me.comm)
    return result
works(more())
assert before - free() == 100 << 20, (before, free())
while more() == 0:
    assert len(comms) < 20
assert b"no memory for another communicator" in nccl.ncclGetLastError(None)
left = free()
assert left < 100 << 20, left
block = ctypes.c_uint64()
for comm in comms[:-1]:
    works(nccl.ncclCommDestroy(comm))
assert free() == before, (before, free())
tell("passed")
""",
                    "-n",
                    "2",
                    server=[one, other],
                )
                output = run.stdout.read()
                self.assertEqual((run.wait(20), output.strip()), (0, "passed"), output)

    def test_servers_agree_on_the_highest_version_that_all_have(self):
        def folder(*versions):
            path = pathlib.Path(tempfile.mkdtemp(prefix="tendril-nccl-", dir=self.folder))
            for version in versions:
                shutil.copy(SOFTNCCL, path / f"libnccl.so.{version}")
            path.chmod(0o755)
            return path

        os.chmod(self.folder, 0o755)
        ask = "version = c_int()\nresult = nccl.ncclGetVersion(byref(version))\n"
        options = {"gpus": 1, "warm": 0}
        with Server("--nccl", folder("2.27.5", "2.28.9", "2.26.2"), **options) as one:
            with Server("--nccl", folder("2.26.2", "2.27.5", "2.30.1"), **options) as other:
                run = self.python(
                    NCCL + ask + """
works(result)
assert version.value == 22705, version.value
ranks = all_here(2)
group([one.all_reduce for one in ranks])
assert all(one.read() == expected(2) for one in ranks)
tell("passed")
""",
                    "-n",
                    "2",
                    server=[one, other],
                    TENDRIL_LOG="info",
                )
                output = run.stdout.read()
                self.assertEqual(run.wait(20), 0, output)
                self.assertIn("NCCL 2.27.5, which all 2 servers have", output)
                servers = f"{one.endpoint},{other.endpoint}"
                done = harness.tendril("doctor", "--no-attach", TENDRIL_SERVERS=servers)
                self.assertIn("2.28.9, 2.27.5, 2.26.2", done[1])
                self.assertIn("all of these servers: NCCL 2.27.5", done[1])
                # Of the program's variables NCCL gets those that choose how it works.
                run = self.python(
                    NCCL + "me = Rank(0, 0)\nassert me.begin(1, new_id()) == 5\n"
                    "tell(nccl.ncclGetLastError(None).decode())",
                    "-n",
                    "2",
                    server=[one, other],
                    NCCL_ALGO="abacus",
                )
                self.assertIn("names no algorithm: abacus", run.stdout.read())
                self.assertEqual(run.wait(20), 0)
            with Server("--nccl", folder("2.30.1"), **options) as other:
                run = self.python(
                    NCCL + ask + "assert result == 5, result", "-n", "2", server=[one, other]
                )
                self.assertIn("no version of NCCL in common", run.stdout.read())
                self.assertEqual(run.wait(20), 0)

    def test_a_server_without_nccl_says_so(self):
        with Server() as near, Server() as far:
            run = self.python(
                NCCL + "assert nccl.ncclGetVersion(byref(c_int())) == 5",
                "-n",
                "2",
                server=[near, far],
            )
            self.assertIn("tendril serve --nccl FILE", run.stdout.read())
            self.assertEqual(run.wait(20), 0)

    @unittest.skipUnless(cached("libnccl.so.2"), "no wheel of NCCL in .cache/wheels")
    def test_a_worker_opens_nccl(self):
        """In the sandbox; it names its version, listens for ranks, and has its driver from us. A
        communicator ends where the CUDA runtime wants a genuine driver."""
        library = cached("libnccl.so.2")
        with Server("--nccl", library, warm=0) as one, Server("--nccl", library, warm=0) as other:
            run = self.python(
                NCCL + """
version = c_int()
works(nccl.ncclGetVersion(byref(version)))
assert version.value > 22700, version.value
me = Rank(0, 0)
assert any(bytes(new_id()))
assert me.begin(1, new_id()) == 1
assert b"Cuda failure" in nccl.ncclGetLastError(None), nccl.ncclGetLastError(None)
tell("passed")
""",
                "-n",
                "2",
                server=[one, other],
            )
            output = run.stdout.read()
            self.assertEqual((run.wait(30), output.strip()), (0, "passed"), output)
            self.assertIn("NCCL has its driver from Tendril", one.log())

    @unittest.skipUnless(cached("libtorch_cuda.so"), "no wheel of PyTorch in .cache/wheels")
    def test_pytorch_finds_every_symbol_of_nccl(self):
        def symbols(path, undefined):
            lines = subprocess.run(
                ["readelf", "--dyn-syms", "-W", path], capture_output=True, text=True, check=True
            ).stdout.splitlines()
            rows = [line.split() for line in lines]
            return {
                row[7].split("@")[0]
                for row in rows
                if len(row) > 7 and (row[6] == "UND") == undefined and "nccl" in row[7]
            }

        ours = harness.CLIENT.parent / "nccl" / "libnccl.so.2"
        wanted = {name for name in symbols(cached("libtorch_cuda.so"), True) if name[0] in "np"}
        self.assertGreater(len(wanted), 20)
        self.assertEqual(wanted - symbols(ours, False), set())

    def test_every_symbol_is_there_unless_the_program_wants_its_own(self):
        library = harness.CLIENT.parent / "nccl" / "libnccl.so.2"
        self.passes(f"""
assert any({str(library)!r} in line for line in open("/proc/self/maps"))
names = open({str(FACTS / "unlisted.txt")!r}).read().split()
names += [line.split("(")[0].split()[-1] for line in open({str(FACTS / "signatures.txt")!r})]
assert len(names) == 193, len(names)
for name in names:
    getattr(nccl, name)
""")
        status, out, err = harness.tendril(
            "run", "--", "env", server=self.both, TENDRIL_NCCL="program"
        )
        self.assertEqual(status, 0, err)
        self.assertNotIn("LD_PRELOAD", out)

    def test_a_server_that_lends_nccl_is_used_for_several_gpus_of_its_own_too(self):
        library = f"LD_PRELOAD={harness.CLIENT.parent / 'nccl' / 'libnccl.so.2'}"
        lends, has_none = Server("--nccl", str(SOFTNCCL), gpus=2, warm=0), Server(gpus=2, warm=0)
        self.addCleanup(lends.stop)
        self.addCleanup(has_none.stop)
        for server, gpus, is_there in [(lends, 2, True), (lends, 1, False), (has_none, 2, False)]:
            with self.subTest(lends=server is lends, gpus=gpus):
                asked = ("-n", str(gpus), "-s", server.endpoint)
                status, out, err = harness.tendril("run", *asked, "--", "env")
                self.assertEqual(status, 0, err)
                self.assertEqual(library in out, is_there, out)
                status, out, err = harness.tendril("env", *asked)
                self.assertEqual(status, 0, err)
                self.assertEqual(library in out, is_there, out)


RANK = """
import threading
rank, state = int(os.environ["RANK"]), os.environ["STATE"]
ranks, place = 3 if state == "init" else 2, os.path.join(folder, "id")
id = UniqueId()
def say(what):
    os.write(1, f"{rank} {what}\\n".encode())
def ended(result):
    say(f"{time.monotonic()} {result}")
me = Rank(rank, 0)
if rank == 0:
    id = new_id()
    with open(place + "-", "wb") as file:
        file.write(bytes(id))
    os.rename(place + "-", place)
for _ in range(1000):
    if not os.path.exists(place):
        time.sleep(0.01)
ctypes.memmove(byref(id), open(place, "rb").read(), 128)
if state == "init":
    say(f"there {os.getpid()}")
    ended(me.begin(ranks, id))
else:
    works(me.begin(ranks, id))
    works(me.all_reduce())
    me.read()
    if rank == 0 and state != "aborted":
        works(me.all_reduce())  # the other never does
    if state == "finalize":
        me.enter()
        def finalize():
            me.enter()
            ended(nccl.ncclCommFinalize(me.comm))
        ends = threading.Thread(target=finalize)
        if rank == 0:
            ends.start()
            time.sleep(0.1)
    say(f"there {os.getpid()}")
    if state == "abort":
        while not os.path.exists(os.path.join(folder, "go")):
            time.sleep(0.001)
        result = nccl.ncclCommAbort(me.comm)
        cuda.cuStreamSynchronize(me.stream)
        ended(result)
    elif state == "collective":
        while me.state() == 0:
            time.sleep(0.001)
        ended(me.state())
        assert nccl.ncclCommAbort(me.comm) in (0, 6)
        cuda.cuStreamSynchronize(me.stream)
    elif rank == 0:
        ends.join()
    else:
        time.sleep(60)
say("over")
os._exit(0)
"""


@harness.needs_plain_client
@unittest.skipUnless(SOFTNCCL.exists(), "softnccl is not built")
class Losses(several.TwoServers):
    """A rank waits for one on another server, in each state that a communicator has, and something
    between them dies. Within a second it is told or let go, and nothing is left."""

    OPTIONS, GPUS = ("--nccl", SOFTNCCL), 1
    STATES = ("init", "collective", "abort", "finalize")

    def begin(self, state, far, line=None):
        """A program of two processes, one with a GPU of each server, when both are there: (the
        process, what each said)."""
        self.folder = tempfile.mkdtemp(prefix="tendril-e2e-")
        self.addCleanup(shutil.rmtree, self.folder)
        path = pathlib.Path(self.folder, "rank.py")
        text = several.PREPARE + f"folder = {self.folder!r}\n" + NCCL + RANK
        path.write_text(text, encoding="utf-8")
        one = f"RANK=$i CUDA_VISIBLE_DEVICES=$i {sys.executable} {path}"
        run = start(
            *("run", "-s", self.near.endpoint, "-s", line.endpoint if line else far.endpoint),
            *("-n", "2", "--", "sh", "-c", f"for i in 0 1; do {one} & done; wait"),
            STATE=state,
            TENDRIL_TRANSPORT="tcp",
        )
        self.addCleanup(harness.end, run)
        pids, said = {}, []
        while len(pids) < 2:
            line = run.stdout.readline()
            said.append(line)
            self.assertNotEqual(line, "", "the program ended early: " + "".join(said))
            words = line.split()
            if words[1:2] == ["there"]:
                pids[words[0]] = int(words[2])
        time.sleep(0.2)  # they are inside of NCCL; nothing can be seen of that
        return run, pids

    def told(self, run, rank="0"):
        """(when a rank was let go, with which result)"""
        for line in run.stdout:
            words = line.split()
            if words[:1] == [rank] and words[1] not in ("there", "over"):
                return float(words[1]), int(words[2])
        raise AssertionError("it never was")

    def check(self, state, far, kill, results=(0, 6), line=None, bound=1.0):
        run, pids = self.begin(state, far, line)
        begun = time.monotonic()
        kill(pids)
        self.go_on("go")
        when, result = self.told(run)
        self.assertLess(when - begun, bound)
        self.assertIn(result, results if state != "init" else (6,))
        if state == "collective":
            self.assertEqual(result, 6)
        for pid in pids.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        run.wait(20)

    def in_each_state(self, kill, make_line=None):
        for state in self.STATES:
            with self.subTest(state=state):
                line = make_line() if make_line else None
                self.check(state, self.far, lambda pids, line=line: kill(pids, line), line=line)
                if line:
                    line.__exit__()
                for server in self.both:
                    eventually(server.idle, 10)

    def test_the_other_ranks_worker_dies(self):
        def kill(*_):
            for worker in self.far.workers():
                os.kill(worker, signal.SIGKILL)

        self.in_each_state(kill)

    def test_the_ranks_own_worker_dies(self):
        def kill(*_):
            for worker in self.near.workers():
                os.kill(worker, signal.SIGKILL)

        self.in_each_state(kill)

    def test_the_other_ranks_program_dies(self):
        self.in_each_state(lambda pids, _: os.kill(pids["1"], signal.SIGKILL))

    def test_the_other_ranks_line_is_cut(self):
        self.in_each_state(lambda _, line: line.cut(), lambda: relay.Wire(self.far.port))

    def test_the_other_ranks_server_dies(self):
        for state in self.STATES:
            with self.subTest(state=state), Server(*self.OPTIONS, gpus=1, warm=0) as doomed:
                self.check(state, doomed, lambda _, doomed=doomed: doomed.kill())
                eventually(self.near.idle, 10)

    def test_the_kernel_asks_whether_peers_are_there(self):
        """NCCL does not. A machine without power would leave its peers waiting for ever."""
        run, _ = self.begin("collective", self.far)
        inodes = set()
        for worker in self.near.workers():
            for file in pathlib.Path(f"/proc/{worker}/fd").iterdir():
                link = os.readlink(file)
                if link.startswith("socket:["):
                    inodes.add(link[8:-1])
        table = pathlib.Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
        rows = [row.split() for row in table]
        port = f":{self.near.port:04X}"
        peers = [
            row
            for row in rows
            if row[9] in inodes and row[3] == "01" and not row[1].endswith(port)
        ]
        self.assertGreater(len(peers), 0)
        for row in peers:  # a timer that is no retransmission
            self.assertEqual(row[5][:2], "02", row)
        harness.end(run)

    def test_states_are_known_without_asking(self):
        """The worker stands still."""
        run = self.python(
            NCCL + """
ranks = all_here(2)
group([one.all_reduce for one in ranks])
ranks[0].read()
step("together")
begun = time.monotonic()
for _ in range(1000):
    assert [one.state() for one in ranks] == [0, 0]
assert time.monotonic() - begun < 2, time.monotonic() - begun
tell("passed")
step("over")
""",
            "-n",
            "2",
        )
        self.comes_to(run, "together")
        workers = self.near.workers() + self.far.workers()
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        self.go_on("together")
        self.comes_to(run, "passed")
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
        self.go_on("over")
        self.comes_to(run, "over")
        self.assertEqual(run.wait(20), 0)

    def test_one_part_of_a_group_that_fails_lets_the_others_go(self):
        """One process has both ranks. A slice has no room for its rank; the other would wait for
        ever."""
        takes = {"TENDRIL_SOFTNCCL_BUFFER_MB": "800"}
        options = {"gpus": 1, "warm": 0, "memory": 1 << 30, "environment": takes}
        with Server(*self.OPTIONS, **options) as one, Server(*self.OPTIONS, **options) as other:
            run = self.python(
                NCCL + """
me, far, block = Rank(0, 0), Rank(1, 1), ctypes.c_uint64()
must(cuda.cuMemAlloc_v2(byref(block), c_size_t(400 << 20)))
begun = time.monotonic()
for _ in range(2):
    id = new_id()
    works(nccl.ncclGroupStart())
    works(me.begin(2, id))
    works(far.begin(2, id))
    result = nccl.ncclGroupEnd()
    assert result == 1, (result, nccl.ncclGetLastError(None))
    assert b"no memory for what NCCL takes" in nccl.ncclGetLastError(None)
assert time.monotonic() - begun < 4, time.monotonic() - begun
must(cuda.cuMemFree_v2(block))
id = new_id()
group([lambda: me.begin(2, id), lambda: far.begin(2, id)])
group([me.all_reduce, far.all_reduce])
assert me.read() == expected(2)
tell("passed")
""",
                "-n",
                "2",
                server=[one, other],
            )
            output = run.stdout.read()
            self.assertEqual((run.wait(20), output.strip()), (0, "passed"), output)


OWN_NETWORK = "TENDRIL_TEST_OWN_NETWORK"


def may_have_own_network():
    tools = all(shutil.which(tool) for tool in ("unshare", "ip"))
    return tools and subprocess.run(["unshare", "-n", "true"], check=False).returncode == 0


@harness.needs_plain_client
@unittest.skipUnless(SOFTNCCL.exists(), "softnccl is not built")
@unittest.skipUnless(may_have_own_network(), "this user may make no network of its own")
class SilentLines(several.ProgramTest):
    """Packets to an address vanish, and no connection is told. The tests run in a network of their
    own, all states at once, because the kernel needs some ten seconds to give up."""

    OPTIONS, STATES = Losses.OPTIONS, Losses.STATES
    begin, told = Losses.begin, Losses.told
    SILENT = "127.0.0.3"
    BOUND_S = 17.0

    def in_own_network(self):
        """Runs this test again, in a network where packets may vanish."""
        again = f"ip link set lo up && exec {sys.executable} -m unittest {self.id()}"
        done = subprocess.run(
            ["unshare", "-n", "sh", "-c", again],
            env={**os.environ, OWN_NETWORK: "1"},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = [line for line in done.stdout.splitlines() if line.startswith("silent line: ")]
        self.assertEqual(len(told), len(self.STATES), done.stdout)
        print("\n".join(told), file=sys.stderr)

    def silence(self, *options, **environment):
        """A rank waits for one on another server, and an address between them falls silent."""
        if not os.environ.get(OWN_NETWORK):
            self.in_own_network()
            return
        begun, servers = [], []
        peers = pathlib.Path(self.folder, "peers")  # workers reach no other addresses
        peers.write_text(f"127.0.0.1\n{self.SILENT}\n", encoding="ascii")
        named = (*self.OPTIONS, "--peers", peers, "--outage", "off")
        os.chmod(self.folder, 0o755)
        for state in self.STATES:
            self.near = Server(*named, warm=0, environment=environment)
            far = Server(*named, *options, warm=0, environment=environment)
            for server in (self.near, far):
                servers.append(server)
                self.addCleanup(server.stop)
            if options:
                far.endpoint = f"{self.SILENT}:{far.port}"
            run, pids = self.begin(state, far)
            begun.append((state, run, pids, self.folder))
        route = ["ip", "route", "replace", "blackhole", self.SILENT, "table", "local"]
        subprocess.run(route, check=True)
        since = time.monotonic()
        for _, _, _, self.folder in begun:
            self.go_on("go")
        for state, run, pids, _ in begun:
            when, result = self.told(run)
            print(f"silent line: {state}: told after {when - since:.1f} s", flush=True)
            self.assertLess(when - since, self.BOUND_S, state)
            self.assertIn(result, (0, 6) if state in ("abort", "finalize") else (6,), state)
            with contextlib.suppress(ProcessLookupError):  # it has seen its own line's end
                os.kill(pids["1"], signal.SIGKILL)
            run.wait(20)
        for server in servers[::2]:
            eventually(server.idle, 20)

    def test_between_client_and_server(self):
        self.silence("--listen", self.SILENT)

    def test_between_two_workers(self):
        self.silence(TENDRIL_SOFTNCCL_ADDRESS=self.SILENT)


if __name__ == "__main__":
    unittest.main()
