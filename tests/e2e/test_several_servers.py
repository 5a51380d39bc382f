# SPDX-License-Identifier: Apache-2.0
"""GPUs of several servers in one program: with which servers its processes are, and when."""

import ast
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import harness
import relay
from harness import BUILD, PROGRAMS, Server, eventually, start
from several import COPIES, PREPARE, TwoServers, processes


@harness.needs_plain_client
class SeveralServers(TwoServers):
    def test_a_rank_has_a_worker_where_it_has_its_gpu(self):
        hold = f"{PROGRAMS / 'hold'} 1 60"
        ranks = f"for i in 0 1 2 3 4 5 6 7; do CUDA_VISIBLE_DEVICES=$i {hold} & done; wait"
        run = start("run", "-n", "8", "--", "sh", "-c", ranks, server=self.both)
        self.addCleanup(harness.end, run)
        for _ in range(8):
            self.assertIn("holding", run.stdout.readline())
        self.assertEqual(processes(*self.both), [4, 4])
        self.assertEqual([len(server.workers()) for server in self.both], [4, 4])
        run.terminate()
        run.wait(20)
        for server in self.both:
            eventually(server.idle, 20)

    def test_a_program_is_with_a_server_from_the_first_context_there(self):
        run = self.python(
            """
before = look(range(8))
step("listed")
assert use(6) == 0
step("far")
assert use(1) == 0
step("near")
assert look(range(8)) == before
tell("passed")
""",
            "-n",
            "8",
        )
        for name, expected in (("listed", [0, 0]), ("far", [0, 1]), ("near", [1, 1])):
            self.comes_to(run, name)
            self.assertEqual(processes(*self.both), expected)
            self.go_on(name)
        self.comes_to(run, "passed")
        self.assertEqual(run.wait(20), 0)

    def test_devices_are_what_their_sessions_say(self):
        """With one server a session lists them, with several each server does."""
        tells = "tell(repr(look(range(%d))))"
        ahead = self.python(tells % 8, "-n", "8", "-p", "0.5").stdout.read().splitlines()[-1]
        apart = [
            self.python(tells % 4, "-n", "4", "-p", "0.5", server=[one]).stdout.readline()
            for one in self.both
        ]
        self.assertEqual(ast.literal_eval(ahead), sum(map(ast.literal_eval, apart), []))

    def test_servers_that_secure_attaching(self):
        secret = {"TENDRIL_TOKEN": "a-token-of-some-length"}
        with Server(environment=secret) as near, Server(environment=secret) as far:
            run = self.python(
                'step("listed"); assert use(1) == 0; step("used")',
                "-n",
                "2",
                server=[near, far],
                **secret,
            )
            for name, expected in (("listed", [0, 0]), ("used", [0, 1])):
                self.comes_to(run, name)
                self.assertEqual(processes(near, far, **secret), expected)
                self.go_on(name)
            self.assertEqual(run.wait(20), 0)

    def test_a_server_that_is_gone_before_its_first_context(self):
        with Server() as gone:
            run = self.python(
                """
step("listed")
assert use(4) == 46, "device unavailable"
assert use(0) == 0
tell("passed")
""",
                "-n",
                "5",
                server=[self.near, gone],
            )
            self.comes_to(run, "listed")
            gone.kill()
            self.go_on("listed")
            self.assertIn(f"127.0.0.1:{gone.port}", run.stdout.readline())
            self.assertIn("passed", run.stdout.read())


