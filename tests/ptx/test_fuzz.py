#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random PTX programs must answer the same in order, shuffled and on both builds of the software
GPU's handlers. Run by ctest; by hand with another seed: test_fuzz.py PTX_CASES FOLDER-OF-LIBCUDA
SEED COUNT"""

import os
import subprocess
import sys
import tempfile

WAYS = (
    {"TENDRIL_SOFTGPU_THREADS": "1"},
    {"TENDRIL_SOFTGPU_THREADS": "1", "TENDRIL_SOFTGPU_ISA": "base"},
    {"TENDRIL_SOFTGPU_SHUFFLE": "1"},
    {"TENDRIL_SOFTGPU_SHUFFLE": "12345", "TENDRIL_SOFTGPU_THREADS": "1"},
)


def answers(program, folder, path, way):
    environment = {**os.environ, "LD_LIBRARY_PATH": folder, **way}
    run = subprocess.run([program, path], capture_output=True, text=True, env=environment)
    if run.returncode:
        sys.exit(f"{way}: {run.stdout[-2000:]}{run.stderr[-2000:]}")
    return [line for line in run.stdout.splitlines() if line.startswith("fuzz_")]


def main():
    program, folder, seed, count = sys.argv[1:5]
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "programs")
        generator = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fuzz.py")
        subprocess.run([sys.executable, "-B", generator, seed, count, path], check=True)
        first = answers(program, folder, path, WAYS[0])
        if (
            len(first) != int(count)
            or len(set(line.split()[1] for line in first)) < int(count) * 9 // 10
        ):
            sys.exit(f"{count} programs should give nearly as many different answers: {first[:5]}")
        for way in WAYS[1:]:
            different = [
                (a, b) for a, b in zip(first, answers(program, folder, path, way)) if a != b
            ]
            if different:
                sys.exit(
                    f"{way}: {len(different)} of {count} programs of seed {seed} differ, first"
                    f" {different[0]}"
                )
    print(f"seed {seed}: {count} programs agree in {len(WAYS)} ways")


if __name__ == "__main__":
    main()
