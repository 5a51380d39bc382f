# SPDX-License-Identifier: Apache-2.0
"""PyTorch on two GPUs of one program: copies between them, streams and events of both, a model
cut in two, data parallel training. The two may belong to one server or to two. With two
servers nothing but speed may differ."""

import threading

import checks
from checks import check

torch = checks.need("torch")
if torch.cuda.device_count() < 2:
    checks.skip("two GPUs are needed")
ONE, TWO = torch.device("cuda:0"), torch.device("cuda:1")


def model():
    torch.manual_seed(7)
    part = lambda: torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256)
    )
    return part(), part()


@check
def both_are_there():
    return torch.cuda.device_count(), [torch.cuda.get_device_name(i) for i in range(2)]


@check
def there_and_back():
    x = torch.arange(1 << 20, device=ONE, dtype=torch.float32)
    y = (x.to(TWO) * 3 + 1).to(ONE)
    return y, (y == x * 3 + 1).all().item()


@check
def a_large_copy():
    torch.manual_seed(1)
    x = torch.randint(0, 1 << 30, (48 << 20,), device=ONE)
    return (x.to(TWO).sum().item(), x.sum().item())


@check
def events_across():
    one, two = torch.cuda.Stream(ONE), torch.cuda.Stream(TWO)
    x, y = torch.zeros(1 << 20, device=ONE), torch.zeros(1 << 20, device=TWO)
    torch.cuda.synchronize(ONE), torch.cuda.synchronize(TWO)
    for _ in range(6):
        with torch.cuda.stream(one):
            torch.cuda._sleep(2_000_000)
            x.add_(1)
            ready = one.record_event()
        with torch.cuda.stream(two):
            two.wait_event(ready)
            y.copy_(x, non_blocking=True)
            y.mul_(2)
            done = two.record_event()
        with torch.cuda.stream(one):
            one.wait_event(done)
            x.copy_(y, non_blocking=True)
    torch.cuda.synchronize(ONE), torch.cuda.synchronize(TWO)
    return x, y


@check
def a_model_cut_in_two():
    first, second = model()
    first, second = first.to(ONE), second.to(TWO)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05)
    torch.manual_seed(3)
    data = torch.randn(64, 256)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(second(first(data.to(ONE)).to(TWO)), data.to(TWO))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@check
def a_thread_for_each():
    sums = [None, None]

    def work(index, device):
        torch.cuda.set_device(device)
        generator = torch.Generator(device=device).manual_seed(11)
        a = torch.randn(1024, 1024, device=device, generator=generator)
        for _ in range(30):
            a = (a @ a).tanh()
        sums[index] = a.double().sum().item()

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate((ONE, TWO))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sums, sums[0] == sums[1]


checks.run()
