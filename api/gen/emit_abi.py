# SPDX-License-Identifier: Apache-2.0
"""cuda_abi.gen.h: the driver's types, constants and prototypes, from the facts in api/cuda."""

import re

HEAD = """// Generated from api/cuda by api/gen; do not edit. The CUDA 13.0 driver ABI: names, types and numbers.
#pragma once

#include <stddef.h>
#include <stdint.h>

"""


def emit(room, signatures, constants):
    lines = [HEAD, (room / "types.txt").read_text(), "\n"]
    lines += [f"#define {name} {value}\n" for name, value in constants]
    lines.append("\n// Prototypes as a list, so that each room decides what to make of them:\n")
    lines.append(
        "// X(symbol, result type, (arguments), (argument names))\n#define TENDRIL_CUDA_FUNCTIONS(X) \\\n"
    )
    for s in signatures.values():
        lines.append(f"  X({s.name}, {s.result}, ({s.arguments}), ({s.names})) \\\n")
    lines.append("\n")
    lines.append("// Function types: cuFoo_t is the type of symbol cuFoo.\n")
    for s in signatures.values():
        lines.append(f"typedef {s.result} {s.name}_t({s.arguments});\n")
    return "".join(lines)


def results(room):
    """cuda_results.gen.inc: {code, "name"} of every CUresult, first name of a value wins."""
    text = (room / "types.txt").read_text()
    body = re.search(r"enum cudaError_enum \{(.*?)\};", text, re.S).group(1)
    pairs = re.findall(r"(\w+) = (-?\d+),", body)
    seen, lines = set(), []
    for name, value in pairs:
        if value not in seen:
            seen.add(value)
            lines.append(f'    {{{value}, "{name}"}},\n')
    return "".join(lines)
