# SPDX-License-Identifier: Apache-2.0
"""The driver API and NCCL for Python programs: ctypes on the libraries that the loader finds under
their names. Only what the programs here need. A call that fails raises Failed with its code."""

import ctypes
import functools
import struct
import threading
import time

PROGRESS = 7  # ncclInProgress
SUM, AVG = 0, 4
FLOAT32 = 7
RELAXED = 2  # capture mode


class Failed(Exception):
    def __init__(self, call, code, text=""):
        super().__init__(f"{call} answered {code} {text}")
        self.code = code


class Cuda:
    """Calls of libcuda.so.1 by their exported names."""

    @functools.cached_property
    def library(self):
        return ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        entry = getattr(self.library, name)

        def call(*arguments):
            code = entry(*arguments)
            if code != 0:
                raise Failed(name, code)

        return call


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]

    def to_bytes(self):
        return bytes(ctypes.string_at(ctypes.byref(self), 128))

    @classmethod
    def of(cls, data):
        made = cls()
        ctypes.memmove(ctypes.byref(made), data, 128)
        return made


class Config(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("others", ctypes.c_int * 3),
        ("net_name", ctypes.c_char_p),
        ("split_share", ctypes.c_int),
    ]

    @classmethod
    def without_blocking(cls):
        unset = -(2**31)
        size = ctypes.sizeof(cls)
        return cls(size, 0xCAFEBEEF, 21400, 0, (unset, unset, unset), None, unset)


