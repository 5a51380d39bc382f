#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of PTX cases for tests/programs/ptx_cases.cc: every opcode family with extreme
operands and expected values from the models in this folder. Called by the build; by hand for a run
on a real GPU, which needs nothing else:
  table.py FILE && ptx_cases FILE"""

import sys

import cases
import conversions
import floats
import images
import integers
import matrices
import video
import warps


def families():
    for module in (integers, floats, conversions, warps, matrices, video, images):
        yield from module.families()


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: table.py FILE")
    with open(sys.argv[1], "w", encoding="ascii") as out:
        count, rows = cases.write(out, families())
    print(f"{sys.argv[1]}: {count} cases, {rows} rows")


if __name__ == "__main__":
    main()
