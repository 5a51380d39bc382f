# SPDX-License-Identifier: Apache-2.0
"""PyTorch's workloads of the groups bench, speed and network: training and inference of models
built from their configuration.

Each function makes a model and returns its step. Training reads the loss of every step. If a
workload's name says `fed`, each step brings its images from the host, one byte a channel as
loaders keep them, and inference takes the answer back. Otherwise both stay on the GPU. Called
by bench_torch.py and bench_models.py.
"""

import functools

import checks
from checks import DEVICE

torch = checks.need("torch")


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def released():
    """Gives back what the last workload cached, because other sides need the memory."""
    if DEVICE == "cuda":
        torch.cuda.empty_cache()


def autocast():
    return torch.autocast(DEVICE, dtype=torch.bfloat16)


def trained(model, optimizer, loss_of):
    def step():
        with autocast():
            loss = loss_of(model)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def resnet50():
    torchvision = checks.need("torchvision")
    torch.manual_seed(1)
    with torch.device(DEVICE):
        return torchvision.models.resnet50(weights=None).to(memory_format=torch.channels_last)


def images(count, fed):
    """A function that has a batch on the GPU."""
    if not fed:
        batch = torch.randn(count, 3, 224, 224, device=DEVICE).contiguous(
            memory_format=torch.channels_last
        )
        return lambda: batch
    host = torch.randint(0, 256, (count, 3, 224, 224), dtype=torch.uint8).contiguous(
        memory_format=torch.channels_last
    )
    host = host.pin_memory() if DEVICE == "cuda" else host
    return lambda: host.to(DEVICE, non_blocking=True).float().div_(255)


def resnet50_train(count, fed=False):
    model, batch = resnet50(), images(count, fed)
    labels = torch.randint(0, 1000, (count,), device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return trained(
        model, optimizer, lambda made: torch.nn.functional.cross_entropy(made(batch()), labels)
    )


def resnet50_infer(count, fed=False):
    model, batch = resnet50().eval(), images(count, fed)

    def step():
        with torch.no_grad(), autocast():
            best = model(batch()).argmax(1)
        return best.cpu() if fed else best

    return step


def resnet50_replay(count):
    """Inference recorded once as a CUDA graph and replayed."""
    step, graph, beside = resnet50_infer(count), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def gpt2():
    transformers = checks.need("transformers")
    transformers.logging.set_verbosity_error()
    torch.manual_seed(2)
    with torch.device(DEVICE):
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
        )
    return model.to(DEVICE)


def tokens(*shape):
    return torch.randint(0, 50000, shape, device=DEVICE)


def gpt2_train():
    model, batch = gpt2(), tokens(8, 512)
    return trained(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-4),
        lambda made: made(batch, labels=batch).loss,
    )


def gpt2_generate(count):
    model, prompt = gpt2().eval(), tokens(1, 16)

    def step():
        with torch.no_grad(), autocast():
            model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
            )

    return step


def gpt2_compiled():
    """A forward pass through Inductor and Triton."""
    model, batch = torch.compile(gpt2().eval().to(torch.bfloat16)), tokens(8, 128)

    def step():
        with torch.no_grad():
            return model(batch, use_cache=False).logits

    return step


WORKLOADS = {
    **{f"resnet50-train-b{count}": functools.partial(resnet50_train, count) for count in (64, 256)},
    "resnet50-train-b64-fed": functools.partial(resnet50_train, 64, True),
    **{
        f"resnet50-infer-b{count}": functools.partial(resnet50_infer, count)
        for count in (1, 8, 256)
    },
    **{
        f"resnet50-infer-b{count}-fed": functools.partial(resnet50_infer, count, True)
        for count in (1, 8)
    },
    "resnet50-replay-b8": functools.partial(resnet50_replay, 8),
    "gpt2-train-8x512": gpt2_train,
    "gpt2-generate-32": functools.partial(gpt2_generate, 32),
    "gpt2-compiled-8x128": gpt2_compiled,
}
