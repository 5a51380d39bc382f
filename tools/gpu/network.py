# SPDX-License-Identifier: Apache-2.0
"""The same training and inference natively and over longer lines, which the client emulates (TENDRIL_LINK). Called by gpu_run.py as its
group `network`, one process after another.

Prints for each network and workload: milliseconds a step, the share of native's speed, round trips and bytes of a step, and the least
time that the bytes need on such a line, which tells whether data limits the step or latency does. The lines themselves are measured in
the same process (bench_network.py): claimed and seen stand beside each other.
"""
import json
import os
import re

SECONDS = 2.0
# Of a training step whose loss is read: that wait, and a copy's before it. Traces of native training have one or two calls that must wait.
TRIPS_MOST = 2.5
LIMIT_S = 110
# Name, microseconds one way, MB/s.
NETWORKS = [("10 Gb/s, 50 us", 25, 1250), ("25 Gb/s, 20 us", 10, 3125), ("100 Gb/s, 5 us", 2, 12500),
            ("1 Gb/s, 500 us", 250, 125)]
LINE = re.compile(r"^network (\S+) (.*)$", re.M)


def read(text):
    """{workload: {key: value}}."""
    return {name: {key: float(value) for key, value in (word.split("=") for word in words.split())}
            for name, words in LINE.findall(text)}


def wire_ms(figures, megabytes):
    """Both ways at once: the longer of the two."""
    return max(figures["out"], figures["back"]) / megabytes / 1000


def compared(title, seen, native, microseconds, megabytes):
    line = seen.get("line")
    lines = [f"{title}: " + ("no line" if line is None else
             f"an empty wait takes {line['wait_us']:.0f} us (native {native.get('line', {}).get('wait_us', 0):.0f}, "
             f"the line's part {2 * microseconds}), 64 MB go at {line['mb_per_s_out']:.0f} and come at "
             f"{line['mb_per_s_back']:.0f} MB/s (claimed {megabytes})")]
    lines.append(f"  {'':24}{'native ms':>10}{'ms':>10}{'share':>8}{'trips':>8}{'MB out':>8}{'MB back':>8}"
                 f"{'wire ms':>9}  limited by")
    for name, figures in seen.items():
        if name == "line":
            continue
        alone = native.get(name, {}).get("ms")
        wire = wire_ms(figures, megabytes)
        by = "data" if wire > 0.8 * figures["ms"] else "" if alone and alone > 0.97 * figures["ms"] else "latency"
        lines.append(f"  {name:24}{alone or float('nan'):10.2f}{figures['ms']:10.2f}"
                     f"{(alone or float('nan')) / figures['ms'] * 100:7.1f}%{figures['trips']:8.1f}"
                     f"{figures['out'] / 1e6:8.2f}{figures['back'] / 1e6:8.2f}{wire:9.2f}  {by}")
    return lines


def too_many_trips(whole, title, seen):
    """A call that could be answered in the client must not cross the line in each step of training."""
    found = [f"{title}: {name} takes {figures['trips']:.1f} ROUND TRIPS A STEP, {TRIPS_MOST} at most"
             for name, figures in seen.items() if "-train-" in name and figures["trips"] > TRIPS_MOST]
    whole.broken += found
    return found


def measure(whole, here):
    """All of it as text; also as network.json in $OUT. `whole` is gpu_run's Run."""
    python = os.environ.get("PYTHON", "python3")
    facts, text = {}, []
    remote = whole.sides.get("tcp")
    runs = [("native", whole.sides.get("native"), {}, 0, 0)]
    runs += [(title, remote, {"TENDRIL_LINK": f"{microseconds}:{megabytes}"}, microseconds, megabytes)
             for title, microseconds, megabytes in NETWORKS]
    for title, side, extra, microseconds, megabytes in runs:
        if side is None or whole.left() < 20:
            text.append(f"{title}: " + ("this side does not run" if side is None else "no time left"))
            continue
        environment = {"PYTHONFAULTHANDLER": "1", "HF_HUB_OFFLINE": "1", **extra}
        outcome = side.run("network-" + title, [python, str(here / "frameworks/bench_network.py"), str(SECONDS)],
                           environment, side.work, min(LIMIT_S, whole.left()), False)
        facts[title] = read(outcome.stdout)
        ended = "" if outcome.status == 0 else f", {'hang' if outcome.timed_out else f'exit {outcome.status}'}: " + (
            outcome.stderr.strip().splitlines() or outcome.stdout.strip().splitlines() or [""])[-1][:160]
        whole.say(f"network: {title}: {len(facts[title])} lines in {outcome.seconds:.0f} s{ended}")
        if title != "native":
            text += too_many_trips(whole, title, facts[title])
            text += compared(title, facts[title], facts.get("native", {}), microseconds, megabytes)
        if ended:
            text.append(f"  {title}{ended}")
    (whole.out / "network.json").write_text(json.dumps(facts, indent=1))
    return "\n".join(text)
