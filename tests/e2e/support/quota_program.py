# SPDX-License-Identifier: Apache-2.0
"""A program of test_quota.py: takes GPU memory at random in every way there is, and gives it back.
After each step it says so and waits for a line. Arguments: seed, steps."""

import ctypes
import random
import subprocess
import sys
import time
from ctypes import POINTER, Structure, byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
OUT_OF_MEMORY = 2
# What the largest shape of of_instance takes beyond the 8 MiB that the reserve covers.
GRAPH_RESIDUE = 4 * MIB
HEAD = ".version 7.0\n.target sm_50\n.address_size 64\n"
# A kernel that allocates.
HEAP_KERNEL = (
    HEAD
    + """.extern .func (.param .b64 p) malloc (.param .b64 n);
.visible .entry heap() {
.reg .b64 %rd<2>; .param .b64 n0; .param .b64 r0;
mov.u64 %rd1, 64; st.param.b64 [n0], %rd1;
call.uni (r0), malloc, (n0);
ret; }
"""
).encode()
# A kernel with so much local memory for each thread. It ends at once.
LOCAL_KERNEL = (
    HEAD
    + """.visible .entry local_%d(.param .u64 a) {
.reg .b64 %%rd<6>; .reg .b32 %%r<3>; .reg .pred %%p; .local .align 4 .b8 b[%d];
ld.param.u64 %%rd1, [a]; setp.eq.u64 %%p, %%rd1, 0; @%%p bra E;
mov.u64 %%rd2, b; cvta.local.u64 %%rd3, %%rd2; add.u64 %%rd4, %%rd3, %%rd1;
mov.u32 %%r1, 7; st.u32 [%%rd4], %%r1; ld.u32 %%r2, [%%rd3]; st.global.u32 [%%rd1], %%r2;
E: ret; }
"""
)


