#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads an installed toolkit's cuda.h and writes the facts of the ABI: api/cuda/signatures.txt
and api/cuda/types.txt.

It takes names, types and numbers only, no comment and no text. People run it when a new
toolkit appears. The test `api/check_toolkit` runs it with --check if a toolkit is installed,
and fails on any difference. It needs clang for its syntax tree. The build itself needs
neither clang nor a toolkit.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def load_tree(include_dir):
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch) / "probe.c"
        source.write_text("#include <cuda.h>\n#include <cudaProfiler.h>\n")
        done = subprocess.run(
            [
                "clang",
                "-Xclang",
                "-ast-dump=json",
                "-fsyntax-only",
                "-x",
                "c",
                "-D__CUDA_API_VERSION_INTERNAL",
                "-I",
                include_dir,
                str(source),
            ],
            capture_output=True,
            check=True,
        )
    return json.loads(done.stdout)


def constant_of(node):
    """The value clang computed for an enumerator, or None when it is implicit."""
    for child in node.get("inner", []):
        if child["kind"] == "ConstantExpr":
            return int(child["value"])
        value = constant_of(child)
        if value is not None:
            return value
    return None


def declare(ctype, name):
    """C declaration of `name` with clang's spelling of a type (handles arrays and function
    pointers)."""
    if "(*)" in ctype:
        return ctype.replace("(*)", f"(*{name})", 1)
    if "[" in ctype:
        base, _, dims = ctype.partition("[")
        return f"{base.strip()} {name}[{dims}"
    return f"{ctype} {name}".replace("* ", "*")


def record_lines(record, indent):
    pad = "  " * indent
    lines, anonymous = [], None
    for child in record.get("inner", []):
        if child["kind"] == "RecordDecl":
            anonymous = child
        elif child["kind"] == "FieldDecl":
            ctype = child["type"]["qualType"]
            nested = anonymous is not None and (
                "unnamed" in ctype
                or "anonymous" in ctype
                or ctype == f"{anonymous['tagUsed']} {anonymous.get('name')}"
            )
            if nested:
                tag = f"{anonymous['name']} " if anonymous.get("name") else ""
                lines.append(f"{pad}{anonymous['tagUsed']} {tag}{{")
                lines += record_lines(anonymous, indent + 1)
                suffix = ""
                if "[" in ctype.split(")")[-1]:
                    suffix = ctype.split(")")[-1]
                lines.append(f"{pad}}} {child.get('name', '')}{suffix};".replace(" ;", ";"))
                anonymous = None
            else:
                bits = ""
                if child.get("isBitfield"):
                    bits = f" : {constant_of(child)}"
                align = ""
                for attribute in child.get("inner", []):
                    if attribute["kind"] == "AlignedAttr":
                        align = f"alignas({constant_of(attribute)}) "
                lines.append(f"{pad}{align}{declare(ctype, child['name'])}{bits};")
        elif child["kind"] == "IndirectFieldDecl":
            continue
    return lines


def wanted(name):
    return name is not None and (name.lower().startswith("cu") and not name.startswith("__"))


def emit_types(tree):
    lines, enum_seen = [], set()
    typedef_of = {
        child["ownedTagDecl"]["id"]: node["name"]
        for node in tree["inner"]
        if node["kind"] == "TypedefDecl"
        for child in node.get("inner", [])
        if "ownedTagDecl" in child
    }
    for node in tree["inner"]:
        kind, name = node["kind"], node.get("name")
        if kind == "EnumDecl" and (name is None or wanted(name)):
            constants, value = [], -1
            for child in node.get("inner", []):
                if child["kind"] != "EnumConstantDecl":
                    continue
                explicit = constant_of(child)
                value = explicit if explicit is not None else value + 1
                constants.append((child["name"], value))
            if not constants or not (wanted(name) or constants[0][0].lower().startswith("cu")):
                continue
            if constants[0][0] in enum_seen:
                continue
            enum_seen.add(constants[0][0])
            tag = name or typedef_of.get(node["id"], "")
            lines.append(f"enum {tag} {{".replace("  ", " "))
            lines += [f"  {label} = {number}," for label, number in constants]
            lines.append("};")
        elif kind == "RecordDecl" and (name is None or wanted(name)):
            if not node.get("completeDefinition"):
                if name:
                    lines.append(f"{node['tagUsed']} {name};")
                continue
            if (
                name is None
            ):  # a helper of some C library header; the driver's records all have tags
                continue
            tag = name
            lines.append(f"{node['tagUsed']} {tag} {{")
            lines += record_lines(node, 1)
            lines.append("};")
        elif kind == "TypedefDecl" and wanted(name):
            ctype = node["type"]["qualType"]
            lines.append(f"typedef {declare(ctype, name)};")
    return lines


def emit_signatures(tree):
    out = {}
    for node in tree["inner"]:
        if node["kind"] != "FunctionDecl" or not node["name"].startswith("cu"):
            continue
        args = [
            declare(p["type"]["qualType"], p["name"])
            for p in node.get("inner", [])
            if p["kind"] == "ParmVarDecl"
        ]
        result = node["type"]["qualType"].split("(")[0].strip()
        out[node["name"]] = f"{result} {node['name']}({', '.join(args)})"
    return [out[name] for name in sorted(out)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", default="/usr/local/cuda/include")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    room = pathlib.Path(__file__).resolve().parents[2] / "api" / "cuda"
    tree = load_tree(arguments.include)
    status = 0
    for name, lines in (("signatures.txt", emit_signatures(tree)), ("types.txt", emit_types(tree))):
        text = "\n".join(lines) + "\n"
        path = room / name
        if not arguments.check:
            path.write_text(text)
        elif path.read_text() != text:
            print(
                f"{name}: differs from the installed toolkit; run tools/probe/cuda_header.py",
                file=sys.stderr,
            )
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
