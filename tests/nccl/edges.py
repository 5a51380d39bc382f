# SPDX-License-Identifier: Apache-2.0
"""What NCCL answers beside results: states, refusals, aborts, lost peers. One scenario a process:
edges.py SCENARIO. Public names only. Ends with PASS, or with what was wrong."""

import ctypes
import os
import signal
import sys
import threading
import time

from gpus import FLOAT32, PROGRESS, SUM, CollectiveConfig, Config, Cuda, Gpu, Nccl, Rank
from gpus import in_threads

INVALID_ARGUMENT, INVALID_USAGE, REMOTE = 4, 5, 6
CUDA, NCCL = Cuda(), Nccl()  # opened at the first call


def expect(got, wanted, what):
    if got != wanted:
        raise AssertionError(f"{what}: {got!r}, not {wanted!r}")


def integer(call, comm):
    value = ctypes.c_int(-1)
    call(comm, ctypes.byref(value))
    return value.value


def new_id():
    Gpu(CUDA, 0)
    return NCCL.unique_id()


def pair(ranks=2):
    """`ranks` ranks in this process."""
    unique_id = new_id()
    return in_threads(ranks, lambda rank: Rank(CUDA, NCCL, ranks, rank, unique_id))


def sums(ranks, wanted=None):
    """Each rank gives its number plus one; all must find the sum."""
    wanted = sum(range(1, len(ranks) + 1)) if wanted is None else wanted

    def one(which):
        rank = ranks[which]
        rank.gpu.use()
        data = rank.gpu.upload([which + 1.0] * 5)
        rank.all_reduce(data, data, 5)
        rank.gpu.synchronize()
        expect(rank.gpu.read(data, 5), [float(wanted)] * 5, f"sum of rank {which}")

    in_threads(len(ranks), one)


def questions():
    ranks = pair(3)
    version = ctypes.c_int()
    NCCL.GetVersion(ctypes.byref(version))
    if version.value < 22700:
        raise AssertionError(f"version {version.value}")
    for number, rank in enumerate(ranks):
        expect(integer(NCCL.CommCount, rank.comm), 3, "count")
        expect(integer(NCCL.CommUserRank, rank.comm), number, "rank")
        expect(integer(NCCL.CommCuDevice, rank.comm), number, "device")
        expect(NCCL.state(rank.comm), 0, "state")
    for code in range(9):
        if not NCCL.library.ncclGetErrorString(code):
            raise AssertionError(f"no text for {code}")
    ranks[0].gpu.use()
    address, handle = ctypes.c_void_p(), ctypes.c_void_p()
    NCCL.MemAlloc(ctypes.byref(address), ctypes.c_size_t(4096))
    NCCL.CommRegister(ranks[0].comm, address, ctypes.c_size_t(4096), ctypes.byref(handle))
    expect(bool(handle.value), True, "a registration")
    NCCL.CommDeregister(ranks[0].comm, handle)
    again = NCCL.code("CommDeregister", ranks[0].comm, handle)
    expect(again, INVALID_ARGUMENT, "the end of a registration that is gone")
    NCCL.MemFree(address)
    sums(ranks)
    for rank in ranks:
        rank.destroy()


