#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wraps the C++ lines that are over the hard limit of columns, and touches no other line. Usage: wrap_long_lines.py FILE_OR_FOLDER...

Needs clang-format (the package of that name). Comments are left alone: reflow those by hand. tests/structure finds what remains.
"""

import pathlib
import subprocess
import sys

COLUMNS_MAX = 120
STYLE = (
    "{BasedOnStyle: Google, ColumnLimit: 110, DerivePointerAlignment: false, PointerAlignment: Left, "
    "ReflowComments: false, "
    "SortIncludes: Never, AllowShortFunctionsOnASingleLine: All}"
)


def sources(arguments):
    for argument in arguments:
        path = pathlib.Path(argument)
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (
            each for each in found if each.suffix in (".cc", ".h") and ".gen." not in each.name
        )


def is_code(line):
    return not line.lstrip().startswith(("//", "*", "/*", "#include"))


def wrap(path):
    """True when the file changed."""
    before = path.read_text()
    long_lines = [
        number
        for number, line in enumerate(before.splitlines(), 1)
        if len(line) > COLUMNS_MAX and is_code(line)
    ]
    if not long_lines:
        return False
    ranges = [f"--lines={number}:{number}" for number in long_lines]
    subprocess.run(["clang-format", f"--style={STYLE}", "-i", *ranges, str(path)], check=True)
    return path.read_text() != before


def main():
    for path in sources(sys.argv[1:]):
        if wrap(path):
            print(path)


if __name__ == "__main__":
    main()
