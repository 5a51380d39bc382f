# SPDX-License-Identifier: Apache-2.0
"""Uses the driver's handles after their objects are gone, and handles that never were. For
tools/gpu/security.py: natively some of these calls end the program, and through Tendril none may
end a worker.

    stale_handles.py list        the cases' names
    stale_handles.py CASE        one of them: says the answers of the driver
"""

import ctypes
import sys
import threading
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

import driver_api as api
from driver_api import HEAD, cuda, must
from memory_taker import EMPTY, Node, run_once

CASES = {}
VARIABLE = HEAD + ".visible .global .align 4 .b8 some[64];\n.visible .entry empty() { ret; }\n"


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class PoolProps(ctypes.Structure):
    _fields_ = [
        ("allocation", c_int),
        ("handles", c_int),
        ("location", Location),
        ("security", c_void_p),
        ("max_size", c_size_t),
        ("reserved", ctypes.c_ubyte * 56),
    ]


def case(function):
    CASES[function.__name__] = function
    return function


def made(call, *arguments):
    handle = c_void_p()
    must(call(byref(handle), *arguments))
    return handle


def stream():
    return made(cuda.cuStreamCreate, c_uint(1))


def event():
    return made(cuda.cuEventCreate, c_uint(0))


def graph_of_one():
    graph, node, nothing = made(cuda.cuGraphCreate, c_uint(0)), c_void_p(), c_uint64(0)
    pointers = (c_void_p * 1)(ctypes.addressof(nothing))
    asked = Node(api.function(EMPTY, "empty"), 1, 1, 1, 32, 1, 1, 0, ctypes.addressof(pointers))
    must(cuda.cuGraphAddKernelNode_v2(byref(node), graph, None, c_size_t(0), byref(asked)))
    return graph, node, asked


@case
def events_destroyed():
    gone, kept, time = event(), event(), ctypes.c_float()
    must(cuda.cuEventRecord(gone, None))
    must(cuda.cuEventRecord(kept, None))
    must(cuda.cuEventDestroy_v2(gone))
    return [
        cuda.cuEventQuery(gone),
        cuda.cuEventSynchronize(gone),
        cuda.cuEventRecord(gone, None),
        cuda.cuStreamWaitEvent(None, gone, c_uint(0)),
        cuda.cuEventElapsedTime(byref(time), gone, kept),
        cuda.cuEventDestroy_v2(gone),
    ]


@case
def streams_destroyed():
    gone, address, flags = stream(), api.allocate(4096), c_uint()
    must(cuda.cuStreamDestroy_v2(gone))
    return [
        cuda.cuStreamQuery(gone),
        cuda.cuStreamSynchronize(gone),
        cuda.cuMemsetD8Async(c_uint64(address), 1, c_size_t(4096), gone),
        api.launch(api.function(EMPTY, "empty"), 1, 32, c_uint64(0), stream=gone),
        cuda.cuStreamGetFlags(gone, byref(flags)),
        cuda.cuStreamBeginCapture_v2(gone, 0),
        cuda.cuStreamDestroy_v2(gone),
    ]


@case
def destroyed_while_it_works():
    """A wait for a stream and an event that another thread destroys."""
    busy, over, address = stream(), event(), api.allocate(1 << 30)
    answers = []
    for _ in range(200):
        must(cuda.cuMemsetD8Async(c_uint64(address), 1, c_size_t(1 << 30), busy))
    must(cuda.cuEventRecord(over, busy))

    def wait():
        must(cuda.cuCtxSetCurrent(api.context))
        answers.append(cuda.cuEventSynchronize(over))
        answers.append(cuda.cuStreamSynchronize(busy))

    waiter = threading.Thread(target=wait)
    waiter.start()
    destroyed = [cuda.cuEventDestroy_v2(over), cuda.cuStreamDestroy_v2(busy)]
    waiter.join()
    return destroyed + answers + [cuda.cuCtxSynchronize()]


@case
def modules_unloaded():
    module, kernel, address, size = c_void_p(), c_void_p(), c_uint64(), c_size_t()
    must(cuda.cuModuleLoadData(byref(module), VARIABLE.encode()))
    must(cuda.cuModuleGetFunction(byref(kernel), module, b"empty"))
    must(cuda.cuModuleUnload(module))
    value = c_int()
    return [
        cuda.cuModuleGetFunction(byref(kernel), module, b"empty"),
        cuda.cuModuleGetGlobal_v2(byref(address), byref(size), module, b"some"),
        cuda.cuFuncGetAttribute(byref(value), 0, kernel),
        cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None),
        cuda.cuCtxSynchronize(),
        cuda.cuModuleUnload(module),
    ]


