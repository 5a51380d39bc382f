# SPDX-License-Identifier: Apache-2.0
"""NVML from the facts in api/nvml: nvml_abi.gen.h (types, constants, prototypes) and nvml_entry.gen.cc (every entry point that
client/nvml does not write by hand, and a table of all names)."""

import load

HEAD = """// Generated from api/nvml by api/gen; do not edit. The NVML ABI: names, types and numbers.
#pragma once

#include <stddef.h>
#include <stdint.h>

"""

ENTRY_HEAD = """// Generated from api/nvml by api/gen; do not edit. The entry points without a body in client/nvml, and the table of all.
#include "client/nvml/answer.h"

"""

KINDS = ("manual", "refused", "absent")


class Room:
    def __init__(self, path):
        self.path = path
        self.signatures = load.load_signatures(path)
        self.constants = load.load_constants(path)
        self.answers = self.load_answers()

    def load_answers(self):
        answers = {}
        for line in (self.path / "answers.txt").read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            kind, name = line.split()
            if kind not in KINDS or name not in self.signatures or name in answers:
                raise SystemExit(f"api/nvml/answers.txt: '{line}': unknown or repeated")
            answers[name] = kind
        return answers

    def answer(self, name):
        return self.answers.get(name, "loud")


def abi(room):
    lines = [HEAD, (room.path / "types.txt").read_text(), "\n"]
    lines += [f"#define {name} {value}\n" for name, value in room.constants]
    lines.append("\n// Prototypes as a list, so that each room decides what to make of them:\n")
    lines.append(
        "// X(symbol, result type, (arguments), (argument names))\n#define TENDRIL_NVML_FUNCTIONS(X) \\\n"
    )
    for s in room.signatures.values():
        lines.append(f"  X({s.name}, {s.result}, ({s.arguments}), ({s.names})) \\\n")
    lines.append("\n")
    lines.append("// Function types: nvmlFoo_t is the type of symbol nvmlFoo.\n")
    taken = (room.path / "types.txt").read_text()
    for s in room.signatures.values():
        if f" {s.name}_t;" not in taken:
            lines.append(f"typedef {s.result} {s.name}_t({s.arguments});\n")
    return "".join(lines)


def entry(room):
    lines = [ENTRY_HEAD]
    for s in room.signatures.values():
        kind = room.answer(s.name)
        if kind == "manual":
            continue
        device = s.params[0].name if s.params and s.params[0].ctype == "nvmlDevice_t" else None
        call = f'{kind}("{s.name}", {device})' if device else f'{kind}("{s.name}")'
        lines.append(f"TENDRIL_NVML {s.result} {s.name}({s.arguments}) {{\n")
        lines.append(f"  return tendril::client::nvml::{call};\n}}\n")
    lines.append("\nnamespace tendril::client::nvml {\n\nconst Entry kEntries[] = {\n")
    for name in room.signatures:
        kind = room.answer(name).capitalize()
        lines.append(
            f'    {{"{name}", reinterpret_cast<const void*>(&::{name}), Answer::k{kind}}},\n'
        )
    lines.append("};\nconst size_t kEntryCount = sizeof kEntries / sizeof kEntries[0];\n\n")
    lines.append("}  // namespace tendril::client::nvml\n")
    return "".join(lines)
