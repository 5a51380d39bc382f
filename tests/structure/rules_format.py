# SPDX-License-Identifier: Apache-2.0
"""The rule that C++ is what clang-format 14 makes of it with .clang-format. Other versions of the
formatter break lines in other places, so only that version counts."""

import re
import shutil
import subprocess

FORMATTER = "clang-format-14"
SUFFIXES = (".cc", ".h", ".cpp", ".c", ".cu")
# How many files go on one command line.
BATCH = 100


def available():
    return shutil.which(FORMATTER) is not None


def problems(folder, names):
    """Files below `folder` that the formatter would change, with the first such line of each."""
    found = {}
    for first in range(0, len(names), BATCH):
        done = subprocess.run(
            [FORMATTER, "--dry-run", "--style=file", *names[first : first + BATCH]],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        for match in re.finditer(r"^(.+?):(\d+):\d+: (?:warning|error): ", done.stderr, re.M):
            found.setdefault(match.group(1), int(match.group(2)))
        if done.returncode != 0 and not found:
            return [f"{FORMATTER} ended with status {done.returncode}: {done.stderr.strip()}"]
    return [
        f"{name}:{line}: not formatted; run scripts/format" for name, line in sorted(found.items())
    ]
