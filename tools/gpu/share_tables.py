#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the measured tables of docs/slices.md, and the plot beside it, from the shares.json that run_all left.

  tools/gpu/share_tables.py [--print] SHARES.json "DATE, GPU, DRIVER, COMMIT"

Only what lies between the page's two marks is written. The words are needed for files that do not say where they come from.
"""
import argparse
import fractions
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs/slices.md"
PLOT = PAGE.with_name("shares.svg")
BEGIN, END = "<!-- measured: written by tools/gpu/share_tables.py -->", "<!-- end of what was measured -->"
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import shares  # noqa: E402

WORK = {"tiny": "5 us kernels", "medium": "500 us kernels", "long": "50 ms kernels", "graph": "graphs of 100 x 5 us",
        "memory": "500 us, memory-bound", "sync": "300 us, each waited for",
        "pause": "300 us, each waited for, 2 ms apart"}
MODES = {"": "isolated", "packed": "packed", "turns only": "turns only", "hardware slices only": "hardware slices only",
         "neither": "the driver's own time-slicing"}


def parts(held, case):
    """(kind, asked, delivered, least and most in a second) for each tenant, in points of the whole GPU as it is natively."""
    out = []
    for asked, answer in zip(case["asked"], case["answers"]):
        if answer is None:
            continue
        counts = shares.Counts(answer, held.get("processors"), shares.settle_of(case["case"]))
        alone = held["alone"][answer["kind"]][0] / 100
        seconds = [rate / alone for rate in counts.rates_by_second()] or [float("nan")]
        wanted = 100 * float(fractions.Fraction(asked))
        out.append((answer["kind"], wanted, counts.rate() / alone, min(seconds), max(seconds)))
    return out


def number(value):
    return f"{value:.2f}"


def span(values):
    return f"{min(values):.2f}" if len(values) == 1 else f"{min(values):.2f} to {max(values):.2f}"


def alone_table(held):
    lines = ["| Alone, pieces per second | natively | whole GPU | half, lent the rest |", "|---|---|---|---|"]
    for kind, rates in held["alone"].items():
        ours = [f"{100 * rate / rates[0]:.1f} %" for rate in rates[1:]] + [""] * (3 - len(rates))
        lines.append(f"| {WORK[kind]} | {rates[0]:,.0f} | " + " | ".join(ours) + " |")
    return lines


def case_rows(case, rows):
    """A line for each tenant, or one for many that are alike."""
    total = number(sum(row[2] for row in rows))
    if len(rows) > 7:
        within = f"{min(row[3] for row in rows):.2f} to {max(row[4] for row in rows):.2f}"
        kind, asked, got = WORK[rows[0][0]], number(rows[0][1]), span([row[2] for row in rows])
        return [f"| {case['case']} | {kind} | {asked} each | {got} | {within} | {total} |"]
    lines, name = [], case["case"]
    for kind, asked, got, low, high in rows:
        within = f"{low:.2f} to {high:.2f}"
        lines.append(f"| {name} | {WORK[kind]} | {number(asked)} | {number(got)} | {within} | {total} |")
        name = total = ""
    return lines


def share_table(held):
    lines = ["| Tenants | Work | Asked | Delivered | Over any second | Sum |", "|---|---|---|---|---|---|"]
    for case in held["cases"]:
        rows = parts(held, case)
        if not case["mode"] and rows:
            lines += case_rows(case, rows)
    return lines


def mode_table(held):
    lines = ["| Tenants | Mode | Delivered | Sum |", "|---|---|---|---|"]
    compared = {case["case"] for case in held["cases"] if case["mode"]}
    for name in sorted(compared, key=[case["case"] for case in held["cases"]].index):
        for case in held["cases"]:
            rows = parts(held, case)
            if case["case"] == name and rows:
                got = [number(row[2]) for row in rows] if len(rows) < 8 else [span([row[2] for row in rows])]
                total = number(sum(row[2] for row in rows))
                lines.append(f"| {name} | {MODES[case['mode']]} | {' + '.join(got)} | {total} |")
    return lines


def latency_table(held):
    lines = ["| 300 us, each waited for, 2 ms apart; priority | p50 | p90 | p99 |", "|---|---|---|---|"]
    for name, latency in held.get("priority", {}).items():
        if latency:
            lines.append(f"| {name} | " + " | ".join(f"{latency[p]:,.0f} us" for p in ("p50", "p90", "p99")) + " |")
    return lines


def plot(held):
    """Delivered against asked, both in per cent: a dot for each tenant, and the line on which they should be."""
    size, margin = 420, 50
    at = lambda value: margin + value / 100 * (size - 2 * margin)
    dot = lambda x, y, colour: f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}" fill-opacity="0.6"/>'
    look = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11"'
    out = [f'<svg {look} width="{size}" height="{size}">',
           f'<rect width="{size}" height="{size}" fill="white"/>',
           f'<path d="M{at(0)} {size - at(0)} L{at(100)} {size - at(100)}" stroke="gray" stroke-dasharray="4"/>',
           f'<path d="M{at(0)} {size - at(100)} V{size - at(0)} H{at(100)}" stroke="black" fill="none"/>',
           f'<text x="{size / 2 - 60}" y="{size - 12}">share asked for, %</text>',
           f'<text x="14" y="{size / 2 + 60}" transform="rotate(-90 14 {size / 2 + 60})">share delivered, %</text>']
    for tick in (0, 25, 50, 75, 100):
        out.append(f'<text x="{at(tick) - 8}" y="{size - at(0) + 16}">{tick}</text>')
        out.append(f'<text x="{at(0) - 26}" y="{size - at(tick) + 4}">{tick}</text>')
    for mode, colour in (("neither", "#d55e00"), ("", "#0072b2")):
        for case in held["cases"]:
            for _, asked, got, _, _ in parts(held, case) if case["mode"] == mode else []:
                out.append(dot(at(asked), size - at(got), colour))
    for i, (text, colour) in enumerate((("isolated slices", "#0072b2"), ("the driver's own time-slicing", "#d55e00"))):
        out.append(dot(margin + 16, margin + 6 + 16 * i, colour))
        out.append(f'<text x="{margin + 26}" y="{margin + 10 + 16 * i}">{text}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def tables(held, source):
    head = [f"Measured with `run_all --only shares`: {source}.",
            "Figures are per cent of what the same program does natively and alone; tenants always have work queued,",
            "unless it says otherwise.", ""]
    attached = [f"{case['case']}: all attached within {case['attach_s']:.1f} s." for case in held["cases"]
                if not case["mode"] and len(case["answers"]) >= 20]
    return "\n".join(head + alone_table(held) + [""] + share_table(held) + [""] + attached +
                     ["", "![delivered against asked share](shares.svg)", ""] + mode_table(held) + [""] +
                     latency_table(held))


def main():
    parser = argparse.ArgumentParser(prog="share_tables.py")
    parser.add_argument("--print", action="store_true", help="print instead of writing")
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("source", nargs="?")
    args = parser.parse_args()
    held = json.loads(args.results.read_text())
    text = tables(held, args.source or held["source"])
    if args.print:
        print(text)
        return
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
    PLOT.write_text(plot(held))


if __name__ == "__main__":
    main()
