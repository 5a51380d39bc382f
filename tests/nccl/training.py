# SPDX-License-Identifier: Apache-2.0
"""Small training steps with a process for each rank: data-parallel (ddp), with sharded parameters
(fsdp), and tensor-parallel (tp). Their weights must equal those of one process, bit for bit: that
one does the same sums in the order of ranks. training.py KIND RANKS [graph] [STEPS]"""

import ctypes
import os
import random
import struct
import sys

from gpus import Cuda, Gpu, Nccl, Rank, UniqueId

SAMPLES, FEATURES, HIDDEN, OUTPUTS = 8, 16, 8, 4
RATE = ctypes.c_float(-0.0625)

# product: c[i][j] = sum over k of a[i * ai + k * ak] * b[k * bk + j * bj]. add: y += factor * x.
PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 rows,
  .param .u32 columns, .param .u32 inner, .param .u32 ai, .param .u32 ak, .param .u32 bk,
  .param .u32 bj)
{
  .reg .pred %p;
  .reg .f32 %f<4>;
  .reg .u32 %r<16>;
  .reg .u64 %d<12>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  ld.param.u32 %r2, [rows];
  ld.param.u32 %r3, [columns];
  mul.lo.u32 %r4, %r2, %r3;
  setp.ge.u32 %p, %r1, %r4;
  @%p bra OUT;
  div.u32 %r5, %r1, %r3;
  rem.u32 %r6, %r1, %r3;
  ld.param.u32 %r7, [ai];
  mul.lo.u32 %r5, %r5, %r7;
  ld.param.u32 %r7, [bj];
  mul.lo.u32 %r6, %r6, %r7;
  ld.param.u64 %d1, [a];
  ld.param.u64 %d2, [b];
  ld.param.u64 %d3, [c];
  mul.wide.u32 %d4, %r5, 4;
  add.u64 %d1, %d1, %d4;
  mul.wide.u32 %d4, %r6, 4;
  add.u64 %d2, %d2, %d4;
  ld.param.u32 %r8, [ak];
  mul.wide.u32 %d5, %r8, 4;
  ld.param.u32 %r8, [bk];
  mul.wide.u32 %d6, %r8, 4;
  ld.param.u32 %r9, [inner];
  mov.f32 %f1, 0f00000000;
  mov.u32 %r10, 0;
LOOP:
  setp.ge.u32 %p, %r10, %r9;
  @%p bra STORE;
  ld.global.f32 %f2, [%d1];
  ld.global.f32 %f3, [%d2];
  fma.rn.f32 %f1, %f2, %f3, %f1;
  add.u64 %d1, %d1, %d5;
  add.u64 %d2, %d2, %d6;
  add.u32 %r10, %r10, 1;
  bra LOOP;
STORE:
  mul.wide.u32 %d4, %r1, 4;
  add.u64 %d3, %d3, %d4;
  st.global.f32 [%d3], %f1;
OUT:
  ret;
}
.visible .entry add(.param .u64 y, .param .u64 x, .param .f32 factor, .param .u32 count)
{
  .reg .pred %p;
  .reg .f32 %f<4>;
  .reg .u32 %r<6>;
  .reg .u64 %d<6>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  ld.param.u32 %r4, [count];
  setp.ge.u32 %p, %r1, %r4;
  @%p bra OUT;
  ld.param.u64 %d1, [y];
  ld.param.u64 %d2, [x];
  ld.param.f32 %f1, [factor];
  mul.wide.u32 %d3, %r1, 4;
  add.u64 %d1, %d1, %d3;
  add.u64 %d2, %d2, %d3;
  ld.global.f32 %f2, [%d1];
  ld.global.f32 %f3, [%d2];
  fma.rn.f32 %f2, %f1, %f3, %f2;
  st.global.f32 [%d1], %f2;
OUT:
  ret;
}
"""


def numbers(name, count):
    source = random.Random(name)
    return [source.uniform(-1, 1) for _ in range(count)]


def columns_of(values, columns, part, parts):
    """One part of the columns of a matrix."""
    width = columns // parts
    rows = [values[at : at + columns] for at in range(0, len(values), columns)]
    return sum((row[part * width : (part + 1) * width] for row in rows), [])


class Mathematics:
    """Matrices on one GPU."""

    def __init__(self, gpu):
        self.gpu = gpu
        gpu.use()
        gpu.load(PTX, "product", "add")

    def product(self, a, b, c, shape, a_turned=False, b_turned=False):
        """c = a * b of rows, inner, columns; a turned matrix lies in memory as its transpose."""
        rows, inner, columns = shape
        a_steps = (1, rows) if a_turned else (inner, 1)
        b_steps = (1, inner) if b_turned else (columns, 1)
        sizes = [ctypes.c_uint(value) for value in (rows, columns, inner, *a_steps, *b_steps)]
        self.gpu.launch("product", rows * columns, a, b, c, *sizes)

    def add(self, y, x, count, factor=ctypes.c_float(1.0)):
        self.gpu.launch("add", count, y, x, factor, ctypes.c_uint(count))


class Shard:
    """A linear model's gradient on one part of the samples."""

    def __init__(self, maths, part):
        gpu = maths.gpu
        self.maths = maths
        self.inputs = gpu.upload(numbers(f"inputs {part}", SAMPLES * FEATURES))
        self.wanted = gpu.upload(numbers(f"wanted {part}", SAMPLES * OUTPUTS))
        self.error = gpu.allocate(SAMPLES * OUTPUTS)
        self.gradient = gpu.allocate(FEATURES * OUTPUTS)

    def work(self, weights):
        shape = (SAMPLES, FEATURES, OUTPUTS)
        self.maths.product(self.inputs, weights, self.error, shape)
        self.maths.add(self.error, self.wanted, SAMPLES * OUTPUTS, ctypes.c_float(-1.0))
        shape = (FEATURES, SAMPLES, OUTPUTS)
        self.maths.product(self.inputs, self.error, self.gradient, shape, a_turned=True)


