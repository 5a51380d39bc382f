# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of CLBlast (parts.py), a library for linear algebra: of each EVERYth of its
routines. Each compares its result with one that the processor computed."""

import pathlib
import re

import parts

SIGNS = {":": "pass", ".": "pass", "-": "skip", "o": "skip", "X": "fail", "/": "fail"}


def programs(every):
    return sorted(pathlib.Path("/usr/bin").glob("clblast_test_x*"))[every - 1 :: every]


def results(program):
    status, text = parts.run([program, "-platform", "0", "-device", "0", "-verbose", "1"])
    found, routine, topic = {}, program.name, ""
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        if (begins := re.search(r"Starting tests for the '(\w+)' routine", line)) is not None:
            routine = begins[1]
        elif line.startswith("* Testing '"):
            topic = line.strip("* :")
        elif (tested := re.match(r"\s+Testing: (.*?) \[CLBlast\].*-> (\S)$", line)) is not None:
            found[f"{routine}, {topic}, {tested[1]}"] = SIGNS.get(tested[2], tested[2])
    found[program.name] = "pass" if status == 0 else f"ended with {status}"
    return found


if __name__ == "__main__":
    parts.main(programs, results)
