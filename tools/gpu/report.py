# SPDX-License-Identifier: Apache-2.0
"""The table, the machine-readable results and the tar of the logs. gpu_run.py calls it, also
when a run is cut short."""

import json
import tarfile

from compare import (
    counts,
    equal,
    first_difference,
    followed_null,
    good,
    skipped,
    spread,
    unsound_checks,
    word,
)

SIDES = ("native", "tcp", "shm", "two")


def cell(program, outcome, seconds=True):
    if outcome is None:
        return "-"
    text = word(program, outcome)
    return f"{text} {outcome.seconds:.2f}s" if seconds else text


def verdict(results, sides):
    """`yes`, or what is wrong, for one program over all the sides that ran."""
    program, native = results["program"], results["native"]
    if native is None or native.cut_short:
        return "not run"
    if program.compare != "transcript" and not good(program, native) and not skipped(native):
        return "native fails"
    wrong = [side for side in sides[1:] if not is_equal(results, side)]
    if wrong:
        late = all(results[side] and results[side].cut_short for side in wrong)
        return ("no time: " if late else "NO: ") + ",".join(wrong)
    if skipped(native):
        return "skipped"
    again = any(results[side].attempts > 1 for side in sides if results[side])
    return ("yes (2nd)" if again else "yes") + remarks(results, sides)


def remarks(results, sides):
    """What a `yes` must not hide: native's own spread, and checks that show nothing because they
    do not work natively."""
    raised, left_out = unsound_checks(results["native"])
    if results["program"].compare == "transcript":
        nulls = len(followed_null(results["native"]))
        return f", {nulls} follow NULL natively" if nulls else ""
    widest = 0.0
    if results["program"].compare == "stdout":
        widest = max(
            (spread(results["native"], results[side], results.get("again", ())) or 0.0)
            for side in sides[1:]
        )
    return (
        (f", spread {widest:.1g}" if widest else "")
        + (f", {raised} raise natively" if raised else "")
        + (f", {left_out} left out" if left_out else "")
    )


def is_equal(results, side):
    return equal(
        results["program"],
        results["native"],
        results[side],
        results.get("transcripts", {}).get(side),
        results.get("again", ()),
    )


def row(results, sides):
    program = results["program"]
    remote = [results[side] for side in sides[1:] if results[side]]
    kinds = ",".join(dict.fromkeys(outcome.transport for outcome in remote if outcome.transport))
    cells = [cell(program, results[side]) for side in sides]
    return [program.group[:5] + " " + results["label"], *cells, verdict(results, sides), kinds]


def conformance_row(all_results, sides):
    """All suites in one line, so that the table stays short."""
    suites = [r for r in all_results if r["program"].group == "conformance"]
    cells, out = [], []
    for side in sides:
        ran = [r[side] for r in suites if r[side]]
        passed, skipped, failed = (sum(counts(o)[i] for o in ran) for i in range(3))
        cells.append(f"{passed}/{passed + failed} {sum(o.seconds for o in ran):.1f}s")
    same = sum(verdict(r, sides).startswith("yes") for r in suites)
    kinds = ",".join(
        dict.fromkeys(r[s].transport for r in suites for s in sides[1:] if r[s] and r[s].transport)
    )
    out.append(
        [f"conf. {len(suites)} suites, tests passed", *cells, f"{same}/{len(suites)} suites", kinds]
    )
    return out + [row(r, sides) for r in suites if not verdict(r, sides).startswith("yes")]


def table(all_results, sides):
    rows = [["program", *sides, "equal?", "transport"]]
    if any(r["program"].group == "conformance" for r in all_results):
        rows += conformance_row(all_results, sides)
    rows += [row(r, sides) for r in all_results if r["program"].group != "conformance"]
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join(
        " ".join(text.ljust(width) for text, width in zip(r, widths)).rstrip() for r in rows
    )


