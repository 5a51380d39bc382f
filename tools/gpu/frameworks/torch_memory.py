# SPDX-License-Identifier: Apache-2.0
"""PyTorch's caching allocator: its statistics, out of memory and recovery, limits, and its other
back ends in child processes.

Runs with the GPU for itself. What depends on how much memory is free is shown as a relation,
never as a number.
"""

import checks
from checks import check, check_each

torch = checks.need("torch")
MIB = 1 << 20


def refused(bytes_wanted):
    try:
        torch.empty(bytes_wanted, dtype=torch.uint8, device="cuda")
        return "not refused"
    except torch.OutOfMemoryError as error:
        return checks.error_line(error)


def fill():
    """Allocates until nothing is left. 0 to 2 GiB may be left."""
    held, size = [], 1 << 34
    while size >= 1 << 28:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return held


def varied_sizes():
    """Blocks that grow, as a sequence model makes them: fragments without expandable segments."""
    held = []
    for step in range(1, 40):
        held.append(torch.full((step * 300_000,), step, dtype=torch.float32, device="cuda"))
        if step % 3 == 0:
            held.pop(0)
    return sum(int(block[-1].item()) for block in held), sum(block.numel() for block in held)


@check
def statistics():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    a = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    b = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    at_most = torch.cuda.memory_allocated() // MIB, torch.cuda.memory_reserved() // MIB
    del a
    after = torch.cuda.memory_allocated() // MIB, torch.cuda.memory_reserved() // MIB
    torch.cuda.empty_cache()
    stats = torch.cuda.memory_stats()
    keep = ("allocation.all.allocated", "segment.all.allocated", "num_alloc_retries", "num_ooms")
    return (
        at_most,
        after,
        torch.cuda.memory_reserved() // MIB,
        torch.cuda.max_memory_allocated() // MIB,
        b.numel(),
        [stats[key] for key in keep],
        len(torch.cuda.memory_snapshot()),
    )


@check
def memory_of_the_device():
    free, total = torch.cuda.mem_get_info()
    block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    less = torch.cuda.mem_get_info()[0]
    del block
    torch.cuda.empty_cache()
    more = torch.cuda.mem_get_info()[0]
    return (
        total // MIB,
        0 < free <= total,
        abs(free - less - (1 << 30)) < 64 * MIB,
        abs(free - more) < 64 * MIB,
    )


@check
def too_much_at_once():
    return refused(1 << 50), torch.ones(10, device="cuda").sum().item()


@check
def full_and_recovered():
    held = fill()
    total = torch.cuda.mem_get_info()[1]
    enough = sum(block.numel() for block in held) > 0.8 * total
    said = refused(1 << 34).split(":")[0]
    held.clear()
    torch.cuda.empty_cache()
    block = torch.full((1 << 28,), 7, dtype=torch.uint8, device="cuda")
    return enough, said, block[-1].item(), torch.cuda.memory_stats()["num_ooms"] > 0


@check
def fraction():
    torch.cuda.set_per_process_memory_fraction(0.1)
    try:
        return (
            refused(int(torch.cuda.get_device_properties(0).total_memory * 0.2))
            .split(".")[0]
            .split(":")[0]
        )
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@check
def touched_everywhere():
    """A large block, written on the device and read back at places."""
    block = torch.arange(1 << 29, dtype=torch.int64, device="cuda")
    return block[:: 1 << 26], int(block.sum().item() == ((1 << 29) - 1) << 28)


@check_each(
    expandable="expandable_segments:True",
    rounded="roundup_power2_divisions:4,garbage_collection_threshold:0.8",
    split="max_split_size_mb:64",
    asynchronous="backend:cudaMallocAsync",
)
def configured(value):
    return checks.in_child(
        "configured", env={"PYTORCH_CUDA_ALLOC_CONF": value, "PYTORCH_ALLOC_CONF": value}
    )


@check
def uncached():
    return checks.in_child("configured", env={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})


def configured_part():
    print(varied_sizes())
    print(refused(1 << 50).split(":")[0])
    held = fill() if torch.cuda.get_allocator_backend() == "native" else []
    print(len(held) > 0, refused(1 << 34).split(":")[0] if held else "-")
    held.clear()
    torch.cuda.empty_cache()
    x = torch.randn(1000, 1000, device="cuda")
    print(torch.cuda.get_allocator_backend(), torch.isfinite(x @ x).all().item())


if checks.child_part():
    configured_part()
else:
    checks.run()
