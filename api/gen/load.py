# SPDX-License-Identifier: Apache-2.0
"""Reads the facts of one API (signatures, constants) into plain Python objects. It knows
nothing of outputs."""

import dataclasses
import pathlib
import re


@dataclasses.dataclass
class Param:
    ctype: str  # normalised C spelling, e.g. "const CUmemAllocationProp *"
    name: str

    @property
    def pointer_depth(self):
        return self.ctype.count("*") + ("[" in self.name)

    @property
    def pointee(self):
        return (
            self.ctype.replace("const ", "").replace("*", "", 1).strip()
            if "*" in self.ctype
            else None
        )


@dataclasses.dataclass
class Signature:
    name: str
    result: str
    params: list

    @property
    def arguments(self):
        return ", ".join(declare(p) for p in self.params)

    @property
    def names(self):
        return ", ".join(p.name for p in self.params)


def declare(param):
    return f"{param.ctype} {param.name}".replace("* ", "*")


def split_arguments(text):
    depth, current, parts = 0, "", []
    for char in text:
        depth += char == "("
        depth -= char == ")"
        if char == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    if current.strip():
        parts.append(current.strip())
    return parts


def parse_param(text):
    match = re.fullmatch(r"(.*?)(\w+)", text.strip(), re.S)
    ctype = re.sub(r"\s*\*\s*", " *", match.group(1).strip()).replace("* *", "**")
    return Param(ctype, match.group(2))


def load_signatures(room):
    signatures = {}
    for line in (room / "signatures.txt").read_text().splitlines():
        head, _, tail = line.partition("(")
        result, name = head.rsplit(" ", 1)
        params = [parse_param(p) for p in split_arguments(tail.rstrip(")"))]
        signatures[name] = Signature(name, result, params)
    return signatures


def load_constants(room):
    pairs = (
        line.split(" = ", 1) for line in (room / "constants.txt").read_text().splitlines() if line
    )
    return [(name, value) for name, value in pairs]
