# SPDX-License-Identifier: Apache-2.0
"""JAX's training loop (jax_workloads.py) under tools/gpu/meters.py."""

import jax_workloads
import meter


def synchronize():
    """Every step has read its loss."""


meter.Meter(
    {"jax-transformer-train-8x512": lambda: jax_workloads.transformer_train(8, 512)}, synchronize
).serve()