def refusals():
    ranks = pair()
    rank = ranks[0]
    data = rank.gpu.allocate(16)

    def reduce(buffer=data, kind=FLOAT32, op=SUM, comm=None):
        return NCCL.code(
            "AllReduce",
            ctypes.c_void_p(buffer),
            ctypes.c_void_p(buffer),
            ctypes.c_size_t(4),
            kind,
            op,
            comm if comm is not None else rank.comm,
            rank.gpu.stream,
        )

    def broadcast(root):
        where = ctypes.c_void_p(data)
        count = ctypes.c_size_t(4)
        return NCCL.code("Bcast", where, count, FLOAT32, root, rank.comm, rank.gpu.stream)

    expect(reduce(kind=99), INVALID_ARGUMENT, "an unknown type")
    expect(reduce(op=77), INVALID_ARGUMENT, "an unknown operator")
    expect(broadcast(2), INVALID_ARGUMENT, "a root that is none")
    expect(broadcast(-1), INVALID_ARGUMENT, "a root below 0")
    expect(reduce(comm=ctypes.c_void_p(0)), INVALID_ARGUMENT, "no communicator")
    expect(NCCL.code("GroupEnd"), INVALID_USAGE, "an end without a start")
    NCCL.GroupStart()
    expect(reduce(kind=99), INVALID_ARGUMENT, "an unknown type in a group")
    expect(NCCL.code("GroupEnd"), INVALID_ARGUMENT, "the end of that group")
    comm = ctypes.c_void_p()
    expect(
        NCCL.code("CommInitRank", ctypes.byref(comm), 2, NCCL.unique_id(), 2),
        INVALID_ARGUMENT,
        "rank 2 of 2",
    )
    devices = (ctypes.c_int * 2)(1, 1)
    comms = (ctypes.c_void_p * 2)()
    expect(NCCL.code("CommInitAll", comms, 2, devices), INVALID_USAGE, "a device twice")
    sums(ranks)  # none of this has hurt
    for one in ranks:
        one.destroy()


def splits():
    ranks = pair(4)
    parts = [ctypes.c_void_p() for _ in ranks]

    def split(which, color, key):
        ranks[which].gpu.use()
        NCCL.CommSplit(ranks[which].comm, color, key, ctypes.byref(parts[which]), None)

    in_threads(4, lambda which: split(which, which % 2, -which))
    expect([integer(NCCL.CommUserRank, part) for part in parts], [1, 1, 0, 0], "ranks by key")
    expect([integer(NCCL.CommCount, part) for part in parts], [2] * 4, "counts")
    for half in (0, 1):
        members = [ranks[half], ranks[half + 2]]
        whole = [member.comm for member in members]
        for member, part in zip(members, (parts[half], parts[half + 2])):
            member.comm = part
        sums(members)
        for member, comm in zip(members, whole):
            NCCL.CommDestroy(member.comm)
            member.comm = comm
    in_threads(4, lambda which: split(which, 5 if which else -1, 0))
    expect(parts[0].value, None, "a rank without color")
    expect([integer(NCCL.CommUserRank, part) for part in parts[1:]], [0, 1, 2], "the others")
    for part in parts[1:]:
        NCCL.CommDestroy(part)
    sums(ranks)
    for rank in ranks:
        rank.destroy()


def shrinks():
    ranks = pair(4)
    parts = [ctypes.c_void_p() for _ in ranks]
    excluded = (ctypes.c_int * 2)(1, 3)

    def shrink(which):
        if which % 2 == 0:
            ranks[which].gpu.use()
            into = ctypes.byref(parts[which])
            NCCL.CommShrink(ranks[which].comm, excluded, 2, into, None, 0)

    in_threads(4, shrink)
    expect([integer(NCCL.CommUserRank, parts[which]) for which in (0, 2)], [0, 1], "after shrink")
    for which in (0, 2):
        NCCL.CommDestroy(parts[which])
    sums(ranks)
    for rank in ranks:
        rank.destroy()


