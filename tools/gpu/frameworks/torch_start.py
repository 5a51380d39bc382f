# SPDX-License-Identifier: Apache-2.0
"""PyTorch from nothing to a tensor and a product on the GPU: when each was there, what code was
uploaded, what memory it takes. Prints one line of JSON. Times are of time.time(), because the
process that started this knows its own start by that clock. Called by tools/gpu/starts.py.
"""

import json
import time

import checks
import meter

torch = checks.need("torch")
times = {"imported": time.time()}
torch.zeros(1, device=checks.DEVICE).cpu()
times["zeros"] = time.time()
memory = meter.memory()
x = torch.randn(512, 512, device=checks.DEVICE)
(x @ x).sum().item()
times["product"] = time.time()
print(json.dumps({**times, "memory": memory, "code": meter.Counters().now()[3]}), flush=True)
