# SPDX-License-Identifier: Apache-2.0
"""Programs that share a GPU: how they are started and instructed, and what they counted. Used by
shares.py and what it calls."""

import collections
import json
import os
import signal
import subprocess
import threading
import time

import sides

SETTLE_S = 1.0  # of each measurement is left out at its begin
NOBODY_LIMIT_S = 5
Tenant = collections.namedtuple("Tenant", "share kind options", defaults=((),))


class Process:
    """One share_meter or torch_tenant, natively or as a tenant: started, told when to begin, read
    to its end. What it says is a word and perhaps JSON on a line of its own; `said` has when and
    what."""

    def __init__(self, argv, environment, log):
        self.begun = time.monotonic()
        self.error = open(log, "wb")
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.error,
            text=True,
            env=environment,
            start_new_session=True,
        )
        with sides.RUNNING_LOCK:
            sides.RUNNING.add(self.process)
        self.said, self.spoke = {}, threading.Condition()
        self.gone_s = None  # when it closed its output: it is gone, or nearly
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            word, _, rest = line.strip().partition(" ")
            with self.spoke:
                self.said[word] = (
                    time.monotonic(),
                    json.loads(rest) if rest.startswith("{") else rest,
                )
                self.spoke.notify_all()
        with self.spoke:
            self.gone_s = time.monotonic()
            self.spoke.notify_all()

    def wait_for(self, word, limit_s):
        """Waits until it has said the word, is gone, or time is up. Seconds since its start, or
        None."""
        with self.spoke:
            self.spoke.wait_for(lambda: word in self.said or self.gone_s, max(0.0, limit_s))
            return self.said[word][0] - self.begun if word in self.said else None

    @property
    def answer(self):
        return self.said.get("share_meter", (0, None))[1]

    def tell(self, line):
        try:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it is gone, and has no answer

    def end(self, limit_s):
        self.reader.join(max(0.1, limit_s))
        if self.gone_s:  # `tendril run` is giving its lease back
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        sides.end_group(self.process, signal.SIGKILL)
        self.process.wait()
        with sides.RUNNING_LOCK:
            sides.RUNNING.discard(self.process)
        self.error.close()
        return self.answer


class Counts:
    """Pieces by bucket, without the first moments. A program that sees fewer processors than
    `processors`, being packed, makes smaller pieces, except of kind memory."""

    def __init__(self, answer, processors=0, settle_s=SETTLE_S):
        self.bucket_s = answer["bucket_ns"] / 1e9
        self.first = round(settle_s / self.bucket_s)
        sees_part = processors and "processors" in answer and answer.get("kind") != "memory"
        size = answer["processors"] / processors if sees_part else 1
        self.pieces = [size * pieces for pieces in answer["pieces"]]
        self.latency = answer["latency_us"]

    def rate(self, begin=None, end=None):
        part = self.pieces[self.first if begin is None else begin : end]
        return sum(part) / (len(part) * self.bucket_s) if part else 0.0

    def rates_by_second(self):
        """For every stretch of a second, one for each bucket that it may begin with."""
        width = round(1 / self.bucket_s)
        part = self.pieces[self.first :]
        return [sum(part[i : i + width]) for i in range(len(part) - width + 1)]


class Tenants:
    """One measurement's servers and programs; what it found, as lines and as facts."""

    def __init__(self, whole):
        self.whole = whole
        self.program = str(whole.binaries / "bin/programs/share_meter")
        self.logs = whole.logs / "shares"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.lines, self.facts = [], {}
        self.number = 0

    def say(self, line):
        self.lines.append(line)
        self.whole.say("shares: " + line)

    def environment(self, ours):
        keep = lambda name: not name.startswith("TENDRIL_") or (
            not ours and name.startswith("TENDRIL_SOFTGPU_")
        )
        environment = {
            name: value for name, value in self.whole.environment_of_programs.items() if keep(name)
        }
        if ours:
            environment["TENDRIL_TRANSPORT"] = "auto"
        return environment

    def start(self, server, tenant, *words):
        """share_meter with these arguments after its kind; natively where there is no server."""
        return self.start_program(server, tenant, [self.program, tenant.kind, *map(str, words)])

    def start_program(self, server, tenant, argv, environment=None):
        self.number += 1
        if server:
            share = f"{int(tenant.share * 1_000_000) / 1_000_000:.6f}"
            argv = [
                str(self.whole.binaries / "bin/tendril"),
                "run",
                "-s",
                server.address(),
                "-p",
                share,
                *tenant.options,
                "--timeout",
                "20000",
                "--",
                *argv,
            ]
        return Process(
            argv,
            self.environment(server is not None) | (environment or {}),
            self.logs / f"{self.number:03}-{tenant.kind}.err",
        )

    def server(self, name, options):
        server = sides.Server(
            name,
            self.whole.binaries,
            self.whole.args.driver,
            self.whole.work,
            self.whole.logs,
            self.whole.args.serve.split() + options,
            dict(os.environ),
        )
        self.whole.servers.append(server)
        return server if server.ensure() else None

    def leases(self, server):
        """The numbers of the living leases; None if the server cannot say."""
        argv = [str(self.whole.binaries / "bin/tendril"), "ls", "--json", "-s", server.address()]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=20, env=self.environment(True)
        )
        try:
            return {
                lease["lease"]
                for each in json.loads(done.stdout)["servers"]
                for lease in each["leases"]
            }
        except (ValueError, KeyError):
            return None

    def await_nobody(self, server):
        """A tenant that was measured before may still be ending, and what packed tenants get
        depends on who is there."""
        until = time.monotonic() + NOBODY_LIMIT_S
        while self.leases(server) and time.monotonic() < until:
            time.sleep(0.02)
