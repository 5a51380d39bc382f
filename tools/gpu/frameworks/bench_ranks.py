# SPDX-License-Identifier: Apache-2.0
"""PyTorch with a process for each GPU, under tools/gpu/meters.py. Started by torchrun. Rank 0 hears
the commands of meter.py and tells the others, so that all do the same. With NCCL_BENCH_HOSTS=N
each N ranks are a host of their own for NCCL, as on several servers.

Workloads: data parallel (ResNet-50, GPT-2), sharded (FSDP2), tensor parallel inference (call by
call, and recorded as a graph).
"""

import functools
import os
import sys
import time

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if os.environ.get("NCCL_BENCH_HOSTS"):
    os.environ["NCCL_HOSTID"] = f"bench-{RANK // int(os.environ['NCCL_BENCH_HOSTS'])}"

import checks  # noqa: E402
import meter  # noqa: E402
from checks import DEVICE  # noqa: E402

torch = checks.need("torch")
import torch_workloads  # noqa: E402

dist = torch.distributed
LAYERS, WIDTH, TOKENS = 24, 4096, 4


def wrapped(model):
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, device_ids=[RANK] if DEVICE == "cuda" else None)


def resnet50_parallel(count):
    model, batch = wrapped(torch_workloads.resnet50()), torch_workloads.images(count, False)
    labels = torch.randint(0, 1000, (count,), device=DEVICE)
    return torch_workloads.trained(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        lambda made: torch.nn.functional.cross_entropy(made(batch()), labels),
    )


def gpt2_trained(model, count, length):
    batch = torch_workloads.tokens(count, length)
    return torch_workloads.trained(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-4),
        lambda made: made(batch, labels=batch).loss,
    )


def gpt2_parallel(count, length):
    return gpt2_trained(wrapped(torch_workloads.gpt2()), count, length)


def gpt2_sharded(count, length):
    from torch.distributed.fsdp import fully_shard

    model = torch_workloads.gpt2()
    for block in model.transformer.h:
        fully_shard(block)
    return gpt2_trained(fully_shard(model), count, length)


class Layers:
    """Half of each matrix is here. Each layer ends with a sum over the ranks."""

    def __init__(self):
        torch.manual_seed(5)
        shape = (LAYERS, WIDTH, WIDTH // RANKS)
        make = lambda: torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) * 0.01
        self.up, self.down = make(), make().transpose(1, 2).contiguous()
        self.given = torch.randn(TOKENS, WIDTH, device=DEVICE, dtype=torch.bfloat16)

    def step(self):
        with torch.no_grad():
            x = self.given
            for up, down in zip(self.up, self.down):
                part = torch.nn.functional.gelu(x @ up) @ down
                dist.all_reduce(part)
                x = x + part
        return x


def tensor_parallel():
    return Layers().step


def tensor_parallel_replayed():
    layers, beside = Layers(), torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            layers.step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layers.step()

    def step(held=(graph, layers)):
        held[0].replay()

    return step


SMALL = DEVICE == "cpu"
WORKLOADS = {
    "ddp-resnet50-b64": functools.partial(resnet50_parallel, 2 if SMALL else 64),
    "ddp-gpt2-8x512": functools.partial(gpt2_parallel, *((1, 16) if SMALL else (8, 512))),
    "fsdp2-gpt2-8x512": functools.partial(gpt2_sharded, *((1, 16) if SMALL else (8, 512))),
    "tp-eager": tensor_parallel,
    "tp-graph": tensor_parallel_replayed,
}


class Ranks(meter.Meter):
    """Rank 0 decides how many steps are taken. The figures of a step are its own; bytes and round
    trips are of all ranks together."""

    def __init__(self):
        more = {"init": self.init}
        super().__init__(WORKLOADS, torch_workloads.synchronize, more, torch_workloads.released)
        self.control = dist.new_group(backend="gloo")
        self.processors.first = 2 * RANK
        self.last = None

    def told(self, value):
        """What rank 0 says."""
        box = [value]
        dist.broadcast_object_list(box, 0, group=self.control)
        return box[0]

    def gathered(self, value):
        box = [None] * RANKS
        dist.all_gather_object(box, value, group=self.control)
        return box

    def setup(self, name):
        answer = super().setup(name)
        last = self.step()  # of training: the loss, which must be the same as natively
        self.synchronize()
        self.each_s = self.told(self.each_s)
        return answer | ({"losses": self.gathered(last)} if isinstance(last, float) else {})

    def measured(self, step, seconds):
        count = max(1, round(meter.BLOCK_S / self.each_s))
        most = max(2, round(seconds / (count * self.each_s)))
        for _ in range(max(1, most // 5) * count):  # others have used the GPU since
            step()
        self.synchronize()
        dist.barrier(group=self.control)
        blocks, before, begun = [], self.counters.now(), time.perf_counter()
        for _ in range(most):
            at = time.perf_counter()
            for _ in range(count):
                step()
            self.synchronize()
            blocks.append((time.perf_counter() - at) / count * 1e3)
        steps = count * len(blocks)
        mine = [(after - then) / steps for after, then in zip(self.counters.now(), before)]
        sums = [sum(values) for values in zip(*self.gathered(mine))]
        self.each_s = self.told((time.perf_counter() - begun) / steps)
        names = ("trips", "out", "back", "code")
        return {"blocks": blocks, "steps": count, **dict(zip(names, sums))}

    def init(self):
        """A communicator more: seconds until it is made, and until its first sum is there."""
        dist.barrier(group=self.control)
        begun = time.perf_counter()
        group = dist.new_group(backend="nccl")
        value = torch.ones(2, device=DEVICE)
        dist.all_reduce(value, group=group)
        torch_workloads.synchronize()
        seconds = time.perf_counter() - begun
        dist.destroy_process_group(group)
        return {"seconds": seconds, "all": self.gathered(seconds)}

    def commands_of(self):
        if RANK == 0:
            for line in sys.stdin:
                yield self.told(line)
            self.told("")
        while RANK != 0 and (line := self.told(None)):
            yield line

    @staticmethod
    def say(what, answer):
        if RANK == 0:
            meter.Meter.say(what, answer)
        elif "error" in answer:  # rank 0 waits in vain
            print(f"rank {RANK}: {what}: {answer['error']}", file=sys.stderr, flush=True)


def main():
    if DEVICE == "cuda":
        torch.cuda.set_device(RANK)
    dist.init_process_group("cpu:gloo,cuda:nccl" if DEVICE == "cuda" else "gloo")
    value = torch.ones(2, device=DEVICE)
    dist.all_reduce(value)
    if value.tolist() != [RANKS, RANKS]:
        sys.exit(f"the sum of ones over {RANKS} ranks is {value.tolist()}")
    Ranks().serve()


main()