def summary(all_results, sides):
    """One line per group: how many equal native, and how many do not count because they fail
    natively."""
    out = []
    for group in dict.fromkeys(r["program"].group for r in all_results):
        mine = [verdict(r, sides) for r in all_results if r["program"].group == group]
        yes, bad = sum(v.startswith("yes") for v in mine), sum(v == "native fails" for v in mine)
        idle = sum(v in ("not run", "skipped") for v in mine)
        own = sum(
            verdict(r, sides).startswith("yes") and bool(r["program"].pattern)
            for r in all_results
            if r["program"].group == group
        )
        out.append(
            f"{group}: {yes} of {len(mine)} equal to native"
            + (
                f", {own} by their own pass text, {yes - own} by exit status"
                if group == "samples"
                else ""
            )
            + (f", {bad} fail natively" if bad else "")
            + (f", {idle} not run" if idle else "")
        )
    return "\n".join(out)


def differences(all_results, sides, most=40):
    """One line for each kind of difference, limited, so that the table after it stays in view."""
    found = {}
    for results in all_results:
        for side, what in reasons(results, sides).items():
            found.setdefault(what, []).append(f"{results['label']} [{side}]")
    lines = []
    for what, who in found.items():
        names = ", ".join(who[:4]) + (f" and {len(who) - 4} more" if len(who) > 4 else "")
        lines.append(f"{names}: {what}"[:420])
    cut = len(lines) - most
    return "\n".join(lines[:most] + ([f"... and {cut} more in results.json"] if cut > 0 else []))


def reasons(results, sides):
    """Where a side differs from native, or native itself fails: the first difference, for the
    person who explains it."""
    native, what = results["native"], verdict(results, sides)
    if native is None:
        return {}
    if what.startswith("yes"):  # a second try must not make this forgotten
        tries = {
            side: results[side].before
            for side in sides[1:]
            if results[side] and results[side].before
        }
        return {
            side: "its first try: " + first_difference(results["program"], native, tried)
            for side, tried in tries.items()
            if results["program"].compare != "transcript"
        }
    if not what.startswith("NO"):
        return {"native": first_difference(results["program"], None, native)}
    return {
        side: first_difference(
            results["program"], native, results[side], results.get("transcripts", {}).get(side)
        )
        for side in sides[1:]
        if not is_equal(results, side)
    }


def entry_points(all_results, sides):
    """Which entry points programs called remotely, and which of them told which program that
    they are not supported. The conformance suite does not count, because it tries every entry
    point."""
    called, refused = set(), {}
    for results in all_results:
        if results["program"].group == "conformance":
            continue
        for outcome in filter(None, (results[side] for side in sides[1:])):
            called |= outcome.called
            for name in outcome.refused:
                refused.setdefault(name, set()).add(
                    f"{results['program'].group} {results['label']}"
                )
    return {
        "called": sorted(called),
        "refused": {name: sorted(who) for name, who in sorted(refused.items())},
    }


def as_json(run, all_results, sides):
    programs = []
    for results in all_results:
        program = results["program"]
        programs.append(
            {
                "group": program.group,
                "name": results["label"],
                "command": program.argv,
                "compare": program.compare,
                "equal": verdict(results, sides),
                "why": reasons(results, sides),
                **{
                    side: (
                        (results[side].facts() | {"word": word(program, results[side])})
                        if results.get(side)
                        else None
                    )
                    for side in sides
                },
                "again": [run.facts() for run in results.get("again", ())],
            }
        )
    return json.dumps(
        {"run": run, "programs": programs, "entry_points": entry_points(all_results, sides)},
        indent=1,
    )


def write(out, logs, run, all_results, sides, bench_text, final=False):
    """Called after every group, so that a run which is cut short leaves its results."""
    (out / "results.json").write_text(as_json(run, all_results, sides))
    parts = (summary, differences, table) if all_results else ()
    text = "\n\n".join(part(all_results, sides) for part in parts) + "\n"
    (out / "table.txt").write_text(bench_text + "\n" + text)
    if final:
        with tarfile.open(out / "logs.tar.gz", "w:gz", compresslevel=3) as tar:
            tar.add(logs, "logs", filter=lambda info: info if info.size < 8_000_000 else None)
    return text
