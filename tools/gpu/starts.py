# SPDX-License-Identifier: Apache-2.0
"""What a program costs before and beside its work: from exec to the first result, the second start
of PyTorch and what code it uploads, processor time for each launch on both ends, memory. Called by
speed.py; prints and judges nothing.
"""

import json
import os
import pathlib
import statistics
import subprocess
import time

import sides

STARTS, COLD_STARTS = 5, 3
FEW, MANY = 2000, 202000
TICKS = os.sysconf("SC_CLK_TCK")


class Usage:
    """Processor seconds of a process and of all that it has started. Those that have ended count
    too, because a parent that collects a child gets its time."""

    def __init__(self, pid):
        self.pid = pid
        self.begun = self.now()

    def now(self):
        parents, ticks = {}, {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue  # it has ended since
                parents[int(entry.name)] = int(fields[1])
                ticks[int(entry.name)] = sum(int(field) for field in fields[11:15])
        tree, grown = {self.pid}, True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in tree} - tree
            tree, grown = tree | more, bool(more)
        return sum(ticks.get(pid, 0) for pid in tree) / TICKS

    def since(self):
        return self.now() - self.begun


def settle(side, most_s=4.0):
    """Waits until the servers have done what they do after a program, such as making the next
    worker warm."""
    until = time.monotonic() + most_s
    for server in side.servers:
        while time.monotonic() < until:
            usage = Usage(server.process.pid)
            time.sleep(0.3)
            if usage.since() < 0.015:
                break


def first_line(side, label, argv, limit_s, environment=None):
    """(seconds from exec to the first line of output, that line, processor seconds of the program,
    seconds to its end)."""
    env = side.environment_for(environment or {}, None)
    with open(side.logs / f"speed-{label}.err", "wb") as error:
        begun = time.time()
        process = subprocess.Popen(
            side.command(argv),
            env=env,
            cwd=side.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=error,
            text=True,
            start_new_session=True,
        )
        with sides.RUNNING_LOCK:
            sides.RUNNING.add(process)
        line = process.stdout.readline()
        first = time.time() - begun
        process.stdout.read()
        process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        with sides.RUNNING_LOCK:
            sides.RUNNING.discard(process)
    return {
        "first": first,
        "line": line.strip(),
        "cpu": used.ru_utime + used.ru_stime,
        "status": process.returncode,
        "begun": begun,
        "end": time.time() - begun,
    }


class Starts:
    def __init__(self, whole, here, facts, say):
        self.whole, self.here, self.facts, self.say = whole, here, facts, say
        self.bench = [str(whole.binaries / "bin/tendril-bench"), "first"]

    def result_ms(self, side, label):
        told = first_line(side, label, self.bench, 30)
        return told["first"] * 1e3 if told["line"] == "tendril-bench first" else None

    def first_results(self):
        """A small CUDA program with a worker waiting for it, and on a server that keeps none."""
        times = {name: [] for name in self.whole.sides}
        for _ in range(STARTS):
            for name, side in self.whole.sides.items():
                settle(side)
                times[name].append(self.result_ms(side, "first"))
        cold = self.whole.start_server("cold", dict(os.environ), ["--warm", "0"])
        side = sides.Side(
            "cold", self.whole.work, self.whole.logs, self.whole.environment(), [cold], "tcp"
        )
        times["cold"] = [self.result_ms(side, "first") for _ in range(COLD_STARTS)]
        cold.stop()
        self.facts["first_result_ms"] = {
            name: sorted(got) if None not in got else None for name, got in times.items()
        }
        for name, got in self.facts["first_result_ms"].items():
            self.say(
                f"exec to first result, {name}: "
                + (
                    "no result"
                    if got is None
                    else f"{statistics.median(got):.1f} ms ({got[0]:.1f}-{got[-1]:.1f})"
                )
            )

    def torch(self):
        """PyTorch twice: the first start fills the server's store of code and the page cache."""
        argv = [os.environ.get("PYTHON", "python3"), str(self.here / "frameworks/torch_start.py")]
        self.facts["torch_start"] = {}
        for turn in ("first", "second"):
            for name, side in self.whole.sides.items():
                settle(side)
                told = first_line(side, f"torch-{turn}", argv, 60, {"PYTHONFAULTHANDLER": "1"})
                if not told["line"].startswith("{"):
                    self.say(
                        f"PyTorch's {turn} start, {name}: exit {told['status']},"
                        f" {told['line'][:100]}"
                    )
                    continue
                seen = json.loads(told["line"])
                seen |= {key: seen[key] - told["begun"] for key in ("imported", "zeros", "product")}
                self.facts["torch_start"].setdefault(name, {})[turn] = seen
                memory, code = seen["memory"], seen["code"]
                self.say(
                    f"PyTorch's {turn} start, {name}: imported {seen['imported']:.2f} s, zeros"
                    f" {seen['zeros']:.2f} s, a product {seen['product']:.2f} s; {code} bytes of"
                    f" code sent; {memory['VmRSS']:.0f} MB resident, {memory['RssAnon']:.0f}"
                    " its own"
                )

    def launches(self):
        """Processor time of a launch, in the program and in everything at the server: the
        difference of two lengths of one program."""
        program = str(self.whole.binaries / "bin/programs/launch_rate")
        self.facts["launch_cpu_us"] = {}
        for name, side in self.whole.sides.items():
            used = []
            for count in (FEW, MANY):
                settle(side)
                watches = [Usage(server.process.pid) for server in side.servers]
                told = first_line(side, f"launches-{count}", [program, str(count)], 60)
                settle(side)
                used.append((told["cpu"], sum(watch.since() for watch in watches), told["status"]))
            if any(status for _, _, status in used):
                self.say(
                    f"processor time of a launch, {name}: exit {[status for _, _, status in used]}"
                )
                continue
            own, served = ((used[1][i] - used[0][i]) / (MANY - FEW) * 1e6 for i in range(2))
            self.facts["launch_cpu_us"][name] = {"program": own, "server": served}
            self.say(
                f"processor time of a launch, {name}: the program {own:.2f} us, its server"
                f" {served:.2f} us"
            )


def measure(whole, here, facts, say):
    """Adds to `facts`."""
    starts = Starts(whole, here, facts, say)
    for part in (starts.torch, starts.first_results, starts.launches):
        if whole.left() < 30:
            continue
        try:
            part()
        except (OSError, ValueError, KeyError) as error:  # the next part may still work
            say(f"{part.__name__}: {type(error).__name__}: {error}")