WEIGHTS = FEATURES * OUTPUTS


def repeat(gpu, step, steps, graph):
    if graph:
        ready = gpu.capture(step)
        for _ in range(steps):
            gpu.launch_graph(ready)
        gpu.synchronize()
        gpu.drop_graph(ready)
        return
    for _ in range(steps):
        step()
    gpu.synchronize()


def warm(rank):
    """Connects before a capture begins, as programs do: the first use waits for the others."""
    data = rank.gpu.upload([1.0] * rank.ranks)
    rank.all_reduce(data, data, 1)
    rank.gpu.synchronize()


def ddp(rank, steps, graph):
    """The gradient is summed in two buckets."""
    maths = Mathematics(rank.gpu)
    shard = Shard(maths, rank.rank)
    weights = rank.gpu.upload(numbers("weights", WEIGHTS))
    first = WEIGHTS // 3

    def step():
        shard.work(weights)
        rank.all_reduce(shard.gradient + 4 * first, shard.gradient + 4 * first, WEIGHTS - first)
        rank.all_reduce(shard.gradient, shard.gradient, first)
        maths.add(weights, shard.gradient, WEIGHTS, RATE)

    repeat(rank.gpu, step, steps, graph)
    return rank.gpu.bytes(weights, WEIGHTS)


def fsdp(rank, steps, graph):
    """Each rank keeps a part of the weights, and gathers all of them for a step."""
    maths = Mathematics(rank.gpu)
    shard = Shard(maths, rank.rank)
    count = WEIGHTS // rank.ranks
    begin = rank.rank * count
    own = rank.gpu.upload(numbers("weights", WEIGHTS)[begin : begin + count])
    weights, part = rank.gpu.allocate(WEIGHTS), rank.gpu.allocate(count)

    def step():
        rank.all_gather(own, weights, count)
        shard.work(weights)
        rank.reduce_scatter(shard.gradient, part, count)
        maths.add(own, part, count, RATE)

    repeat(rank.gpu, step, steps, graph)
    rank.all_gather(own, weights, count)
    rank.gpu.synchronize()
    return rank.gpu.bytes(weights, WEIGHTS)


class Columns:
    """Two layers, of which one rank has a part of the hidden features."""

    def __init__(self, maths, part, parts):
        gpu = maths.gpu
        self.maths, self.width = maths, HIDDEN // parts
        self.inputs = gpu.upload(numbers("inputs", SAMPLES * FEATURES))
        first = columns_of(numbers("first", FEATURES * HIDDEN), HIDDEN, part, parts)
        second = numbers("second", HIDDEN * OUTPUTS)
        size = self.width * OUTPUTS
        self.first = gpu.upload(first)
        self.second = gpu.upload(second[part * size : (part + 1) * size])
        self.hidden, self.hidden_error = (gpu.allocate(SAMPLES * self.width) for _ in range(2))
        self.answer = gpu.allocate(SAMPLES * OUTPUTS)
        self.first_gradient = gpu.allocate(FEATURES * self.width)
        self.second_gradient = gpu.allocate(size)

    def forward(self):
        self.maths.product(self.inputs, self.first, self.hidden, (SAMPLES, FEATURES, self.width))
        self.maths.product(self.hidden, self.second, self.answer, (SAMPLES, self.width, OUTPUTS))

    def backward(self, error):
        maths, width = self.maths, self.width
        shape = (SAMPLES, OUTPUTS, width)
        maths.product(error, self.second, self.hidden_error, shape, b_turned=True)
        shape = (width, SAMPLES, OUTPUTS)
        maths.product(self.hidden, error, self.second_gradient, shape, a_turned=True)
        shape = (FEATURES, SAMPLES, width)
        maths.product(self.inputs, self.hidden_error, self.first_gradient, shape, a_turned=True)
        maths.add(self.first, self.first_gradient, FEATURES * width, RATE)
        maths.add(self.second, self.second_gradient, width * OUTPUTS, RATE)

    def bytes(self):
        gpu = self.maths.gpu
        first = gpu.bytes(self.first, FEATURES * self.width)
        return first + gpu.bytes(self.second, self.width * OUTPUTS)


