# SPDX-License-Identifier: Apache-2.0
"""One rank that sums without end, for tools/gpu/servers.py: what it hears when something is lost,
and when. Times are of the clock that all processes of a host share.

    nccl_rank.py RANK RANKS

Rank 0 says `id {"id": ...}`; the others read it. Then `sums` every now and then; `state`, `error`
and `freed` once each. Commands: `stop` (calls no more), `abort`.
"""

import ctypes
import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/nccl"))
from gpus import Cuda, Failed, Nccl, Rank, UniqueId  # noqa: E402

COUNT = 1 << 20
RANK, RANKS = int(sys.argv[1]), int(sys.argv[2])
CUDA, NCCL = Cuda(), Nccl()
SAID, LOCK = set(), threading.Lock()


def say(word, **more):
    with LOCK:
        if word in SAID:
            return
        SAID.add(word)
    print(word, json.dumps({"at": time.monotonic(), **more}), flush=True)


def watch(comm):
    """Its state, as PyTorch's watchdog asks for it."""
    while True:
        code = NCCL.code("CommGetAsyncError", comm, ctypes.byref(state := ctypes.c_int()))
        if code != 0 or state.value != 0:
            say("state", code=code or state.value)
            return
        time.sleep(0.02)


def sum_without_end(rank, stopped):
    rank.gpu.use()
    data = rank.gpu.allocate(COUNT)
    count = 0
    while not stopped.is_set():
        try:
            rank.gpu.use()
            rank.all_reduce(data, data, COUNT)
            rank.gpu.synchronize()
        except Failed as error:
            say("error", what=str(error)[:200], count=count)
            return
        count += 1
        say("sums")
        time.sleep(0.01)


def main():
    CUDA.cuInit(0)
    if RANK == 0:
        context, device = ctypes.c_void_p(), ctypes.c_int()
        CUDA.cuDeviceGet(ctypes.byref(device), 0)
        CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        CUDA.cuCtxSetCurrent(context)
        unique = NCCL.unique_id()
        say("id", id=unique.to_bytes().hex())
    else:
        unique = UniqueId.of(bytes.fromhex(sys.stdin.readline().strip()))
    rank = Rank(CUDA, NCCL, RANKS, RANK, unique)
    say("joined")
    stopped = threading.Event()
    threading.Thread(target=watch, args=(rank.comm,), daemon=True).start()
    working = threading.Thread(target=sum_without_end, args=(rank, stopped), daemon=True)
    working.start()
    for line in sys.stdin:
        if line.strip() == "stop":
            stopped.set()
            working.join(5)
            say("stopped")
        if line.strip() == "abort":
            begun = time.monotonic()
            code = NCCL.code("CommAbort", rank.comm)
            say("aborted", seconds=time.monotonic() - begun, code=code)
            working.join(20)
            say("freed", seconds=time.monotonic() - begun, hangs=working.is_alive())


main()
