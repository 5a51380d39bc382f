# SPDX-License-Identifier: Apache-2.0
"""The figures: native, bare transport and Tendril, one program at a time. gpu_run.py calls it
last, when everything else is quiet.

Prints measurements and judges one thing only: that the number of round trips does not grow
with the number of launches.
"""

import json
import os
import re
import statistics
import subprocess

from sides import Side, run_process

FEW, MANY = 2000, 52000


def run(whole, side, label, argv, limit_s=60, stats=False):
    limit_s = min(limit_s, max(5, whole.left()))
    return side.run("bench-" + label, argv, {"PYTHONFAULTHANDLER": "1"}, side.work, limit_s, stats)


def figures(text):
    """What tendril-bench prints as JSON, or the `name  value unit ...` lines of bench_torch.py, as
    {name: value}."""
    found = re.search(r"^tendril-bench (\{.*\})$", text, re.M)
    if found:
        return json.loads(found[1])
    return {
        match[1].strip(): float(match[2])
        for match in re.finditer(
            r"^(\S[A-Za-z0-9+(), -]*?)\s{2,}([0-9.]+) (?:us|ms|GB/s|launches/s)", text, re.M
        )
    }


def medians(runs):
    """The median figures of several runs."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: statistics.median(run[name] for run in runs if name in run) for name in names}


def ratios(runs):
    """Ratios of each side's turns to native's of the same round, because the host's speed
    changes: {side: {name: median}}."""
    native = runs.get("native", [])
    return {
        side: medians(
            [
                {name: turn[name] / beside[name] for name in turn if beside.get(name)}
                for turn, beside in zip(turns, native)
            ]
        )
        for side, turns in runs.items()
        if native and side != "native"
    }


def block(title, columns):
    names = dict.fromkeys(figure for column in columns.values() for figure in column)
    lines = [f"{title:34}" + "".join(f"{head:>12}" for head in columns)]
    for figure in names:
        cells = "".join(f"{column.get(figure, float('nan')):12.2f}" for column in columns.values())
        lines.append(f"  {figure:32}" + cells)
    return lines


def compare_sides(whole, title, label, argv, limit_s=60, rounds=1, sides=None):
    """One program on every side. The sides take turns for several rounds: a block of lines, a
    median each, and its ratio to native's."""
    sides = sides or whole.sides
    runs, problems = {name: [] for name in sides}, []
    for name, side in list(sides.items()) * rounds:
        outcome = run(whole, side, label, argv, limit_s)
        runs[name].append(figures(outcome.stdout))
        if outcome.timed_out or outcome.status != 0:
            problems.append(
                f"  {name}: {'hang' if outcome.timed_out else f'exit {outcome.status}'} "
                f"{(outcome.stderr.strip().splitlines() or [''])[-1][:160]}"
            )
    columns = {name: medians(side_runs) for name, side_runs in runs.items()}
    columns |= {
        f"{side}/native": column for side, column in ratios(runs).items() if side in whole.sides
    }
    return block(title, columns) + problems, columns


def round_trips(whole, program):
    """The same program twice, with more launches the second time: the difference in round trips
    is the cost of launches."""
    lines = [
        f"{'round trips of launch_rate':34}{'launches':>12}{'calls sent':>12}{'round trips':>12}"
    ]
    facts = {}
    for name, side in whole.sides.items():
        if not side.servers:
            continue
        few = run(whole, side, f"trips-{FEW}", [program, str(FEW)], stats=True)
        many = run(whole, side, f"trips-{MANY}", [program, str(MANY)], stats=True)
        for count, outcome in ((FEW, few), (MANY, many)):
            who = f"{name} over {outcome.transport or '?'}"
            lines.append(f"  {who:32}{count:12}{outcome.calls:12}{outcome.round_trips:12}")
        if few.status == 0 and many.status == 0 and few.transport and many.transport:
            growth = (many.round_trips - few.round_trips) / (MANY - FEW)
            facts[name] = growth
            says = "does not grow" if growth < 0.001 else "GROWS"
            lines.append(f"  {'':32}{growth:.5f} round trips per launch: {says}")
        else:
            lines.append(f"  {'':32}no answer: exit {few.status} and {many.status}")
    return lines, facts


