# SPDX-License-Identifier: Apache-2.0
"""Programs that measure themselves in turn. There is one process on each side; all are alive at
once, and one works at a time.

The host's speed drifts within minutes. So what is compared is measured within seconds of each
other: native, a remote side, the next one, and native again, several times over, with the
programs' threads on the same processors. frameworks/meter.py is the measured end. Called by
speed.py and network.py.
"""

import glob
import json
import os
import pathlib
import queue
import signal
import statistics
import subprocess
import threading
import time

import sides


class Meter:
    """One process on one side, which gets commands and answers. A missing answer ends it."""

    def __init__(self, side, label, argv, environment, name=""):
        self.name = name or side.name
        for server in side.servers:
            server.ensure()
        self.log = side.logs / f"{label}.err"
        self.error = open(self.log, "wb")
        self.process = subprocess.Popen(
            side.command(argv),
            env=side.environment_for(environment, None),
            cwd=side.work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.error,
            text=True,
            start_new_session=True,
        )
        with sides.RUNNING_LOCK:
            sides.RUNNING.add(self.process)
        self.answers, self.gone = queue.Queue(), ""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("meter {"):
                self.answers.put(json.loads(line[6:]))
        self.answers.put(None)

    def tell(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            pass  # the answer says that it is gone

    def answer(self, limit_s):
        """Figures, or `error`."""
        if self.gone:
            return {"error": self.gone}
        try:
            told = self.answers.get(timeout=max(0.1, limit_s))
        except queue.Empty:
            told, self.gone = {}, f"no answer within {limit_s:.0f} s"
        if told is None:
            self.process.wait()
            last = (self.log.read_text(errors="replace").strip().splitlines() or [""])[-1][:200]
            self.gone = f"ended with {self.process.returncode}: {last}"
        if self.gone:
            self.end()
            return {"error": self.gone}
        return told

    def ask(self, command, limit_s):
        self.tell(command)
        return self.answer(limit_s)

    def end(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass  # commands that it has not had yet
        if self.process.poll() is None:
            try:
                self.process.wait(timeout=0.1 if self.gone else 10)
            except subprocess.TimeoutExpired:
                pass
            sides.end_group(self.process, signal.SIGABRT if self.gone else signal.SIGKILL)
        with sides.RUNNING_LOCK:
            sides.RUNNING.discard(self.process)
        self.reader.join(5)
        for stream in (self.process.stdin, self.process.stdout, self.error):
            stream.close()


class Field:
    """The same program on several sides. The others are compared with the first one. A process
    that is gone takes part no more."""

    def __init__(self, say):
        self.say, self.meters = say, []

    def start(self, *arguments):
        self.meters.append(Meter(*arguments))

    def ready(self, limit_s=60):
        """Whether the first one has begun."""
        for meter in self.meters:
            self.told(meter, "start", meter.answer(limit_s))
        return bool(self.meters) and not self.meters[0].gone

    def told(self, meter, what, answer):
        if "error" in answer:
            self.say(f"{what} on {meter.name}: {answer['error']}")
        return answer

    def ask_all(self, command, limit_s, but=()):
        """{name: answer}, all at once, for what takes no measurement."""
        asked = [meter for meter in self.meters if not meter.gone and meter.name not in but]
        until = time.monotonic() + limit_s
        for meter in asked:
            meter.tell(command)
        answers = {
            meter.name: self.told(meter, command, meter.answer(until - time.monotonic()))
            for meter in asked
        }
        return {name: answer for name, answer in answers.items() if "error" not in answer}

    def compare(self, workload, rounds, seconds, setup_s, but=()):
        """{name: answers of its turns}, for those that can. The first one begins and ends every
        round. Empty if it cannot."""
        made = self.ask_all(f"setup {workload}", setup_s)
        able = [meter for meter in self.meters if meter.name in made and meter.name not in but]
        if not able or able[0] is not self.meters[0]:
            return {}
        turns = {meter.name: [] for meter in able}
        for meter in able * rounds + able[:1]:
            before = running_times()
            answer = meter.ask(f"measure {seconds}", 20 * seconds + 20)
            busy = busy_threads(before, running_times())
            turns[meter.name].append(self.told(meter, workload, answer) | {"threads": busy})
        return turns

    def end(self):
        for meter in self.meters:
            meter.end()


def running_times():
    """{(process, thread): (seconds it has run, processor it ran on last, name)} of this machine.
    None: now."""
    ticks_per_s, out = os.sysconf("SC_CLK_TCK"), {None: time.monotonic()}
    for stat in glob.glob("/proc/[0-9]*/task/[0-9]*/stat"):
        try:
            head, _, tail = pathlib.Path(stat).read_text().rpartition(")")
        except OSError:
            continue  # it has ended
        fields = tail.split()
        _, _, process, _, thread, _ = stat.split("/")
        ran_s = (int(fields[11]) + int(fields[12])) / ticks_per_s
        out[process, thread] = (ran_s, int(fields[36]), head.partition("(")[2])
    return out


def busy_threads(before, after):
    """[name, process, processor, share of the time between] of each thread that ran for a tenth
    of it or more. If two processors belong to one core, neighbours decide about speed."""
    seconds = after[None] - before[None]
    ran = [
        (name, int(key[0]), processor, round((ran_s - before.get(key, (0.0,))[0]) / seconds, 2))
        for key, (ran_s, processor, name) in ((k, v) for k, v in after.items() if k)
    ]
    return sorted((entry for entry in ran if entry[3] >= 0.1), key=lambda entry: -entry[3])


def quartiles(values):
    if len(values) < 2:
        return [values[0]] * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def summary(turns):
    """Of a side's turns: quartiles over all blocks, the median of each turn, and means of what
    was counted. None: it did not answer."""
    if not turns or any("error" in turn for turn in turns):
        return None
    blocks = [value for turn in turns for value in turn["blocks"]]
    low, middle, high = quartiles(blocks)
    counted = {
        name: statistics.mean(turn[name] for turn in turns)
        for name in ("trips", "out", "back", "code")
    }
    return {
        "ms": middle,
        "q1": low,
        "q3": high,
        "turns": [statistics.median(turn["blocks"]) for turn in turns],
        "blocks": len(blocks),
        **counted,
    }


def ratio(native, ours):
    """Native's time over ours, above 1 where ours is faster, of single turns against native's turns
    before and after them: the median, the least and the most. Not of the sides' medians: a host
    that changes its speed once would decide those.
    """
    near = [
        (before + after) / 2 / turn
        for before, turn, after in zip(native["turns"], ours["turns"], native["turns"][1:])
    ]
    return statistics.median(near), min(near), max(near)


def own_spread(native):
    """The same for native's own turns against those around them, least and most. A ratio within
    it means nothing. None: too few."""
    turns = native["turns"]
    near = [(before + after) / 2 / turn for before, turn, after in zip(turns, turns[1:], turns[2:])]
    return (min(near), max(near)) if near else None
