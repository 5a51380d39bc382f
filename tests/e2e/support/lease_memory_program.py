# SPDX-License-Identifier: Apache-2.0
"""A program of test_lease_memory.py: processes of one lease, each with threads that take and give
back memory at random. After each round all stand still. Then the program says how many calls there
were, and waits for a line. `quiet` in that line: what is kept and paid ahead goes back first.
Arguments: seed, processes, threads, rounds, steps of each thread and round."""

import ctypes
import pathlib
import random
import subprocess
import sys
import threading
from ctypes import byref, c_size_t, c_uint64, c_void_p

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from test_memory import PROGRAM  # noqa: E402

SHARED_MIB = 4
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: other threads may go on


def say(*words):
    print(*words, flush=True)
    return sys.stdin.readline()


def lead(seed, count, *numbers):
    """Begins the processes, tells each the handles of all, and passes lines on."""
    command = [sys.executable, "-B", __file__, "member"]
    members = [
        subprocess.Popen(
            [*command, str(seed * 100 + i), *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(count)
    ]

    def tell(line):
        for member in members:
            member.stdin.write(line)
            member.stdin.flush()

    handles = [member.stdout.readline().strip() for member in members]
    for i, member in enumerate(members):
        member.stdin.write(" ".join(h for k, h in enumerate(handles) if k != i) + "\n")
        member.stdin.flush()
    while True:
        lines = [member.stdout.readline().split() for member in members]
        if not all(lines):
            break
        tell(say(lines[0][0], *(sum(int(line[k]) for line in lines) for k in (1, 2))))
    return max(member.wait() for member in members)


def graphs(world):
    """A way to take memory by a graph. All in one stream, since each further one takes memory of
    its own."""
    cuda, must = world["cuda"], world["must"]
    stream, capturing = c_void_p(), threading.Lock()
    must(cuda.cuStreamCreate(byref(stream), 1))

    def of_graph(mib):
        graph, run, p = c_void_p(), c_void_p(), c_uint64()
        with capturing:
            must(cuda.cuStreamBeginCapture_v2(stream, RELAXED))
            got = cuda.cuMemAllocAsync(byref(p), c_size_t(mib << 20), stream)
            must(cuda.cuStreamEndCapture(stream, byref(graph)))
            if got == 0:
                must(cuda.cuGraphInstantiateWithFlags(byref(run), graph, c_uint64(0)))
                got = cuda.cuGraphLaunch(run, stream) or cuda.cuStreamSynchronize(stream)

        def end():
            if run:
                must(cuda.cuGraphExecDestroy(run))
            must(cuda.cuGraphDestroy(graph))

        def back():
            with capturing:
                must(cuda.cuMemFreeAsync(p, stream))
                must(cuda.cuStreamSynchronize(stream))
                must(cuda.cuDeviceGraphMemTrim(world["device"]))
            end()

        if got != 0:
            end()
        return got, back

    of_graph(2)[1]()  # a driver keeps what an instance of a graph took
    return of_graph


def others(cuda, handles):
    """A way to open memory of another process."""

    class ByValue(ctypes.Structure):
        _fields_ = [("reserved", ctypes.c_ubyte * 64)]

    def of_another(dice):
        p = c_uint64()
        one = ByValue.from_buffer_copy(dice.choice(handles))
        return cuda.cuIpcOpenMemHandle_v2(byref(p), one, 1), lambda: cuda.cuIpcCloseMemHandle(p)

    return of_another


def member(seed, threads, rounds, steps):
    world = {}
    exec(PROGRAM, world)  # pylint: disable=exec-used
    cuda, must, context = world["cuda"], world["must"], world["context"]
    ways = [world[f"of_{way}"] for way in ("device", "rows", "stream", "pool", "physical", "array")]
    ways = [world["of_device"]] * 6 + ways + [world["of_variables"], graphs(world)]
    own, handle = c_uint64(), (ctypes.c_ubyte * 64)()
    must(cuda.cuMemAlloc_v2(byref(own), c_size_t(SHARED_MIB << 20)))
    must(cuda.cuIpcGetMemHandle(byref(handle), own))
    of_another = others(cuda, [bytes.fromhex(word) for word in say(bytes(handle).hex()).split()])
    held = [[] for _ in range(threads)]
    dice = [random.Random(seed * 64 + k) for k in range(threads)]
    counts, wrong = [0, 0], []

    def work(k):
        must(cuda.cuCtxSetCurrent(context))
        for _ in range(steps):
            counts[0] += 1
            if held[k] and dice[k].random() < 0.5:
                held[k].pop(dice[k].randrange(len(held[k])))()
                continue
            if dice[k].random() < 0.1:
                result, back = of_another(dice[k])
            else:
                result, back = dice[k].choice(ways)(dice[k].randrange(2, 30, 2))
            if result == 0:
                held[k].append(back)
            elif result == 2:
                counts[1] += 1
            else:
                wrong.append(result)

    def stand_still(word):
        must(cuda.cuCtxSynchronize())
        while "quiet" in say(word, *counts):
            world["free_mib"]()

    for _ in range(rounds):
        working = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
        for thread in working:
            thread.start()
        for thread in working:
            thread.join()
        stand_still("round")
    for back in [back for mine in held for back in mine]:
        back()
    must(cuda.cuMemFree_v2(own))
    stand_still("end")
    if wrong:
        sys.exit(f"results {wrong}")


if __name__ == "__main__":
    if sys.argv[1] == "member":
        sys.exit(member(*map(int, sys.argv[2:])))
    sys.exit(lead(*map(int, sys.argv[1:])))
