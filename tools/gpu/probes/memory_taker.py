# SPDX-License-Identifier: Apache-2.0
"""Takes GPU memory in one way and holds it, for tools/gpu/security.py, which then compares what the
slice was charged with what the GPU has less.

    memory_taker.py WAY MOST

Takes up to MOST pieces, or until the driver has no more. Says `taken` with what it did and waits
for a line. `--hold` is a child of the way `processes`.
"""

import ctypes
import pathlib
import subprocess
import sys
import time
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

import driver_api as api
from driver_api import HEAD, MIB, OUT_OF_MEMORY, cuda, must

EMPTY = HEAD + ".visible .entry empty(.param .u64 a) { ret; }\n"
STACK, FIFO, HEAP = 0, 1, 2
LOCAL = HEAD + """.visible .entry local(.param .u64 a) {
.reg .b64 %%rd<6>; .reg .b32 %%r<3>; .reg .pred %%p; .local .align 4 .b8 b[%d];
ld.param.u64 %%rd1, [a]; setp.eq.u64 %%p, %%rd1, 0; @%%p bra E;
mov.u64 %%rd2, b; cvta.local.u64 %%rd3, %%rd2; add.u64 %%rd4, %%rd3, %%rd1;
mov.u32 %%r1, 7; st.u32 [%%rd4], %%r1; ld.u32 %%r2, [%%rd3]; st.global.u32 [%%rd1], %%r2;
E: ret; }
"""
USES_HEAP = HEAD + """.extern .func (.param .b64 r) malloc (.param .b64 n);
.visible .entry heap(.param .u64 a) {
.reg .b64 %rd<4>; .reg .pred %p; .param .b64 n0; .param .b64 r0;
ld.param.u64 %rd1, [a]; mov.u64 %rd2, 64; st.param.b64 [n0], %rd2;
call.uni (r0), malloc, (n0); ld.param.b64 %rd3, [r0];
setp.eq.u64 %p, %rd1, 0; @%p bra E; st.global.u64 [%rd1], %rd3; E: ret; }
"""
PRINTS = HEAD + """.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);
.global .align 1 .b8 text[2] = {46, 0};
.visible .entry prints(.param .u64 a) {
.reg .b64 %rd<4>; .reg .pred %p; .param .b64 f0; .param .b64 v0; .param .b32 r0;
ld.param.u64 %rd1, [a]; setp.eq.u64 %p, %rd1, 0; @%p bra E;
mov.u64 %rd2, text; cvta.global.u64 %rd3, %rd2; st.param.b64 [f0], %rd3; mov.u64 %rd2, 0;
st.param.b64 [v0], %rd2; call.uni (r0), vprintf, (f0, v0);
E: ret; }
"""
# A kernel of a thousand loads that no compiler can leave out.
LONG = HEAD + ".visible .entry long_%d(.param .u64 a) {{ .reg .b64 %%rd<3>; .reg .b32 %%r<3>;\n"


