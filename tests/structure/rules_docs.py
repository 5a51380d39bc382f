# SPDX-License-Identifier: Apache-2.0
"""Rules about documents: a command that a README shows exists, and a link leads somewhere. Stale
pages are bugs."""

import re

FOLDERS = "scripts|demo|tools|tests|bench|packaging|docs|api|\\.ci"


def code_blocks(source):
    """(line number, line) of every line in fenced or indented code blocks."""
    lines, fenced = [], False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            lines.append((number, line.strip()))
    return lines


def commands(path, source, exists):
    """Every file of ours named in a code block exists. exists: a function from relative path to
    bool."""
    problems = []
    for number, line in code_blocks(source):
        for name in re.findall(
            rf"(?<![\w/.-])(?:\./)?((?:{FOLDERS})/[\w./-]+)", line.split(" #", 1)[0]
        ):
            if not exists(name.rstrip(".")):
                problems.append(f"{path}:{number}: names '{name}', which does not exist")
    return problems


def subcommands(source):
    """The sub-commands of `tendril` that code blocks show."""
    return sorted(
        {
            match
            for _, line in code_blocks(source)
            for match in re.findall(
                r"(?:^|\$ |[/ ])tendril ([a-z][a-z-]+)\b(?!:)", line.split(" #", 1)[0]
            )
        }
    )


def links(path, source, exists):
    """Relative links of a Markdown page lead to a file. exists: as above; paths are relative to the
    page's folder."""
    folder = path.rsplit("/", 1)[0] + "/" if "/" in path else ""
    problems = []
    for match in re.finditer(r"\]\(([^)\s#]+)(?:#[\w-]*)?\)", source):
        target = match.group(1)
        if re.match(r"\w+:", target):
            continue
        parts = []
        for part in (folder + target).split("/"):
            if part == ".." and parts:
                parts.pop()
            elif part not in (".", ""):
                parts.append(part)
        if not exists("/".join(parts)):
            line = source.count("\n", 0, match.start()) + 1
            problems.append(f"{path}:{line}: the link to '{target}' leads nowhere")
    return problems
