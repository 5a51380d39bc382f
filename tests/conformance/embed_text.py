# SPDX-License-Identifier: Apache-2.0
"""Turns a text file into a header that holds it. Usage: embed_text.py FILE CONSTANT OUT.h"""

import pathlib
import sys


def main():
    source, constant, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    text = source.read_text()
    assert ')TEXT"' not in text
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(
        f"// Generated from {source.name}; do not edit.\n#pragma once\n\n"
        f'inline constexpr char {constant}[] = R"TEXT({text})TEXT";\n'
    )


if __name__ == "__main__":
    main()