class CollectiveConfig(ctypes.Structure):
    """Of NCCL 2.32."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("extensions", ctypes.c_void_p),
        ("blocks", ctypes.c_int * 4),
        ("algorithm", ctypes.c_char_p),
        ("forces", ctypes.c_int),
        ("policy", ctypes.c_int),
        ("tag", ctypes.c_uint64),
        ("event", ctypes.c_void_p),
    ]

    @classmethod
    def of(cls, algorithm):
        unset = -(2**31)
        size = ctypes.sizeof(cls)
        return cls(size, 0xCAFEBEEF, 23203, None, (unset,) * 4, algorithm, 1, unset, 0, None)


class Nccl:
    """Calls of libnccl.so.2 without their prefix."""

    @functools.cached_property
    def library(self):
        opened = ctypes.CDLL("libnccl.so.2")
        opened.ncclGetErrorString.restype = opened.ncclGetLastError.restype = ctypes.c_char_p
        return opened

    def code(self, name, *arguments):
        return getattr(self.library, "nccl" + name)(*arguments)

    def __getattr__(self, name):
        def call(*arguments):
            code = self.code(name, *arguments)
            if code != 0:
                raise Failed("nccl" + name, code, self.library.ncclGetLastError(None))

        return call

    def unique_id(self):
        made = UniqueId()
        self.GetUniqueId(ctypes.byref(made))
        return made

    def state(self, comm):
        state = ctypes.c_int()
        self.CommGetAsyncError(comm, ctypes.byref(state))
        return state.value

    def await_state(self, comm, seconds=10.0):
        """The state when it is no longer "in progress"."""
        end = time.monotonic() + seconds
        while self.state(comm) == PROGRESS and time.monotonic() < end:
            time.sleep(0.001)
        return self.state(comm)


class Gpu:
    """One device with a stream: memory, kernels, copies of lists of floats."""

    def __init__(self, cuda, ordinal):
        self.cuda = cuda
        cuda.cuInit(0)
        count, device = ctypes.c_int(), ctypes.c_int()
        cuda.cuDeviceGetCount(ctypes.byref(count))
        cuda.cuDeviceGet(ctypes.byref(device), ordinal % count.value)
        self.context, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device)
        self.use()
        cuda.cuStreamCreate(ctypes.byref(self.stream), 1)
        self.functions = {}

    def use(self):
        self.cuda.cuCtxSetCurrent(self.context)

    def load(self, ptx, *names):
        module = ctypes.c_void_p()
        self.cuda.cuModuleLoadData(ctypes.byref(module), ptx.encode() + b"\0")
        for name in names:
            function = ctypes.c_void_p()
            self.cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
            self.functions[name] = function

    def allocate(self, count):
        address = ctypes.c_uint64()
        self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(count * 4))
        return address.value

    def write(self, address, values):
        data = struct.pack(f"<{len(values)}f", *values)
        self.cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def upload(self, values):
        address = self.allocate(len(values))
        self.write(address, values)
        return address

    def bytes(self, address, count):
        data = ctypes.create_string_buffer(count * 4)
        self.cuda.cuMemcpyDtoH_v2(data, ctypes.c_uint64(address), ctypes.c_size_t(count * 4))
        return data.raw

    def read(self, address, count):
        return list(struct.unpack(f"<{count}f", self.bytes(address, count)))

    def launch(self, name, threads, *arguments):
        """Arguments: Python integers are addresses, c_uint and c_float are themselves."""
        values = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(
            *[ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values]
        )
        grid = (threads + 127) // 128
        self.cuda.cuLaunchKernel(
            self.functions[name], grid, 1, 1, 128, 1, 1, 0, self.stream, pointers, None
        )

    def synchronize(self):
        self.cuda.cuStreamSynchronize(self.stream)

    def capture(self, what):
        """What `what` puts into the stream, as a graph that can be launched."""
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self.cuda.cuStreamBeginCapture_v2(self.stream, RELAXED)
        what()
        self.cuda.cuStreamEndCapture(self.stream, ctypes.byref(graph))
        self.cuda.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        self.cuda.cuGraphDestroy(graph)
        return ready

    def launch_graph(self, ready):
        self.cuda.cuGraphLaunch(ready, self.stream)

    def drop_graph(self, ready):
        self.cuda.cuGraphExecDestroy(ready)


class Rank:
    """A communicator's rank on its GPU, with the operations that programs here use on floats."""

    def __init__(self, cuda, nccl, ranks, rank, unique_id):
        self.gpu, self.nccl, self.ranks, self.rank = Gpu(cuda, rank), nccl, ranks, rank
        self.comm = ctypes.c_void_p()
        nccl.CommInitRank(ctypes.byref(self.comm), ranks, unique_id, rank)

    def all_reduce(self, from_, to, count, op=SUM, code=False):
        call = self.nccl.code if code else lambda name, *rest: getattr(self.nccl, name)(*rest)
        return call(
            "AllReduce",
            ctypes.c_void_p(from_),
            ctypes.c_void_p(to),
            ctypes.c_size_t(count),
            FLOAT32,
            op,
            self.comm,
            self.gpu.stream,
        )

    def all_gather(self, from_, to, count):
        self.nccl.AllGather(
            ctypes.c_void_p(from_),
            ctypes.c_void_p(to),
            ctypes.c_size_t(count),
            FLOAT32,
            self.comm,
            self.gpu.stream,
        )

    def reduce_scatter(self, from_, to, count, op=SUM):
        self.nccl.ReduceScatter(
            ctypes.c_void_p(from_),
            ctypes.c_void_p(to),
            ctypes.c_size_t(count),
            FLOAT32,
            op,
            self.comm,
            self.gpu.stream,
        )

    def destroy(self):
        self.nccl.CommDestroy(self.comm)


def in_threads(ranks, body):
    """body(rank) on a thread for each; what they return. The first exception is raised."""
    answers, errors = [None] * ranks, []

    def run(rank):
        try:
            answers[rank] = body(rank)
        except Exception as error:  # told below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    while any(thread.is_alive() for thread in threads) and time.monotonic() < end and not errors:
        threads[0].join(0.005)
        for thread in threads[1:]:
            thread.join(0.005)
    if errors:  # the others may wait for that rank for ever
        raise errors[0]
    if any(thread.is_alive() for thread in threads):
        raise AssertionError("a rank hangs")
    return answers