class Node(ctypes.Structure):
    _fields_ = [
        ("function", c_void_p),
        *((name, c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("parameters", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    ]


def run_once(kernel):
    nothing = c_uint64(0)
    must(api.launch(kernel, 1, 32, nothing))
    must(cuda.cuCtxSynchronize())


def tiny():
    return api.allocate(1) is not None


def large():
    return api.allocate(64 * MIB + 1) is not None


def contexts():
    other = c_void_p()
    code = must(cuda.cuCtxCreate_v2(byref(other), 0, api.device), OUT_OF_MEMORY)
    if code == 0:
        must(cuda.cuCtxSetCurrent(api.context))
    return code == 0


CHILDREN = []


def processes():
    child = subprocess.Popen(
        [sys.executable, __file__, "--hold", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    CHILDREN.append(child)
    return child.stdout.readline().startswith("held")


def of_limit(limit, step, kernel):
    """A limit of the context that grows; then a kernel that needs it."""
    grown = [0]

    def take():
        grown[0] += step
        code = cuda.cuCtxSetLimit(limit, c_size_t(grown[0]))
        try:
            run_once(api.function(*kernel))
        except RuntimeError:
            return False
        return code == 0

    return take


def local():
    size = local.size = local.size + 4096
    try:
        run_once(api.function(LOCAL % size, "local"))
    except RuntimeError:
        return False
    return True


local.size = 0


def graphs():
    """A graph of a thousand kernels, instantiated."""
    if graphs.graph is None:
        graphs.graph, kernel, nothing = c_void_p(), api.function(EMPTY, "empty"), c_uint64(0)
        must(cuda.cuGraphCreate(byref(graphs.graph), 0))
        pointers = (c_void_p * 1)(ctypes.addressof(nothing))
        asked = Node(kernel, 1, 1, 1, 32, 1, 1, 0, ctypes.addressof(pointers))
        before, node = c_void_p(), c_void_p()
        for number in range(1000):
            must(
                cuda.cuGraphAddKernelNode_v2(
                    byref(node),
                    graphs.graph,
                    byref(before),
                    c_size_t(min(number, 1)),
                    byref(asked),
                )
            )
            before = c_void_p(node.value)
    made = c_void_p()
    code = cuda.cuGraphInstantiateWithFlags(byref(made), graphs.graph, c_uint64(0))
    must(code or cuda.cuGraphLaunch(made, None) or cuda.cuCtxSynchronize(), OUT_OF_MEMORY)
    return code == 0


graphs.graph = None


def variables():
    module, text = c_void_p(), HEAD + f".visible .global .align 4 .b8 big[{32 * MIB}];"
    return must(cuda.cuModuleLoadData(byref(module), text.encode()), OUT_OF_MEMORY) == 0


def fatbins():
    """The file beside this way's name: compressed, with 64 MiB of variables."""
    module = c_void_p()
    image = pathlib.Path(sys.argv[3]).read_bytes()
    return must(cuda.cuModuleLoadData(byref(module), image), OUT_OF_MEMORY) == 0


def code():
    """Machine code, some kilobytes each time."""
    number = code.number = code.number + 1
    body = "".join(
        f"ld.volatile.global.u32 %r1, [%rd1+{4 * (i + number)}]; add.u32 %r2, %r2, %r1;\n"
        for i in range(1000)
    )
    head = LONG.format() % number + "ld.param.u64 %rd1, [a]; mov.u32 %r2, 0;\n"
    module = c_void_p()
    text = head + body + "st.global.u32 [%rd1], %r2; ret; }\n"
    return must(cuda.cuModuleLoadData(byref(module), text.encode()), OUT_OF_MEMORY) == 0


code.number = 0


def streams():
    made = c_void_p()
    return must(cuda.cuStreamCreate(byref(made), 1), OUT_OF_MEMORY) == 0


def pooled():
    address = c_uint64()
    size = c_size_t(3 * MIB)
    return must(cuda.cuMemAllocAsync(byref(address), size, None), OUT_OF_MEMORY) == 0


def pinned():
    address = c_void_p()
    size = c_size_t(256 * MIB)
    return must(cuda.cuMemHostAlloc(byref(address), size, 0), OUT_OF_MEMORY) == 0


WAYS = {
    "large": large,
    "tiny": tiny,
    "contexts": contexts,
    "processes": processes,
    "stack": of_limit(STACK, 16 << 10, (EMPTY, "empty")),
    "local": local,
    "heap": of_limit(HEAP, 512 * MIB, (USES_HEAP, "heap")),
    "printf": of_limit(FIFO, 256 * MIB, (PRINTS, "prints")),
    "graphs": graphs,
    "variables": variables,
    "fatbins": fatbins,
    "code": code,
    "streams": streams,
    "pooled": pooled,
    "pinned": pinned,
}


def hold():
    """A child: a context and a little memory, until its standard input ends."""
    try:
        api.begin()
        held = api.allocate(8 * MIB) is not None
    except RuntimeError:
        held = False
    print("held" if held else "refused", flush=True)
    sys.stdin.read()


def main():
    way, most = sys.argv[1], int(sys.argv[2])
    if way == "--hold":
        return hold()
    api.begin()
    run_once(api.function(EMPTY, "empty"))
    api.ask("ready", {"free": api.free_bytes()[0]})
    begun, pieces, stopped = time.monotonic(), 0, ""
    try:
        while pieces < most and WAYS[way]():
            pieces += 1
        must(cuda.cuCtxSynchronize(), OUT_OF_MEMORY)
    except RuntimeError as error:
        stopped = str(error)
    facts = {"pieces": pieces, "seconds": time.monotonic() - begun, "error": stopped}
    api.ask("taken", facts | {"free": api.free_bytes()[0]})
    for child in CHILDREN:
        child.stdin.close()
    for child in CHILDREN:
        child.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
