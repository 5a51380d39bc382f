# SPDX-License-Identifier: Apache-2.0
"""Training by PyTorch that is paused in the middle, for tools/gpu/pauses.py. Says `running` after
some steps, counts on until it reads a line, takes ten steps more, and says how long the longest
step took, and each loss. Losses depend on the number of the step alone.

    torch_paused.py STEPS       that many steps, without reading, for comparison
"""

import sys
import threading
import time

import checks
import driver_api

torch = checks.need("torch")


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else None
    torch.manual_seed(11)
    torch.backends.cudnn.deterministic = True
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 56 * 56, 10),
    ).cuda()
    images = torch.randn(32, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 10, (32,), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses, longest, told = [], 0.0, threading.Event()
    if steps is None:
        threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
    last = None
    while len(losses) != (last or steps):
        begun = time.monotonic()
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        if len(losses) > 5:
            longest = max(longest, time.monotonic() - begun)
        if len(losses) == 20:
            driver_api.say("running")
        if told.is_set() and last is None:
            last = len(losses) + 10
        if steps is None:
            time.sleep(0.002)
    driver_api.say("done", {"steps": len(losses), "longest_s": longest, "losses": losses})
    return 0


if __name__ == "__main__":
    sys.exit(main())
