# SPDX-License-Identifier: Apache-2.0
"""What a bad neighbour costs a tenant, and how soon its resources are back. shares.py calls it
with its Measurement.

Two tenants of 1/2 work alike. Then one faults, asserts, traps, hangs, is killed, or floods.
What the other one gets from then on is compared with what it gets with a good neighbour, in
the same run.
"""

import ctypes
import fractions
import os
import signal
import statistics
import time

from tenants import Counts, Tenant

HALF = fractions.Fraction(1, 2)
KINDS = ["good", "fault", "assert", "trap", "SIGKILL", "hang", "launches", "allocations"]
KILLED_AT_ONCE, KILLED_LATE = {"SIGKILL"}, {"hang", "launches", "allocations"}
BAD_AFTER_S, LASTS_S = 1.5, 3.5
BACK_LIMIT_S = 5.0
# How far two contexts of the same programs may differ.
MEMORY_SLACK = 64 << 20


class Monitor:
    """Memory in use on the first GPU as the vendor's library tells it; None where there is none."""

    def __init__(self):
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            self.nvml = None
            return
        self.device = ctypes.c_void_p()
        if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(
            0, ctypes.byref(self.device)
        ):
            self.nvml = None

    def used(self):
        if self.nvml is None:
            return None
        memory = (ctypes.c_uint64 * 3)()  # total, free, used
        return memory[2] if self.nvml.nvmlDeviceGetMemoryInfo(self.device, memory) == 0 else None


def back_after(m, server, monitor, before, since):
    """Seconds from `since` until only the leases of before live, and until as much memory is
    free. None: not seen in time."""
    slot_s = memory_s = None
    held, used_before = before
    while time.monotonic() - since < BACK_LIMIT_S and (slot_s is None or memory_s is None):
        used = monitor.used()
        if memory_s is None and used is not None and used <= used_before + MEMORY_SLACK:
            memory_s = time.monotonic() - since
        now = m.leases(server) if slot_s is None else None
        if now is not None and now <= held:
            slot_s = time.monotonic() - since
        if used is None and slot_s is not None:
            break  # nobody can tell about the memory
        time.sleep(0.005)
    return slot_s, memory_s


def one_trial(m, server, monitor, kind):
    """(what the good one counted, until when the other one was bad, seconds until slot and memory
    were back, how it ended)"""
    seconds = BAD_AFTER_S + LASTS_S
    one = m.start(server, Tenant(HALF, "medium"), seconds)
    one.wait_for("ready", 30)
    time.sleep(0.3)  # the next worker is warm by then
    before = (m.leases(server) or set(), monitor.used())
    stays = kind in ("good", "SIGKILL")
    words = [str(seconds)] if stays else [str(BAD_AFTER_S), kind]
    other = m.start(server, Tenant(HALF, "medium"), *words)
    other.wait_for("ready", 30)
    at_ns = time.monotonic_ns() + 300_000_000
    for process in (one, other):
        process.tell(at_ns)
    begin_s, bad_until_s = at_ns / 1e9, seconds
    if kind in KILLED_AT_ONCE | KILLED_LATE:
        bad_until_s = seconds if kind in KILLED_AT_ONCE else seconds - 1
        dies_s = begin_s + (BAD_AFTER_S if kind in KILLED_AT_ONCE else bad_until_s)
        time.sleep(max(0.0, dies_s - time.monotonic()))
        os.killpg(other.process.pid, signal.SIGKILL)
        died_s = time.monotonic()
    else:
        other.wait_for("its end", seconds + 5 if kind != "good" else 0)
        died_s = other.said["ended"][0] if "ended" in other.said else other.gone_s
    back = (None, None)
    if kind != "good" and died_s:
        back = back_after(m, server, monitor, before, died_s)
    answer = one.end(seconds + 10)
    other.end(0.5 if kind != "good" else 5)
    ended = other.said.get("ended", (0, ""))[1]
    return answer, bad_until_s, back, ended


def measure(m, server, words=()):
    """`words`: only these kinds, beside the good one."""
    m.say(
        "a neighbour of 1/2 turns bad: what the other one has then, of what it has with a good one"
    )
    monitor, good = Monitor(), None
    facts = m.facts.setdefault("neighbours", {})
    for kind in [kind for kind in KINDS if not words or kind == "good" or kind in words]:
        if m.whole.left() < BAD_AFTER_S + LASTS_S + 15:
            return m.say("no time left")
        answer, bad_until_s, back, ended = one_trial(m, server, monitor, kind)
        if not answer:
            m.say(f"  {kind:12} NO ANSWER")
            continue
        counts = Counts(answer)
        first, last = round(BAD_AFTER_S / counts.bucket_s), round(bad_until_s / counts.bucket_s)
        rate = counts.rate(first, last)
        width = round(1 / counts.bucket_s)
        worst = min(
            statistics.mean(counts.pieces[i : i + width]) / counts.bucket_s
            for i in range(first, last - width + 1)
        )
        good = good or rate
        facts[kind] = {
            "of_good": rate / good,
            "worst_second": worst / good,
            "slot_s": back[0],
            "memory_s": back[1],
            "ended": ended,
            "pieces": answer["pieces"],
        }
        when = (
            ", ".join(
                (
                    f"{name} back after {seconds:.2f} s"
                    if seconds is not None
                    else f"{name} not seen back"
                )
                for name, seconds in zip(("slot", "memory"), back)
            )
            if kind != "good"
            else ""
        )
        m.say(
            f"  {kind:12} {100 * rate / good:6.1f} %, worst second {100 * worst / good:6.1f} % "
            f" {when}  {ended}"
        )
    return None