@case
def graphs_destroyed():
    graph, node, asked = graph_of_one()
    run, other = made(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0)), c_void_p()
    must(cuda.cuGraphDestroy(graph))
    kind = c_int()
    answers = [
        cuda.cuGraphNodeGetType(node, byref(kind)),
        cuda.cuGraphAddEmptyNode(byref(other), graph, None, c_size_t(0)),
        cuda.cuGraphInstantiateWithFlags(byref(other), graph, c_uint64(0)),
        cuda.cuGraphExecKernelNodeSetParams_v2(run, node, byref(asked)),
    ]
    must(cuda.cuGraphExecDestroy(run))
    return answers + [cuda.cuGraphLaunch(run, None), cuda.cuGraphDestroy(graph)]


@case
def pools_destroyed():
    props, address = PoolProps(1, 0, Location(1, 0)), c_uint64()
    pool = made(cuda.cuMemPoolCreate, byref(props))
    must(cuda.cuMemAllocFromPoolAsync(byref(address), c_size_t(4096), pool, None))
    must(cuda.cuMemPoolDestroy(pool))
    return [
        cuda.cuMemAllocFromPoolAsync(byref(c_uint64()), c_size_t(4096), pool, None),
        cuda.cuMemPoolTrimTo(pool, c_size_t(0)),
        cuda.cuMemFreeAsync(address, None),
        cuda.cuMemPoolDestroy(pool),
    ]


@case
def memory_freed():
    address, host = api.allocate(1 << 20), (ctypes.c_ubyte * 4096)()
    must(cuda.cuMemFree_v2(c_uint64(address)))
    run_once(api.function(EMPTY, "empty"))
    return [
        cuda.cuMemcpyDtoH_v2(host, c_uint64(address), c_size_t(4096)),
        cuda.cuMemsetD8_v2(c_uint64(address), 1, c_size_t(4096)),
        cuda.cuMemcpyHtoD_v2(c_uint64(address), host, c_size_t(4096)),
        cuda.cuMemFree_v2(c_uint64(address)),
        cuda.cuCtxSynchronize(),
    ]


@case
def contexts_destroyed():
    other = c_void_p()
    must(cuda.cuCtxCreate_v2(byref(other), 0, api.device))
    inside, module, kernel = stream(), c_void_p(), c_void_p()
    must(cuda.cuModuleLoadData(byref(module), VARIABLE.encode()))
    must(cuda.cuModuleGetFunction(byref(kernel), module, b"empty"))
    must(cuda.cuCtxDestroy_v2(other))
    must(cuda.cuCtxSetCurrent(api.context))
    return [
        cuda.cuStreamQuery(inside),
        cuda.cuStreamSynchronize(inside),
        cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None),
        cuda.cuModuleUnload(module),
        cuda.cuCtxSetCurrent(other),
        cuda.cuCtxSynchronize(),
        cuda.cuCtxDestroy_v2(other),
    ]


def never_was(value):
    handle, kind = c_void_p(value), c_int()
    return [
        cuda.cuEventQuery(handle),
        cuda.cuStreamQuery(handle),
        cuda.cuModuleUnload(handle),
        cuda.cuGraphLaunch(handle, None),
        cuda.cuGraphNodeGetType(handle, byref(kind)),
        cuda.cuLaunchKernel(handle, 1, 1, 1, 32, 1, 1, 0, None, None, None),
        cuda.cuMemPoolTrimTo(handle, c_size_t(0)),
        cuda.cuArrayDestroy(handle),
        cuda.cuCtxSetCurrent(handle),
    ]


@case
def small_numbers():
    return never_was(0x30)


@case
def numbers_like_addresses():
    return never_was(0x7F0000001230)


@case
def another_kind():
    """A stream's handle given as everything else."""
    return never_was(stream().value)


def main():
    if sys.argv[1] == "list":
        print("\n".join(CASES))
        return 0
    api.begin()
    api.say("answers", {"codes": CASES[sys.argv[1]]()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