def bare(binaries, name, *arguments):
    """What a program without Tendril prints: the bare transports, the driver's own prices."""
    program = binaries / "bin" / name
    if not program.exists():
        return [f"{name} was not carried"]
    try:
        done = subprocess.run(
            [str(program), *arguments], capture_output=True, text=True, timeout=90
        )
    except subprocess.TimeoutExpired:
        return [f"{name} ran past 90 s"]
    return [name] + ["  " + line for line in (done.stdout + done.stderr).splitlines()]


def idle_sides(whole):
    """The servers' driver does nothing here, so a program waits only for Tendril and the line."""
    library = whole.binaries / "lib/libtendril-idle-driver.so"
    if not library.exists():
        whole.say(f"bench: {library.name} was not carried")
        return {}
    server = whole.start_server("idle", dict(os.environ), driver=library)
    env = next(side.environment for side in whole.sides.values())
    return {
        f"idle {transport}": Side(
            f"idle-{transport}", whole.work, whole.logs, env, [server], transport
        )
        for transport in ("tcp", "shm")
    }


class Channels:
    """What sockets and shared memory do by themselves, measured several times, because the
    host's speed changes."""

    def __init__(self, whole):
        self.whole, self.seen = whole, {"bare tcp": [], "bare shm": []}

    def look(self):
        for name, looks in self.seen.items():
            lines = bare(self.whole.binaries, "tendril-bench", *name.split(), "4")
            looks.append(figures("\n".join(line.strip() for line in lines)))

    def columns(self):
        return {name: medians(looks) for name, looks in self.seen.items()}


def doctor(whole):
    """What `tendril doctor` says of the way to each server."""
    lines = []
    for name, side in whole.sides.items():
        if not side.servers:
            continue
        log = side.logs / "bench-doctor.out"
        argv = [str(whole.binaries / "bin/tendril"), "doctor", "-s", side.servers[0].address()]
        env = side.environment_for({}, None)
        run_process(argv, env, side.work, 20, log, side.logs / "bench-doctor.err")
        lines += [f"tendril doctor, {name}"] + [
            "  " + line for line in log.read_text().splitlines()
        ]
    return lines


def measure(whole, here):
    """All measurements as text; also as bench.json in $OUT. `whole` is gpu_run's Run."""
    programs = whole.binaries / "bin/programs"
    python = os.environ.get("PYTHON", "python3")
    facts, text = {}, []
    idle, channels = idle_sides(whole), Channels(whole)
    steps = [
        ("calls", "calls", [str(whole.binaries / "bin/tendril-bench"), "calls"], 60, 7),
        ("waits", "waits", [str(whole.binaries / "bin/tendril-bench"), "waits"], 30, 7),
        ("copies", "copies", [str(whole.binaries / "bin/tendril-bench"), "copies"], 90, 2),
        (
            "PyTorch (us, ms, GB/s)",
            "torch",
            [python, str(here / "frameworks/bench_torch.py")],
            120,
            1,
        ),
    ]
    for title, label, argv, limit_s, rounds in steps:
        if whole.left() < 30:
            text.append(f"{title}: no time left")
            continue
        sides = whole.sides | idle if label == "waits" else whole.sides
        lines, facts[label] = compare_sides(whole, title, label, argv, limit_s, rounds, sides)
        text += lines + [""]
        channels.look()
        whole.say(f"bench: {label} done")
        if label == "calls":
            lines, facts["round_trips_per_launch"] = round_trips(
                whole, str(programs / "launch_rate")
            )
            text += lines + [""]
    if whole.left() > 30:
        text += bare(whole.binaries, "tendril_transport_bench")
        channels.look()
        facts["channels"] = channels.columns()
        text += [""] + block("channels", facts["channels"])
    if whole.left() > 30:
        text += [""] + bare(whole.binaries, "tendril_driver_bench", whole.args.driver or "")
    if whole.left() > 30:
        text += [""] + doctor(whole)
    (whole.out / "bench.json").write_text(json.dumps(facts, indent=1))
    return "\n".join(text)
