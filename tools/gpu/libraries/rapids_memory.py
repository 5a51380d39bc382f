# SPDX-License-Identifier: Apache-2.0
"""RMM, the memory manager of RAPIDS: its pools, alone and below CuPy. RAPIDS itself is too large to
be carried."""

import checks
from checks import check, check_each

np = checks.need("numpy")
rmm = checks.need("rmm")
MIB = 1 << 20


@check_each(
    plain=lambda: rmm.mr.CudaMemoryResource(),
    stream=lambda: rmm.mr.CudaAsyncMemoryResource(initial_pool_size=64 * MIB),
    pool=lambda: rmm.mr.PoolMemoryResource(
        rmm.mr.CudaMemoryResource(), initial_pool_size=64 * MIB, maximum_pool_size=256 * MIB
    ),
    binning=lambda: rmm.mr.BinningMemoryResource(rmm.mr.CudaMemoryResource(), 10, 16),
)
def buffers(make):
    rmm.mr.set_current_device_resource(make())
    held = []
    for number in range(40):
        data = np.full(1000 * (number + 1), number, np.uint8)
        held.append(rmm.DeviceBuffer.to_device(data.tobytes()))
        if number % 3 == 2:
            held.pop(0)
    return [np.frombuffer(one.tobytes(), np.uint8) for one in held[-3:]], len(held)


@check
def statistics():
    resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(resource)
    held = [rmm.DeviceBuffer(size=MIB) for _ in range(5)]
    del held[0]
    counted = resource.allocation_counts
    return counted.current_bytes, counted.peak_bytes, counted.total_count


@check
def too_much():
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
    try:
        rmm.DeviceBuffer(size=1 << 50)
    except MemoryError as error:
        return type(error).__name__
    return "not refused"


@check
def below_cupy():
    cupy = checks.want("cupy")
    from rmm.allocators.cupy import rmm_cupy_allocator

    rmm.reinitialize(pool_allocator=True, initial_pool_size=256 * MIB)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    a = cupy.arange(100_000, dtype=cupy.float32).reshape(100, 1000)
    return a.sum(axis=0), (a[:50] @ a[50:].T)


checks.run()
