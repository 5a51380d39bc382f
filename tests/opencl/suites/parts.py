# SPDX-License-Identifier: Apache-2.0
"""What the runners of others' suites have in common. Each is a program: RUNNER EVERY PART PARTS
runs each EVERYth of what its suite has most of, and of this the PARTth of PARTS parts, one after
the other. It prints one line of JSON: under "results" what each test says, {test: result}, and
under "seconds" how long each program took, {its number: seconds}. A run that finds the seconds of a
run before in TENDRIL_SUITE_SECONDS does not wait much longer than that for a program that hangs."""

import json
import os
import subprocess
import sys
import time

SECONDS = 600  # of one program, at the most
limit_s = SECONDS  # of the one that runs now


def limit_after(seconds):
    """For a program that took so long before, on a machine that was as busy."""
    return min(SECONDS, 60 + 10 * seconds)


def run(words, **options):
    """How it ended (None: it did not) and what it said."""
    try:
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            **options,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout


def main(programs, results):
    """`programs(every)` lists what there is to run, and `results` says of one of them what its
    tests say."""
    global limit_s
    every, part, parts = map(int, sys.argv[1:4])
    before = json.loads(os.environ.get("TENDRIL_SUITE_SECONDS", "{}"))
    found, seconds = {}, {}
    for number, program in enumerate(programs(every)):
        if number % parts == part:
            limit_s = limit_after(before.get(str(number), SECONDS))
            began = time.monotonic()
            found.update(results(program))
            seconds[number] = round(time.monotonic() - began, 1)
    print(json.dumps({"results": found, "seconds": seconds}))
