# SPDX-License-Identifier: Apache-2.0
"""PyTorch: data loaders with worker processes, forked and spawned after CUDA is in use, and a
pinning thread."""

import checks
from checks import check_each

torch = checks.need("torch")
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402


class Squares(Dataset):
    """Made in the worker."""

    def __len__(self):
        return 600

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {"x": torch.rand(64, generator=generator), "label": index * index}


@check_each(
    forked=dict(num_workers=2),
    persistent=dict(num_workers=3, persistent_workers=True, prefetch_factor=4),
    spawned=dict(num_workers=2, multiprocessing_context="spawn"),
    none=dict(num_workers=0),
)
def rows(options):
    torch.manual_seed(7)
    weight = torch.randn(128, 16, device="cuda")
    data = TensorDataset(torch.randn(2000, 128), torch.arange(2000))
    total = 0.0
    for _ in range(2):
        for row, labels in DataLoader(
            data, batch_size=100, shuffle=True, pin_memory=True, **options
        ):
            out = row.cuda(non_blocking=True) @ weight
            total += out.double().sum().item() + labels.cuda(non_blocking=True).sum().item()
    return total


@check_each(dictionaries=dict(num_workers=2, pin_memory=True))
def made_in_workers(options):
    total = torch.zeros((), device="cuda", dtype=torch.float64)
    for batch in DataLoader(Squares(), batch_size=50, **options):
        assert batch["x"].is_pinned()
        total += (
            batch["x"].cuda(non_blocking=True).double().sum()
            + batch["label"].cuda(non_blocking=True).sum()
        )
    return total


if __name__ == "__main__":
    checks.run()
