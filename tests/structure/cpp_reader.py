# SPDX-License-Identifier: Apache-2.0
"""Just enough understanding of C++ for the limits: blanks out comments and literals, finds
functions and their lengths. It is a heuristic. Namespaces, classes and enums are transparent to
it. Any other block that follows a parameter list counts as a function, and it never looks inside
one."""

import re

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]{0,16})\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'',
    re.S,
)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b|extern\s*\"?\s*\"?\s*$")
EXEMPT = "structure: table"
SUFFIXES = (".cc", ".h", ".cpp", ".hpp", ".c", ".cu")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def strip(source):
    """The source with comments, literals and preprocessor lines turned into spaces; lines stay
    where they are."""
    bare = TOKEN.sub(blank, source)
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", blank, bare, flags=re.M)


def strip_comments(source):
    """The source with only comments turned into spaces; literals stay."""
    return TOKEN.sub(
        lambda m: blank(m) if m.group(0).startswith(("//", "/*")) else m.group(0), source
    )


def opens_scope(before):
    """Is the block that follows this text transparent (a namespace, a class, a linkage block)?"""
    head = re.sub(r"<[^<>]*>", " ", before)
    if not head.strip() or re.search(r"\bextern\s*$", head):
        return True
    match = SCOPE.search(head)
    return match is not None and "(" not in re.sub(
        r"\b(alignas|__attribute__)\s*\(\(?[^)]*\)?\)", " ", head
    )


def functions(source):
    """(first line, last line) of every function definition, from the first token of its head to its
    closing brace."""
    bare = strip(source)
    found, start, depth, opened_at = [], 0, 0, None
    for position, char in enumerate(bare):
        if char == "{":
            if opened_at is not None:
                depth += 1
                continue
            before = bare[start:position]
            if opens_scope(before):
                start = position + 1
                continue
            opened_at, depth = start + len(before) - len(before.lstrip()), 1
            is_function = "(" in before and not re.search(r"(?<![=!<>])=\s*(\w*\s*)?$", before)
        elif char == "}":
            if opened_at is None:
                start = position + 1
                continue
            depth -= 1
            if depth == 0:
                if is_function:
                    found.append(
                        (bare.count("\n", 0, opened_at) + 1, bare.count("\n", 0, position) + 1)
                    )
                opened_at, start = None, position + 1
        elif char == ";" and opened_at is None:
            start = position + 1
    return found


def long_functions(source, limit):
    """Functions over `limit` lines without a `structure: table` comment inside or in the three
    lines above."""
    lines = source.splitlines()
    return [
        (first, last - first + 1)
        for first, last in functions(source)
        if last - first + 1 > limit and EXEMPT not in "\n".join(lines[max(0, first - 4) : last])
    ]