class Location(Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class PoolProps(Structure):
    _fields_ = [
        ("allocation", c_int),
        ("handles", c_int),
        ("location", Location),
        ("security", c_void_p),
        ("max_size", c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    ]


class Prop(Structure):
    _fields_ = [
        ("allocation", c_int),
        ("handles", c_int),
        ("location", Location),
        ("security", c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Array3D(Structure):
    _fields_ = [
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
        ("format", c_int),
        ("channels", c_uint),
        ("flags", c_uint),
    ]


WHERE = Location(1, 0)
device, main_context = c_int(), c_void_p()


def must(code, *also):
    if code not in (0, *also):
        raise AssertionError(f"result {code}")
    return code


def some_bytes(dice):
    return dice.choice(
        (
            lambda: dice.randrange(1, 4096),
            lambda: dice.randrange(1, MIB + 1),
            lambda: dice.randrange(MIB, 5 * MIB),
            lambda: dice.randrange(1, 60 * MIB),
        )
    )()


# Each way gives a result and a function that gives back, or None.
def of_device(dice):
    p = c_uint64()
    return (
        cuda.cuMemAlloc_v2(byref(p), c_size_t(some_bytes(dice))),
        lambda: must(cuda.cuMemFree_v2(p)),
    )


def of_small_ones(dice):
    """Many, of which every second goes back at once: what is left keeps its page."""
    held, result, size = [], 0, dice.randrange(1, 70_000)
    for _ in range(64):
        p = c_uint64()
        result = cuda.cuMemAlloc_v2(byref(p), c_size_t(size))
        if result != 0:
            break
        held.append(p)
    for p in held[::2]:
        must(cuda.cuMemFree_v2(p))
    rest = held[1::2]
    return (0 if rest else result), lambda: [must(cuda.cuMemFree_v2(p)) for p in rest]


def of_rows(dice):
    p, pitch = c_uint64(), c_size_t()
    return (
        cuda.cuMemAllocPitch_v2(
            byref(p),
            byref(pitch),
            c_size_t(dice.randrange(1, 5000)),
            c_size_t(dice.randrange(1, 5000)),
            4,
        ),
        lambda: must(cuda.cuMemFree_v2(p)),
    )


def of_stream(dice):
    p = c_uint64()
    return (
        cuda.cuMemAllocAsync(byref(p), c_size_t(some_bytes(dice)), None),
        lambda: must(cuda.cuMemFreeAsync(p, None)),
    )


def of_pool(dice):
    """A pool of its own, destroyed first or last."""
    pool, p, props = c_void_p(), c_uint64(), PoolProps(1, 0, WHERE)
    must(cuda.cuMemPoolCreate(byref(pool), byref(props)))
    result = cuda.cuMemAllocFromPoolAsync(byref(p), c_size_t(some_bytes(dice)), pool, None)
    first = result == 0 and dice.random() < 0.5
    if result != 0 or first:
        must(cuda.cuMemPoolDestroy(pool))

    def back():
        must(cuda.cuMemFreeAsync(p, None))
        if not first:
            must(cuda.cuMemPoolDestroy(pool))

    return result, back


def of_physical(dice):
    handle, prop = c_uint64(), Prop(1, 0, WHERE)
    size = c_size_t(2 * MIB * dice.randrange(1, 20))
    return (
        cuda.cuMemCreate(byref(handle), size, byref(prop), c_uint64(0)),
        lambda: must(cuda.cuMemRelease(handle)),
    )


def of_array(dice):
    array, levels = c_void_p(), dice.choice((0, 0, 5))
    shape = dice.choice(
        (
            (dice.randrange(1, 3000), dice.randrange(0, 2000), 0, 0),
            (dice.randrange(1, 60_000), 0, 0, 0),
            (dice.randrange(1, 90), dice.randrange(1, 90), dice.randrange(1, 300), 0),
            (dice.randrange(1, 500), dice.randrange(1, 200), dice.randrange(1, 30), 1),
        )
    )
    shape = Array3D(shape[0], shape[1], shape[2], 32, dice.choice((1, 2, 4)), shape[3])
    if levels:
        return (
            cuda.cuMipmappedArrayCreate(byref(array), byref(shape), levels),
            lambda: must(cuda.cuMipmappedArrayDestroy(array)),
        )
    return (
        cuda.cuArray3DCreate_v2(byref(array), byref(shape)),
        lambda: must(cuda.cuArrayDestroy(array)),
    )


def of_variables(dice):
    module = c_void_p()
    text = HEAD + f".visible .global .align 4 .b8 big[{some_bytes(dice)}];"
    return (
        cuda.cuModuleLoadData(byref(module), text.encode()),
        lambda: must(cuda.cuModuleUnload(module)),
    )


def of_graph(dice):
    stream, graph, run, p = c_void_p(), c_void_p(), c_void_p(), c_uint64()
    must(cuda.cuStreamCreate(byref(stream), 1))
    must(cuda.cuStreamBeginCapture_v2(stream, 0))
    got = cuda.cuMemAllocAsync(byref(p), c_size_t(some_bytes(dice)), stream)
    must(cuda.cuStreamEndCapture(stream, byref(graph)))
    if got == 0:
        must(cuda.cuGraphInstantiateWithFlags(byref(run), graph, c_uint64(0)))
        got = cuda.cuGraphLaunch(run, stream) or cuda.cuStreamSynchronize(stream)

    def end():
        if run:
            must(cuda.cuGraphExecDestroy(run))
        must(cuda.cuGraphDestroy(graph))
        must(cuda.cuStreamDestroy_v2(stream))

    def back():
        must(cuda.cuMemFreeAsync(p, stream))
        must(cuda.cuStreamSynchronize(stream))
        must(cuda.cuDeviceGraphMemTrim(device))
        end()

    if got != 0:
        end()
    return got, back


def of_limit(limit, usual, sizes):
    def way(dice):
        return (
            cuda.cuCtxSetLimit(limit, c_size_t(dice.choice(sizes))),
            lambda: must(cuda.cuCtxSetLimit(limit, c_size_t(usual))),
        )

    return way


of_heap = of_limit(2, 8 * MIB, (16 * MIB, 40 * MIB))
of_stack = of_limit(0, 1024, (2048, 4096, 20_000))


def of_kernel(dice):
    """Its local memory stays, so there is nothing to give back."""
    module, function, size = c_void_p(), c_void_p(), dice.choice((1040, 3000, 6000))
    must(cuda.cuModuleLoadData(byref(module), (LOCAL_KERNEL % (size, size)).encode()))
    got = cuda.cuModuleGetFunction(byref(function), module, b"local_%d" % size)
    nothing = c_uint64(0)
    parameters = (c_void_p * 1)(ctypes.addressof(nothing))
    if got == 0:
        got = cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, parameters, None)
    got = got or cuda.cuCtxSynchronize()
    must(cuda.cuModuleUnload(module))
    return got, None


def of_context(_):
    other = c_void_p()
    got = cuda.cuCtxCreate_v2(byref(other), 0, device)
    must(cuda.cuCtxSetCurrent(main_context))
    return got, lambda: must(cuda.cuCtxDestroy_v2(other))


def chain(count, add):
    """Nodes, each after the one before."""
    before = None
    for _ in range(count):
        node = c_void_p()
        must(add(byref(node), before and byref(before), c_size_t(before is not None)))
        before = node


def make_graph(chains, length, children):
    """A graph of some chains of empty nodes. `children`: a chain of so many copies of it."""
    graph, outer = c_void_p(), c_void_p()
    must(cuda.cuGraphCreate(byref(graph), 0))
    for _ in range(chains):
        chain(length, lambda node, *after: cuda.cuGraphAddEmptyNode(node, graph, *after))
    if children == 0:
        return graph
    must(cuda.cuGraphCreate(byref(outer), 0))
    chain(children, lambda node, *rest: cuda.cuGraphAddChildGraphNode(node, outer, *rest, graph))
    must(cuda.cuGraphDestroy(graph))
    return outer


live_instances = set()


def of_instance(dice):
    """One at a time, for a driver keeps what it took for the next: GRAPH_RESIDUE at most."""
    if live_instances:
        return 0, None
    instance, shape = c_void_p(), dice.choice(((1, 50, 40), (40, 2, 0), (3, 10, 20)))
    graph = make_graph(*shape)
    got = cuda.cuGraphInstantiateWithFlags(byref(instance), graph, c_uint64(0))
    must(cuda.cuGraphDestroy(graph))
    if got == 0:
        live_instances.add(instance.value)

    def back():
        live_instances.remove(instance.value)
        must(cuda.cuGraphExecDestroy(instance))

    return got, back


live_streams = set()


def of_streams(dice):
    """No more than the reserve covers: what a stream costs beyond is not given back."""
    if len(live_streams) > 20:
        return 0, None
    made = [c_void_p() for _ in range(dice.randrange(1, 6))]
    for stream in made:
        must(cuda.cuStreamCreate(byref(stream), 1))
        live_streams.add(stream.value)

    def back():
        for stream in made:
            live_streams.remove(stream.value)
            must(cuda.cuStreamDestroy_v2(stream))

    return 0, back


def of_process(dice):
    """Another process on the lease, which opens memory of this one. Then this one frees it."""
    p, handle = c_uint64(), (ctypes.c_ubyte * 64)()
    got = cuda.cuMemAlloc_v2(byref(p), c_size_t(some_bytes(dice)))
    if got != 0:
        return got, None
    must(cuda.cuIpcGetMemHandle(byref(handle), p))
    child = subprocess.Popen(
        [sys.executable, "-B", __file__, "open", bytes(handle).hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    answer = child.stdout.readline().strip()
    must(cuda.cuMemFree_v2(p))

    def back():
        child.stdin.close()
        child.wait()
        child.stdout.close()

    if answer != "open":
        back()
        return OUT_OF_MEMORY, None
    return 0, back


WAYS = (
    [of_device, of_small_ones, of_rows, of_stream, of_pool, of_physical, of_array, of_variables] * 4
    + [of_graph, of_instance, of_heap, of_stack, of_kernel, of_context, of_streams] * 2
    + [of_process]
)


def begin():
    for code in (cuda.cuInit(0), cuda.cuDeviceGet(byref(device), 0)):
        must(code)
    return cuda.cuDevicePrimaryCtxRetain(byref(main_context), device) or cuda.cuCtxSetCurrent(
        main_context
    )


def free_bytes():
    free, total = c_size_t(), c_size_t()
    must(cuda.cuCtxSynchronize(), OUT_OF_MEMORY)
    must(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    return free.value


def say(text):
    print(text, flush=True)
    sys.stdin.readline()


def open_handle(text):
    if cuda.cuInit(0) != 0 or begin() != 0:
        return
    handle = (ctypes.c_ubyte * 64).from_buffer_copy(bytes.fromhex(text))

    class ByValue(Structure):
        _fields_ = [("reserved", ctypes.c_ubyte * 64)]

    p = c_uint64()
    cuda.cuIpcOpenMemHandle_v2.argtypes = [POINTER(c_uint64), ByValue, c_uint]
    code = cuda.cuIpcOpenMemHandle_v2(byref(p), ByValue(handle), 1)
    say("open" if code == 0 else f"result {code}")


def main(seed, steps):
    dice = random.Random(seed)
    must(begin())
    whole = free_bytes()
    held, taken, refused = [], 0, 0
    for step in range(steps):
        for _ in range(10):
            if held and dice.random() < 0.42:
                held.pop(dice.randrange(len(held)))()
                continue
            result, back = dice.choice(WAYS)(dice)
            must(result, OUT_OF_MEMORY)
            taken, refused = taken + (result == 0), refused + (result != 0)
            if result == 0 and back is not None:
                held.append(back)
        free_bytes()
        say(f"step {step}")
    while held:
        held.pop()()
    # Local memory of kernels stays: at most 6,000 bytes for each of 4 * 2,048 threads.
    # Another process' worker ends a moment after the process.
    residue = whole - free_bytes()
    for _ in range(100):
        if residue <= (6000 - 1024) * 4 * 2048 + 2 * MIB + GRAPH_RESIDUE:
            break
        time.sleep(0.1)
        residue = whole - free_bytes()
    say(f"end {taken} {refused} {residue}")


if __name__ == "__main__":
    if sys.argv[1] == "open":
        open_handle(sys.argv[2])
    else:
        main(int(sys.argv[1]), int(sys.argv[2]))
