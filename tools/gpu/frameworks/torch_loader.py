# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a data loader with worker processes (forked after CUDA is in use) and a pinning thread."""
import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(7)
    weight = torch.randn(128, 16, device="cuda")
    data = TensorDataset(torch.randn(2000, 128), torch.arange(2000))
    total = 0.0
    for rows, labels in DataLoader(data, batch_size=100, num_workers=2, pin_memory=True):
        out = rows.cuda(non_blocking=True) @ weight
        total += out.double().sum().item() + labels.cuda(non_blocking=True).sum().item()
    print(repr(total))


if __name__ == "__main__":
    main()
