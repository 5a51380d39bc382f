# SPDX-License-Identifier: Apache-2.0
"""What the runners of others' suites have in common. Each is a program: RUNNER EVERY PART PARTS
runs each EVERYth of what its suite has most of, and of this the PARTth of PARTS parts, one after
the other. It prints what each test says as one line of JSON, {test: result}."""

import json
import subprocess
import sys

SECONDS = 600  # of one program


def run(words, **options):
    """How it ended (None: it did not) and what it said."""
    try:
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
            **options,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout


def main(programs, results):
    """`programs(every)` lists what there is to run, and `results` says of one of them what its
    tests say."""
    every, part, parts = map(int, sys.argv[1:4])
    found = {}
    for number, program in enumerate(programs(every)):
        if number % parts == part:
            found.update(results(program))
    print(json.dumps(found))
