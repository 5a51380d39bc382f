# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/several-servers.md from what servers.py measured.

  tools/gpu/server_tables.py servers.json...
"""

import json
import sys

import meters

# Bytes on the wire for each byte of a call, with two ranks: what nccl-tests calls bus bandwidth.
BUS = {"all_reduce": 1.0, "all_gather": 0.5, "reduce_scatter": 0.5, "alltoall": 0.5}
SIDES = ("native", "two", "nvlink", "one", "local", "mixed")
MIB = 1 << 20


def size_text(size):
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def rate(row, name):
    """GB/s of the bus."""
    return row["bytes"] * BUS.get(row["function"], 1.0) / row[name] / 1e3


def row_text(row):
    found = [f"{row['mode']} {row['how']} {row['function']} {size_text(row['bytes'])}:"]
    for name in SIDES:
        if name in row:
            wrong = f" WRONG {row[name + ' wrong']}" if row[name + " wrong"] else ""
            found.append(f"{name} {row[name]:.1f} us {rate(row, name):.2f} GB/s{wrong}")
    for ours, theirs in (("two", "native"), ("one", "nvlink")):
        if ours in row and theirs in row:
            found.append(f"{theirs}/{ours} {row[theirs] / row[ours]:.3f}")
    return " ".join(found)


def reference(name):
    """Which native run a side is compared with: the one that moves data as it does."""
    return "nvlink" if name in ("one", "local") else "native"


def add_ratios(sides):
    """To each side's figures its time over native's of the turns before and after it."""
    first = sides.get("native") or sides.get("sockets")
    for name, figures in sides.items():
        if name == "turns" or figures is None or figures is first or first is None:
            continue
        middle, least, most = meters.ratio(first, figures)
        figures["of native"] = (1 / middle, 1 / most, 1 / least)


def steps_text(sides):
    found = []
    for name, figures in sides.items():
        if name == "turns" or figures is None:
            continue
        text = f"{name} {figures['ms']:.2f} ms"
        if "of native" in figures:
            text += " = {:.3f} ({:.3f}-{:.3f})".format(*figures["of native"])
        if figures["out"]:
            text += f" ({figures['trips']:.1f} trips, {figures['out'] / 1e6:.3f} MB out)"
        found.append(text)
    return " | ".join(found)


def memory_text(held):
    """Each look against the first one, in MiB."""
    first, found = held[0], []
    for look in held[1:]:
        taken = [(now - then) / MIB for now, then in zip(look["used"], first["used"])]
        text = f"{look['when']}: NVML {taken[0]:+.0f} {taken[1]:+.0f}"
        if look["free"] and first["free"]:
            gone = [(then - now) / MIB for now, then in zip(look["free"], first["free"])]
            text += ", free " + " ".join(f"{-value:+.0f}" for value in gone)
        if look["charged"]:
            more = [(now - then) / MIB for now, then in zip(look["charged"], first["charged"])]
            text += ", charged " + " ".join(f"{value:+.0f}" for value in more)
        found.append(text)
    return "; ".join(found)


def collectives(rows):
    lines = [
        "| ranks | how | call | bytes | native us | Tendril us | bus GB/s | bandwidth, of native |"
        " NVLink us | Tendril, one server us | of NVLink |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cell = lambda name: f"{row[name]:.1f}" if name in row else "-"
        part = lambda ours, theirs: (
            f"{row[theirs] / row[ours]:.3f}" if ours in row and theirs in row else "-"
        )
        bus = f"{rate(row, 'two'):.2f}" if "two" in row else "-"
        lines.append(
            f"| {row['mode']} | {row['how']} | {row['function']} | {size_text(row['bytes'])} |"
            f" {cell('native')} | {cell('two')} | {bus} | {part('two', 'native')} |"
            f" {cell('nvlink')} | {cell('one')} | {part('one', 'nvlink')} |"
        )
    return lines


def programs(facts):
    lines = ["| program | side | ms a step | of native | round trips | MB out | MB back |"]
    lines.append("|---|---|---|---|---|---|---|")
    for program, sides in facts.items():
        if not isinstance(sides, dict) or "turns" not in sides:
            continue
        for name, figures in sides.items():
            if name == "turns" or figures is None:
                continue
            theirs = sides.get(reference(name))
            ratio = f"{figures['ms'] / theirs['ms']:.3f}" if theirs else "-"
            if "of native" in figures and reference(name) == "native":
                ratio = "{:.3f} ({:.3f}-{:.3f})".format(*figures["of native"])
            lines.append(
                f"| {program} | {name} | {figures['ms']:.2f} | {ratio} | {figures['trips']:.1f} |"
                f" {figures['out'] / 1e6:.3f} | {figures['back'] / 1e6:.3f} |"
            )
    return lines


def tables(facts):
    lines = []
    for name in ("collectives", "links"):
        if facts.get(name, {}).get("rows"):
            lines += ["", f"## {name}", *collectives(facts[name]["rows"])]
    for name in ("torch", "jax"):
        if facts.get(name):
            lines += ["", f"## {name}", *programs(facts[name])]
    return "\n".join(lines)


def main():
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            held = json.load(file)
        print("# " + " | ".join(f"{k} {v}" for k, v in held["run"].items() if k != "servers"))
        print(tables(held["found"]))


if __name__ == "__main__":
    main()
