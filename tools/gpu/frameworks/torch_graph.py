# SPDX-License-Identifier: Apache-2.0
"""PyTorch: CUDA graphs: replay with new input, a whole training step, make_graphed_callables,
shared pools, what capture refuses."""

import checks
from checks import check

torch = checks.need("torch")
F = torch.nn.functional
torch.manual_seed(5)
layers = [torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh()) for _ in range(8)]
layers = torch.nn.Sequential(*layers).cuda()


def warm(function, times=3):
    """Runs it beside the current stream, as capture asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            function()
    torch.cuda.current_stream().wait_stream(side)


@check
def replay():
    x, graph = torch.randn(64, 512, device="cuda"), torch.cuda.CUDAGraph()
    with torch.no_grad():
        warm(lambda: layers(x))
        with torch.cuda.graph(graph):
            y = layers(x)
        sums = []
        for step in range(100):
            x.copy_(torch.full((64, 512), step / 100.0))
            graph.replay()
            if step % 20 == 0:
                sums.append(y.double().sum().item())
        return sums, torch.equal(y, layers(x))


@check
def training_step():
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(128, 10)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    x, labels = torch.randn(32, 64, device="cuda"), torch.randint(0, 10, (32,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    warm(step)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for _ in range(20):
        x.copy_(torch.randn(32, 64))
        graph.replay()
        losses.append(loss.item())
    return losses[::5], list(model.parameters())[0]


@check
def graphed_callables():
    model = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 128)
    ).cuda()
    graphed = torch.cuda.make_graphed_callables(
        model, (torch.randn(16, 128, device="cuda", requires_grad=True),)
    )
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(5):
        x = torch.randn(16, 128, device="cuda", requires_grad=True)
        loss = F.mse_loss(graphed(x), x.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, x.grad


@check
def two_graphs_of_one_pool():
    x = torch.ones(1000, device="cuda")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        y = x * 2 + 1
    with torch.cuda.graph(second, pool=first.pool()):
        z = y * 3
    for step in range(3):
        x.fill_(step)
        first.replay()
        second.replay()
    return y, z


@check
def streams_inside_a_capture():
    x, side, graph = (
        torch.randn(512, 512, device="cuda"),
        torch.cuda.Stream(),
        torch.cuda.CUDAGraph(),
    )
    x @ x  # cuBLAS allocates its workspace outside
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            one = x * 2
        two = x + 1
        torch.cuda.current_stream().wait_stream(side)
        out = one @ two
    graph.replay()
    return out, torch.equal(out, (x * 2) @ (x + 1))


@check
def random_numbers_inside():
    """Each replay goes on in the generator's sequence."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.manual_seed(77)
    with torch.cuda.graph(graph):
        x = torch.rand(100, device="cuda")
    out = []
    for _ in range(3):
        graph.replay()
        out.append(x.clone())
    return out


@check
def refused_in_a_capture():
    graph, x = torch.cuda.CUDAGraph(), torch.ones(8, device="cuda")
    try:
        with torch.cuda.graph(graph):
            x.sum().item()
        return "not refused"
    except RuntimeError as error:
        said = checks.error_line(error)
    return said, (x + 1).sum().item()


checks.run()
