# SPDX-License-Identifier: Apache-2.0
"""Rules about api/cuda/registry: operation numbers are permanent, and the digests of message
layouts are those of today's description."""

import re


def parse(source):
    """opcodes.txt as ({name: number}, problems): one `number name` a line, # begins a comment."""
    numbers, names, problems = {}, {}, []
    for line_number, line in enumerate(source.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"(\d+)\s+(\w+)", line)
        if not match:
            problems.append(f"opcodes.txt:{line_number}: not 'number name': {line}")
            continue
        number, name = int(match.group(1)), match.group(2)
        if not 0 < number < 65536:
            problems.append(f"opcodes.txt:{line_number}: {number} does not fit an opcode")
        if name in numbers:
            problems.append(f"opcodes.txt:{line_number}: {name} has two numbers")
        if number in names:
            problems.append(
                f"opcodes.txt:{line_number}: {number} belongs to {names[number]} already"
            )
        numbers[name], names[number] = number, name
    return numbers, problems


def append_only(before, now):
    """Every pair of the earlier version is in the later one. Both: {name: number}."""
    taken = {number: name for name, number in now.items()}
    problems = []
    for name, number in sorted(before.items(), key=lambda pair: pair[1]):
        if name in now and now[name] != number:
            problems.append(f"{name} was {number} and is {now[name]} now: numbers are for ever")
        elif name not in now and number in taken:
            problems.append(
                f"{number} was {name}'s and is {taken[number]}'s now: numbers are for ever"
            )
        elif name not in now:
            problems.append(f"{number} {name} has gone: retired operations keep their line")
    return problems


def protocol_version(control_header):
    match = re.search(r"kProtocolVersion\s*=\s*(\d+)", control_header or "")
    return int(match.group(1)) if match else None


def lock_names(lock):
    """The operations that have a layout digest: `name digest` on a line. Other kinds of lines have
    more words."""
    lines = (line.split() for line in lock.splitlines() if not line.startswith("#"))
    return {words[0] for words in lines if len(words) == 2}
