# SPDX-License-Identifier: Apache-2.0
"""PyTorch: small models of the usual kinds, trained for some steps and then run: ViT, BERT-size
encoder, LSTM and GRU, U-Net, GPT."""

import checks
from checks import DEVICE, check

torch = checks.need("torch")
nn, F = torch.nn, torch.nn.functional
torch.backends.cudnn.deterministic = True


def train(model, inputs, loss_of, steps=4, kind=torch.bfloat16):
    """Losses of some steps under autocast, then what the model says without gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=DEVICE == "cuda")
    losses = []
    for _ in range(steps):
        with torch.autocast(DEVICE, dtype=kind):
            loss = loss_of(model(*inputs))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad(), torch.autocast(DEVICE, dtype=kind):
        return losses, model(*inputs)


def transformer(width, layers, heads, **options):
    layer = nn.TransformerEncoderLayer(
        width,
        heads,
        4 * width,
        dropout=0.1,
        activation="gelu",
        batch_first=True,
        norm_first=True,
        **options
    )
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class VisionTransformer(nn.Module):
    def __init__(self, width=384, patch=16, image=224):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        self.body = transformer(width, 6, 6)
        self.head = nn.Linear(width, 1000)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.body(x)[:, 0])


class Encoder(nn.Module):
    """BERT's size: 12 layers, 768 wide."""

    def __init__(self, words=30522, width=768):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.body, self.norm = transformer(width, 12, 12), nn.LayerNorm(width)
        self.head = nn.Linear(width, words)

    def forward(self, tokens, padding):
        x = self.norm(self.words(tokens) + self.places.weight[: tokens.shape[1]])
        return self.head(self.body(x, src_key_padding_mask=padding))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells = kind(64, 128, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


class Stage(nn.Module):
    """A residual block that knows how noisy its input is."""

    def __init__(self, inside, outside):
        super().__init__()
        self.one, self.two = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(
            outside, outside, 3, padding=1
        )
        self.time, self.norm = nn.Linear(128, outside), nn.GroupNorm(8, outside)
        self.way = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, time):
        y = F.silu(self.norm(self.one(x))) + self.time(time)[:, :, None, None]
        return self.way(x) + F.silu(self.two(y))


class UNet(nn.Module):
    """A small denoiser: two halvings, attention in the middle, skips."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Conv2d(3, 32, 3, padding=1)
        self.down = nn.ModuleList([Stage(32, 64), Stage(64, 128)])
        self.middle, self.attention = Stage(128, 128), nn.MultiheadAttention(
            128, 4, batch_first=True
        )
        self.up = nn.ModuleList([Stage(256, 64), Stage(128, 32)])
        self.outside = nn.Conv2d(32, 3, 3, padding=1)
        self.register_buffer("waves", torch.exp(-torch.arange(64) / 8.0))

    def forward(self, x, time):
        angles = time[:, None] * self.waves
        time = torch.cat([angles.sin(), angles.cos()], 1)
        x, kept = self.inside(x), []
        for stage in self.down:
            x = stage(x, time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, time)
        flat = x.flatten(2).transpose(1, 2)
        x = x + self.attention(flat, flat, flat)[0].transpose(1, 2).reshape(x.shape)
        for stage in self.up:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = stage(torch.cat([x, kept.pop()], 1), time)
        return self.outside(x)


@check
def vision_transformer():
    torch.manual_seed(21)
    labels = torch.randint(0, 1000, (16,), device=DEVICE)
    return train(
        VisionTransformer().to(DEVICE),
        [torch.randn(16, 3, 224, 224, device=DEVICE)],
        lambda out: F.cross_entropy(out, labels),
    )


@check
def bert_size_encoder():
    torch.manual_seed(22)
    tokens = torch.randint(0, 30522, (4, 128), device=DEVICE)
    padding = torch.arange(128, device=DEVICE)[None, :] >= torch.tensor(
        [[128], [100], [77], [50]], device=DEVICE
    )
    losses, out = train(
        Encoder().to(DEVICE),
        [tokens, padding],
        lambda out: F.cross_entropy(out.flatten(0, 1), tokens.flatten()),
    )
    return losses, out.argmax(-1)


@check
def lstm():
    torch.manual_seed(23)
    labels = torch.randint(0, 10, (32,), device=DEVICE)
    return train(
        Recurrent(nn.LSTM).to(DEVICE),
        [torch.randn(32, 60, 64, device=DEVICE)],
        lambda out: F.cross_entropy(out, labels),
    )


@check
def gru_of_packed_sequences():
    torch.manual_seed(24)
    cells = nn.GRU(64, 128, batch_first=True).to(DEVICE)
    x = torch.randn(8, 40, 64, device=DEVICE, requires_grad=True)
    packed = nn.utils.rnn.pack_padded_sequence(x, list(range(40, 32, -1)), batch_first=True)
    out, last = cells(packed)
    last.square().sum().backward()
    return out.data, x.grad, cells.weight_hh_l0.grad


@check
def diffusion_unet():
    """Learns the noise, then takes it away in ten steps."""
    torch.manual_seed(25)
    noise, time = torch.randn(8, 3, 32, 32, device=DEVICE), torch.rand(8, device=DEVICE)
    clean = torch.rand(8, 3, 32, 32, device=DEVICE)
    mixed = (1 - time)[:, None, None, None] * clean + time[:, None, None, None] * noise
    model = UNet().to(DEVICE).to(memory_format=torch.channels_last)
    losses, _ = train(model, [mixed, time], lambda out: F.mse_loss(out.float(), noise))
    image = torch.randn(2, 3, 32, 32, device=DEVICE)
    with torch.no_grad():
        for step in range(10):
            image = image - 0.1 * model(image, torch.full((2,), 1 - step / 10, device=DEVICE))
    return losses, image


@check
def gradient_checkpoints_and_fp16():
    """fp16 with a loss scale, activations computed a second time in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(26)
    body = nn.Sequential(
        *[nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.2)) for _ in range(6)]
    ).to(DEVICE)
    optimizer, scaler = torch.optim.SGD(
        body.parameters(), lr=0.1, momentum=0.9
    ), torch.amp.GradScaler(DEVICE)
    losses = []
    for _ in range(4):
        with torch.autocast(DEVICE, dtype=torch.float16):
            x = torch.randn(64, 256, device=DEVICE)
            for layer in body:
                x = checkpoint(layer, x, use_reentrant=False)
            loss = x.float().square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, scaler.get_scale()


checks.run()
