#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what scripts/tinygrad trained and prints a table. Exits 1 if something differs that
must not.

    losses.py CPU DIRECT REMOTE...

The arguments are JSON files of train.py. Remote must equal direct to the last bit, and both
must be close to the CPU.
"""

import json
import pathlib
import sys

TOLERANCE = 1e-3  # between back ends: they add up in different orders


def losses(paths):
    runs = {}
    for path in map(pathlib.Path, paths):
        if not path.exists():
            print(f"  {path.stem:8} no result")
            continue
        with open(path, encoding="ascii") as file:
            runs[path.stem] = json.load(file)
    cpu, direct = (pathlib.Path(path).stem for path in paths[:2])
    good = len(runs) == len(paths)
    for name, run in runs.items():
        verdict = ""
        if name not in (cpu, direct) and direct in runs:
            same = run["losses"] == runs[direct]["losses"]
            verdict = f"the same as {direct}, bit by bit" if same else f"NOT the same as {direct}"
            good &= same
        elif name == direct and cpu in runs:
            off = max(abs(a - b) for a, b in zip(run["losses"], runs[cpu]["losses"]))
            verdict = f"at most {off:.1e} from {cpu}" + ("" if off < TOLERANCE else ", TOO FAR")
            good &= off < TOLERANCE
        print(
            f"  {name:8} loss {run['losses'][0]:.4f} -> {run['losses'][-1]:.4f},"
            f" {run['seconds']:6.1f} s   {verdict}"
        )
    return good


sys.exit(0 if losses(sys.argv[1:]) else 1)
