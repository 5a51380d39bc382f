#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns recorded lanes (TENDRIL_RECORD, docs/operating.md) into seeds for the fuzz targets: small,
because only the first few records of each kind are kept, whole, in their order. Usage:
lane_seeds.py FOLDER CORPUS [opencl], where FOLDER has *.calls and *.frames and CORPUS gets
tendril_dispatch_fuzz/, tendril_service_fuzz/ and tendril_lane_fuzz/. For another API than CUDA, it
gets only tendril_opencl_dispatch_fuzz/ and the like. Record only programs whose
kernels are ours: images are part of a lane."""

import hashlib
import pathlib
import struct
import sys

# A call: bytes, opcode, flags, context, reply id. A frame: bytes, kind, flags, result, reply id.
HEADER = struct.Struct("<IHHII")
PER_KIND = 3  # records of one opcode or kind in a seed
RECORD_BYTES_MAX = 10_000  # larger ones are images of modules; the small ones do
FRAMES_BYTES_MAX = 1_000
CALLS_BYTES_MAX = 16_000
BULK_DATA = 8  # wire/frame.h


def records(lane):
    """(kind, bytes) of each whole record."""
    at = 0
    while at + HEADER.size <= len(lane):
        size, kind, flags, _, _ = HEADER.unpack_from(lane, at)
        if size < HEADER.size or at + size > len(lane):
            return
        if not flags & BULK_DATA:
            yield kind, lane[at : at + size]
        at += size


def seed(lane, bytes_max):
    """The first records of each kind."""
    seen, kept, total = {}, [], 0
    for kind, record in records(lane):
        if (
            seen.get(kind, 0) >= PER_KIND
            or len(record) > RECORD_BYTES_MAX
            or total + len(record) > bytes_max
        ):
            continue
        seen[kind] = seen.get(kind, 0) + 1
        kept.append(record)
        total += len(record)
    return b"".join(kept)


def keep(folder, content):
    if content:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)


def main():
    recorded, corpus = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    api = sys.argv[3] if len(sys.argv) > 3 else None
    for path in sorted(recorded.glob("*.calls")) if api else []:
        keep(corpus / f"tendril_{api}_dispatch_fuzz", seed(path.read_bytes(), CALLS_BYTES_MAX))
    if api:
        return
    for path in sorted(recorded.glob("*.calls")):
        calls = seed(path.read_bytes(), CALLS_BYTES_MAX)
        keep(corpus / "tendril_dispatch_fuzz", calls)
        if calls:
            keep(
                corpus / "tendril_service_fuzz", b"\0" + calls[:FRAMES_BYTES_MAX]
            )  # no bulk channel
    for path in sorted(recorded.glob("*.frames")):
        keep(corpus / "tendril_lane_fuzz", seed(path.read_bytes(), FRAMES_BYTES_MAX))


if __name__ == "__main__":
    main()
