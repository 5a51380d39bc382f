# SPDX-License-Identifier: Apache-2.0
"""Memory of a slice. Whatever takes GPU memory is charged to the slice, the sum never passes its
size, too much is CUDA_ERROR_OUT_OF_MEMORY and nothing else, and all queries agree."""

import re
import sys
import tempfile
import unittest

import harness
from harness import MIB, Server, eventually, tendril

# The beginning of the programs below: a slice of 256 MiB, its device's primary context, and every
# way to take its memory. `take(way, MiB)` gives a result and a function that gives the memory back.
PROGRAM = """
import ctypes, json, random, subprocess, sys, threading, time
from ctypes import CDLL, POINTER, Structure
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
cuda = CDLL("libcuda.so.1")
MIB = 1 << 20
def must(code):
    assert code == 0, code
device, context = c_int(), c_void_p()
must(cuda.cuInit(0))
must(cuda.cuDeviceGet(byref(device), 0))
must(cuda.cuDevicePrimaryCtxRetain(byref(context), device))
must(cuda.cuCtxSetCurrent(context))
class Location(Structure):
    _fields_ = [("type", c_int), ("id", c_int)]
class PoolProps(Structure):
    _fields_ = [("allocation", c_int), ("handles", c_int), ("location", Location),
                ("security", c_void_p), ("max_size", c_size_t), ("usage", ctypes.c_ushort),
                ("reserved", ctypes.c_ubyte * 54)]
class Prop(Structure):
    _fields_ = [("allocation", c_int), ("handles", c_int), ("location", Location),
                ("security", c_void_p), ("flags", ctypes.c_ubyte * 8)]
class ArrayDescriptor(Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]
where = Location(1, 0)

def of_device(mib):
    p = c_uint64()
    return cuda.cuMemAlloc_v2(byref(p), c_size_t(mib * MIB)), lambda: cuda.cuMemFree_v2(p)
def of_rows(mib):
    p, pitch = c_uint64(), c_size_t()
    rows = c_size_t(mib * MIB // 4096)
    return (cuda.cuMemAllocPitch_v2(byref(p), byref(pitch), c_size_t(4096), rows, 4),
            lambda: cuda.cuMemFree_v2(p))
def of_stream(mib):
    p = c_uint64()
    return (cuda.cuMemAllocAsync(byref(p), c_size_t(mib * MIB), None),
            lambda: cuda.cuMemFreeAsync(p, None))
def of_pool(mib):
    pool, p, props = c_void_p(), c_uint64(), PoolProps(1, 0, where)
    must(cuda.cuMemPoolCreate(byref(pool), byref(props)))
    result = cuda.cuMemAllocFromPoolAsync(byref(p), c_size_t(mib * MIB), pool, None)
    if result != 0:
        must(cuda.cuMemPoolDestroy(pool))
    return result, lambda: (must(cuda.cuMemFreeAsync(p, None)), must(cuda.cuMemPoolDestroy(pool)))
def of_physical(mib):
    handle, prop = c_uint64(), Prop(1, 0, where)
    return (cuda.cuMemCreate(byref(handle), c_size_t(mib * MIB), byref(prop), c_uint64(0)),
            lambda: cuda.cuMemRelease(handle))
def of_array(mib):
    array, shape = c_void_p(), ArrayDescriptor(1024, mib * MIB // 4096, 32, 1)
    return cuda.cuArrayCreate_v2(byref(array), byref(shape)), lambda: cuda.cuArrayDestroy(array)
HEAD = ".version 7.0 .target sm_50 .address_size 64 .visible .global .align 4 "
def of_variables(mib):
    module = c_void_p()
    text = HEAD + ".b8 big[%d];" % (mib * MIB)
    return cuda.cuModuleLoadData(byref(module), text.encode()), lambda: cuda.cuModuleUnload(module)
def of_library(mib):
    library = c_void_p()
    text = HEAD + ".u32 big[%d][1024];" % (mib * 256)
    return (cuda.cuLibraryLoadData(byref(library), text.encode(), None, None, 0, None, None, 0),
            lambda: cuda.cuLibraryUnload(library))
def of_graph(mib):
    stream, graph, run, p = c_void_p(), c_void_p(), c_void_p(), c_uint64()
    must(cuda.cuStreamCreate(byref(stream), 1))
    must(cuda.cuStreamBeginCapture_v2(stream, 0))
    got = cuda.cuMemAllocAsync(byref(p), c_size_t(mib * MIB), stream)
    must(cuda.cuStreamEndCapture(stream, byref(graph)))
    if got == 0:
        must(cuda.cuGraphInstantiateWithFlags(byref(run), graph, c_uint64(0)))
        got = cuda.cuGraphLaunch(run, stream) or cuda.cuStreamSynchronize(stream)
    def end():
        if run:
            must(cuda.cuGraphExecDestroy(run))
        must(cuda.cuGraphDestroy(graph))
    def back():
        must(cuda.cuMemFreeAsync(p, stream))
        must(cuda.cuStreamSynchronize(stream))
        must(cuda.cuDeviceGraphMemTrim(device))
        end()
    if got != 0:
        end()
    return got, back
def of_heap(mib):
    size = c_size_t()
    must(cuda.cuCtxGetLimit(byref(size), 2))
    return (cuda.cuCtxSetLimit(2, c_size_t(size.value + mib * MIB)),
            lambda: cuda.cuCtxSetLimit(2, size))
ways = [of_device, of_rows, of_stream, of_pool, of_physical, of_array, of_variables, of_library,
        of_heap, of_graph]

def free_mib():
    free, total = c_size_t(), c_size_t()
    must(cuda.cuCtxSynchronize())
    must(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    return free.value // MIB
"""


