# SPDX-License-Identifier: Apache-2.0
"""torchvision: ResNet-50 with random weights, training steps in bf16 with channels_last, and
inference in two types."""

import checks
from checks import DEVICE, check

torch = checks.need("torch")
torchvision = checks.need("torchvision")
torch.manual_seed(8)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.deterministic = True
model = torchvision.models.resnet50(weights=None).to(DEVICE).to(memory_format=torch.channels_last)
images = torch.randn(16, 3, 224, 224, device=DEVICE).to(memory_format=torch.channels_last)


@check
def training():
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    labels = torch.randint(0, 1000, (16,), device=DEVICE)
    losses = []
    for _ in range(5):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@check
def inference():
    model.eval()
    with torch.no_grad():
        plain = model(images)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            mixed = model(images)
        return plain, mixed, model.to(torch.float16)(images.half()), plain.argmax(1)


checks.run()
