# SPDX-License-Identifier: Apache-2.0
"""Training and inference as network.py asks for them on every network: one process, models from their configuration, a few seconds of
steady state each. Prints lines of `network NAME key=value ...`; the first is about the line itself.

Argument: seconds for each workload. Training reads the loss of every step. Where a workload's name says `fed`, each step brings its images
from the host, one byte a channel as loaders keep them, and inference takes the answer back; elsewhere both stay on the GPU.
"""
import ctypes
import statistics
import sys
import time

import checks
from checks import DEVICE

torch = checks.need("torch")
torchvision = checks.need("torchvision")
transformers = checks.need("transformers")
transformers.logging.set_verbosity_error()

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
SETTLE = 3
LINE_BYTES = 64 << 20


class Counters:
    """What Tendril's client has sent so far (client/cuda/export_table.cc); a real driver has none."""

    def __init__(self):
        self.read = None
        try:
            driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            return
        table, name = ctypes.POINTER(ctypes.c_void_p)(), ctypes.create_string_buffer(b"tendril counters", 16)
        if driver.cuGetExportTable(ctypes.byref(table), name) == 0 and table:
            self.read = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)(table[1])

    def now(self):
        """Round trips, bytes out, bytes in."""
        values = (ctypes.c_uint64 * 6)()
        if self.read is not None:
            self.read(values, 6)
        return values[1], values[3], values[4]


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def say(name, **values):
    print("network", name, *(f"{key}={value:.6g}" for key, value in values.items()), flush=True)


def measure(name, step):
    """Means over as many steps as the time allows; at least three."""
    for _ in range(SETTLE):
        step()
    synchronize()
    begun = time.perf_counter()
    for _ in range(3):
        step()
    synchronize()
    steps = max(3, round(SECONDS * 3 / (time.perf_counter() - begun)))
    before, begun = COUNTERS.now(), time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    seconds = time.perf_counter() - begun
    trips, sent, received = (after - then for after, then in zip(COUNTERS.now(), before))
    say(name, ms=seconds / steps * 1e3, trips=trips / steps, out=sent / steps, back=received / steps, steps=steps)


def line():
    """The line as this very process sees it: an empty wait, and 64 MB each way."""
    synchronize()
    waits = []
    for _ in range(50):
        begun = time.perf_counter()
        synchronize()
        waits.append(time.perf_counter() - begun)
    host = torch.empty(LINE_BYTES, dtype=torch.uint8).fill_(1)
    there = host.to(DEVICE)
    rates = []
    for target, source in ((there, host), (host, there)):
        seconds = []
        for _ in range(3):  # the first one also makes buffers
            synchronize()
            begun = time.perf_counter()
            target.copy_(source)
            synchronize()
            seconds.append(time.perf_counter() - begun)
        rates.append(LINE_BYTES / min(seconds) / 1e6)
    say("line", wait_us=statistics.median(waits) * 1e6, mb_per_s_out=rates[0], mb_per_s_back=rates[1])


def autocast():
    return torch.autocast(DEVICE, dtype=torch.bfloat16)


def resnet():
    with torch.device(DEVICE):
        model = torchvision.models.resnet50(weights=None).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    host = torch.randint(0, 256, (256, 3, 224, 224), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    host = host.pin_memory() if DEVICE == "cuda" else host
    labels = torch.randint(0, 1000, (256,), device=DEVICE)
    resident = torch.randn(256, 3, 224, 224, device=DEVICE).contiguous(memory_format=torch.channels_last)

    def images(count, fed):
        return host[:count].to(DEVICE, non_blocking=True).float().div_(255) if fed else resident[:count]

    def train(count, fed):
        with autocast():
            loss = torch.nn.functional.cross_entropy(model(images(count, fed)), labels[:count])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    def infer(count, fed):
        with torch.no_grad(), autocast():
            best = model(images(count, fed)).argmax(1)
        return best.cpu() if fed else best

    for count, fed in ((64, False), (64, True), (256, False)):
        measure(f"resnet50-train-b{count}" + ("-fed" if fed else ""), lambda: train(count, fed))
    model.eval()
    for count, fed in ((1, False), (1, True), (8, False), (8, True), (256, False)):
        measure(f"resnet50-infer-b{count}" + ("-fed" if fed else ""), lambda: infer(count, fed))


def gpt2():
    config = transformers.GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    with torch.device(DEVICE):
        model = transformers.GPT2LMHeadModel(config)
    model = model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randint(0, 50000, (8, 512), device=DEVICE)

    def train():
        with autocast():
            loss = model(batch, labels=batch).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    measure("gpt2-train-8x512", train)
    model.eval()
    prompt = torch.randint(0, 50000, (1, 16), device=DEVICE)

    def generate():
        with torch.no_grad(), autocast():
            model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=32, min_new_tokens=32,
                           do_sample=False, pad_token_id=0)

    measure("gpt2-generate-32", generate)


if DEVICE == "cuda" and not torch.cuda.is_available():
    sys.exit("no GPU: torch.cuda.is_available() is false")
torch.manual_seed(1)
COUNTERS = Counters()
line()
resnet()
gpt2()
