# SPDX-License-Identifier: Apache-2.0
"""Takes pinned host memory by PyTorch until there is no more, in pieces of 256 MiB, and uses it.
For tools/gpu/security.py, which bounds the lease by a cgroup.

    torch_pinned.py MOST_MIB
"""

import sys

import checks
import driver_api

torch = checks.need("torch")


def main():
    most, held, error = int(sys.argv[1]), [], ""
    on_gpu = torch.zeros(64 << 20, dtype=torch.float32, device="cuda")
    driver_api.say("ready")
    try:
        while 256 * len(held) < most:
            # PyTorch rounds sizes of pinned memory up to a power of two.
            block = torch.empty(64 << 20, dtype=torch.float32, pin_memory=True)
            block.fill_(len(held))
            held.append(block)
            on_gpu.copy_(block, non_blocking=True)
            torch.cuda.synchronize()
    except RuntimeError as refused:
        error = checks.error_line(refused)
    driver_api.ask("held", {"mib": 256 * len(held), "error": error})
    right = all(float(block[-1]) == number for number, block in enumerate(held))
    try:
        left = float((torch.ones(8, device="cuda") * 3).sum())
    except RuntimeError as refused:
        left = checks.error_line(refused)
    driver_api.say("after", {"contents_right": right, "gpu_says": left})
    return 0


if __name__ == "__main__":
    sys.exit(main())
