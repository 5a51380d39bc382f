# SPDX-License-Identifier: Apache-2.0
"""Compares a remote run with the native one, and says in a word how each ended. Called by
gpu_run.py.

A remote line is equal if it is native's line. If native ran twice and did not repeat a line,
its numbers give a spread. Then the remote line must be the same, except for numbers that lie
in the spread, widened by itself on both ends (two runs show little of it).
"""

import re

from catalog import without_times

# The exit status of a program if this machine lacks something: check.h and frameworks/checks.py.
SKIP_STATUS = 77
NUMBER = re.compile(r"(?<![\w#.])[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w.])")
FOLLOWED_NULL = re.compile(r"this driver follows the null pointer\n\[  SKIPPED \] (\S+)")
CHECKSUM = re.compile(r"#[0-9a-f]{8}\b|\b[0-9a-f]{16}\b")


def word(program, outcome):
    """One side by itself: ok, or why not."""
    if outcome is None:
        return "-"
    if outcome.timed_out:
        return "no time" if outcome.cut_short else "hang"
    if skipped(outcome):
        return "skip"
    if program.compare == "pass" and outcome.status == 0:
        return "ok" if re.search(program.pattern, outcome.stdout + outcome.stderr) else "no pass"
    if program.compare == "transcript":
        passed, _, failed = counts(outcome)
        return (
            f"{passed}/{passed + failed}" if outcome.status in (0, 1) else f"exit {outcome.status}"
        )
    return "ok" if outcome.status == 0 else f"exit {outcome.status}"


def skipped(outcome):
    return outcome is not None and not outcome.timed_out and outcome.status == SKIP_STATUS


def unsound_checks(outcome):
    """Checks inside a program that showed nothing: (raised by mistake, left out)."""
    lines = outcome.stdout.splitlines() if outcome else []
    return sum(" RAISED " in line for line in lines), sum(" SKIPPED " in line for line in lines)


def good(program, outcome):
    if outcome is None or outcome.timed_out or outcome.status != 0:
        return False
    return program.compare == "transcript" or word(program, outcome) == "ok"


def counts(outcome):
    """GoogleTest's passed, skipped and failed."""
    text = outcome.stdout
    return (
        len(re.findall(r"^\[       OK \]", text, re.M)),
        len(re.findall(r"^\[  SKIPPED \].*ms\)", text, re.M)),
        len(re.findall(r"^\[  FAILED  \].*ms\)", text, re.M)),
    )


def equal(program, native, remote, transcripts=None, again=()):
    """True if the remote run is as good as the native one. `transcripts`: native and remote, for
    conformance; `again`: further native runs, if any."""
    if native is None or remote is None or native.timed_out or remote.timed_out:
        return False
    if skipped(native):
        return skipped(remote)
    if program.compare == "transcript":
        ours = comparable(native, transcripts)
        return native.status == remote.status and bool(ours) and ours[0] == ours[1]
    if program.compare == "pass":
        return good(program, native) and good(program, remote)
    return native.status == 0 and remote.status == 0 and spread(native, remote, again) is not None


def followed_null(native):
    """Tests that kill the vendor's driver, because it follows a null pointer. The suite excuses
    it and takes our answer."""
    return set(FOLLOWED_NULL.findall(native.stdout))


def comparable(native, transcripts):
    """Both transcripts without those tests, which show nothing natively."""

    def kept(lines, names=frozenset(followed_null(native))):
        inside, out = False, []
        for line in lines:
            inside = line.split(" ")[0] in names or (inside and line.startswith(" "))
            if not inside:
                out.append(line)
        return out

    return [kept(lines) for lines in transcripts] if transcripts else None


def spread(native, remote, again=()):
    """0 if the remote output is native's; else the relative distance of native's own runs; None
    if the output lies outside."""
    theirs, ours = without_times(native.stdout), without_times(remote.stdout)
    if theirs == ours:
        return 0.0
    natives = [theirs] + [without_times(run.stdout) for run in again if run.status == 0]
    if len(natives) < 2 or {len(lines) for lines in natives} != {len(ours)}:
        return None
    widths = [line_spread(natively, line) for *natively, line in zip(*natives, ours)]
    return None if None in widths else max(widths)


def line_spread(natives, remote):
    """One line: native's, from each of its runs, and the remote one."""
    if remote in natives:
        return 0.0
    bare = lambda line: NUMBER.sub("0", CHECKSUM.sub("#", line))
    values = lambda line: [float(match) for match in NUMBER.findall(CHECKSUM.sub("#", line))]
    if len(set(natives)) == 1 or len({bare(line) for line in (*natives, remote)}) != 1:
        return None
    widest = None
    for *native, value in zip(*map(values, natives), values(remote)):
        width = max(native) - min(native)
        if not min(native) - width <= value <= max(native) + width:
            return None
        if width:
            widest = max(widest or 0.0, width / max(map(abs, native)))
    return widest


def first_difference(program, native, remote, transcripts=None):
    """One line for a person who looks into it."""
    if remote is None:
        return "not run"
    if remote.timed_out:
        what = "not ended when the run's time was over" if remote.cut_short else "hang"
        return f"{what}; last words: " + last_line(remote)
    if program.compare == "transcript":
        pair = comparable(native, transcripts) if native else None
        return failed_tests(native, remote) + first_line(*(pair or ([], [])))
    if program.compare == "stdout" and remote.status == 0 and native:
        return first_line(without_times(native.stdout), without_times(remote.stdout)) or last_line(
            remote
        )
    return last_line(remote)


def shortened(line, most=140):
    """Both ends of a long line: the name of a call, and what it answered."""
    return line if len(line) <= most else line[: most // 2] + " ... " + line[-most // 2 :]


def first_line(theirs, ours):
    """The first line in which the remote run differs."""
    for index in range(max(len(ours), len(theirs))):
        a = theirs[index] if index < len(theirs) else "(end)"
        b = ours[index] if index < len(ours) else "(end)"
        if a != b:
            return f"line {index + 1}: native '{shortened(a)}', remote '{shortened(b)}'"
    return ""


def failed_tests(native, remote):
    """Tests that fail remotely and not natively; or how the suite's process ended."""
    names = lambda outcome: (
        re.findall(r"^\[  FAILED  \] \w+[./](\S+) \(", outcome.stdout, re.M) if outcome else []
    )
    ours = [name for name in names(remote) if name not in names(native)]
    natively = names(native)
    return (
        (f"{len(ours)} fail remotely: {' '.join(ours)}; " if ours else "")
        + (f"{len(natively)} fail natively: {' '.join(natively)}; " if natively else "")
        + (f"exit {remote.status}, {last_line(remote)}; " if remote.status not in (0, 1) else "")
    )


def last_line(outcome):
    interesting = [line for line in outcome.stderr.splitlines() if line.strip()]
    errors = [line for line in interesting if re.search(r"error|tendril|fail|Error|abort", line)]
    lines = (
        errors[-1:]
        or interesting[-1:]
        or [line for line in outcome.stdout.splitlines() if line.strip()][-1:]
    )
    return (lines[0] if lines else f"no output, exit {outcome.status}")[:220]
