#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What part of the product's lines ran, by room, from a build with --coverage (scripts/coverage).
Usage: coverage.py BUILD_FOLDER. Tests, tools and what is generated do not count. A file that is
built and never ran counts with all its lines."""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
NOT_PRODUCT = re.compile(r"^(tests|tools|bench|demo|build)/|_(test|fuzz)\.cc$|/test_\w+\.h$")


def report(notes):
    """gcov's JSON of one object file, {} where it has none."""
    done = subprocess.run(
        ["gcov", "--json-format", "--stdout", str(notes)], capture_output=True, text=True
    )
    return json.loads(done.stdout) if done.stdout.startswith("{") else {}


def merge(reports, root=ROOT):
    """{path in the repository: {line: how often it ran}} of the product's files."""
    files = {}
    for each in reports:
        for file in each.get("files", ()):
            path = os.path.normpath(os.path.join(each["current_working_directory"], file["file"]))
            name = os.path.relpath(path, root)
            if name.startswith("..") or NOT_PRODUCT.search(name):
                continue
            lines = files.setdefault(name, {})
            for line in file["lines"]:
                number = line["line_number"]
                lines[number] = lines.get(number, 0) + line["count"]
    return files


def rooms(files):
    """{room: (lines that ran, lines)}, and `all`."""
    counts = {}
    for name, lines in files.items():
        ran = sum(1 for count in lines.values() if count > 0)
        for room in (name.split("/", 1)[0], "all"):
            before = counts.get(room, (0, 0))
            counts[room] = before[0] + ran, before[1] + len(lines)
    return counts


def table(counts):
    order = sorted(set(counts) - {"all"}) + ["all"]
    return [
        f"{room:10} {100 * counts[room][0] / counts[room][1]:5.1f} %"
        f"  {counts[room][0]:6} of {counts[room][1]:6} lines"
        for room in order
        if room in counts and counts[room][1]
    ]


def main():
    notes = sorted(pathlib.Path(sys.argv[1]).resolve().rglob("*.gcno"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        files = merge(pool.map(report, notes))
    if not files:
        sys.exit("coverage.py: no coverage data there; scripts/coverage builds and runs with it")
    print("\n".join(table(rooms(files))))


if __name__ == "__main__":
    main()