def configurations():
    """The texts of configurations arrive, and what they choose is looked at."""
    unique_id = new_id()

    def init(which):
        rank = Rank.__new__(Rank)
        rank.gpu, rank.nccl, rank.comm = Gpu(CUDA, which), NCCL, ctypes.c_void_p()
        config = Config.without_blocking()
        config.blocking, config.net_name = 1, b"Socket"
        where = ctypes.byref(rank.comm)
        NCCL.CommInitRankConfig(where, 2, unique_id, which, ctypes.byref(config))
        return rank

    ranks = in_threads(2, init)
    other, comm = Config.without_blocking(), ctypes.c_void_p()
    other.blocking, other.net_name = 1, b"Pigeon"
    where = ctypes.byref(comm)
    code = NCCL.code("CommInitRankConfig", where, 1, NCCL.unique_id(), 0, ctypes.byref(other))
    expect(code != 0, True, "a network that is none")

    def reduce(rank, algorithm):
        rank.gpu.use()
        data = rank.gpu.upload([1.0] * 5)
        config = CollectiveConfig.of(algorithm)
        where, count = ctypes.c_void_p(data), ctypes.c_size_t(5)
        end = (rank.comm, rank.gpu.stream, ctypes.byref(config))
        code = NCCL.code("AllReduceConfig", where, where, count, FLOAT32, SUM, *end)
        rank.gpu.synchronize()
        return code, rank.gpu.read(data, 5)

    for algorithm, wanted in ((b"ring", (0, [2.0] * 5)), (None, (0, [2.0] * 5))):
        answers = in_threads(2, lambda which: reduce(ranks[which], algorithm))
        expect(answers, [wanted] * 2, f"a sum by {algorithm}")
    code, data = reduce(ranks[0], b"abacus")
    expect((code != 0, data), (True, [1.0] * 5), "an algorithm that is none")
    sums(ranks)
    for rank in ranks:
        rank.destroy()


def several_ids():
    Gpu(CUDA, 0)
    ids = b"".join(NCCL.unique_id().to_bytes() for _ in range(3))

    def init(which):
        rank = Rank.__new__(Rank)
        rank.gpu, rank.nccl, rank.comm = Gpu(CUDA, which), NCCL, ctypes.c_void_p()
        NCCL.CommInitRankScalable(ctypes.byref(rank.comm), 3, which, 3, ids, None)
        return rank

    ranks = in_threads(3, init)
    sums(ranks)
    for rank in ranks:
        NCCL.CommFinalize(rank.comm)
        expect(rank.all_reduce(1, 1, 1, code=True), INVALID_ARGUMENT, "a call after finalize")
        rank.destroy()


def stuck_collective():
    """A rank calls what the other never calls; abort frees it."""
    ranks = pair()
    sums(ranks)
    rank = ranks[0]
    rank.gpu.use()
    data = rank.gpu.upload([1.0] * 4)
    rank.all_reduce(data, data, 4)
    done = threading.Event()

    def wait():
        rank.gpu.use()
        rank.gpu.synchronize()
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    expect(done.wait(0.2), False, "the end of a collective that one rank has called")
    NCCL.CommAbort(rank.comm)
    expect(done.wait(1), True, "the end after abort")
    NCCL.CommAbort(ranks[1].comm)


def stuck_connection():
    """The first use waits for the peer inside of the call; abort from another thread frees it."""
    ranks = pair()
    answers = []

    def call():
        ranks[0].gpu.use()
        data = ranks[0].gpu.upload([1.0])
        answers.append(ranks[0].all_reduce(data, data, 1, code=True))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(0.2)
    expect(thread.is_alive(), True, "a first use without the peer")
    NCCL.CommAbort(ranks[0].comm)
    thread.join(1)
    expect(thread.is_alive(), False, "the call after abort")
    if answers[0] == 0:
        raise AssertionError("an aborted call succeeded")
    NCCL.CommAbort(ranks[1].comm)


def stuck_init():
    """Without blocking: one of two ranks comes, and gives up."""
    unique_id, config, comm = new_id(), Config.without_blocking(), ctypes.c_void_p()
    where = ctypes.byref(comm)
    code = NCCL.code("CommInitRankConfig", where, 2, unique_id, 0, ctypes.byref(config))
    expect(code, PROGRESS, "init without blocking")
    time.sleep(0.1)
    expect(NCCL.state(comm), PROGRESS, "the state while a rank is missing")
    begin = time.monotonic()
    NCCL.CommAbort(comm)
    if time.monotonic() - begin > 1:
        raise AssertionError("abort took long")
    time.sleep(0.1)  # the meeting has noticed; who comes late is told
    code = NCCL.code("CommInitRank", ctypes.byref(comm), 2, unique_id, 1)
    expect(code, REMOTE, "a rank that comes when the other has gone")


