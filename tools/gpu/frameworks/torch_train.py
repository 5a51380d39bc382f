# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a small network learns; every loss must be the same number natively and remotely."""

import torch

torch.manual_seed(3)
torch.use_deterministic_algorithms(True)
model = torch.nn.Sequential(
    torch.nn.Linear(64, 256),
    torch.nn.GELU(),
    torch.nn.LayerNorm(256),
    torch.nn.Dropout(0.1),
    torch.nn.Linear(256, 256),
    torch.nn.ReLU(),
    torch.nn.Linear(256, 10),
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
x = torch.randn(4096, 64)
labels = (x[:, :10] + x[:, 10:20]).argmax(1)
for step in range(40):
    rows = torch.randint(0, 4096, (256,))
    inputs, targets = x[rows].pin_memory().cuda(non_blocking=True), labels[rows].cuda(
        non_blocking=True
    )
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 5 == 0:
        print(step, repr(loss.item()))
print("parameters", repr(sum(p.double().sum().item() for p in model.parameters())))
