# SPDX-License-Identifier: Apache-2.0
"""What programs notice while they may not work: a lease that is paused, as a pool's scheduler does
it, and a worker whose GPU memory the vendor's driver has moved to the host
(cuCheckpointProcess*). gpu_run.py calls it as its group `pauses`, when nothing else runs.

The scheduler is played by tests/e2e/test_pool_member.py. Figures of checkpoints are seconds and
GB/s of each step, natively and of a worker behind a program that goes on calling.
"""

import fractions
import os
import pathlib
import sys
import time

import sides
from steps import Gpu, Steps
from tenants import Process

PAUSE_S = 600  # at most: ten times --share-seconds
HALF = fractions.Fraction(1, 2)
GIGABYTES = (1, 20, 80)
# What a worker may do, until the driver can checkpoint it.
CONFINED = {
    "confined as always": [],
    "without a filter of system calls": ["--learn-filter", "FILE"],
    "one user for all, no filter": ["--learn-filter", "FILE", "--weak-isolation"]
    + ["--worker-user", "none"],
}
STEPS = ("lock", "checkpoint", "restore", "unlock")


class Pauses(Steps):
    def __init__(self, whole, here, pause_s):
        super().__init__(whole, here, "pauses")
        driver = whole.args.driver
        self.gpu = Gpu(str(driver) if driver else "libnvidia-ml.so.1")
        self.pause_s = pause_s

    # ---- A pool pauses a lease ----
    def of_the_pool(self, scheduler, label, argv):
        """A program on half of the GPU, through the scheduler; the number of its lease there."""
        tendril = str(self.whole.binaries / "bin/tendril")
        environment = self.environment(True) | {
            "TENDRIL_SERVERS": scheduler.endpoint,
            "TENDRIL_TRANSPORT": "tcp",
        }
        run = [tendril, "run", "-p", "0.5", "--", *argv]
        lent = len(scheduler.lent)
        process = Process(run, environment, self.logs / f"{label}.err")
        until = time.monotonic() + 20
        while len(scheduler.lent) == lent and time.monotonic() < until:
            time.sleep(0.02)
        return process, scheduler.next_lease

    def paused(self):
        os.environ["TENDRIL_BUILD_DIR"] = str(self.whole.binaries)
        sys.path.insert(0, str(self.here.parent.parent / "tests/e2e"))
        import harness
        import test_pool_member as member

        with member.Scheduler() as scheduler:
            server = self.server("paused", ["--name", "gpu3", "--pool", scheduler.endpoint])
            harness.eventually(lambda: scheduler.facts, 20, "the server's report")
            programs = {
                name: self.of_the_pool(scheduler, f"paused-{name}", self.script(*argv))
                for name, argv in (
                    ("PyTorch", ("torch_paused.py",)),
                    ("driver's calls", ("checkpointed.py", 0.2)),
                )
            }
            begun = {
                name: self.asked(process, word, 60)
                for (name, (process, _)), word in zip(programs.items(), ("running", "ready"))
            }
            say = harness.record(18, "the card's test pauses"), harness.number(19, self.pause_s)
            for _, lease in programs.values():
                scheduler.ask(member.PAUSE, harness.number(3, lease), *say)
            time.sleep(self.pause_s)
            for _, lease in programs.values():
                scheduler.ask(member.RESUME, harness.number(3, lease))
            resumed = time.monotonic()
            facts = {"pause_s": self.pause_s, "begun": begun}
            time.sleep(2)
            for name, (process, _) in programs.items():
                process.tell("")
                facts[name] = self.asked(process, "done", 60)
                process.end(10)
            facts["seconds after"] = time.monotonic() - resumed
            server.stop()
        self.compare_losses(facts)
        for name in programs:
            told = {key: value for key, value in facts[name].items() if key != "losses"}
            self.say(f"paused for {self.pause_s} s, {name}: {told}")
        return facts

    def compare_losses(self, facts):
        """With a run natively of as many steps."""
        losses = facts["PyTorch"].pop("losses", None)
        if not losses:
            return
        process = self.begin(None, "unpaused", self.script("torch_paused.py", len(losses)))
        native = self.asked(process, "done", 120).get("losses", [])
        process.end(5)
        facts["PyTorch"]["losses equal native's"] = losses == native

    # ---- The driver's checkpoints ----
    def checkpoint(self, server, gigabytes):
        """One program, natively or with its worker."""
        argv = self.script("checkpointed.py", gigabytes)
        process = self.begin(server, f"checkpointed-{gigabytes}", argv, alone=True)
        ready = self.asked(process, "ready", 60)
        if "error" in ready:
            process.end(1)
            return ready
        workers = self.workers(server) if server else [process.process.pid]
        facts = {"bytes": ready["bytes"], "gpu_before": self.gpu.used(), "pid": workers}
        control = Process(
            self.script("checkpointer.py", workers[0]),
            self.environment(False),
            self.logs / f"checkpointer-{self.number}.err",
        )
        facts["begun"] = self.asked(control, "begun", 20)
        for step in ("state", "thread", *STEPS):
            control.tell(step)
            facts[step] = self.asked(control, step, 100)
            if facts[step].get("code") != 0:
                break
            if step == "checkpoint":
                facts["gpu_while"] = self.gpu.settled()
                facts["host_bytes"] = resident(workers[0])
                time.sleep(1)
        sides.end_group(control.process)
        control.end(1)
        time.sleep(0.5)
        process.tell("")
        facts["program"] = self.asked(process, "done", 30)
        process.end(10)
        return facts

    def checkpoints(self):
        facts, file = {}, self.whole.work / "learned-checkpoint"
        for gigabytes in GIGABYTES:
            facts[f"native, {gigabytes} GB"] = self.checkpoint(None, gigabytes)
            self.tell("native", gigabytes, facts)
        for name, options in CONFINED.items():
            given = [str(file) if word == "FILE" else word for word in options]
            server = self.server("checkpoints-" + str(len(given)), given)
            if server is None:
                continue
            facts[f"{name}, 1 GB"] = first = self.checkpoint(server, 1)
            self.tell(name, 1, facts)
            works = first.get("unlock", {}).get("code") == 0
            for gigabytes in GIGABYTES[1:] if works else ():
                facts[f"{name}, {gigabytes} GB"] = self.checkpoint(server, gigabytes)
                self.tell(name, gigabytes, facts)
            server.stop()
            if works:
                break
        if file.exists():
            facts["learned"] = file.read_text().split()
        return facts

    def tell(self, name, gigabytes, facts):
        found = facts[f"{name}, {gigabytes} GB"]
        text = []
        for step in STEPS:
            took = found.get(step)
            if not took or "error" in took:
                text.append(f"{step}: {(took or {}).get('error', 'not tried')}")
                continue
            rate = ""
            if step in ("checkpoint", "restore") and took["code"] == 0 and took["seconds"]:
                rate = f" ({found['bytes'] / took['seconds'] / 1e9:.2f} GB/s)"
            text.append(f"{step} {took['code']} in {took['seconds']:.3f} s{rate}")
        self.facts["checkpoints"] = facts
        self.write()
        more = found.get("program", found.get("error"))
        self.say(f"checkpoint of {gigabytes} GB, {name}: {', '.join(text)}; {more}")


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def measure(whole, here, words=()):
    """All of it as text; also as pauses.json in $OUT. `whole` is gpu_run's Run."""
    p = Pauses(whole, here, min(PAUSE_S, 10 * whole.args.share_seconds))
    return p.run_all([("checkpoints", 60, p.checkpoints), ("paused", 60, p.paused)], words)
