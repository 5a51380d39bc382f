#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OpenCL natively (PoCL), over bare transports and through Tendril, on this machine: tables of
figures and of what docs/performance.md asks for. All in one run, sides taking turns, the best of
each figure. TENDRIL_BUILD_DIR says where the programs are (default: build/release).

    bench/opencl.py [ROUNDS]"""

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("TENDRIL_BUILD_DIR", str(ROOT / "build" / "release"))
sys.path.insert(0, str(ROOT / "tests" / "opencl"))
from server import HAS_POCL, OpenclServer, natively, run  # noqa: E402
from harness import BUILD  # noqa: E402

PROGRAM = BUILD / "bin" / "tendril_opencl_bench"
BARE = BUILD / "bin" / "tendril-bench"
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3


def figures(done):
    line = next((x for x in done.stdout.splitlines() if x.startswith("tendril-bench {")), None)
    if done.returncode != 0 or line is None:
        sys.exit(f"{done.args}: {done.stdout}{done.stderr}")
    return json.loads(line.split(" ", 1)[1])


def keep_best(side, found):
    """The undisturbed one: the least time, the greatest speed."""
    for name, value in found.items():
        better = min if name.endswith("_us") else max
        side[name] = better(side.get(name, value), value)


def measure():
    sides = {name: {} for name in ("native", "bare tcp", "bare shm", "tcp", "shm")}
    server = OpenclServer("--warm", 1)
    try:
        for _ in range(ROUNDS):
            keep_best(sides["native"], figures(natively([PROGRAM])))
            for transport in ("tcp", "shm"):
                bare = natively([BARE, "bare", transport, "4"])
                keep_best(sides[f"bare {transport}"], figures(bare))
                done = run(server, [PROGRAM], TENDRIL_TRANSPORT=transport)
                keep_best(sides[transport], figures(done))
    finally:
        server.stop()
    return sides


def main():
    if not HAS_POCL:
        sys.exit("PoCL (Debian's pocl-opencl-icd) is not installed")
    sides = measure()
    native = sides["native"]
    for name in native:
        ours = (f"{side} {sides[side][name]:9.2f}" for side in ("native", "tcp", "shm"))
        print(f"{name:22}", *ours)
    for transport in ("tcp", "shm"):
        ours, bare = sides[transport], sides[f"bare {transport}"]
        print(f"\n{transport}: bare round trip {bare['round_trip_us']:.1f} us,", end=" ")
        print(f"of 4 KiB {bare['round_trip_4k_us']:.1f} us, {bare['gb_per_s']:.2f} GB/s")
        for name, trip in (("kernel_and_finish", "round_trip"), ("read_4k", "round_trip_4k")):
            for kind in ("_us", "_median_us"):
                more = ours[name + kind] - native[name + kind] - bare[f"{trip}_us"]
                print(f"  {name + kind}: native + bare {more:+.1f} us (wanted: at most +5)")
        print(f"  queued_kernel: {ours['queued_kernel_us']:.2f} us (wanted: at most 3)")
        limit, base = (0.8, bare["gb_per_s"]) if transport == "tcp" else (0.5, None)
        base = base or native["memcpy_64m_gb_per_s"]
        for way in ("read", "write"):
            ratio = ours[f"{way}_64m_gb_per_s"] / base
            print(f"  {way}_64m: {ratio:.2f} of {base:.2f} GB/s (wanted: at least {limit})")


if __name__ == "__main__":
    main()
