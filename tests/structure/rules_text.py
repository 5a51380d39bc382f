# SPDX-License-Identifier: Apache-2.0
"""Rules about one file's text: head, length, columns, names that have no place in a repository.
Each rule takes a path and a text and returns problems as strings. None reads the disk, so each
can be tried on a fixture."""

import ast
import re

import cpp_reader

SPDX = "SPDX-License-Identifier: Apache-2.0"
FILE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100

# Spelt in pieces, so that this file passes its own rule.
MACHINE_PATH = re.compile(
    r"(?<![\w.$}/-])/(?:"
    + "|".join(["wo" + "rk", "fa" + "rm", "ro" + "ot", "ho" + "me"])
    + r")(?=/|\b(?![-\w]))"
)
REGISTRY_HOST = re.compile(
    "|".join(
        re.escape(a + b)
        for a, b in [
            ("pypi", ".org"),
            ("files.python", "hosted.org"),
            ("registry.npm", "js.org"),
            ("deb.deb", "ian.org"),
            ("security.deb", "ian.org"),
            ("snapshot.deb", "ian.org"),
            ("archive.ub", "untu.com"),
            ("security.ub", "untu.com"),
            ("static.crates", ".io"),
            ("index.crates", ".io"),
            ("proxy.gol", "ang.org"),
            ("docker", ".io/"),
            ("ghcr", ".io"),
            ("nvcr", ".io"),
            ("quay", ".io"),
            ("developer.download", ".nvidia.com"),
            ("rubygems", ".org"),
            ("repo.maven", ".apache.org"),
            ("anaconda", ".org"),
        ]
    )
)


def head(path, source):
    """An SPDX line first (after `#!`), then at least one line that says what the file is for."""
    lines = source.splitlines() + ["", "", ""]
    if lines[0].startswith("#!"):
        lines = lines[1:]
    cpp = path.endswith(cpp_reader.SUFFIXES)
    mark = "// " if cpp else "# "
    if lines[0] != mark + SPDX:
        return [f"{path}:1: the first line must be '{mark}{SPDX}'"]
    wanted = r"// ?\S" if cpp else r'(# ?\S|r?""")'
    if not re.match(wanted, lines[1]):
        return [f"{path}:2: after the licence line, say in a sentence or more what the file is for"]
    return []


def pragma_once(path, source):
    if path.endswith((".h", ".hpp")) and not re.search(r"^#pragma once$", source, re.M):
        return [f"{path}:1: a header needs '#pragma once'"]
    return []


def file_length(path, source):
    lines = source.count("\n")
    return (
        [f"{path}: {lines} lines; at most {FILE_LINES_MAX}: split it by topic"]
        if lines > FILE_LINES_MAX
        else []
    )


def columns(path, source):
    return [
        f"{path}:{number}: {len(line)} columns; at most {COLUMNS_MAX}"
        for number, line in enumerate(source.splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]


def line_ends(path, source):
    """As .editorconfig says: no blanks before the end of a line, and an end to the last line."""
    problems = [
        f"{path}:{number}: blanks at the end of the line"
        for number, line in enumerate(source.split("\n"), 1)
        if line != line.rstrip(" \t\r")
    ]
    if source and not source.endswith("\n"):
        problems.append(f"{path}: the last line has no end")
    return problems


def function_length(path, source):
    if path.endswith(".py"):
        spans = [
            (node.lineno, node.end_lineno - node.lineno + 1)
            for node in ast.walk(ast.parse(source))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        spans = [span for span in spans if span[1] > FUNCTION_LINES_MAX]
    else:
        spans = cpp_reader.long_functions(source, FUNCTION_LINES_MAX)
    return [
        f"{path}:{line}: a function of {length} lines; at most {FUNCTION_LINES_MAX} (a table"
        f" carries the comment '{cpp_reader.EXEMPT}')"
        for line, length in spans
    ]


def machine_paths(path, source):
    return [
        f"{path}:{number}: a path of somebody's machine: {line.strip()[:80]}"
        for number, line in enumerate(source.splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]


def registry_hosts(path, source):
    return [
        f"{path}:{number}: the name of a package registry; use what the machine is configured with"
        for number, line in enumerate(source.splitlines(), 1)
        if REGISTRY_HOST.search(line)
    ]


def generated_name(path):
    """Files that a build makes never belong in git. (The id registry is data, not output.)"""
    if re.search(
        r"\.gen\.\w+$|\.(o|a|so|pyc|d|ninja|obj|exe|deb|whl)$|\.so\.\d"
        r"|(^|/)(build|__pycache__|\.cache)/",
        path,
    ):
        return [f"{path}: generated or built; it belongs in the build folder"]
    return []


def binary_content(path, head_bytes):
    if head_bytes.startswith(
        (b"\x7fELF", b"!<arch>", b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
    ):
        return [f"{path}: a built or packed file; it belongs in the build folder"]
    return []


def readme_length(path, source):
    lines = source.count("\n")
    return [f"{path}: {lines} lines; a room's README has at most 60"] if lines > 60 else []
