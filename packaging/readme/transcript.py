#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows a page literally: its blocks marked `console` are commands after `$ ` (a user's) or `# `
(root's), each with what it writes. In the output `...` stands for anything: alone for any lines,
within a line for any text. Called by scripts/packages, which runs the script in a clean root.

    packaging/readme/transcript.py script PAGE         prints a shell script of the commands
    packaging/readme/transcript.py check PAGE OUTPUT   compares what the script wrote with the page
"""

import pathlib
import re
import sys

MARK = "==== transcript"


def commands(page):
    """[(line number, command, [output lines])] of the page's console blocks."""
    found, inside = [], False
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```console"
        elif inside and line[:2] in ("$ ", "# "):
            found.append((number, line[2:], []))
        elif inside and not found:
            raise ValueError(f"line {number} stands before any command")
        elif inside:
            found[-1][2].append(line)
    return found


def script(page):
    """Ends at the first command that fails. What begins in the background gets two seconds."""
    lines = ["set -u"]
    for number, command, _ in commands(page):
        lines.append(f"echo '{MARK} {number}'")
        lines.append(command if command.endswith("&") else f"{{ {command}\n}} 2>&1 || exit 1")
        if command.endswith("&"):
            lines.append("sleep 2")
    return "\n".join([*lines, f"echo '{MARK} end'", ""])


def pattern(lines):
    """The output as a regular expression."""
    parts = []
    for line in lines:
        if line == "...":
            parts.append("(?:.*\n)*?")
        else:
            parts.append(".*".join(re.escape(piece) for piece in line.split("...")) + "\n")
    return "".join(parts)


def outputs(text):
    """{line number or "end": what was written after it, without empty lines at its end}."""
    found = re.findall(rf"^{MARK} (\w+)\n((?:(?!{MARK}).*\n)*)", text, re.M)
    return {number: re.sub(r"\n+\Z", "\n", said) for number, said in found}


def check(page, output):
    """What differs, as lines for people."""
    said = outputs(output)
    problems = []
    for number, command, shown in commands(page):
        if str(number) not in said:
            problems.append(f"line {number}: was not reached: {command}")
        elif not re.fullmatch(pattern(shown), said[str(number)]):
            problems.append(f"line {number}: {command}\n-- the page shows")
            problems += [*shown, "-- it wrote", said[str(number)].rstrip("\n")]
    if "end" not in said and not problems:
        problems.append("the last command failed: " + output[-1000:])
    if not commands(page):
        problems.append("the page has no console block")
    return problems


def main():
    page = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8") if len(sys.argv) > 2 else ""
    if sys.argv[1:2] == ["script"]:
        sys.stdout.write(script(page))
        return 0
    if sys.argv[1:2] == ["check"] and len(sys.argv) == 4:
        problems = check(page, pathlib.Path(sys.argv[3]).read_text(encoding="utf-8"))
        print("\n".join(problems) or f"{len(commands(page))} commands as the page shows them")
        return 1 if problems else 0
    print(__doc__.strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
