#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/compatibility.md from the results.json files that run_all left.

    tools/gpu/compatibility.py [--print] RESULTS.json[=DATE]...

The last file that has a program counts. DATE is for files from before results carried their
date. Reasons for differences come from known_differences.txt. A difference without a reason
says so in the table. Only the part between the page's two marks is written. People write the
rest of the page.
"""

import argparse
import collections
import fnmatch
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs/compatibility.md"
BEGIN, END = "<!-- tables: written by tools/gpu/compatibility.py -->", "<!-- end of the tables -->"
SIDES = ("native", "tcp", "shm", "two")
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import catalog  # noqa: E402

MEASUREMENTS = {"bench"} | catalog.ON_REQUEST - {"more"}  # groups without a verdict


def load(argument):
    path, _, date = argument.partition("=")
    held = json.loads(pathlib.Path(path).read_text())
    if date:
        held["run"]["date"] = date
    return held


def known_reasons(text):
    """[(pattern of group/name, sides, reason)]; `native` among the sides: why it fails or is left
    out natively."""
    out = []
    for line in text.splitlines():
        line = line.strip()
        if line and not line.startswith("#"):
            pattern, sides, reason = (field.strip() for field in line.split("|", 2))
            out.append((pattern, set(sides.split(",")), reason))
    return out


def merged(runs):
    """{(group, name): (number of its run, program)}, in the order of the catalogue."""
    found = {}
    for number, held in enumerate(runs, 1):
        for program in held["programs"]:
            if program["native"] is not None:
                found[program["group"], program["name"]] = number, program
    place = {group: i for i, group in enumerate(catalog.GROUPS)}
    return dict(sorted(found.items(), key=lambda item: place.get(item[0][0], len(place))))


def escaped(text):
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def cell(outcome):
    return "" if outcome is None else f"{outcome['word']} {outcome['seconds']:.2f} s"


def verdict(program, reasons):
    """`yes`, or what differs and why."""
    equal = program["equal"]
    if equal.startswith("yes"):
        return equal
    named = equal.startswith(("NO", "no time"))
    where = set(equal.partition(": ")[2].split(",")) if named else {"native"}
    name = f"{program['group']}/{program['name']}"
    why = {
        side: reason
        for pattern, sides, reason in reasons
        if fnmatch.fnmatchcase(name, pattern)
        for side in sides & where
    }
    for side in where - why.keys():
        seen = escaped((program.get("why") or {}).get(side) or "")
        why[side] = f"not explained; `{seen[:160]}`" if seen else "not explained"
    by_reason = collections.defaultdict(list)
    for side in sorted(why, key=SIDES.index):
        by_reason[why[side]].append(side)
    words = [
        reason if len(by_reason) == 1 else f"{', '.join(sides)}: {reason}"
        for reason, sides in by_reason.items()
    ]
    return f"**{escaped(equal)}**: " + "; ".join(words)


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def runs_table(runs):
    rows = []
    for number, held in enumerate(runs, 1):
        facts = held["run"]
        versions = ", ".join(
            f"{name} {version}" for name, version in sorted(facts.get("versions", {}).items())
        )
        date = facts.get("date", "").partition(" ")[0] or "not recorded"
        rows.append(
            [
                str(number),
                date,
                f"`{facts['commit']}`",
                escaped(facts["gpu"].replace("\n", "; ")),
                versions or "not recorded",
                f"`{escaped(' '.join(facts['arguments']))}`",
                f"{facts['seconds']:.0f} s",
            ]
        )
    return markdown(
        ["Run", "Date", "Commit", "GPU, driver, memory", "Versions", "`run_all` with", "Took"], rows
    )


def conformance_rows(programs, reasons):
    """All suites in one line, then those that are not equal."""
    suites = [program for _, program in programs]
    if not suites:
        return []
    number, cells = str(programs[0][0]), []
    for side in SIDES:
        ran = [s[side] for s in suites if s.get(side)]
        counts = [[int(n) for n in o["word"].split("/")] for o in ran if "/" in o["word"]]
        passed, told = sum(c[0] for c in counts), sum(c[1] for c in counts)
        cells.append(
            f"{passed} of {told} tests {sum(o['seconds'] for o in ran):.0f} s" if ran else ""
        )
    same = sum(s["equal"].startswith("yes") for s in suites)
    out = [
        [f"conformance, {len(suites)} suites", *cells, f"{same} of {len(suites)} suites", number]
    ]
    return out + [row(n, s, reasons) for n, s in programs if not s["equal"].startswith("yes")]


def row(number, program, reasons):
    name = escaped(f"{program['group']} {program['name']}")
    return [
        name,
        *(cell(program.get(side)) for side in SIDES),
        verdict(program, reasons),
        str(number),
    ]


def summary(group, programs):
    words = collections.Counter(
        (
            "equal"
            if p["equal"].startswith("yes")
            else (
                "differ"
                if p["equal"].startswith("NO")
                else "fail natively" if p["equal"] == "native fails" else "not run"
            )
        )
        for _, p in programs
    )
    parts = [
        f"{words[what]} {what}" for what in ("differ", "fail natively", "not run") if words[what]
    ]
    return f"{group}: {words['equal']} of {len(programs)} equal to native" + "".join(
        f", {part}" for part in parts
    )


def entry_points(runs):
    """What programs called of the driver, and which calls are refused. Empty if no run recorded
    it."""
    held = [run["entry_points"] for run in runs if run.get("entry_points")]
    called = {name for one in held for name in one["called"]}
    if not called:
        return ""
    refused = collections.defaultdict(set)
    for one in held:
        for name, who in one["refused"].items():
            refused[name] |= set(who)
    told = "; ".join(
        f"`{name}` by {', '.join(sorted(who)[:4])}" for name, who in sorted(refused.items())
    )
    return (
        f"* programs (the conformance suite aside) called {len(called | refused.keys())} entry"
        f" points remotely; refused among them: {told or 'none'}"
    )


def tables(runs, reasons):
    programs = merged(runs)
    groups = collections.defaultdict(list)
    for (group, _), found in programs.items():
        groups[group].append(found)
    rows = []
    for group, found in groups.items():
        rows += (
            conformance_rows(found, reasons)
            if group == "conformance"
            else [row(*one, reasons) for one in found]
        )
    missing = [
        group for group in catalog.GROUPS if group not in groups and group not in MEASUREMENTS
    ]
    text = [runs_table(runs), "\n".join("* " + summary(*item) for item in groups.items())]
    if missing:
        text[-1] += "\n* not in these runs: " + ", ".join(missing)
    if entry_points(runs):
        text[-1] += "\n" + entry_points(runs)
    head = ["Program", "Native", "TCP", "Shared memory", "Two servers", "Equal, or why not", "Run"]
    return "\n\n".join([*text, markdown(head, rows)])


def replaced(page, text):
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"compatibility: {PAGE.name} lacks its marks")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def main():
    parser = argparse.ArgumentParser(prog="compatibility")
    parser.add_argument("results", nargs="+")
    parser.add_argument("--print", action="store_true", help="to stdout instead of the page")
    args = parser.parse_args()
    text = tables(
        [load(one) for one in args.results],
        known_reasons((HERE / "known_differences.txt").read_text()),
    )
    if args.print:
        print(text)
    else:
        PAGE.write_text(replaced(PAGE.read_text(), text))


if __name__ == "__main__":
    main()
