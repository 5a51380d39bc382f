# SPDX-License-Identifier: Apache-2.0
"""Turns a PTX file into a header that holds its text. Usage: embed_ptx.py FILE.ptx NAME OUT.h"""
import pathlib
import sys


def main():
    source, name, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    camel = "".join(part.capitalize() for part in name.split("_"))
    text = source.read_text()
    assert ')PTX"' not in text
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(f'// Generated from {name}.cu; do not edit.\n#pragma once\n\ninline constexpr char k{camel}Ptx[] = R"PTX({text})PTX";\n')


if __name__ == "__main__":
    main()
