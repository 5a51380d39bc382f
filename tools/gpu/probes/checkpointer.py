# SPDX-License-Identifier: Apache-2.0
"""Does to another process what the vendor's driver offers for checkpoints, by the driver of this
machine. For tools/gpu/pauses.py.

    checkpointer.py PID

Reads `state`, `thread`, `lock`, `checkpoint`, `restore`, `unlock` from standard input and answers
each with the driver's code, seconds, and the state afterwards (0 running, 1 locked, 2
checkpointed, 3 failed).
"""

import ctypes
import sys
import time
from ctypes import byref, c_int, c_uint, c_uint64

import driver_api as api
from driver_api import cuda

LOCK_MS = 10_000


class LockArguments(ctypes.Structure):
    _fields_ = [("timeout_ms", c_uint), ("reserved", c_uint), ("more", c_uint64 * 7)]


class NoArguments(ctypes.Structure):
    _fields_ = [("reserved", c_uint64 * 16)]


def main():
    process, state, thread = int(sys.argv[1]), c_int(-1), c_int(-1)
    asked = LockArguments(LOCK_MS)
    none = NoArguments()
    calls = {
        "state": lambda: 0,
        "thread": lambda: cuda.cuCheckpointProcessGetRestoreThreadId(process, byref(thread)),
        "lock": lambda: cuda.cuCheckpointProcessLock(process, byref(asked)),
        "checkpoint": lambda: cuda.cuCheckpointProcessCheckpoint(process, byref(none)),
        "restore": lambda: cuda.cuCheckpointProcessRestore(process, byref(none)),
        "unlock": lambda: cuda.cuCheckpointProcessUnlock(process, byref(none)),
    }
    api.say("begun", {"cuInit": cuda.cuInit(0)})
    for line in sys.stdin:
        word = line.strip()
        begun = time.monotonic()
        code = calls[word]()
        took = time.monotonic() - begun
        told = cuda.cuCheckpointProcessGetState(process, byref(state))
        facts = {"code": code, "seconds": took, "state": state.value, "state_code": told}
        api.say(word, facts | ({"thread": thread.value} if word == "thread" else {}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
