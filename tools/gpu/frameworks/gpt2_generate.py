# SPDX-License-Identifier: Apache-2.0
"""transformers: GPT-2's architecture with random weights generates greedily and then takes
training steps."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(9)
torch.use_deterministic_algorithms(True, warn_only=True)
model = GPT2LMHeadModel(GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)).cuda()
tokens = torch.randint(0, 50000, (1, 16), device="cuda")
with torch.no_grad():
    out = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=24,
        do_sample=False,
        pad_token_id=0,
    )
print(out[0, 16:].tolist())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
batch = torch.randint(0, 50000, (4, 256), device="cuda")
for step in range(3):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch, labels=batch).loss
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
