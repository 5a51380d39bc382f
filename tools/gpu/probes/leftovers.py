# SPDX-License-Identifier: Apache-2.0
"""What a program leaves on the GPU, and what the next one finds there. For tools/gpu/security.py.

leftovers.py write                fills free memory with a word and ends
leftovers.py read                 takes memory and counts that word in it, without having written
leftovers.py again                both in one process, for comparison
leftovers.py work SECONDS         keeps the word in shared and local memory of all processors
leftovers.py look SECONDS         meanwhile reads such memory that it has never written
"""

import sys
import time
from ctypes import c_uint, c_uint64

import driver_api as api
from driver_api import HEAD, MIB, cuda, must

WORD = 0x5EC2E7A5
LEAVE = 600 * MIB
SHARED_MAX = 97  # bytes of shared memory that a block may have
SHARED = HEAD + """.extern .shared .align 4 .b8 held[];
.visible .entry shared(.param .u32 writes, .param .u32 words, .param .u32 value, .param .u64 to,
.param .u32 rounds) {
.reg .b64 %rd<4>; .reg .b32 %r<14>; .reg .pred %p<4>; mov.u32 %r11, 0;
ld.param.u32 %r1, [writes]; ld.param.u32 %r2, [words]; ld.param.u32 %r3, [value];
ld.param.u64 %rd1, [to]; ld.param.u32 %r12, [rounds];
mov.u32 %r4, %tid.x; mov.u32 %r5, %ntid.x; mov.u32 %r6, held; mov.u32 %r7, 0; mov.u32 %r13, 0;
R: mov.u32 %r8, %r4;
L: setp.ge.u32 %p1, %r8, %r2; @%p1 bra N;
shl.b32 %r9, %r8, 2; add.u32 %r9, %r9, %r6;
setp.ne.u32 %p2, %r1, 0; @!%p2 bra W;
st.volatile.shared.u32 [%r9], %r3; bra A;
W: ld.volatile.shared.u32 %r10, [%r9]; setp.eq.u32 %p3, %r10, %r3; @%p3 add.u32 %r7, %r7, 1;
setp.ne.u32 %p3, %r10, 0; @%p3 add.u32 %r11, %r11, 1;
A: add.u32 %r8, %r8, %r5; bra L;
N: add.u32 %r13, %r13, 1; setp.lt.u32 %p1, %r13, %r12; @%p1 bra R;
cvt.u64.u32 %rd2, %r7; red.global.add.u64 [%rd1], %rd2;
cvt.u64.u32 %rd2, %r11; red.global.add.u64 [%rd1+16], %rd2; ret; }
"""
# 4,096 bytes for each thread. Generic addresses may be volatile, so the compiler keeps the array.
LOCAL = HEAD + """.visible .entry local(.param .u32 writes, .param .u32 value, .param .u64 to) {
.reg .b64 %rd<6>; .reg .b32 %r<10>; .reg .pred %p<4>; .local .align 4 .b8 held[4096];
ld.param.u32 %r1, [writes]; ld.param.u32 %r2, [value]; ld.param.u64 %rd1, [to];
mov.u64 %rd5, held; cvta.local.u64 %rd2, %rd5; mov.u32 %r3, 0; mov.u32 %r4, 0;
L: cvt.u64.u32 %rd3, %r3; add.u64 %rd3, %rd3, %rd2;
setp.ne.u32 %p1, %r1, 0; @!%p1 bra W;
st.volatile.u32 [%rd3], %r2; bra A;
W: ld.volatile.u32 %r5, [%rd3]; setp.eq.u32 %p2, %r5, %r2; @%p2 add.u32 %r4, %r4, 1;
A: add.u32 %r3, %r3, 4; setp.lt.u32 %p3, %r3, 4096; @%p3 bra L;
cvt.u64.u32 %rd4, %r4; red.global.add.u64 [%rd1], %rd4; ret; }
"""


def write():
    held = api.allocate_all(LEAVE)
    for address, size in held:
        api.fill(address, size, WORD)
    must(cuda.cuCtxSynchronize())
    return {"bytes": sum(size for _, size in held)}


def read(counter):
    held = api.allocate_all(LEAVE)
    found = [counter.count(address, size, WORD) for address, size in held]
    return {
        "bytes": sum(size for _, size in held),
        "the_word": 4 * sum(one for one, _ in found),
        "not_zero": 4 * sum(one for _, one in found),
    }


def again(counter):
    """Freed and taken again by the same process: the driver need not clear that."""
    held = api.allocate_all(LEAVE)
    for address, size in held:
        api.fill(address, size, WORD)
    must(cuda.cuCtxSynchronize())
    for address, _ in held:
        must(cuda.cuMemFree_v2(c_uint64(address)))
    return read(counter)


def processors(writes, seconds):
    """Blocks on all processors, again and again; the words that were there before."""
    shared, local = api.function(SHARED, "shared"), api.function(LOCAL, "local")
    size = api.attribute(SHARED_MAX) or 48 << 10
    must(cuda.cuFuncSetAttribute(shared, 8, size))
    to, blocks = api.allocate(32), api.attribute(api.MULTIPROCESSORS) or 1
    api.fill(to, 32, 0)
    rounds = 400 if writes else 1
    found, before, seen_in = (c_uint64 * 4)(), (0, 0), []
    looks, begun = 0, time.monotonic()
    until = begun + seconds
    while time.monotonic() < until:
        asked = c_uint(writes), c_uint(size // 4), c_uint(WORD), c_uint64(to), c_uint(rounds)
        must(api.launch(shared, blocks, 256, *asked, shared=size))
        must(api.launch(local, 2 * blocks, 1024, c_uint(writes), c_uint(WORD), c_uint64(to + 8)))
        must(cuda.cuMemcpyDtoH_v2(found, c_uint64(to), 32))
        if (found[0], found[2]) != before and not writes:
            new = [found[0] - before[0], found[2] - before[1]]
            seen_in.append([looks, round(time.monotonic() - begun, 3), *new])
            before = found[0], found[2]
        looks += 1
    return {
        "launches": looks,
        "shared_words": found[0],
        "shared_not_zero": found[2],
        "local_words": found[1],
        "launches_that_saw": len(seen_in),
        "first_and_last": seen_in[:3] + seen_in[-1:],
    }


def main():
    what = sys.argv[1]
    api.begin()
    if what in ("work", "look"):
        api.say("begun")
        found = processors(int(what == "work"), float(sys.argv[2]))
    else:
        counter = api.Counter()
        found = {"write": lambda _: write(), "read": read, "again": again}[what](counter)
    api.say("found", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
