# SPDX-License-Identifier: Apache-2.0
"""One context over all devices of the first platform. Each device computes its part of one array,
and then the whole of another, which is on its way from device to device."""

import numpy
import pyopencl as cl

platform = cl.get_platforms()[0]
context = cl.Context(platform.get_devices())
queues = [cl.CommandQueue(context, device) for device in context.devices]
program = cl.Program(
    context,
    """
    __kernel void scale(__global float *values, float by) { values[get_global_id(0)] *= by; }
    """,
).build()
flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
numbers = numpy.arange(1 << 20, dtype=numpy.float32)

ready, buffers = [], []
for part, queue in zip(numpy.array_split(numbers, len(queues)), queues):
    buffers.append(cl.Buffer(context, flags, hostbuf=part))
    ready.append(program.scale(queue, part.shape, None, buffers[-1], numpy.float32(2)))
cl.wait_for_events(ready)
results = []
for part, queue, buffer in zip(numpy.array_split(numbers, len(queues)), queues, buffers):
    results.append(numpy.empty_like(part))
    cl.enqueue_copy(queue, results[-1], buffer)
good = numpy.array_equal(numpy.concatenate(results), numbers * 2)

whole = cl.Buffer(context, flags, hostbuf=numbers)
for turn in range(4):
    before = program.scale(
        queues[turn % len(queues)],
        numbers.shape,
        None,
        whole,
        numpy.float32(2),
        wait_for=[before] if turn else None,
    )
total = numpy.empty_like(numbers)
cl.enqueue_copy(queues[-1], total, whole, wait_for=[before])
good = good and numpy.array_equal(total, numbers * 16)
print(f"{len(queues)} devices, 0 failures" if good else "different")
