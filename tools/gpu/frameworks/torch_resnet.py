# SPDX-License-Identifier: Apache-2.0
"""torchvision: ResNet-50 with random weights, some training steps in bf16 and one inference."""
import torch
import torchvision

torch.manual_seed(8)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.deterministic = True
model = torchvision.models.resnet50(weights=None).cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x = torch.randn(16, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
labels = torch.randint(0, 1000, (16,), device="cuda")
for step in range(5):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
model.eval()
with torch.no_grad():
    print("inference", repr(model(x).double().sum().item()))