def lost_peer():
    """A process dies in a collective. The other is told within a second and can abort."""
    read, write = os.pipe()
    back_read, back_write = os.pipe()
    child = os.fork()
    if child == 0:
        from gpus import UniqueId

        rank = Rank(CUDA, NCCL, 2, 1, UniqueId.of(os.read(read, 128)))
        data = rank.gpu.upload([1.0])
        rank.all_reduce(data, data, 1)
        rank.gpu.synchronize()
        os.write(back_write, b"x")
        signal.pause()
    unique_id = new_id()
    os.write(write, unique_id.to_bytes())
    rank = Rank(CUDA, NCCL, 2, 0, unique_id)
    data = rank.gpu.upload([1.0])
    rank.all_reduce(data, data, 1)
    rank.gpu.synchronize()
    os.read(back_read, 1)
    rank.all_reduce(data, data, 1)
    expect(NCCL.state(rank.comm), 0, "the state before")
    os.kill(child, signal.SIGKILL)
    end = time.monotonic() + 1
    while NCCL.state(rank.comm) == 0 and time.monotonic() < end:
        time.sleep(0.01)
    expect(NCCL.state(rank.comm), REMOTE, "the state after")
    expect(rank.all_reduce(data, data, 1, code=True), REMOTE, "the next call")
    NCCL.CommAbort(rank.comm)
    rank.gpu.synchronize()
    os.waitpid(child, 0)


def forked_rank(ranks, number):
    """A process that makes rank `number` as soon as it has the id, and stays. (pid, end of a pipe
    for the id)"""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        from gpus import UniqueId

        Rank(CUDA, NCCL, ranks, number, UniqueId.of(os.read(read, 128)))
        signal.pause()
    os.close(read)
    return child, write


def lost_in_init():
    """Two of three ranks wait for the third, and one of them dies."""
    child, write = forked_rank(3, 1)
    unique_id, comm = new_id(), ctypes.c_void_p()
    os.write(write, unique_id.to_bytes())
    threading.Timer(0.3, os.kill, (child, signal.SIGKILL)).start()
    code = NCCL.code("CommInitRank", ctypes.byref(comm), 3, unique_id, 0)
    expect(code, REMOTE, "init with a rank that died")
    expect(comm.value, None, "the communicator")
    os.waitpid(child, 0)


def lost_in_connection():
    """The other dies before the first use, in which this one waits for it."""
    child, write = forked_rank(2, 1)
    unique_id = new_id()
    os.write(write, unique_id.to_bytes())
    rank = Rank(CUDA, NCCL, 2, 0, unique_id)
    threading.Timer(0.3, os.kill, (child, signal.SIGKILL)).start()
    data = rank.gpu.upload([1.0])
    expect(rank.all_reduce(data, data, 1, code=True), REMOTE, "the first use")
    expect(NCCL.state(rank.comm), REMOTE, "the state after")
    NCCL.CommAbort(rank.comm)
    rank.gpu.synchronize()
    os.waitpid(child, 0)


def many():
    """Communicators come and go and leave no thread, descriptor or memory behind."""
    count = int(os.environ.get("TENDRIL_NCCL_MANY", "500"))

    def round_of(number):
        ranks = pair()
        if number % 4 == 0:
            sums(ranks)
        for rank in ranks:
            NCCL.code("CommAbort" if number % 3 == 2 else "CommDestroy", rank.comm)
            rank.gpu.use()
            CUDA.cuStreamDestroy_v2(rank.gpu.stream)

    def held():
        time.sleep(0.1)  # the thread behind an id may be about to end
        return len(os.listdir("/proc/self/fd"))

    for number in range(8):
        round_of(number)
    before, threads = held(), len(os.listdir("/proc/self/task"))
    for number in range(count):
        round_of(number)
    expect(held(), before, "descriptors")
    grown = len(os.listdir("/proc/self/task")) - threads
    # The driver's threads come and go with its work.
    if grown > 6:
        raise AssertionError(f"{grown} more threads")


