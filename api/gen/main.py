#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns api/ into sources. Usage: main.py OUTPUT_DIR [--list]. Writes a file only when its text changed, so builds stay small."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import emit_abi  # noqa: E402
import load  # noqa: E402


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    out = pathlib.Path(sys.argv[1])
    listing = "--list" in sys.argv
    room = load.room_of(__file__)
    signatures = load.load_signatures(room)
    constants = load.load_constants(room)
    outputs = {"api/cuda_abi.gen.h": lambda: emit_abi.emit(room, signatures, constants)}
    for name, make in outputs.items():
        if listing:
            print(out / name)
        else:
            write(out / name, make())


if __name__ == "__main__":
    main()
