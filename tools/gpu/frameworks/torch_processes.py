# SPDX-License-Identifier: Apache-2.0
"""torch.multiprocessing: processes pass CUDA tensors and events to each other and share the
memory through IPC handles."""

import checks
from checks import check

torch = checks.need("torch")
import torch.multiprocessing as multi  # noqa: E402

LIMIT_S = 60


def double_in_place(inbox, outbox):
    """The child: doubles its input in the sender's memory, and answers with a tensor of its own."""
    try:
        while (item := inbox.get(timeout=LIMIT_S)) is not None:
            item.mul_(2)
            made = item[:4].clone() + 1
            torch.cuda.synchronize()
            outbox.put(made)
            del item
        inbox.get(timeout=LIMIT_S)  # the parent has released what lies in this process's memory
    except Exception as error:
        outbox.put(checks.error_line(error))


def wait_for_event(event, tensor, outbox):
    try:
        event.wait()
        outbox.put(tensor.double().sum().item())
    except Exception as error:
        outbox.put(checks.error_line(error))


def use_shared_model(model, barrier):
    barrier.wait(LIMIT_S)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    torch.cuda.synchronize()
    barrier.wait(LIMIT_S)


@check
def queue_of_tensors():
    context = multi.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=double_in_place, args=(inbox, outbox))
    child.start()
    tensors = [torch.arange(n, device="cuda", dtype=torch.float32) for n in (10, 1000, 1 << 20)]
    answers = []
    for tensor in tensors:
        inbox.put(tensor)
        answer = outbox.get(timeout=LIMIT_S)
        answers.append(answer.clone() if torch.is_tensor(answer) else answer)
        del answer
    torch.cuda.synchronize()
    inbox.put(None)
    inbox.put(None)
    child.join(LIMIT_S)
    return answers, tensors, child.exitcode


@check
def event_between_processes():
    context = multi.get_context("spawn")
    outbox, event = context.Queue(), torch.cuda.Event(interprocess=True)
    tensor = torch.zeros(1 << 20, device="cuda")
    torch.cuda._sleep(200_000_000)
    tensor.fill_(3)
    event.record()
    child = context.Process(target=wait_for_event, args=(event, tensor, outbox))
    child.start()
    out = outbox.get(timeout=LIMIT_S)
    child.join(LIMIT_S)
    return out, child.exitcode


@check
def model_in_shared_memory():
    context = multi.get_context("spawn")
    model, barrier = torch.nn.Linear(32, 8).cuda(), context.Barrier(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    torch.cuda.synchronize()
    children = [context.Process(target=use_shared_model, args=(model, barrier)) for _ in range(2)]
    for child in children:
        child.start()
    barrier.wait(LIMIT_S)
    barrier.wait(LIMIT_S)
    for child in children:
        child.join(LIMIT_S)
    # The two add without a lock between them: each element went up by one or by two.
    grown = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return bool(((grown == 1) | (grown == 2)).all()), [child.exitcode for child in children]


@check
def cuda_after_fork_is_refused():
    """PyTorch itself refuses CUDA in a forked child of a process that used it."""
    context = multi.get_context("fork")
    outbox = context.SimpleQueue()

    def child_part():
        try:
            outbox.put(torch.ones(2, device="cuda").sum().item())
        except RuntimeError as error:
            outbox.put(checks.error_line(error))

    child = context.Process(target=child_part)
    child.start()
    child.join(LIMIT_S)
    return outbox.get() if not outbox.empty() else "no answer", child.exitcode


if __name__ == "__main__":
    checks.run()
