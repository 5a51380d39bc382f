# SPDX-License-Identifier: Apache-2.0
"""Whole models beside native: training, generation, compiled code, graph replay, a JAX loop.
Then starting, and what a launch costs each processor (starts.py). gpu_run.py calls it as its
group `speed`, when nothing else runs.

The sides' processes live at once and take turns (meters.py). The GPU's part of a step is
measured natively. If it is well below the step's time, native waits for its own processor, so
a faster step than native's is no surprise. Judges nothing. speed.json has every block,
results.json the summary, and speed_tables.py writes docs/performance.md from it.
"""

import json
import os
import subprocess

import catalog
import meters
import starts

ROUNDS, SECONDS = 12, 0.3
MODELS = [
    "resnet50-train-b64",
    "gpt2-train-8x512",
    "gpt2-generate-32",
    "gpt2-compiled-8x128",
    "resnet50-replay-b8",
]
LOOPS = ["jax-transformer-train-8x512"]
IDLE_S = 2.0
SETUP_S = 90
# XLA chooses algorithms by timing them: each process would run other kernels.
JAX_ENV = {"XLA_FLAGS": "--xla_gpu_autotune_level=0", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def clocks():
    """What the GPU runs at, and why not faster."""
    ask = "clocks.sm,clocks.max.sm,power.draw,clocks_event_reasons.active"
    try:
        asked = subprocess.run(
            ["nvidia-smi", f"--query-gpu={ask}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip()


class Speed:
    def __init__(self, whole, here, words):
        self.whole, self.here, self.words = whole, here, words
        self.facts, self.raw, self.lines = {"models": {}, "idle": {}}, {}, []

    def say(self, line):
        self.lines.append(line)
        self.whole.say("speed: " + line)

    def write(self):
        self.whole.facts["speed"] = self.facts
        (self.whole.out / "speed.json").write_text(
            json.dumps({"run": self.whole.facts, "raw": self.raw})
        )

    def model(self, field, name):
        """One workload on all sides in turn."""
        turns = field.compare(
            name, ROUNDS, SECONDS, min(SETUP_S, self.whole.left() - 10), but=["watched"]
        )
        sides = {side: meters.summary(answers) for side, answers in turns.items()}
        sides = {side: figures for side, figures in sides.items() if figures is not None}
        native = sides.get("native")
        if native is None:
            return
        self.raw[name] = turns
        held = self.facts["models"][name] = {"sides": sides, "clocks": clocks()}
        watched = field.ask_all("busy", 60, but=self.whole.sides)
        text = f"{name}: native {shown(native)}"
        if "watched" in watched:
            held["busy_ms"] = watched["watched"]["ms"]
            text += f", the GPU works {held['busy_ms']:.3f} of it"
        for side, figures in sides.items():
            if figures is not native:
                figures["ratio"] = meters.ratio(native, figures)
                text += (
                    f" | {side} {shown(figures)} = {told(figures['ratio'])}, {figures['trips']:.1f}"
                    " trips"
                )
        self.say(text)

    def idle(self, field):
        """What a program that does nothing costs: its own processor time and, on the remote
        sides, the server's."""
        watches = {
            name: starts.Usage(side.servers[0].process.pid)
            for name, side in self.whole.sides.items()
            if side.servers
        }
        for side, answer in field.ask_all(f"idle {IDLE_S}", IDLE_S + 15, but=["watched"]).items():
            served = watches[side].since() / (IDLE_S + 0.5) if side in watches else 0.0
            self.facts["idle"][side] = {**answer, "served": served}
            self.say(
                f"idle, {side}: {100 * answer['cpu']:.2f} % of a processor, its server"
                f" {100 * served:.2f} %; {answer['memory']['VmRSS']:.0f} MB resident"
            )

    def program(self, label, script, names, environment, watch=False):
        """A process for each side. With `watch` one more natively, which is not timed, for a
        profiler's hooks stay in the process; and what the processes cost while they do nothing."""
        names = [
            name for name in names if not self.words or any(word in name for word in self.words)
        ]
        if watch and not names:
            names = [
                word for word in self.words if word.count("-") > 1
            ]  # another one, by its whole name
        if not names or "native" not in self.whole.sides or self.whole.left() < 30:
            return
        argv = [os.environ.get("PYTHON", "python3"), str(self.here / "frameworks" / script)]
        environment, field = catalog.FRAMEWORK_ENV | environment, meters.Field(self.say)
        try:
            for side in self.whole.sides.values():
                field.start(side, f"speed-{label}", argv, environment)
            if watch:
                field.start(
                    self.whole.sides["native"],
                    f"speed-{label}-watched",
                    argv,
                    environment,
                    "watched",
                )
            for name in names if field.ready() else []:
                if self.whole.left() > 30:
                    self.model(field, name)
                    self.write()
            if watch:
                self.idle(field)
        finally:
            field.end()
            self.write()


def shown(figure):
    return f"{figure['ms']:.3f} ms ({figure['q1']:.3f}-{figure['q3']:.3f})"


def told(ratio):
    middle, least, most = ratio
    return f"{middle:.3f} ({least:.3f}-{most:.3f})"


def measure(whole, here, words=()):
    """All of it as text."""
    speed = Speed(whole, here, words)
    if not words or "start" in words:
        starts.measure(whole, here, speed.facts, speed.say)
        speed.write()
    speed.program("models", "bench_models.py", MODELS, {}, watch=True)
    speed.program("jax", "bench_jax.py", LOOPS, JAX_ENV)
    speed.write()
    head = (
        "speed: milliseconds of a step: median (quartiles); native's over ours: median of turns"
        " (least-most)"
    )
    return "\n".join([head] + speed.lines)
