# SPDX-License-Identifier: Apache-2.0
"""PyTorch and Triton after an error that ends a context. Each error has a process of its own,
which prints what it sees, twice.

The second look shows stickiness. A process beside them works before and after each, which
shows that one's end harms nobody.
"""

import checks
from checks import check_each

torch = checks.need("torch")

ILLEGAL = r"""
extern "C" __global__ void poke(float* where) { where[(1ull << 45) + threadIdx.x] = 1.0f; }
"""
TRAP = r"""
extern "C" __global__ void poke(float* where) { __trap(); }
"""
ENDLESS_STACK = r"""
extern "C" __global__ void poke(float* where) {
  volatile char far[256];
  int at = 1 << 30;
  far[at] = 1;
  where[0] = far[at];
}
"""
SHARED_OUTSIDE = r"""
extern "C" __global__ void poke(float* where) {
  extern __shared__ float tile[]; tile[1 << 24] = 1.0f; __syncthreads(); where[0] = tile[1 << 24]; }
"""
MISALIGNED = r"""
extern "C" __global__ void poke(char* where) {
  *reinterpret_cast<volatile double*>(where + 1) = 1.0;
}
"""


def look(what, function):
    try:
        print(what, checks.shown(function()), flush=True)
    except Exception as error:
        print(what, checks.error_line(error), flush=True)


def looks_after():
    """What every later call says."""
    look("synchronize", torch.cuda.synchronize)
    look("allocate", lambda: torch.empty(1 << 26, dtype=torch.uint8, device="cuda").numel())
    look("compute", lambda: (torch.ones(4, device="cuda") + 1).sum().item())
    runtime = torch.cuda.cudart()
    look("runtime", lambda: str(runtime.cudaMemGetInfo(0)[0] > 0))
    look("query", lambda: torch.cuda.current_stream().query())


def kernel(source, where, shared=0):
    """A kernel through NVRTC, given the tensor `where`."""
    poke = torch.cuda._compile_kernel(source, "poke")
    poke(grid=(1, 1, 1), block=(32, 1, 1), args=[where], shared_mem=shared)


def device_assert():
    x = torch.ones(10, device="cuda")
    return x[torch.tensor([3, 20], device="cuda")]


def label_outside():
    return torch.nn.functional.nll_loss(
        torch.zeros(4, 3, device="cuda"), torch.tensor([0, 1, 7, 2], device="cuda")
    )


def triton_assert():
    import triton
    import triton.language as tl

    @triton.jit
    def refuses(out, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out + at + n, at)

    refuses[(1,)](torch.zeros(8, device="cuda"), 1 << 44, BLOCK=64)


def too_much_shared():
    kernel(SHARED_OUTSIDE, torch.ones(1, device="cuda"), shared=1 << 20)


def too_many_threads():
    poke = torch.cuda._compile_kernel(ILLEGAL, "poke")
    poke(grid=(1, 1, 1), block=(2048, 1, 1), args=[torch.ones(2048, device="cuda")])


PARTS = {
    "illegal_address": lambda: kernel(ILLEGAL, torch.ones(1, device="cuda")),
    "trap": lambda: kernel(TRAP, torch.ones(1, device="cuda")),
    "stack_outside": lambda: kernel(ENDLESS_STACK, torch.ones(1, device="cuda")),
    "shared_outside": lambda: kernel(SHARED_OUTSIDE, torch.ones(1, device="cuda")),
    "misaligned": lambda: kernel(MISALIGNED, torch.ones(8, device="cuda")),
    "device_assert": device_assert,
    "label_outside": label_outside,
    "triton_illegal_address": triton_assert,
    "out_of_memory": lambda: torch.empty(1 << 50, dtype=torch.uint8, device="cuda"),
    "no_such_device": lambda: torch.ones(1, device="cuda:99"),
    "too_much_shared": too_much_shared,
    "too_many_threads": too_many_threads,
    "compile_error": lambda: torch.cuda._compile_kernel(
        'extern "C" __global__ void poke() { nonsense }', "poke"
    ),
}


@check_each(**{name: name for name in PARTS})
def ends(name):
    return checks.in_child(name, limit_s=60, env={"CUDA_LAUNCH_BLOCKING": "0"})


@check_each(illegal_address="illegal_address", device_assert="device_assert")
def ends_with_blocking_launches(name):
    return checks.in_child(name, limit_s=60, env={"CUDA_LAUNCH_BLOCKING": "1"})


def part(name):
    before = torch.ones(1000, device="cuda").sum().item()
    print("before", before)
    look("itself", PARTS[name])
    looks_after()
    looks_after()


if checks.child_part():
    part(checks.child_part())
else:
    beside = torch.arange(1 << 20, device="cuda", dtype=torch.float32)

    @checks.check
    def beside_them_all():
        return beside.sum(), (beside[:1024].view(32, 32) @ beside[:1024].view(32, 32))

    checks.run()
