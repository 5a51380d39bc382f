# SPDX-License-Identifier: Apache-2.0
"""Where a program runs: natively, or through `tendril run` over TCP or shared memory.

A Side turns a command into a process with that side's environment, limits its time, and keeps
what it printed. Each remote side has its own daemon, so that all can hold the whole GPU at
the same time. The side `two` has two daemons with a GPU each. gpu_run.py calls it, with one
thread per side.
"""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

STATS_LINE = re.compile(
    r"over (\w+): (\d+) calls sent, (\d+) round trips, (\d+) sends, (\d+) bytes out"
)
COUNTED_LINE = re.compile(
    r"^ *\d+ .* (cu[A-Z]\w+)$", re.MULTILINE
)  # a row of the statistics' table
REFUSED_LINE = re.compile(
    r"^tendril: ((?:cu|nvml)[A-Z]\w+) is not (?:supported|implemented)\b", re.MULTILINE
)
RUNNING = set()
RUNNING_LOCK = threading.Lock()


@dataclasses.dataclass
class Outcome:
    """What one run of one program on one side came to."""

    status: int
    seconds: float
    timed_out: bool
    stdout: str
    stderr: str
    transport: str = ""
    calls: int = 0
    round_trips: int = 0
    attempts: int = 1
    before: "Outcome | None" = None  # the try before this one
    called: frozenset = (
        frozenset()
    )  # entry points of the driver, as far as statistics were asked for
    refused: frozenset = (
        frozenset()
    )  # entry points that told the program that they are not supported
    cut_short: bool = False  # timed out only because the whole run's time was over

    def facts(self):
        out = dataclasses.asdict(self) | {"before": self.before.facts() if self.before else None}
        del out["called"], out["refused"]  # report.py says them for all programs together
        out["seconds"] = round(self.seconds, 3)
        out["stdout"] = self.stdout[-4000:]
        out["stderr"] = self.stderr[-2000:]
        return out


def end_group(process, first=signal.SIGABRT):
    """Ends a process and all that it started. SIGABRT first: python then says where it hung."""
    for number in (first, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=1.5)
        except subprocess.TimeoutExpired:
            pass


def end_everything():
    with RUNNING_LOCK:
        left = list(RUNNING)
    for process in left:
        end_group(process, signal.SIGTERM)


def run_process(argv, env, cwd, limit_s, out_path, err_path):
    """Runs to the end or to the limit. Returns (status, seconds, timed_out); a signal is 128 + its
    number."""
    with open(out_path, "wb") as out, open(err_path, "wb") as err:
        begun = time.monotonic()
        try:
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            err.write(f"cannot start {argv[0]}: {error}\n".encode())
            return 127, 0.0, False
        with RUNNING_LOCK:
            RUNNING.add(process)
        timed_out = False
        try:
            process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        seconds = time.monotonic() - begun
        end_group(process, signal.SIGABRT if timed_out else signal.SIGKILL)
        with RUNNING_LOCK:
            RUNNING.discard(process)
    status = process.returncode
    return (128 - status if status < 0 else status), seconds, timed_out


class Server:
    """`tendril serve` on loopback at a free port; started again when it has died."""

    def __init__(self, name, binaries, driver, work, logs, extra, environment):
        self.name, self.binaries, self.driver, self.extra = name, binaries, driver, extra
        self.environment = environment
        self.port_file = work / f"{name}.port"
        self.images = work / f"{name}-images"
        self.log = logs / f"server-{name}.log"
        self.process = None
        self.deaths = 0

    def start(self):
        self.port_file.unlink(missing_ok=True)
        argv = [
            str(self.binaries / "bin/tendril"),
            "serve",
            "--port",
            "0",
            "--port-file",
            str(self.port_file),
            "--images",
            str(self.images),
            *self.extra,
        ]
        if self.driver:
            argv += ["--driver", str(self.driver)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )
        with RUNNING_LOCK:
            RUNNING.add(self.process)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.port_file.exists() and self.port_file.read_text().strip():
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        return False

    def ensure(self):
        if self.process is not None and self.process.poll() is None:
            return True
        if self.process is not None:
            self.deaths += 1
            with open(self.log, "a") as log:
                log.write(
                    f"\n==== the server ended with {self.process.returncode}; starting it again\n"
                )
            if self.deaths > 20:
                return False
        return self.start()

    def address(self):
        return f"127.0.0.1:{self.port_file.read_text().strip()}"

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            end_group(self.process, signal.SIGTERM)