def graph_holds():
    """A communicator that a graph has captured is destroyed when the graph is."""
    ranks = pair()
    sums(ranks)
    rank = ranks[0]
    rank.gpu.use()
    data = rank.gpu.upload([1.0])
    ready = rank.gpu.capture(lambda: rank.all_reduce(data, data, 1))
    thread = threading.Thread(target=lambda: NCCL.CommDestroy(rank.comm), daemon=True)
    thread.start()
    thread.join(0.2)
    expect(thread.is_alive(), True, "the end of a communicator that a graph holds")
    rank.gpu.drop_graph(ready)
    thread.join(1)
    expect(thread.is_alive(), False, "the end without the graph")
    ranks[1].destroy()


def knobs():
    """Run with knobs; the answers tell which."""
    wanted = int(os.environ["WANTED"])
    try:
        sums(pair())
        code = 0
    except Exception as error:
        code = getattr(error, "code", -1)
        print(error)
    expect(code, wanted, "the outcome")


def lost_lines():
    """Run with the knob LOSE=3: the third launch of the process meets broken lines. Both ranks are
    told, and abort frees both."""
    ranks = pair()
    sums(ranks)
    for rank in ranks:
        rank.gpu.use()
        data = rank.gpu.upload([1.0])
        rank.all_reduce(data, data, 1)
    end = time.monotonic() + 1
    while not all(NCCL.state(rank.comm) for rank in ranks) and time.monotonic() < end:
        time.sleep(0.01)
    expect([NCCL.state(rank.comm) for rank in ranks], [REMOTE, REMOTE], "the states")
    for rank in ranks:
        NCCL.CommAbort(rank.comm)
        rank.gpu.synchronize()


def different_calls():
    """Softnccl's own: ranks that do not call the same are told, and abort frees both."""
    ranks = pair()
    sums(ranks)
    for count, rank in zip((4, 8), ranks):
        rank.gpu.use()
        data = rank.gpu.upload([1.0] * 8)
        rank.all_reduce(data, data, count)
    end = time.monotonic() + 1
    while not any(NCCL.state(rank.comm) for rank in ranks) and time.monotonic() < end:
        time.sleep(0.01)
    if INVALID_USAGE not in [NCCL.state(rank.comm) for rank in ranks]:
        raise AssertionError("nobody was told")
    print(NCCL.library.ncclGetLastError(None).decode())
    for rank in ranks:
        NCCL.CommAbort(rank.comm)
        rank.gpu.synchronize()


def versions():
    """Two processes with different versions: both are refused, and say why."""
    from gpus import UniqueId

    read, write = os.pipe()
    child = os.fork()
    os.environ["TENDRIL_SOFTNCCL_VERSION"] = "22705" if child == 0 else "22803"
    if child == 0:
        unique_id = UniqueId.of(os.read(read, 128))
    else:
        unique_id = new_id()
        os.write(write, unique_id.to_bytes())
    Gpu(CUDA, 0)
    comm = ctypes.c_void_p()
    code = NCCL.code("CommInitRank", ctypes.byref(comm), 2, unique_id, int(child == 0))
    if child == 0:
        os._exit(code)
    expect(code, INVALID_USAGE, "init with another version")
    expect(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), INVALID_USAGE, "the other's init")
    print(NCCL.library.ncclGetLastError(None).decode())


SCENARIOS = [questions, refusals, splits, shrinks, several_ids, stuck_collective]
SCENARIOS += [stuck_connection, stuck_init, lost_peer, lost_in_init, lost_in_connection, many]
SCENARIOS += [graph_holds, configurations]
# Of softnccl, and of its knobs.
OWN = [knobs, versions, lost_lines, different_calls]

if __name__ == "__main__":
    {scenario.__name__: scenario for scenario in SCENARIOS + OWN}[sys.argv[1]]()
    print("PASS", flush=True)
    os._exit(0)  # ranks may be stuck on purpose
