# SPDX-License-Identifier: Apache-2.0
"""Experiments of several steps, none of which may cost the others their results. What security.py,
sealed.py and pauses.py have in common: servers, tenants (tenants.py), what the GPU says of its
memory, and a file of facts that is written after each step.
"""

import ctypes
import fractions
import json
import os
import subprocess
import time

from tenants import Tenant, Tenants

WHOLE = fractions.Fraction(1)


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64)]


class Gpu:
    """What NVML says of a GPU's memory."""

    def __init__(self, library, index=0):
        self.nvml, self.device = ctypes.CDLL(library), ctypes.c_void_p()
        code = self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(
            index, ctypes.byref(self.device)
        )
        if code != 0:
            raise RuntimeError(f"NVML answers {code}")

    def used(self):
        memory = Memory()
        code = self.nvml.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory))
        return memory.used if code == 0 else None

    def settled(self, most_s=8.0, near=4 << 20):
        """When it has not changed for a third of a second: the driver gives back with delay."""
        until, before = time.monotonic() + most_s, self.used()
        while time.monotonic() < until:
            time.sleep(0.35)
            now = self.used()
            if abs(now - before) <= near:
                return now
            before = now
        return before


class Steps(Tenants):
    """`name`: of the group and of its file in $OUT."""

    def __init__(self, whole, here, name):
        libraries = {"PYTHONPATH": f"{here}/frameworks:{here}/probes"}
        whole.environment_of_programs = whole.environment() | libraries
        super().__init__(whole)
        self.here, self.name = here, name
        self.python = os.environ.get("PYTHON", "python3")

    def say(self, line):
        self.lines.append(line)
        self.whole.say(f"{self.name}: {line}")

    def script(self, name, *words):
        """Of probes/ or frameworks/."""
        folder = "probes" if (self.here / "probes" / name).exists() else "frameworks"
        return [self.python, "-B", str(self.here / folder / name), *map(str, words)]

    def begin(self, server, label, argv, share=WHOLE, options=(), environment=None, alone=False):
        """A program natively (no server) or as a tenant; see tenants.Process. `alone`: when the
        server's former tenants have ended."""
        if server and alone:
            self.await_nobody(server)
        return self.start_program(server, Tenant(share, label, options), argv, environment)

    def asked(self, process, word, limit_s):
        """What it said with the word: facts, or an error with the last line of its stderr."""
        process.wait_for(word, limit_s)
        if word in process.said:
            return process.said[word][1]
        state = "is gone" if process.gone_s else f"says nothing within {limit_s:.0f} s"
        return {"error": f"{state}: {self.last_words(process)}"}

    @staticmethod
    def last_words(process):
        process.error.flush()
        with open(process.error.name, encoding="utf-8", errors="replace") as log:
            return (log.read().strip().splitlines() or [""])[-1][:200]

    def told(self, server, *words):
        """A command of `tendril` with --json, for one server."""
        argv = [str(self.whole.binaries / "bin/tendril"), *words, "--json", "-s", server.address()]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=20, env=self.environment(True)
        )
        try:
            return json.loads(done.stdout)["servers"][0]
        except (ValueError, KeyError, IndexError):
            return {}

    def charged(self, server):
        """Bytes that all leases of the server pay for."""
        leases = self.told(server, "ls").get("leases", [])
        return sum(part["memory_used_bytes"] for lease in leases for part in lease["slices"])

    def workers(self, server):
        """Process ids of the workers with a session."""
        sessions = self.told(server, "top", "--once").get("sessions", [])
        return [session["worker_pid"] for session in sessions]

    def run_all(self, steps, words):
        """`steps`: (name, seconds that it needs, what to call); an error costs its step only."""
        for name, needed_s, step in steps:
            if words and not any(word in name for word in words):
                continue
            if self.whole.left() < needed_s:
                self.say(f"{name}: no time left")
                continue
            begun = time.monotonic()
            try:
                self.facts[name] = step()
            except Exception as error:  # what was measured until then is worth keeping
                self.facts[name] = {"error": f"{type(error).__name__}: {error}"}
                self.say(f"{name}: {type(error).__name__}: {error}")
            self.say(f"{name} took {time.monotonic() - begun:.1f} s")
            self.write()
        return "\n".join(self.lines)

    def write(self):
        facts = {"run": self.whole.facts, "found": self.facts, "lines": self.lines}
        (self.whole.out / f"{self.name}.json").write_text(json.dumps(facts, indent=1, default=str))
