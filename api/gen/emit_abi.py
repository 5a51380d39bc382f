# SPDX-License-Identifier: Apache-2.0
"""NAME_abi.gen.h: the vendor library's types, constants and prototypes, from the facts in api/NAME.
NAME_results.gen.inc: each result and its name."""

import re


def emit(api):
    lines = [
        f"{api.note('')[:-1]} Here: {api.title}.\n",
        "#pragma once\n\n#include <stddef.h>\n#include <stdint.h>\n\n",
        api.types,
        "\n",
    ]
    lines += [f"#define {name} {value}\n" for name, value in api.constants]
    lines.append("\n// Prototypes as a list, so that each room decides what to make of them:\n")
    lines.append("// X(symbol, result type, (arguments), (argument names))\n")
    lines.append(f"#define TENDRIL_{api.name.upper()}_FUNCTIONS(X) \\\n")
    for s in api.signatures.values():
        lines.append(f"  X({s.name}, {s.result}, ({s.arguments}), ({s.names})) \\\n")
    lines.append("\n// Function types: symbol foo has the type foo_t.\n")
    for s in api.signatures.values():
        if f" {s.name}_t;" not in api.types:
            lines.append(f"typedef {s.result} {s.name}_t({s.arguments});\n")
    return "".join(lines)


def results(api):
    """{code, "name"} of every result. If a value has several names, the first counts."""
    enum = api.setting("api", "result_enum")
    body = re.search(rf"enum {enum} \{{(.*?)\}};", api.types, re.S).group(1)
    names = {}
    for name, value in re.findall(r"(\w+) = (-?\d+),", body):
        names.setdefault(value, name)
    return "".join(f'    {{{value}, "{name}"}},\n' for value, name in names.items())
