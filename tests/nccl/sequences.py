# SPDX-License-Identifier: Apache-2.0
"""Calls in the order in which frameworks make them, written down from reading: PyTorch's process
group, and nccl-tests with several GPUs in one thread. sequences.py torch|tests RANKS"""

import ctypes
import os
import sys
import threading
import time

from gpus import FLOAT32, SUM, Config, Cuda, Failed, Gpu, Nccl, Rank, in_threads

CUDA, NCCL = Cuda(), Nccl()
COUNT = 1000
SPLIT_GROUPS = 2


class Watchdog:
    """As c10d has one: asks every communicator for its state while the program works."""

    def __init__(self, comms):
        self.comms, self.stop, self.asked = comms, threading.Event(), 0
        self.errors = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stop.wait(0.001):
            for comm in self.comms:
                state = NCCL.state(comm)
                self.asked += 1
                if state != 0:
                    self.errors.append(state)

    def end(self):
        while self.asked == 0 and self.thread.is_alive():
            time.sleep(0.001)
        self.stop.set()
        self.thread.join()
        if self.errors:
            raise AssertionError(f"states {self.errors}")


def torch_rank(ranks, number, unique_id):
    """One rank of a process group: lazy communicator, coalesced calls, a split, an end."""
    rank = Rank.__new__(Rank)
    rank.gpu, rank.nccl, rank.ranks, rank.rank = Gpu(CUDA, number), NCCL, ranks, number
    rank.comm, part = ctypes.c_void_p(), ctypes.c_void_p()
    # Groups of the caller are closed while a communicator is made, and opened again after.
    NCCL.GroupStart()
    NCCL.GroupEnd()
    config = Config.without_blocking()
    config.blocking = 1
    where = ctypes.byref(rank.comm)
    NCCL.CommInitRankConfig(where, ranks, unique_id, number, ctypes.byref(config))
    NCCL.GroupStart()
    watchdog = Watchdog([rank.comm])
    data = rank.gpu.upload([float(number + 1)] * COUNT)
    barrier = rank.gpu.upload([0.0])
    rank.all_reduce(data, data, COUNT)
    NCCL.GroupEnd()
    # The stream of collectives waits for the program's, and the program's for it.
    event, side = ctypes.c_void_p(), ctypes.c_void_p()
    CUDA.cuEventCreate(ctypes.byref(event), 2)
    CUDA.cuStreamCreate(ctypes.byref(side), 1)
    main, rank.gpu.stream = rank.gpu.stream, side
    for before, after in ((main, side), (side, main)):
        CUDA.cuEventRecord(event, before)
        CUDA.cuStreamWaitEvent(after, event, 0)
        if after is side:
            NCCL.GroupStart()
            for half in (0, COUNT // 2):
                NCCL.GroupStart()
                rank.all_reduce(data + 4 * half, data + 4 * half, COUNT // 2)
                NCCL.GroupEnd()
            NCCL.GroupEnd()
    CUDA.cuStreamSynchronize(main)
    total = sum(range(1, ranks + 1))
    expect(rank.gpu.read(data, COUNT), [float(total * ranks)] * COUNT)
    neighbours(rank)
    NCCL.CommSplit(rank.comm, number % SPLIT_GROUPS, number, ctypes.byref(part), None)
    whole, rank.comm = rank.comm, part
    rank.all_reduce(barrier, barrier, 1)
    rank.gpu.synchronize()
    rank.comm = whole
    rank.all_reduce(barrier, barrier, 1)
    rank.gpu.synchronize()
    watchdog.end()
    for comm in (part, whole):
        NCCL.CommFinalize(comm)
        NCCL.CommDestroy(comm)


def expect(got, wanted):
    if got != wanted:
        raise AssertionError(f"{got[:4]}..., not {wanted[:4]}...")


def neighbours(rank):
    """batch_isend_irecv: in one group to the next rank and from the one before."""
    out = rank.gpu.upload([float(rank.rank)] * COUNT)
    into = rank.gpu.allocate(COUNT)
    before, after = (rank.rank - 1) % rank.ranks, (rank.rank + 1) % rank.ranks
    count = ctypes.c_size_t(COUNT)
    NCCL.GroupStart()
    for call, address, peer in ((NCCL.Recv, into, before), (NCCL.Send, out, after)):
        call(ctypes.c_void_p(address), count, FLOAT32, peer, rank.comm, rank.gpu.stream)
    NCCL.GroupEnd()
    rank.gpu.synchronize()
    expect(rank.gpu.read(into, COUNT), [float(before)] * COUNT)


def torch(ranks):
    Gpu(CUDA, 0)
    unique_id = NCCL.unique_id()
    in_threads(ranks, lambda number: torch_rank(ranks, number, unique_id))


def in_group(ranks, what):
    NCCL.GroupStart()
    for rank in ranks:
        what(rank)
    NCCL.GroupEnd()


def tests(ranks):
    """nccl-tests -g RANKS: one thread, every call for all GPUs in one group; then -G: the same
    iterations captured in a graph of each GPU, side by side."""
    gpus = [Gpu(CUDA, number) for number in range(ranks)]
    comms = (ctypes.c_void_p * ranks)()
    unique_id = NCCL.unique_id()
    NCCL.GroupStart()
    for number, gpu in enumerate(gpus):
        gpu.use()
        where = ctypes.byref(comms, number * ctypes.sizeof(ctypes.c_void_p))
        NCCL.CommInitRank(where, ranks, unique_id, number)
    NCCL.GroupEnd()
    everybody = []
    for number, gpu in enumerate(gpus):
        rank = Rank.__new__(Rank)
        rank.gpu, rank.nccl, rank.ranks, rank.rank = gpu, NCCL, ranks, number
        rank.comm = ctypes.c_void_p(comms[number])
        gpu.use()
        rank.data = gpu.upload([1.0] * COUNT)
        everybody.append(rank)

    def reduce(rank, count=COUNT):
        rank.all_reduce(rank.data, rank.data, count, SUM)

    for count in (1, 16, COUNT):
        for _ in range(3):
            in_group(everybody, lambda rank, count=count: reduce(rank, count))
    for rank in everybody:
        rank.gpu.synchronize()
        expect(rank.gpu.read(rank.data, 17)[-2:], [float(ranks**6), float(ranks**3)])
        rank.gpu.write(rank.data, [1.0] * COUNT)
    graphs = [ctypes.c_void_p() for _ in gpus]
    ready = [ctypes.c_void_p() for _ in gpus]
    for gpu in gpus:
        CUDA.cuStreamBeginCapture_v2(gpu.stream, 1)
    for _ in range(4):
        in_group(everybody, reduce)
    for gpu, graph, one in zip(gpus, graphs, ready):
        CUDA.cuStreamEndCapture(gpu.stream, ctypes.byref(graph))
        CUDA.cuGraphInstantiateWithFlags(ctypes.byref(one), graph, ctypes.c_ulonglong(0))
    for _ in range(2):
        for gpu, one in zip(gpus, ready):
            gpu.launch_graph(one)
    for rank, graph, one in zip(everybody, graphs, ready):
        rank.gpu.synchronize()
        expect(rank.gpu.read(rank.data, COUNT), [float(ranks**8)] * COUNT)
        rank.gpu.drop_graph(one)
        CUDA.cuGraphDestroy(graph)
    for rank in everybody:
        rank.destroy()


if __name__ == "__main__":
    begin = time.monotonic()
    try:
        {"torch": torch, "tests": tests}[sys.argv[1]](int(sys.argv[2]))
    except Failed as error:
        print(error)
        os._exit(1)
    print(f"{sys.argv[1]}: {sys.argv[2]} ranks in {time.monotonic() - begin:.1f} s\nPASS")
