# SPDX-License-Identifier: Apache-2.0
"""One tenant of a shared GPU, for tools/gpu/share_torch.py: a loop of training or inference
steps, counted by tenths of a second.

    torch_tenant.py train|infer|resnet SECONDS

1. Says `started`, and `imported` when PyTorch is loaded and nothing has touched the GPU yet.
2. Reads from standard input when to attach (nanoseconds of the monotonic clock; an empty
line: at once).
3. Says `attached` and how long the first answer of the GPU took, and `ready` after some
steps.
4. Reads when to begin, and prints the counts as share_meter does.
5. Fills its memory until PyTorch says that there is no more, and takes one more step.

CHECKS_DEVICE=cpu tries it without a GPU, and without the last part.
"""

import json
import sys
import time

print("started", flush=True)

import checks  # noqa: E402
from checks import DEVICE  # noqa: E402

torch = checks.need("torch")
BUCKET_S = 0.1
WARM_UP_STEPS = 3
STEPS_IN_FLIGHT = 2  # a loop that never waits would queue without end


def pause_until_told():
    line = sys.stdin.readline().strip()
    begin_ns = int(line) if line else time.monotonic_ns()
    time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9))
    return begin_ns


def trainer():
    """A small network of convolutions that learns."""
    nn = torch.nn
    layers = [
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 10),
    ]
    model = nn.Sequential(*layers).to(DEVICE)
    images = torch.randn(128, 3, 32, 32, device=DEVICE)
    labels = torch.randint(0, 10, (128,), device=DEVICE)
    return steps_of(model, torch.optim.Adam(model.parameters(), lr=1e-3), images, labels)


def inference():
    """Layers of a transformer, 64 sequences of 64."""
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4).to(DEVICE).eval()
    words = torch.randn(64, 64, 256, device=DEVICE)

    def step():
        with torch.no_grad():
            return model(words).mean()

    return step


def resnet():
    """ResNet-50 as it is trained: 64 images, channels last, mixed precision."""
    torchvision = checks.need("torchvision")
    torch.backends.cudnn.benchmark = True
    model = (
        torchvision.models.resnet50(weights=None).to(DEVICE).to(memory_format=torch.channels_last)
    )
    images = torch.randn(64, 3, 224, 224, device=DEVICE).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device=DEVICE)
    return steps_of(
        model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), images, labels
    )


def steps_of(model, optimizer, images, labels):
    def step():
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def run(step, begin_ns, seconds, waits):
    """Counts of steps that the GPU has done. `waits`: it waits for each result, as a server of
    requests does."""
    counts = [0] * round(seconds / BUCKET_S)
    flying = []
    while time.monotonic_ns() < begin_ns + seconds * 1e9:
        flying.append(step())
        if waits or len(flying) > STEPS_IN_FLIGHT:
            float(flying.pop(0))
            at = int((time.monotonic_ns() - begin_ns) / 1e9 / BUCKET_S)
            if at < len(counts):
                counts[at] += 1
    return counts, [float(result) for result in flying]


def memory_facts(step):
    """What it was told, what it used, how much it got until there was no more, and whether it goes
    on after that."""
    if DEVICE != "cuda":
        return {}
    total = torch.cuda.mem_get_info()[1]
    facts = {"total": total, "peak": torch.cuda.max_memory_reserved()}
    held, error = [], ""
    for size in (256 << 20, 32 << 20, 2 << 20):
        try:
            while True:
                held.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))
        except torch.cuda.OutOfMemoryError as out:
            error = type(out).__name__
    facts |= {
        "filled": torch.cuda.memory_reserved(),
        "left": torch.cuda.mem_get_info()[0],
        "error": error,
    }
    held.clear()
    torch.cuda.empty_cache()
    facts["after"] = float(step())
    return facts


def main():
    work, seconds = sys.argv[1], float(sys.argv[2])
    torch.manual_seed(7)
    print("imported", flush=True)
    told_ns = pause_until_told()
    float(torch.ones(8, device=DEVICE).sum())
    print("attached", json.dumps({"s": (time.monotonic_ns() - told_ns) / 1e9}), flush=True)
    step = {"train": trainer, "infer": inference, "resnet": resnet}[work]()
    for _ in range(WARM_UP_STEPS):
        float(step())
    print("ready", flush=True)
    begin_ns = pause_until_told()
    counts, last = run(step, begin_ns, seconds, work == "infer")
    facts = {
        "kind": work,
        "begin_ns": begin_ns,
        "bucket_ns": round(BUCKET_S * 1e9),
        "pieces": counts,
        "latency_us": {},
        "last": last,
        "memory": memory_facts(step),
    }
    print("share_meter", json.dumps(facts), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