class Side:
    """One way to run a program. No servers: natively."""

    def __init__(self, name, work, logs, environment, servers=(), transport="", gpus=1):
        self.name, self.servers, self.transport, self.gpus = name, servers, transport, gpus
        self.work = work / name
        self.logs = logs / name
        self.environment = environment
        self.work.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)

    def beside(self, name):
        """The same side with its own folder: what its programs keep for the next run, such as
        timed choices, is not found there."""
        other = Side(
            self.name,
            self.work.parent,
            self.logs.parent,
            self.environment,
            self.servers,
            self.transport,
            self.gpus,
        )
        other.work = self.work.parent / f"{self.name} {name}"
        other.work.mkdir(parents=True, exist_ok=True)
        return other

    def command(self, argv):
        if not self.servers:
            return list(argv)
        asked = [word for server in self.servers for word in ("-s", server.address())]
        if len(self.servers) == 1:
            asked += ["-n", str(self.gpus)]  # otherwise one GPU of each
        return [
            str(self.servers[0].binaries / "bin/tendril"),
            "run",
            *asked,
            "--timeout",
            "20000",
            "--",
            *argv,
        ]

    def environment_for(self, extra, stats):
        software = "TENDRIL_SOFTGPU_" if not self.servers else None
        env = {
            name: value
            for name, value in self.environment.items()
            if not name.startswith("TENDRIL_") or software and name.startswith(software)
        }
        for name, value in extra.items():
            if name in ("LD_LIBRARY_PATH", "PYTHONPATH") and env.get(name):
                value = env[name] + ":" + value
            env[name] = value.replace("{side}", str(self.work))
        if self.servers:
            env["TENDRIL_TRANSPORT"] = self.transport
            if stats:
                env["TENDRIL_STATS"] = str(stats)
        return env

    def run(self, label, argv, extra_env, cwd, limit_s, want_stats=True):
        """Runs one program and reads back what it printed."""
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", label)
        out, err = self.logs / f"{stem}.out", self.logs / f"{stem}.err"
        stats = self.logs / f"{stem}.stats"
        stats.unlink(missing_ok=True)
        for server in self.servers:
            if not server.ensure():
                return Outcome(
                    125, 0.0, False, "", f"the server does not start; see {server.log.name}"
                )
        env = self.environment_for(extra_env, stats if want_stats else None)
        status, seconds, timed_out = run_process(self.command(argv), env, cwd, limit_s, out, err)
        outcome = Outcome(status, seconds, timed_out, read_text(out), read_text(err))
        outcome.refused = frozenset(REFUSED_LINE.findall(outcome.stderr))
        if stats.exists():
            read_stats(read_text(stats), outcome)
        return outcome


def read_text(path, most=4_000_000):
    with open(path, "rb") as file:
        return file.read(most).decode("utf-8", "replace")


def read_stats(text, outcome):
    """What TENDRIL_STATS wrote: one line for each process of the program that used a GPU."""
    kinds = []
    for match in STATS_LINE.finditer(text):
        if match[1] not in kinds:
            kinds.append(match[1])
        outcome.calls += int(match[2])
        outcome.round_trips += int(match[3])
    outcome.transport = "+".join(kinds)
    outcome.called = frozenset(COUNTED_LINE.findall(text))


def fresh_copy(source: pathlib.Path, target: pathlib.Path):
    """A folder of its own for a program that writes files beside its data."""
    import shutil

    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)
    return target
