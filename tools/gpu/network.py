# SPDX-License-Identifier: Apache-2.0
"""The same training and inference natively and over longer lines, which the client emulates
(TENDRIL_LINK), in turns. gpu_run.py calls it as its group `network`, when nothing else runs.

Prints for each network and workload: milliseconds a step, the share of native's speed, round
trips and bytes of a step, and the least time that the bytes need on such a line. That shows
whether data or latency limits the step. The lines are measured in the same processes
(frameworks/bench_models.py), so claimed and measured stand side by side.
"""

import json
import os

import catalog
import meters
import sides

ROUNDS, SECONDS = 3, 0.5
SETUP_S = 60
MODELS = [
    "resnet50-train-b64",
    "resnet50-train-b64-fed",
    "resnet50-train-b256",
    "resnet50-infer-b1",
    "resnet50-infer-b1-fed",
    "resnet50-infer-b8",
    "resnet50-infer-b8-fed",
    "resnet50-infer-b256",
    "gpt2-train-8x512",
    "gpt2-generate-32",
]
# Of a training step whose loss is read: that wait, and a copy's before it. Traces of native
# training have one or two calls that must wait.
TRIPS_MOST = 2.5
# Name, microseconds one way, MB/s.
NETWORKS = [
    ("10 Gb/s, 50 us", 25, 1250),
    ("25 Gb/s, 20 us", 10, 3125),
    ("100 Gb/s, 5 us", 2, 12500),
    ("1 Gb/s, 500 us", 250, 125),
]


def wire_ms(figures, megabytes):
    """Both ways at once: the longer of the two."""
    return max(figures["out"], figures["back"]) / megabytes / 1000


def compared(title, seen, native, microseconds, megabytes):
    line = seen.get("line")
    lines = [
        f"{title}: "
        + (
            "no line"
            if line is None
            else (
                f"an empty wait takes {line['wait_us']:.0f} us (native"
                f" {native.get('line', {}).get('wait_us', 0):.0f}, the line's part"
                f" {2 * microseconds}), 64 MB go at {line['mb_per_s_out']:.0f} and come at"
                f" {line['mb_per_s_back']:.0f} MB/s (claimed {megabytes})"
            )
        )
    ]
    lines.append(
        f"  {'':24}{'native ms':>10}{'ms':>10}{'share':>8}{'of single turns':>16}{'trips':>8}"
        f"{'MB out':>8}{'MB back':>8}{'wire ms':>9}"
        "  limited by"
    )
    for name, figures in seen.items():
        alone = native.get(name)
        if name == "line" or alone is None:
            continue
        wire, (share, least, most) = wire_ms(figures, megabytes), meters.ratio(alone, figures)
        by = "data" if wire > 0.8 * figures["ms"] else "" if share > 0.97 else "latency"
        lines.append(
            f"  {name:24}{alone['ms']:10.2f}{figures['ms']:10.2f}{100 * share:7.1f}%"
            f"{f'{100 * least:.1f}-{100 * most:.1f}%':>16}{figures['trips']:8.1f}"
            f"{figures['out'] / 1e6:8.2f}{figures['back'] / 1e6:8.2f}{wire:9.2f}  {by}"
        )
    return lines


def too_many_trips(whole, title, seen):
    """A call that the client could answer must not cross the line in each step of training."""
    found = [
        f"{title}: {name} takes {figures['trips']:.1f} ROUND TRIPS A STEP, {TRIPS_MOST} at most"
        for name, figures in seen.items()
        if "-train-" in name and figures["trips"] > TRIPS_MOST
    ]
    whole.broken += found
    return found


def start_all(whole, here, field):
    """Natively, and for each network a process with a server of its own."""
    argv = [os.environ.get("PYTHON", "python3"), str(here / "frameworks/bench_models.py")]
    native = whole.sides["native"]
    field.start(native, "network", argv, catalog.FRAMEWORK_ENV)
    for number, (title, microseconds, megabytes) in enumerate(NETWORKS):
        server = whole.start_server(f"network-{number}", dict(os.environ))
        side = sides.Side(server.name, whole.work, whole.logs, native.environment, [server], "tcp")
        line = {"TENDRIL_LINK": f"{microseconds}:{megabytes}"}
        field.start(side, "network", argv, catalog.FRAMEWORK_ENV | line, title)


def measure(whole, here, words=()):
    """All of it as text; also as network.json in $OUT. `whole` is gpu_run's Run."""
    if "native" not in whole.sides:
        return "network: nothing to compare with"
    facts, field = {}, meters.Field(lambda line: whole.say("network: " + line))
    try:
        start_all(whole, here, field)
        if field.ready():
            for meter in field.meters:  # one by one: they share a host
                if not meter.gone:
                    facts[meter.name] = {"line": field.told(meter, "line", meter.ask("line", 60))}
        for name in MODELS if facts else []:
            if whole.left() < 30 or words and not any(word in name for word in words):
                continue
            turns = field.compare(name, ROUNDS, SECONDS, SETUP_S)
            for side, answers in turns.items():
                figures = meters.summary(answers)
                if figures:
                    facts[side][name] = figures
            shown = [f"{facts[side][name]['ms']:.2f}" for side in turns if name in facts[side]]
            whole.say(f"network: {name}: {', '.join(shown)} ms")
            (whole.out / "network.json").write_text(json.dumps(facts, indent=1))
    finally:
        field.end()
    text = []
    for title, microseconds, megabytes in NETWORKS:
        seen = facts.get(title, {})
        text += too_many_trips(whole, title, seen)
        text += compared(title, seen, facts.get("native", {}), microseconds, megabytes)
    return "\n".join(text)