def tp(rank, steps, graph):
    maths = Mathematics(rank.gpu)
    columns = Columns(maths, rank.rank, rank.ranks)
    wanted = rank.gpu.upload(numbers("wanted", SAMPLES * OUTPUTS))

    def step():
        columns.forward()
        rank.all_reduce(columns.answer, columns.answer, SAMPLES * OUTPUTS)
        maths.add(columns.answer, wanted, SAMPLES * OUTPUTS, ctypes.c_float(-1.0))
        columns.backward(columns.answer)

    repeat(rank.gpu, step, steps, graph)
    return columns.bytes()


def alone_on_samples(gpu, ranks, steps):
    """One process does the work of all ranks, and adds up in their order."""
    maths = Mathematics(gpu)
    shards = [Shard(maths, part) for part in range(ranks)]
    weights = gpu.upload(numbers("weights", WEIGHTS))
    for _ in range(steps):
        for shard in shards:
            shard.work(weights)
        for shard in shards[1:]:
            maths.add(shards[0].gradient, shard.gradient, WEIGHTS)
        maths.add(weights, shards[0].gradient, WEIGHTS, RATE)
    gpu.synchronize()
    return [gpu.bytes(weights, WEIGHTS)] * ranks


def alone_on_columns(gpu, ranks, steps):
    maths = Mathematics(gpu)
    parts = [Columns(maths, part, ranks) for part in range(ranks)]
    wanted = gpu.upload(numbers("wanted", SAMPLES * OUTPUTS))
    for _ in range(steps):
        for part in parts:
            part.forward()
        for part in parts[1:]:
            maths.add(parts[0].answer, part.answer, SAMPLES * OUTPUTS)
        maths.add(parts[0].answer, wanted, SAMPLES * OUTPUTS, ctypes.c_float(-1.0))
        for part in parts:
            part.backward(parts[0].answer)
    gpu.synchronize()
    return [part.bytes() for part in parts]


KINDS = {"ddp": (ddp, alone_on_samples), "fsdp": (fsdp, alone_on_samples)}
KINDS["tp"] = (tp, alone_on_columns)


def exactly(descriptor, count):
    data = b""
    while len(data) < count:
        more = os.read(descriptor, count - len(data))
        if not more:
            raise AssertionError("a rank ended early")
        data += more
    return data


def run_rank(kind, ranks, number, unique_id, steps, graph):
    rank = Rank(Cuda(), Nccl(), ranks, number, unique_id)
    warm(rank)
    result = KINDS[kind][0](rank, steps, graph)
    rank.destroy()
    return result


def child(kind, ranks, number, ends, steps, graph):
    """A forked process: its id comes in, its weights go out."""
    unique_id = UniqueId.of(exactly(ends[0], 128))
    result = run_rank(kind, ranks, number, unique_id, steps, graph)
    os.write(ends[1], struct.pack("<I", len(result)) + result)
    os._exit(0)


def main(kind, ranks, graph, steps):
    others = []
    for number in range(1, ranks):
        down, up = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(up[0])
            child(kind, ranks, number, (down[0], up[1]), steps, graph)
        os.close(up[1])
        others.append((down[1], up[0]))
    gpu = Gpu(Cuda(), 0)
    unique_id = Nccl().unique_id()
    for down, _ in others:
        os.write(down, unique_id.to_bytes())
    results = [run_rank(kind, ranks, 0, unique_id, steps, graph)]
    for _, up in others:
        results.append(exactly(up, struct.unpack("<I", exactly(up, 4))[0]))
    alone = KINDS[kind][1](gpu, ranks, steps)
    if any(not any(result) for result in results):
        raise AssertionError("weights of nothing but zeros")
    for number, (got, wanted) in enumerate(zip(results, alone)):
        if got != wanted:
            raise AssertionError(f"{kind}: rank {number} of {ranks} differs from one process")
    print(f"{kind}: {ranks} ranks, {steps} steps{', in graphs' if graph else ''}: equal\nPASS")


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        "graph" in sys.argv,
        int(sys.argv[-1]) if len(sys.argv) > 3 and sys.argv[-1].isdigit() else 5,
    )