# Something of the program's lies where the server would give out device memory.
COLLIDING = """
MAP_FIXED_NOREPLACE, FIRST, SIZE = 0x100000, %d, 4 << 30
libc = CDLL(None)
libc.mmap.restype = c_void_p
libc.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, c_size_t]
# Private, anonymous, no memory for it.
own = libc.mmap(FIRST, SIZE, 0, 0x4022 | MAP_FIXED_NOREPLACE, -1, 0)
assert own == FIRST, own
for _ in range(3):
    address = c_uint64()
    must(%s)
    assert not FIRST <= address.value < FIRST + SIZE, hex(address.value)
# What it has there itself can still be shared with the GPU. This is readable, writable, and at that
# very place.
inside = libc.mmap(FIRST + (1 << 30), MIB, 3, 0x4032, -1, 0)
assert inside == FIRST + (1 << 30), inside
must(cuda.cuMemHostRegister_v2(c_void_p(inside), c_size_t(MIB), 2))
must(cuda.cuMemHostGetDevicePointer_v2(byref(address), c_void_p(inside), 0))
must(cuda.cuMemHostUnregister(c_void_p(inside)))
"""


@harness.needs_client
@harness.needs_plain_client
class Charging(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def run_program(self, text, **environment):
        """The program finds in sys.argv: `tendril`, the server."""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(PROGRAM + text)
            file.flush()
            status, out, err = tendril(
                "run",
                "-m",
                "256M",
                "--",
                sys.executable,
                file.name,
                str(harness.TENDRIL),
                self.server.endpoint,
                server=self.server,
                timeout=180,
                **environment,
            )
        self.assertEqual(status, 0, out + err)
        eventually(self.server.idle, 5, "everything given back")
        return out

    def test_addresses_that_the_program_has_itself(self):
        drivers, proposed = 0x4800_0000_0000, 0x2000_0000_0000
        with Server(environment={"TENDRIL_SOFTGPU_ADDRESSES": "process"}) as server:
            for transport in ("tcp", "shm"):
                # cuMemAlloc agrees with the worker on addresses and pays ahead, once each. No block
                # is ever refused, also where the program has the addresses that it would propose. A
                # pool's blocks lie where the driver wants. Larger requests use up the chunk from
                # which it cuts them, where it has room for thousands. A pool may have freed memory
                # at once or later, so the number of refusals differs: 20 to 111 round trips were
                # seen.
                for first, name, arguments, least, most in (
                    (drivers, "cuMemAlloc_v2", "c_size_t(2 * MIB)", 2, 2),
                    (drivers, "cuMemAlloc_v2", "c_size_t(256)", 2, 2),
                    (proposed, "cuMemAlloc_v2", "c_size_t(2 * MIB)", 2, 2),
                    (drivers, "cuMemAllocAsync", "c_size_t(256), None", 6, 400),
                    (
                        drivers,
                        "cuMemAddressReserve",
                        "c_size_t(2 * MIB), c_size_t(0), c_uint64(FIRST), c_uint64(0)",
                        3,
                        60,
                    ),
                ):
                    call = f"cuda.{name}(byref(address), {arguments})"
                    status, out, err = tendril(
                        "run",
                        "--",
                        sys.executable,
                        "-c",
                        PROGRAM + COLLIDING % (first, call),
                        server=server,
                        TENDRIL_TRANSPORT=transport,
                        TENDRIL_STATS="1",
                    )
                    self.assertEqual(status, 0, call + out + err)
                    row = next(line for line in err.splitlines() if line.endswith(" " + name))
                    self.assertTrue(least <= int(row.split()[4]) <= most, call + err)

    def test_memory_of_new_sizes_needs_no_answer(self):
        """Blocks of sizes that were never there, each given back; and many small ones that stay."""
        again = """
for i in range(%d):
    p = c_uint64()
    must(cuda.cuMemAlloc_v2(byref(p), c_size_t(MIB + (i << 17) + 1)))
    must(cuda.cuMemFree_v2(p))
"""
        stay = """
chance, p = random.Random(24), c_uint64()
for i in range(503):
    must(cuda.cuMemAlloc_v2(byref(p), c_size_t(chance.randrange(1, 360_000))))
"""
        with Server() as server:
            for transport in ("tcp", "shm"):
                trips = []
                for text in ("", again % 20, again % 120, stay):
                    status, out, err = tendril(
                        *("run", "--", sys.executable, "-c", PROGRAM + text),
                        server=server,
                        TENDRIL_TRANSPORT=transport,
                        TENDRIL_STATS="1",
                    )
                    self.assertEqual(status, 0, out + err)
                    trips.append(int(re.search(r"(\d+) round trips", err).group(1)))
                none, few, many, small = trips
                self.assertLessEqual(few - none, 3, trips)
                self.assertLessEqual(many - few, 2, trips)  # as they grow
                self.assertLessEqual(small - none, 8, trips)

    def test_every_way_is_charged_and_given_back(self):
        self.run_program("""
whole = free_mib()
assert 240 <= whole <= 256, whole
for way in ways:
    result, back = way(100)
    assert result == 0, (way.__name__, result)
    left = free_mib()
    assert left <= whole - 100, (way.__name__, left)
    for other in ways:
        if way is other is of_heap:
            continue
        result, _ = other(200)
        assert result == 2, (way.__name__, other.__name__, result)
    assert free_mib() == left, (way.__name__, free_mib(), left)
    back()
    assert free_mib() == whole, (way.__name__, free_mib())
""")

    def test_memory_that_a_pool_keeps(self):
        """What is freed and kept belongs to the slice still; it goes back when it is wanted
        otherwise, or trimmed."""
        self.run_program("""
pool, p, keep, reserved = c_void_p(), c_uint64(), c_uint64(2**64 - 1), c_uint64()
must(cuda.cuDeviceGetDefaultMemPool(byref(pool), device))
must(cuda.cuMemPoolSetAttribute(pool, 4, byref(keep)))
whole = free_mib()
must(cuda.cuMemAllocAsync(byref(p), c_size_t(150 * MIB), None))
must(cuda.cuMemFreeAsync(p, None))
must(cuda.cuCtxSynchronize())
must(cuda.cuMemPoolGetAttribute(pool, 5, byref(reserved)))
assert reserved.value >= 150 * MIB, reserved.value
assert free_mib() == whole - reserved.value // MIB, "kept memory is free for the slice"
for _ in range(20):  # and may be had again without more
    must(cuda.cuMemAllocAsync(byref(p), c_size_t(150 * MIB), None))
    must(cuda.cuMemFreeAsync(p, None))
must(cuda.cuCtxSynchronize())
must(cuda.cuMemPoolTrimTo(pool, c_size_t(0)))
assert free_mib() == whole, free_mib()
must(cuda.cuMemAllocAsync(byref(p), c_size_t(150 * MIB), None))
must(cuda.cuMemFreeAsync(p, None))
must(cuda.cuCtxSynchronize())
result, back = of_device(200)
assert result == 0, "the pool kept what the slice needed"
back()
""")

    def test_what_a_stream_freed_makes_room(self):
        """Blocks that wait in the client for an allocation that can use them again
        (client/cuda/memory/freed_blocks.h)."""
        self.run_program("""
stream = c_void_p()
must(cuda.cuStreamCreate(byref(stream), 1))
whole = free_mib()
def freed_in_order(mib):
    p = c_uint64()
    must(cuda.cuMemAllocAsync(byref(p), c_size_t(mib * MIB), stream))
    must(cuda.cuMemsetD8Async(p, 1, c_size_t(mib * MIB), stream))
    must(cuda.cuMemFreeAsync(p, stream))
for _ in range(3):
    for mib in (100, 160, 100, 200, 60):
        freed_in_order(mib)
    must(cuda.cuStreamSynchronize(stream))
    result, back = of_device(200)
    assert result == 0, result
    back()
assert free_mib() == whole, (free_mib(), whole)
""")

    def test_what_a_stream_freed_makes_room_at_once(self):
        """The call that could tell comes a microsecond after the wait that gives memory free: a
        question, a graph that allocates."""
        self.run_program(
            """
stream, graph, run, pool = c_void_p(), c_void_p(), c_void_p(), c_void_p()
p, reserved = c_uint64(), c_uint64()
must(cuda.cuDeviceGetDefaultMemPool(byref(pool), device))
must(cuda.cuStreamCreate(byref(stream), 1))
must(cuda.cuStreamBeginCapture_v2(stream, 0))
must(cuda.cuMemAllocAsync(byref(p), c_size_t(150 * MIB), stream))
must(cuda.cuMemFreeAsync(p, stream))
must(cuda.cuStreamEndCapture(stream, byref(graph)))
must(cuda.cuGraphInstantiateWithFlags(byref(run), graph, 0))
wait, held, much = cuda.cuStreamSynchronize, byref(reserved), c_size_t(150 * MIB)
def after_a_free(call, *arguments):
    must(cuda.cuMemAllocAsync(byref(p), much, stream))
    must(cuda.cuMemFreeAsync(p, stream))
    results = wait(stream), call(*arguments)
    assert results == (0, 0), results
for turn in range(1000):
    after_a_free(cuda.cuMemPoolGetAttribute, pool, 5, held)
    assert reserved.value == 0, (turn, reserved.value)
    after_a_free(cuda.cuGraphLaunch, run, stream)
    must(wait(stream))
    must(cuda.cuDeviceGraphMemTrim(0))
""",
            TENDRIL_TRANSPORT="shm",
        )

    def test_downloads_take_little_host_memory_of_the_server(self):
        """However many asynchronous copies to the host are under way: what the server stages them
        in is used again (read_bulk)."""
        self.run_program(
            """
import os, pathlib
def most_mib():
    most = 0
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            lines = status.read_text().splitlines()
            fields = dict(line.split(":", 1) for line in lines if ":" in line)
        except OSError:
            continue
        if fields["PPid"].strip() == os.environ["SERVER"] and "VmHWM" in fields:
            most = max(most, int(fields["VmHWM"].split()[0]) // 1024)
    return most
p, host = c_uint64(), c_void_p()
must(cuda.cuMemAlloc_v2(byref(p), c_size_t(40 * MIB)))
must(cuda.cuMemsetD8_v2(p, 5, c_size_t(40 * MIB)))
must(cuda.cuMemAllocHost_v2(byref(host), c_size_t(40 * MIB)))
must(cuda.cuCtxSynchronize())
before = most_mib()
assert before > 0
for _ in range(12):
    must(cuda.cuMemcpyDtoHAsync_v2(host, p, c_size_t(40 * MIB), None))
must(cuda.cuCtxSynchronize())
assert ctypes.string_at(host.value + 40 * MIB - 1, 1) == b"\\x05"
grown = most_mib() - before
assert grown < 300, grown  # and not 480
""",
            TENDRIL_TRANSPORT="tcp",
            SERVER=str(self.server.pid),
        )

    def test_memory_outlives_its_pool(self):
        self.run_program("""
whole = free_mib()
pool, p, props = c_void_p(), c_uint64(), PoolProps(1, 0, where)
must(cuda.cuMemPoolCreate(byref(pool), byref(props)))
must(cuda.cuMemAllocFromPoolAsync(byref(p), c_size_t(100 * MIB), pool, None))
must(cuda.cuMemPoolDestroy(pool))
assert free_mib() <= whole - 100, "the pool is gone, its memory is not"
must(cuda.cuMemFreeAsync(p, None))
assert free_mib() == whole, free_mib()
""")

    def test_a_reset_gives_back_what_the_primary_context_had_and_nothing_else(self):
        self.run_program("""
other, p = c_void_p(), c_uint64()
whole = free_mib()
assert of_device(50)[0] == 0 and of_stream(20)[0] == 0
must(cuda.cuCtxCreate_v2(byref(other), 0, device))
must(cuda.cuMemAlloc_v2(byref(p), c_size_t(100 * MIB)))
must(cuda.cuDevicePrimaryCtxReset_v2(device))
must(cuda.cuCtxSetCurrent(other))
assert free_mib() == whole - 100, (whole, free_mib())
must(cuda.cuMemFree_v2(p))
assert free_mib() == whole, (whole, free_mib())
""")

    def test_everybody_says_the_same(self):
        """The driver's calls, a device's properties, NVML, `tendril smi` and `tendril ls`."""
        text = """
class NvmlMemory(Structure):
    _fields_ = [("total", c_uint64), ("free", c_uint64), ("used", c_uint64)]
nvml, handle, memory, total = CDLL("libnvidia-ml.so.1"), c_void_p(), NvmlMemory(), c_size_t()
must(nvml.nvmlInit_v2())
must(nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(handle)))
def shown_by(command):
    shown = subprocess.check_output([sys.argv[1], command, "--server", sys.argv[2], "--json"])
    return json.loads(shown)["servers"][0]
def agree():
    free, all_of_it = c_size_t(), c_size_t()
    must(cuda.cuCtxSynchronize())
    must(cuda.cuMemGetInfo_v2(byref(free), byref(all_of_it)))
    must(cuda.cuDeviceTotalMem_v2(byref(total), device))
    used = all_of_it.value - free.value
    for _ in range(50):  # it asks the server only so often
        must(nvml.nvmlDeviceGetMemoryInfo(handle, byref(memory)))
        if memory.used == used:
            break
        time.sleep(0.1)
    totals = total.value, all_of_it.value, memory.total
    assert totals == (256 * MIB,) * 3, totals
    assert memory.used == used and memory.free == free.value, (memory.used, used)
    shown = shown_by("ls")
    one = shown["leases"][0]["slices"][0]
    assert one["memory_bytes"] == 256 * MIB and one["memory_used_bytes"] == used, (one, used)
    shown = shown_by("smi")
    assert shown["gpus"][0]["memory_used_bytes"] == used, (shown, used)
agree()
for way in ways:
    assert way(20)[0] == 0, way.__name__
    agree()
"""
        self.run_program(text)

    def test_threads_ask_for_the_default_pool_at_once(self):
        """The worker must know no id of it that the client gives to another pool later."""
        self.run_program("""
start = threading.Barrier(8)
def first():
    pool = c_void_p()
    must(cuda.cuCtxSetCurrent(context))
    start.wait()
    must(cuda.cuDeviceGetDefaultMemPool(byref(pool), device))
threads = [threading.Thread(target=first) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for _ in range(16):
    must(cuda.cuMemPoolCreate(byref(c_void_p()), byref(PoolProps(1, 0, where))))
""")

    def test_threads_and_processes_never_pass_the_quota(self):
        """Eight threads in each of two processes of one lease take and give back at random."""
        out = self.run_program("""
if len(sys.argv) == 3:
    program = [sys.executable, *sys.argv]
    others = [subprocess.Popen([*program, role], stdout=subprocess.PIPE) for role in "ab"]
    for other in others:
        print(other.communicate()[0].decode())
        assert other.wait() == 0
    for _ in range(50):  # their workers end a moment after them
        if free_mib() == 256:
            break
        time.sleep(0.1)
    assert free_mib() == 256, free_mib()
else:
    lock, mine, most = threading.Lock(), [0], [0]
    counts, wrong = {"taken": 0, "refused": 0}, []
    def work(seed):
        chance, held = random.Random(seed), []
        must(cuda.cuCtxSetCurrent(context))
        for _ in range(60):
            if chance.random() < 0.2:  # what pools hold goes back to everybody when somebody waits
                must(cuda.cuCtxSynchronize())
            if held and chance.random() < 0.5:
                size, back = held.pop(chance.randrange(len(held)))
                with lock:
                    mine[0] -= size
                back()
                continue
            size = chance.randrange(2, 40, 2)  # physical memory comes in pages of 2 MiB
            way = chance.choice(ways[:-2])
            result, back = way(size)
            if result == 0:
                held.append((size, back))
                with lock:
                    counts["taken"] += 1
                    mine[0] += size
                    most[0] = max(most[0], mine[0])
            elif result == 2:
                counts["refused"] += 1
            else:
                wrong.append((way.__name__, size, result))
        for size, back in held:
            with lock:
                mine[0] -= size
            back()
    threads = [threading.Thread(target=work, args=(sys.argv[3] + str(n),)) for n in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    must(cuda.cuCtxSynchronize())
    assert not wrong, wrong
    assert most[0] <= 256, most
    assert counts["taken"] > 50 and counts["refused"] > 0, counts
    print("threads", counts, "at most", most[0])
""")
        self.assertEqual(out.count("threads"), 2, out)


if __name__ == "__main__":
    unittest.main()
