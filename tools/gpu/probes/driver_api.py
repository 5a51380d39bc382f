# SPDX-License-Identifier: Apache-2.0
"""The driver's API from Python, for the programs of tools/gpu/security.py and pauses.py: a device
with its context, kernels from PTX, and questions and answers with whoever started the program.

The library is whatever `libcuda.so.1` the environment offers: the vendor's, Tendril's client or
the software GPU.
"""

import ctypes
import json
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

cuda = ctypes.CDLL("libcuda.so.1")
MIB, GIB = 1 << 20, 1 << 30
OUT_OF_MEMORY = 2
HEAD = ".version 7.0\n.target sm_50\n.address_size 64\n"
MULTIPROCESSORS = 16
device, context = c_int(), c_void_p()

# Every thread looks at every so many words: how many have the value, and how many are not zero.
COUNT = HEAD + """.visible .entry count(.param .u64 from, .param .u64 words, .param .u32 value,
.param .u64 to) {
.reg .b64 %rd<8>; .reg .b32 %r<10>; .reg .pred %p<3>;
ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [words]; ld.param.u32 %r1, [value];
ld.param.u64 %rd3, [to];
mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
mov.u32 %r6, %nctaid.x; mul.lo.u32 %r6, %r6, %r3; cvt.u64.u32 %rd4, %r5; cvt.u64.u32 %rd5, %r6;
mov.u32 %r7, 0; mov.u32 %r8, 0;
L: setp.ge.u64 %p1, %rd4, %rd2; @%p1 bra E;
shl.b64 %rd6, %rd4, 2; add.u64 %rd6, %rd6, %rd1; ld.global.u32 %r9, [%rd6];
setp.eq.u32 %p2, %r9, %r1; @%p2 add.u32 %r7, %r7, 1;
setp.ne.u32 %p2, %r9, 0; @%p2 add.u32 %r8, %r8, 1;
add.u64 %rd4, %rd4, %rd5; bra L;
E: cvt.u64.u32 %rd6, %r7; red.global.add.u64 [%rd3], %rd6;
cvt.u64.u32 %rd6, %r8; red.global.add.u64 [%rd3+8], %rd6; ret; }
"""


def must(code, *also):
    if code not in (0, *also):
        raise RuntimeError(f"the driver answers {code}")
    return code


def begin():
    """The first device's primary context."""
    must(cuda.cuInit(0))
    must(cuda.cuDeviceGet(byref(device), 0))
    must(cuda.cuDevicePrimaryCtxRetain(byref(context), device))
    must(cuda.cuCtxSetCurrent(context))


def attribute(number):
    value = c_int(-1)
    code = cuda.cuDeviceGetAttribute(byref(value), number, device)
    return value.value if code == 0 else None


def free_bytes():
    free, total = c_size_t(), c_size_t()
    must(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    return free.value, total.value


def allocate(size):
    """An address, or None if there is no room."""
    address = c_uint64()
    code = must(cuda.cuMemAlloc_v2(byref(address), c_size_t(size)), OUT_OF_MEMORY)
    return address.value if code == 0 else None


def allocate_all(leave, most=1 << 60):
    """[(address, bytes)] of nearly all free memory, in large blocks."""
    held, size = [], 16 * GIB
    while size >= 16 * MIB and sum(got for _, got in held) < most:
        size = min(size, most)
        room = free_bytes()[0] - leave
        address = allocate(size) if room >= size else None
        if address is None:
            size //= 2
        else:
            held.append((address, size))
    return held


def function(text, name):
    """Of a new module, which stays loaded."""
    module, found = c_void_p(), c_void_p()
    must(cuda.cuModuleLoadData(byref(module), text.encode()))
    must(cuda.cuModuleGetFunction(byref(found), module, name.encode()))
    return found


def launch(kernel, blocks, threads, *arguments, shared=0, stream=None):
    """Arguments are values of ctypes."""
    pointers = (c_void_p * max(1, len(arguments)))(*map(ctypes.addressof, arguments))
    return cuda.cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, shared, stream, pointers, None)


def fill(address, size, value):
    must(cuda.cuMemsetD32_v2(c_uint64(address), c_uint(value), c_size_t(size // 4)))


class Counter:
    """Counts words of the GPU's memory."""

    def __init__(self):
        self.kernel, self.to = function(COUNT, "count"), allocate(16)
        self.blocks = 8 * (attribute(MULTIPROCESSORS) or 1)

    def count(self, address, size, value):
        """(words that have the value, words that are not zero)"""
        fill(self.to, 16, 0)
        asked = c_uint64(address), c_uint64(size // 4), c_uint(value), c_uint64(self.to)
        must(launch(self.kernel, self.blocks, 256, *asked))
        found = (c_uint64 * 2)()
        must(cuda.cuMemcpyDtoH_v2(found, c_uint64(self.to), c_size_t(16)))
        return tuple(found)


def say(word, facts=None):
    print(word, json.dumps(facts or {}), flush=True)


def ask(word, facts=None):
    """Says it, and waits for a line."""
    say(word, facts)
    return sys.stdin.readline().strip()