@harness.needs_plain_client
class LocalBesideRemote(unittest.TestCase):
    """GPUs of this machine over shared memory, and those of another server, in one program."""

    def test_one_program_has_both(self):
        program = PREPARE + COPIES + """
contexts = each(2)
near, far = memory(0, 1000), memory(1, 1000)
write(0, near, b"x" * 1000)
assert peer(far, 1, near, 0, 1000) == 0
assert read(1, far, 1000) == b"x" * 1000
tell("passed")
"""
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()

        def as_from_afar(_, __, data):
            return data.replace(boot, b"0" * len(boot))

        with Server() as here, Server() as far, relay.Relay(far.port, as_from_afar) as there:
            run = start(
                *("run", "--local", "1", "-s", there.endpoint, "-n", "1", "-p", "0.5"),
                *("--", sys.executable, "-c", program),
                TENDRIL_LOCAL_SERVER=here.endpoint,
                TENDRIL_LOG="info",
            )
            self.addCleanup(harness.end, run)
            output = run.stdout.read()
            self.assertEqual(run.wait(20), 0, output)
            self.assertIn("passed", output)
            self.assertIn(f"attached to {here.endpoint} for cuda over shm", output)
            self.assertIn(f"attached to {there.endpoint} for cuda over tcp", output)
            self.assertEqual(output.count("whose turns know nothing of each other"), 1)

    def test_a_server_is_started_for_the_program(self):
        run = start(
            *("run", "--local", "2", "-v", "--", str(PROGRAMS / "vector_add")),
            TENDRIL_LOCAL_SERVER="new",
            TENDRIL_LOCAL_OPTIONS=f"--driver {harness.DRIVER} --warm 0",
            TENDRIL_SOFTGPU_DEVICES="2",
            TENDRIL_MODULE_STORE="off",
        )
        self.addCleanup(harness.end, run)
        output = run.stdout.read()
        self.assertEqual(run.wait(30), 0, output)
        self.assertEqual(output.count(" of 127.0.0.1:"), 2, output)

    def test_ls_and_doctor_tell_of_this_machine(self):
        with Server() as far, tempfile.TemporaryDirectory() as folder:
            words = {"XDG_RUNTIME_DIR": folder, "TENDRIL_SERVERS": far.endpoint}
            run = start(
                *("run", "--local", "1", "-n", "1", "--", str(PROGRAMS / "hold"), "1", "60"),
                TENDRIL_LOCAL_SERVER="new",
                TENDRIL_LOCAL_OPTIONS=f"--driver {harness.DRIVER} --warm 0",
                TENDRIL_MODULE_STORE="off",
                **words,
            )
            self.addCleanup(harness.end, run)
            self.assertIn("holding", run.stdout.readline())
            status, out, err = harness.tendril("ls", "--json", **words)
            self.assertEqual(status, 0, err)
            servers = json.loads(out)["servers"]
            self.assertEqual([one["here"] for one in servers[:1]], [False])
            here = [one for one in servers if one["here"]]
            self.assertIn(run.pid, [lease["pid"] for one in here for lease in one["leases"]])
            status, out, err = harness.tendril("ls", "--json", server=far)
            self.assertEqual(len(json.loads(out)["servers"]), 1, err)
            words["TENDRIL_LOCAL_SERVER"] = far.endpoint
            done = harness.tendril("doctor", "--no-attach", **words)
            self.assertIn(f"(run --local): ok, {far.endpoint} lends 1 GPU", done[1])
            done = harness.tendril("doctor", "--no-attach", "--json", **words)
            self.assertIn(json.loads(done[1])["local"]["state"], ("none", "ok"))


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


@harness.needs_plain_client
@unittest.skipUnless(SOFTNCCL.exists(), "softnccl is not built")
class Nccl(TwoServers):
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

    def test_a_process_for_each_rank(self):
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
    works(me.begin(4, UniqueId.from_buffer_copy(file.read())))
works(me.all_reduce())
assert me.read() == expected(4)
tell("passed")
works(nccl.ncclCommDestroy(me.comm))
"""
        path = pathlib.Path(self.folder, "rank.py")
        path.write_text(PREPARE + NCCL + rank, encoding="utf-8")
        one = f"RANK=$i CUDA_VISIBLE_DEVICES=$i {sys.executable} {path}"
        line = f"for i in 0 1 2 3; do {one} & done; wait"
        run = start("run", "-n", "4", "--", "sh", "-c", line, server=self.both)
        self.addCleanup(harness.end, run)
        # Four programs write to one pipe: a line's end may come after another's line.
        self.assertEqual(run.stdout.read().replace("\n", ""), "passed" * 4)
        self.assertEqual(run.wait(30), 0)

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

    def test_a_communicator_is_charged_to_its_slice(self):
        """Until it is destroyed, by what is said to be its cost."""
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
        """In the sandbox; it names its version, finds the driver, and listens for ranks."""
        library = cached("libnccl.so.2")
        with Server("--nccl", library, warm=0) as one, Server("--nccl", library, warm=0) as other:
            run = self.python(
                NCCL + """
version = c_int()
works(nccl.ncclGetVersion(byref(version)))
assert version.value > 22700, version.value
me = Rank(0, 0)
assert any(bytes(new_id()))
tell("passed")
""",
                "-n",
                "2",
                server=[one, other],
            )
            output = run.stdout.read()
            self.assertEqual((run.wait(30), output.strip()), (0, "passed"), output)

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


if __name__ == "__main__":
    unittest.main()
