# SPDX-License-Identifier: Apache-2.0
"""What pyopencl's users write first: two arrays are added on the device."""

import numpy
import pyopencl as cl

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
one, two = (numpy.random.rand(50000).astype(numpy.float32) for _ in range(2))
flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
on_device = [cl.Buffer(context, flags, hostbuf=each) for each in (one, two)]
program = cl.Program(
    context,
    """
    __kernel void sum(__global const float *a, __global const float *b, __global float *c) {
      int me = get_global_id(0);
      c[me] = a[me] + b[me];
    }
    """,
).build()
result = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, one.nbytes)
program.sum(queue, one.shape, None, *on_device, result)
total = numpy.empty_like(one)
cl.enqueue_copy(queue, total, result)
print("the same" if numpy.array_equal(total, one + two) else "different")
