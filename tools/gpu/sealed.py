# SPDX-License-Identifier: Apache-2.0
"""What sealing costs on TCP: waits and copies natively, over a server that never seals and over one
that always does, in turns; and the processor time of both ends for each gigabyte. gpu_run.py
calls it as its group `sealed`, when nothing else runs.

The program (probes/bench_line.py) counts its own processor time. Here the server's is read,
with its workers'.
"""

import os
import statistics

import meters
import sides
import starts
from steps import Steps

TOKEN = "a token for a server that seals"
ROUNDS, SECONDS = 3, 0.5
KIB, MIB = 1 << 10, 1 << 20
COPIES = [
    (f"{kind}-{way}", size)
    for kind, sizes in (("pageable", (4 * KIB, 64 * KIB, MIB, 256 * MIB)), ("pinned", (256 * MIB,)))
    for size in sizes
    for way in ("to", "from")
]
MODES = {"in clear": "never", "sealed": "always"}


class Sealed(Steps):
    def __init__(self, whole, here):
        super().__init__(whole, here, "sealed")
        self.field, self.served = meters.Field(self.say), {}

    def start(self):
        token_file = self.whole.work / "token"
        token_file.write_text(TOKEN)
        token_file.chmod(0o600)
        environment = self.whole.environment_of_programs
        argv = self.script("bench_line.py")
        native = sides.Side("native", self.whole.work, self.whole.logs, environment)
        self.field.start(native, "sealed", argv, {})
        for mode, seal in MODES.items():
            options = ["--token-file", str(token_file), "--encrypt", seal]
            server = self.server(f"sealed-{seal}", options)
            side = sides.Side(
                server.name, self.whole.work, self.whole.logs, environment, [server], "tcp"
            )
            token = {"TENDRIL_TOKEN_FILE": str(token_file), "TENDRIL_LOG": "info"}
            self.field.start(side, "sealed", argv, token, mode)
            self.served[mode] = server.process.pid
        return self.field.ready()

    def turns(self, command):
        """{side: answers}; the sides take turns."""
        answers = {meter.name: [] for meter in self.field.meters}
        for meter in self.field.meters * ROUNDS:
            usage = starts.Usage(self.served[meter.name]) if meter.name in self.served else None
            answer = self.field.told(meter, command, meter.ask(f"{command} {SECONDS}", 60))
            if usage:
                answer = answer | {"served_s": usage.since()}
            answers[meter.name].append(answer)
        return answers

    def measure(self, title, command, size=0):
        turns = self.turns(command)
        facts = self.facts[title] = {"turns": turns}
        line = f"{title:28}"
        for name, answers in turns.items():
            if any("error" in answer for answer in answers):
                line += f" | {name}: no answer"
                continue
            figure = facts[name] = summary(answers, size)
            line += f" | {name} {figure['us']:.1f} us"
            if size:
                line += f" = {figure['gb_per_s']:.2f} GB/s"
            line += f", processor {figure['client']:.3f}"
            if "server" in figure:
                line += f" and {figure['server']:.3f}"
            line += " s/GB" if size else " us each"
        self.say(line)
        self.write()
        return facts


def summary(answers, size):
    """Medians of turns. Processor time: seconds a gigabyte, or microseconds a wait."""
    middle = lambda values: statistics.median(values)
    unit = lambda answer: answer["times"] * size / 1e9 if size else answer["times"] / 1e6
    figure = {
        "us": middle([answer["us"] for answer in answers]),
        "client": middle([answer["processor_s"] / unit(answer) for answer in answers]),
    }
    if "served_s" in answers[0]:
        figure["server"] = middle([answer["served_s"] / unit(answer) for answer in answers])
    if size:
        figure["gb_per_s"] = size / figure["us"] / 1e3
    return figure


def measure(whole, here, words=()):
    """All of it as text; also as sealed.json in $OUT. `whole` is gpu_run's Run."""
    s = Sealed(whole, here)
    s.facts["cores"] = os.cpu_count()
    try:
        if not s.start():
            return "sealed: the native side does not start"
        s.run_all([("wait", 15, lambda: s.measure("launch and wait", "wait"))], words)
        for kind, size in COPIES:
            name = f"{kind} {size >> 10} KiB"
            step = lambda name=name, kind=kind, size=size: s.measure(
                name, f"copy {kind} {size}", size
            )
            s.run_all([(name, 15, step)], words)
        for mode in MODES:
            log = next(m.log for m in s.field.meters if m.name == mode)
            told = [
                line for line in log.read_text().splitlines() if "sealed" in line or "tcp" in line
            ]
            s.say(f"{mode}, as the client says it: {told[-1:]}")
    finally:
        s.field.end()
    s.write()
    return "\n".join(s.lines)
