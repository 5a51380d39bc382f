# SPDX-License-Identifier: Apache-2.0
"""Rules about names in prose: an identifier or a file that a comment or a page names exists. A name
counts as an identifier when it is spelt as one (LeaseBook, kProtocolVersion, TENDRIL_SERVERS) or
stands in backquotes. It may exist anywhere in the code, except for a word in lower case that a C++
comment quotes (`take`): that one is in C++ code or in a description of calls. The rules find what
was renamed or removed.
"""

import ast
import io
import re
import tokenize

import cpp_reader

WORD = re.compile(r"[A-Za-z_]\w*")
# An identifier by its spelling, outside paths and patterns (`Get*`).
SPELT = re.compile(
    r"(?<![\w./-])(?:k[A-Z]\w+|TENDRIL_[A-Z0-9_]*[A-Z0-9]|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+)\b"
    r"(?!\*|\.\w)"
)
QUOTED = re.compile(r"`([^`\n]+)`")
# One name in backquotes: `has`, `Session::take`, `take()`.
COMMIT = re.compile(r"(?=.*[0-9])[0-9a-f]{7,40}")
ONE_NAME = re.compile(r"(?:\w+::)*~?([A-Za-z_]\w*)(?:\(\))?")
PATH = re.compile(
    r"(?<![\w./${}*-])(?:{rooms})/[\w./-]*\w"
    r"\.(?:cc|h|cpp|c|cu|py|sh|md|txt|spec|cmake|ini|toml|csv|json|lock)\b(?![\w/*])"
)
# Files whose literals name what does not exist.
FIXTURES = {"tests/structure/test_names.py", "tests/structure/rules_names.py"}
# Decisions whose code is on its way. Empty whenever a change is whole.
AHEAD: set[str] = set()
# Other people's names that are spelt like ours, and examples of spelling.
ELSEWHERE = {
    "BearSSL",
    "CuPy",
    "NaNs",
    "ThreadSanitizer",
    "ViT",
    "Speculation_Store_Bypass",
    "cudaErrorSoftwareValidityNotEstablished",
    "bytes_free",
    "kCamelCase",
    "PascalCase",
    "CamelCase",
    "snake_case",
    "trailing_",
    "tendrild",
    # Of Kubernetes.
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRAResourceClaimDeviceStatus",
    "bindingTimeout",
    "ResourceClaim",
    "ResourceClaims",
    # Cases whose names are put together, here or by others.
    "cvt_invalid",
    "tex_2d_border_linear",
}


def python_parts(source):
    """(code, [(line, comment or docstring)]) of a Python file."""
    documents = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                documents.add(first.lineno)
    code, prose = [], []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_document = token.type == tokenize.STRING and token.start[0] in documents
        if token.type == tokenize.COMMENT or is_document:
            prose.append((token.start[0], token.string))
        else:
            code.append(token.string)
    return " ".join(code), prose


def cpp_parts(source):
    prose = [
        (source.count("\n", 0, match.start()) + 1, match.group(0))
        for match in cpp_reader.TOKEN.finditer(source)
        if match.group(0).startswith(("//", "/*"))
    ]
    return cpp_reader.strip_comments(source), prose


def script_parts(source):
    """Of anything in which a line that begins with # is a comment."""
    code, prose = [], []
    for number, line in enumerate(source.splitlines(), 1):
        if re.match(r"\s*#(?!!)", line):
            prose.append((number, line))
        else:
            code.append(line)
    return "\n".join(code), prose


def page_parts(source):
    """A page has no code of its own; what it shows as code is not read here (rules_docs.py)."""
    bare = re.sub(r"^```.*?^```", cpp_reader.blank, source, flags=re.M | re.S)
    lines = enumerate(bare.splitlines(), 1)
    return "", [(number, line) for number, line in lines if not line.startswith("    ")]


def parts(path, source):
    if path.endswith(cpp_reader.SUFFIXES):
        return cpp_parts(source)
    if path.endswith(".md"):
        return page_parts(source)
    if path.endswith(".py") or source.startswith("#!/usr/bin/env python3"):
        return python_parts(source)
    return script_parts(source)


def identifiers(path, source):
    """The words of C++ code without its literals, and of descriptions."""
    if path.endswith(cpp_reader.SUFFIXES):
        return words(cpp_reader.TOKEN.sub(cpp_reader.blank, source))
    return words(parts(path, source)[0]) if path.startswith("api/") else set()


def words(code):
    return set(WORD.findall(code))


def named(text, is_page):
    """The identifiers that a piece of prose names."""
    quoted = QUOTED.findall(text)
    quoted = [word for word in quoted if not COMMIT.fullmatch(word)]
    names = {match.group(1) for match in map(ONE_NAME.fullmatch, quoted) if match}
    # On a page, words that are spelt in this way without backquotes are mostly products.
    for place in quoted if is_page else [text]:
        names |= set(SPELT.findall(place))
    return names


def stale_names(path, prose, known, in_cpp=None):
    """prose: of this file, from parts(); known: the words of all code; in_cpp: identifiers() of all
    files."""
    for line, text in prose:
        names = named(text, path.endswith(".md"))
        stale = names - known
        if in_cpp is not None and path.endswith(cpp_reader.SUFFIXES):
            stale |= {name for name in names - in_cpp if name[0].islower() and name[1:2] != ""}
        for name in sorted(stale - ELSEWHERE):
            yield f"{path}:{line}: names '{name}', which is in no code"


def stale_paths(path, prose, rooms, exists):
    pattern = re.compile(PATH.pattern.replace("{rooms}", "|".join(rooms)))
    for line, text in prose:
        for match in pattern.finditer(text):
            is_pattern = re.search(r"(^|/)[A-Z]+/", match.group(0))  # tools/PROGRAM/train.py
            if not is_pattern and not exists(match.group(0)):
                yield f"{path}:{line}: names {match.group(0)}, which does not exist"
