# SPDX-License-Identifier: Apache-2.0
"""Libraries on top of PyTorch: a few steps of each, with random weights and data from here."""

import checks
from checks import check, check_each

torch = checks.need("torch")
torch.backends.cudnn.deterministic = True
torch.use_deterministic_algorithms(True, warn_only=True)


def numbers(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).cuda()


def trained(model, batch, answers, loss_of, count=4, rate=1e-3):
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=rate), []
    for _ in range(count):
        loss = loss_of(model(*batch), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@check_each(vit="vit_tiny_patch16_224", net="convnext_atto", efficient="efficientnet_b0")
def timm_models(name):
    timm = checks.want("timm")
    torch.manual_seed(1)
    model = timm.create_model(name, pretrained=False, num_classes=10).cuda()
    labels = torch.arange(8).cuda()
    return trained(model, [numbers(8, 3, 224, 224)], labels, torch.nn.functional.cross_entropy)


@check
def graph_network():
    nn = checks.want("torch_geometric.nn")
    torch.manual_seed(2)
    edges = torch.randint(0, 500, (2, 4000), generator=torch.Generator().manual_seed(2)).cuda()
    first, second = nn.GCNConv(32, 64).cuda(), nn.GATConv(64, 8, heads=2, concat=False).cuda()
    x = numbers(500, 32)
    with torch.no_grad():
        out = second(torch.relu(first(x, edges)), edges)
    return [round(value, 3) for value in out.mean(0).tolist()]  # sums by atomics


@check
def adapters():
    peft, transformers = checks.want("peft"), checks.want("transformers")
    torch.manual_seed(3)
    config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=128, vocab_size=1000)
    lora = peft.LoraConfig(r=8, target_modules=["c_attn"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(transformers.GPT2LMHeadModel(config), lora).cuda().eval()
    ids = torch.randint(0, 1000, (4, 64), generator=torch.Generator().manual_seed(3)).cuda()
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
    for _ in range(4):
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@check
def accelerated():
    accelerate = checks.want("accelerate")
    torch.manual_seed(4)
    helper = accelerate.Accelerator(mixed_precision="bf16")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    data = torch.utils.data.TensorDataset(numbers(64, 64).cpu(), numbers(64, 4, seed=2).cpu())
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    model, optimizer, loader = helper.prepare(model, optimizer, loader)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        helper.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@check
def lightning():
    pl = checks.want("pytorch_lightning")
    torch.manual_seed(5)

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers, self.losses = torch.nn.Linear(32, 4), []

        def training_step(self, batch, _):
            loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    data = torch.utils.data.TensorDataset(numbers(64, 32).cpu(), numbers(64, 4, seed=2).cpu())
    net = Net()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(max_epochs=2, accelerator="gpu", devices=1, **quiet)
    trainer.fit(net, torch.utils.data.DataLoader(data, batch_size=16))
    return net.losses


@check
def gaussian_process():
    gpytorch = checks.want("gpytorch")
    x = torch.linspace(0, 1, 200).cuda()
    y = torch.sin(6.28 * x)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.cover = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, at):
            return gpytorch.distributions.MultivariateNormal(self.mean(at), self.cover(at))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Model(likelihood).cuda()
    cost = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    return trained(model, [x], y, lambda out, truth: -cost(out, truth), rate=0.1)


@check
def equations():
    odeint = checks.want("torchdiffeq").odeint
    matrix = numbers(4, 4) / 4
    return odeint(
        lambda _, y: torch.tanh(y @ matrix), numbers(64, 4), torch.linspace(0, 2, 9).cuda()
    )


@check
def liger():
    transformers = checks.want("liger_kernel.transformers")
    torch.manual_seed(6)
    norm = transformers.LigerRMSNorm(256).cuda()
    x = numbers(8, 128, 256).requires_grad_()
    cost = transformers.LigerCrossEntropyLoss()
    labels = torch.randint(0, 256, (8 * 128,), generator=torch.Generator().manual_seed(6)).cuda()
    loss = cost(norm(x).reshape(-1, 256), labels)
    loss.backward()
    return loss.item(), x.grad


checks.run()
