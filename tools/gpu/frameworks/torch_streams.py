# SPDX-License-Identifier: Apache-2.0
"""PyTorch: streams, events and threads, pinned and non-blocking copies, and orders of them that
are easy to get wrong."""

import threading

import checks
from checks import check

torch = checks.need("torch")
torch.manual_seed(4)
SLEEP_CYCLES = 20_000_000  # about 10 ms: long enough that a copy which does not wait is seen


@check
def four_streams():
    streams, results, events = [torch.cuda.Stream() for _ in range(4)], [], []
    for stream in streams:
        with torch.cuda.stream(stream):
            device = torch.randn(1 << 18).pin_memory().to("cuda", non_blocking=True)
            for _ in range(20):
                device = device * 1.01 + 0.5
            results.append(device)
            events.append(stream.record_event())
    for event in events:
        torch.cuda.current_stream().wait_event(event)
    return torch.stack(results), [stream.query() for stream in streams]


@check
def pinned_there_and_back_on_one_stream():
    """DtoH into pinned memory, then HtoD from it, without the host looking in between."""
    x, y = torch.randn(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    host = torch.zeros(1 << 20).pin_memory()
    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP_CYCLES)
    for _ in range(10):
        x.add_(1)
        host.copy_(x, non_blocking=True)
        y.copy_(host, non_blocking=True)
        x.copy_(y * 0.5, non_blocking=True)
    torch.cuda.synchronize()
    return y, host, torch.equal(host, y.cpu())


@check
def pinned_there_and_back_across_streams():
    one, two, event = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()
    x, y = torch.randn(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    host = torch.zeros(1 << 20).pin_memory()
    torch.cuda.synchronize()
    with torch.cuda.stream(one):
        torch.cuda._sleep(SLEEP_CYCLES)
        host.copy_(x * 3, non_blocking=True)
        event.record()
    with torch.cuda.stream(two):
        two.wait_event(event)
        y.copy_(host, non_blocking=True)
    two.synchronize()
    return y, torch.equal(y, x * 3)


@check
def host_writes_after_an_event():
    """The host changes a pinned buffer as soon as the event says that its copy is done, again
    and again."""
    host, x = torch.zeros(1 << 16).pin_memory(), torch.zeros(1 << 16, device="cuda")
    total = torch.zeros((), device="cuda", dtype=torch.float64)
    event = torch.cuda.Event()
    for step in range(50):
        host.fill_(step)
        x.copy_(host, non_blocking=True)
        event.record()
        total += x.double().sum()
        event.synchronize()
    return total


@check
def pageable_source_reused_at_once():
    """A copy from pageable memory has taken its bytes when it returns."""
    host, parts = torch.zeros(1 << 18), []
    torch.cuda._sleep(SLEEP_CYCLES)
    for step in range(8):
        host.fill_(step + 1)
        parts.append(host.to("cuda", non_blocking=True))
    return torch.stack(parts)


@check
def elapsed_time():
    begin, middle, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    begin.record()
    torch.cuda._sleep(SLEEP_CYCLES)
    middle.record()
    torch.cuda._sleep(SLEEP_CYCLES)
    end.record()
    end.synchronize()
    first, whole = begin.elapsed_time(middle), begin.elapsed_time(end)
    print(f"time between the events {first:.2f} and {whole:.2f} ms")
    return 2 < first < 200, whole > first, whole < 400, begin.query() and end.query()


@check
def event_not_done_and_not_timed():
    event = torch.cuda.Event()
    torch.cuda._sleep(20 * SLEEP_CYCLES)
    event.record()
    early = event.query()
    event.synchronize()
    try:
        return early, event.query(), event.elapsed_time(event)
    except (RuntimeError, ValueError) as error:
        return early, event.query(), checks.error_line(error)


@check
def default_stream_and_side_stream():
    """PyTorch's default stream is the legacy one. Streams that block wait for it. PyTorch's own
    streams do not."""
    side, x = torch.cuda.Stream(), torch.zeros(1 << 20, device="cuda")
    torch.cuda._sleep(SLEEP_CYCLES)
    x.fill_(5)
    side.wait_stream(torch.cuda.default_stream())
    with torch.cuda.stream(side):
        y = x * 2
    torch.cuda.current_stream().wait_stream(side)
    return y, torch.cuda.default_stream().cuda_stream, torch.cuda.Stream(priority=-1).priority


@check
def several_threads():
    """Each thread has its own current stream. Events order what the threads pass on."""
    results, events = [None] * 6, [None] * 6

    def work(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.full((256, 256), float(number), device="cuda")
            for _ in range(30):
                x = x @ torch.eye(256, device="cuda") + 1
            results[number], events[number] = x, torch.cuda.current_stream().record_event()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for event in events:
        torch.cuda.current_stream().wait_event(event)
    return torch.stack(results)


@check
def copies_of_many_kinds():
    x = torch.randn(100, 200, device="cuda")
    strided = torch.zeros(200, 100).t().pin_memory()
    strided.copy_(x, non_blocking=True)
    torch.cuda.synchronize()
    return (
        strided,
        x[::3, 5:50].cpu(),
        x.to(torch.float16).cpu(),
        x.T.contiguous(),
        torch.cat([x, x.flip(0)]),
        x.tolist()[3][:3],
    )


checks.run()
