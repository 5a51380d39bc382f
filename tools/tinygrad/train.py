#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a network of two layers with tinygrad on the device that its environment selects (DEV).

scripts/tinygrad calls it once per way to reach a device. Data and first weights come from a
fixed seed, so every run must print the same losses. The first half of the steps launches
kernel by kernel. The second half replays a captured step (TinyJit; graphs on CUDA). Prints
every loss, and writes all of them to a JSON file if one is named. Fails unless the loss falls
below a threshold.
"""

import argparse
import json
import sys
import time

import numpy as np
from tinygrad import Device, Tensor, TinyJit
from tinygrad.nn.optim import SGD

SEED, POINTS, INPUTS, HIDDEN, CLASSES = 20, 256, 16, 32, 4
THRESHOLD = 0.45  # begins near ln(4) = 1.39


def synthetic_data(rng):
    """Points around one centre per class: separable, but not trivially."""
    centres = rng.standard_normal((CLASSES, INPUTS)).astype(np.float32) * 0.6
    labels = rng.integers(0, CLASSES, POINTS)
    points = centres[labels] + 0.6 * rng.standard_normal((POINTS, INPUTS)).astype(np.float32)
    return points.astype(np.float32), labels.astype(np.int32)


class Network:
    def __init__(self, rng):
        def matrix(rows, columns):
            return Tensor(
                (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32),
                requires_grad=True,
            )

        self.first, self.second = matrix(INPUTS, HIDDEN), matrix(HIDDEN, CLASSES)
        self.first_bias = Tensor(np.zeros(HIDDEN, np.float32), requires_grad=True)
        self.second_bias = Tensor(np.zeros(CLASSES, np.float32), requires_grad=True)

    def parameters(self):
        return [self.first, self.first_bias, self.second, self.second_bias]

    def __call__(self, points):
        return (points @ self.first + self.first_bias).relu() @ self.second + self.second_bias


def train(steps, say):
    rng = np.random.default_rng(SEED)
    points, labels = synthetic_data(rng)
    network = Network(rng)
    optimiser = SGD(network.parameters(), lr=0.2, momentum=0.9)
    x, y = Tensor(points), Tensor(labels)

    @Tensor.train()
    def step():
        optimiser.zero_grad()
        loss = network(x).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimiser.schedule_step())

    captured, losses = TinyJit(step), []
    for i in range(steps):
        losses.append(float((step if i < steps // 2 else captured)().item()))
        say(f"step {i:3} loss {losses[-1]:.6f}")
    right = float((network(x).argmax(axis=1) == y).mean().item())
    return losses, right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", help="a JSON file for the losses")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    losses, right = train(options.steps, (lambda line: None) if options.quiet else print)
    seconds = time.monotonic() - began
    print(
        f"{Device.DEFAULT}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {right:.0%} right,"
        f" {seconds:.1f} s",
        flush=True,
    )
    if options.out:
        with open(options.out, "w", encoding="ascii") as out:
            json.dump(
                {"device": Device.DEFAULT, "losses": losses, "right": right, "seconds": seconds},
                out,
            )
    if not losses[-1] < THRESHOLD:
        sys.exit(f"the loss ended at {losses[-1]}, not below {THRESHOLD}")


main()
