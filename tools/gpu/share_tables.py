#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the measured tables of docs/slices.md, and the plot beside it, from the shares.json
that run_all left.

    tools/gpu/share_tables.py [--print] SHARES.json...

Only the part between the page's two marks is written. Of several runs the later ones replace
what they measured again.
"""

import argparse
import fractions
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs/slices.md"
PLOT = PAGE.with_name("shares.svg")
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import pages  # noqa: E402
import share_torch  # noqa: E402
import shares  # noqa: E402

WORK = {
    "tiny": "5 us kernels",
    "medium": "500 us kernels",
    "long": "50 ms kernels",
    "graph": "graphs of 100 x 5 us",
    "memory": "500 us, memory-bound",
    "sync": "300 us, each waited for",
    "pause": "300 us, each waited for, 2 ms apart",
    "both": "500 us kernels, on two GPUs in turn",
}
NEIGHBOURS = {
    "good": "works on",
    "fault": "writes to an illegal address",
    "assert": "fails an assertion",
    "trap": "traps",
    "SIGKILL": "is killed",
    "hang": "runs an endless kernel",
    "launches": "launches without end and never waits",
    "allocations": "takes and frees memory without end",
}
MODES = {
    "": "isolated",
    "packed": "packed",
    "turns only": "turns only",
    "hardware slices only": "hardware slices only",
    "neither": "the driver's own time-slicing",
}


def parts(held, case):
    """(kind, asked, delivered, least and most in a second) for each tenant, in percentage points
    of what a whole GPU does natively."""
    out = []
    for asked, answer in zip(case["asked"], case["answers"]):
        if answer is None:
            continue
        counts = shares.Counts(
            answer, case.get("processors", held.get("processors")), shares.settle_of(case["case"])
        )
        alone = case.get("alone", held.get("alone", {}))[answer["kind"]][0] / 100
        seconds = [rate / alone for rate in counts.rates_by_second()] or [float("nan")]
        wanted = 100 * float(fractions.Fraction(asked))
        out.append((answer["kind"], wanted, counts.rate() / alone, min(seconds), max(seconds)))
    return out


def number(value):
    return f"{value:.2f}"


def span(values):
    return f"{min(values):.2f}" if len(values) == 1 else f"{min(values):.2f} to {max(values):.2f}"


def alone_table(held):
    lines = [
        "| Alone, pieces per second | natively | whole GPU | half, lent the rest |",
        "|---|---|---|---|",
    ]
    for kind, rates in held.get("alone", {}).items():
        ours = [f"{100 * rate / rates[0]:.1f} %" for rate in rates[1:]] + [""] * (3 - len(rates))
        lines.append(f"| {WORK[kind]} | {rates[0]:,.0f} | " + " | ".join(ours) + " |")
    return lines


def case_rows(case, rows):
    """A line for each tenant. Many tenants that are alike share one line."""
    total = number(sum(row[2] for row in rows))
    lines, name = [], case["case"]
    alike = {}
    for at, row in enumerate(rows):
        alike.setdefault(row[:2] if len(rows) > 7 else at, []).append(row)
    for same in alike.values():
        within = f"{min(row[3] for row in same):.2f} to {max(row[4] for row in same):.2f}"
        asked = number(same[0][1]) + (" each" if len(same) > 1 else "")
        got = span([row[2] for row in same])
        lines.append(f"| {name} | {WORK[same[0][0]]} | {asked} | {got} | {within} | {total} |")
        name = total = ""
    return lines


def share_table(held):
    lines = [
        "| Tenants | Work | Asked | Delivered | Over any second | Sum |",
        "|---|---|---|---|---|---|",
    ]
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
                got = (
                    [number(row[2]) for row in rows]
                    if len(rows) < 8
                    else [span([row[2] for row in rows])]
                )
                total = number(sum(row[2] for row in rows))
                lines.append(f"| {name} | {MODES[case['mode']]} | {' + '.join(got)} | {total} |")
    return lines


def latency_table(held):
    lines = [
        (
            "| 300 us, each waited for, 2 ms apart; priority | p50 | p90 | p99 | the neighbour's"
            " pieces/s |"
        ),
        "|---|---|---|---|---|",
    ]
    for name, latency in held.get("priority", {}).items():
        if latency:
            times = " | ".join(f"{latency[place]:,.0f} us" for place in ("p50", "p90", "p99"))
            rate = f"{latency['neighbour_per_s']:,.1f}" if "neighbour_per_s" in latency else ""
            lines.append(f"| {name} | {times} | {rate} |")
    return lines


def seconds_text(value):
    return "" if value is None else f"{value:.2f} s"


def neighbours_table(held):
    lines = [
        (
            "| The neighbour | what it leaves, of what a good one does | worst second | lease gone"
            " | memory free |"
        ),
        "|---|---|---|---|---|",
    ]
    for kind, one in held.get("neighbours", {}).items():
        got = [f"{100 * one[name]:.1f} %" for name in ("of_good", "worst_second")]
        back = [seconds_text(one[name]) for name in ("slot_s", "memory_s")]
        lines.append("| " + " | ".join([NEIGHBOURS[kind], *got, *back]) + " |")
    return lines


def torch_table(held):
    """Many PyTorch programs at once: attach times, steps of each, memory got before there was no
    more."""
    lines = [
        (
            "| PyTorch programs | lease granted, program started | GPU's first answer | training"
            " steps/s | inferences/s | least in a second | memory shown, used, got at most |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for name, facts in held.get("torch", {}).items():
        answers = [answer for answer in facts["answers"] if answer]
        rates = {
            kind: [shares.Counts(answer).rate() for answer in answers if answer["kind"] == kind]
            for kind in ("train", "infer")
        }
        least = min(
            (n for answer in answers for n in shares.Counts(answer).rates_by_second()), default=0
        )
        memory = share_torch.memory_of(answers)
        sizes = [memory["total"], memory["peak"], memory["filled"][1]] if memory else []
        times = [
            f"within {max(facts[word]):.2f} s" if facts[word] else ""
            for word in ("started", "attached")
        ]
        steps = [span(rates[kind]) if rates[kind] else "" for kind in ("train", "infer")]
        alive, sizes = f"{name}, {len(answers)} ended well", ", ".join(
            f"{size / 2**20:.0f} MiB" for size in sizes
        )
        lines.append("| " + " | ".join([alive, *times, *steps, number(least), sizes]) + " |")
    return lines


def resnet_table(held):
    lines = ["| ResNet-50, training, 64 images | images/s | of native |", "|---|---|---|"]
    native = sum(held.get("resnet", {}).get("natively", []))
    for name, rates in held.get("resnet", {}).items():
        text = " + ".join(f"{rate:.0f}" for rate in rates) + (
            f" = {sum(rates):.0f}" if len(rates) > 1 else ""
        )
        of_native = f"{100 * sum(rates) / native:.1f} %" if native else ""
        lines.append(f"| {name} | {text} | {of_native} |")
    return lines


def attach_table(held):
    lines = ["| Programs that attach at once | first | half of them | all |", "|---|---|---|---|"]
    for name, times in held.get("attach", {}).items():
        at = times["attached"]
        if at:
            lines.append(
                f"| {name} | {min(at):.2f} s | {statistics.median(at):.2f} s | {max(at):.2f} s"
                f" ({len(at)}) |"
            )
    return lines


def plot(held):
    """Delivered against asked, both in per cent: a dot for each tenant, and the line where they
    should be."""
    size, margin = 420, 50
    at = lambda value: margin + value / 100 * (size - 2 * margin)
    dot = lambda x, y, colour: (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}" fill-opacity="0.6"/>'
    )
    look = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11"'
    out = [
        f'<svg {look} width="{size}" height="{size}">',
        f'<rect width="{size}" height="{size}" fill="white"/>',
        (
            f'<path d="M{at(0)} {size - at(0)} L{at(100)} {size - at(100)}" stroke="gray"'
            ' stroke-dasharray="4"/>'
        ),
        (
            f'<path d="M{at(0)} {size - at(100)} V{size - at(0)} H{at(100)}" stroke="black"'
            ' fill="none"/>'
        ),
        f'<text x="{size / 2 - 60}" y="{size - 12}">share asked for, %</text>',
        (
            f'<text x="14" y="{size / 2 + 60}" transform="rotate(-90 14 {size / 2 + 60})">share'
            " delivered, %</text>"
        ),
    ]
    for tick in (0, 25, 50, 75, 100):
        out.append(f'<text x="{at(tick) - 8}" y="{size - at(0) + 16}">{tick}</text>')
        out.append(f'<text x="{at(0) - 26}" y="{size - at(tick) + 4}">{tick}</text>')
    for mode, colour in (("neither", "#d55e00"), ("", "#0072b2")):
        for case in held["cases"]:
            for _, asked, got, _, _ in parts(held, case) if case["mode"] == mode else []:
                out.append(dot(at(asked), size - at(got), colour))
    for i, (text, colour) in enumerate(
        (("isolated slices", "#0072b2"), ("the driver's own time-slicing", "#d55e00"))
    ):
        out.append(dot(margin + 16, margin + 6 + 16 * i, colour))
        out.append(f'<text x="{margin + 26}" y="{margin + 10 + 16 * i}">{text}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def tables(held):
    head = [
        "Measured with `run_all --only shares`: " + ";\n".join(held["source"]) + ".",
        (
            "Figures are per cent of what the same program does natively and alone; tenants always"
            " have work queued,"
        ),
        "unless it says otherwise.",
    ]
    rest = [
        alone_table(held),
        share_table(held),
        ["![delivered against asked share](shares.svg)"],
        mode_table(held),
        latency_table(held),
        neighbours_table(held),
        attach_table(held),
        torch_table(held),
        resnet_table(held),
    ]
    return "\n\n".join(
        "\n".join(part) for part in [head, *(part for part in rest if len(part) != 2)]
    )


def merged(runs):
    """One run's facts out of several. Of what was measured again the later one counts, compared
    with its own whole."""
    out = {"source": [], "cases": []}
    for held in runs:
        out["source"].append(held.get("source", ""))
        own = {"alone": held.get("alone", {}), "processors": held.get("processors")}
        cases = [case | own for case in held.get("cases", [])]
        again = {(case["case"], case["mode"]) for case in cases}
        out["cases"] = [
            case for case in out["cases"] if (case["case"], case["mode"]) not in again
        ] + cases
        for name in ("priority", "neighbours", "attach", "torch", "resnet"):
            out[name] = out.get(name, {}) | held.get(name, {})
        known = out.setdefault(
            "alone", {}
        )  # where only natively was measured again, a whole row stays
        known.update(
            {
                kind: rates
                for kind, rates in own["alone"].items()
                if len(rates) >= len(known.get(kind, []))
            }
        )
    return out


def main():
    parser = argparse.ArgumentParser(prog="share_tables.py")
    parser.add_argument("--print", action="store_true", help="print instead of writing")
    parser.add_argument("results", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    held = merged([json.loads(path.read_text()) for path in args.results])
    text = tables(held)
    if args.print:
        print(text)
        return
    pages.write(PAGE, "share_tables.py", text)
    PLOT.write_text(plot(held))


if __name__ == "__main__":
    main()
