# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs as tenants: many small ones at once, and ResNet-50 on quarters against the
whole. Called by shares.py.

The programs are frameworks/torch_tenant.py. They first import PyTorch, which takes their own
machine seconds, and then attach all at the same moment. The attach time lasts from there to
the GPU's first answer, plus the time in which `tendril run` got the lease and started the
program.
"""

import fractions
import os
import statistics
import time

import catalog
from tenants import Counts, Tenant

IMPORT_LIMIT_S, ATTACH_LIMIT_S, READY_LIMIT_S = 60, 30, 60
MANY_S, RESNET_S, RESNET_ALONE_S = 8.0, 10.0, 5.0


def start(m, here, server, tenant, seconds):
    python = os.environ.get("PYTHON", "python3")
    environment = {
        name: value.replace("{side}", str(m.whole.work))
        for name, value in catalog.FRAMEWORK_ENV.items()
    }
    environment["OMP_NUM_THREADS"] = "1"  # fifty of them share the processors
    script = [python, str(here / "frameworks/torch_tenant.py"), tenant.kind, str(seconds)]
    return m.start_program(server, tenant, script, environment)


def all_say(processes, word, limit_s):
    """When each one said it, in seconds since its start. Programs that did not are left out."""
    until = time.monotonic() + limit_s
    said = [process.wait_for(word, until - time.monotonic()) for process in processes]
    return [at for at in said if at is not None]


def together(m, here, server, tenants, seconds):
    """Runs them from one moment on: (answers or None, facts about attaching)."""
    processes = [start(m, here, server, tenant, seconds) for tenant in tenants]
    facts = {word: all_say(processes, word, IMPORT_LIMIT_S) for word in ("started", "imported")}
    at_ns = time.monotonic_ns() + 200_000_000
    for process in processes:
        process.tell(at_ns)
    all_say(processes, "attached", ATTACH_LIMIT_S)
    facts["attached"] = [
        process.said["attached"][1]["s"] for process in processes if "attached" in process.said
    ]
    facts["ready"] = all_say(processes, "ready", READY_LIMIT_S)
    begin_ns = time.monotonic_ns() + 300_000_000
    for process in processes:
        process.tell(begin_ns)
    limit = begin_ns / 1e9 + seconds + 30  # filling the memory takes a while
    answers = [process.end(limit - time.monotonic()) for process in processes]
    logs = m.logs.glob("*.err")
    facts["errors"] = sorted(
        {line for log in logs for line in log.read_text(errors="replace").splitlines()[-1:]}
    )[:5]
    return answers, facts


def steps(answer):
    return Counts(answer).rate()


def memory_of(answers):
    """What the quota was, how much of it was got at most, and which tenants did not end as they
    should."""
    held = [answer["memory"] for answer in answers if answer and answer["memory"]]
    if not held:
        return None
    wrong = sum(1 for one in held if one["filled"] > one["total"] or not one["error"])
    return {
        "total": min(one["total"] for one in held),
        "filled": [min(one["filled"] for one in held), max(one["filled"] for one in held)],
        "peak": max(one["peak"] for one in held),
        "wrong": wrong,
    }


def measure_many(m, here, server, count, title=""):
    title = f"{count} x 1/{count}{title}"
    share = fractions.Fraction(1, count)
    tenants = [Tenant(share, ("train", "infer")[i % 2]) for i in range(count)]
    answers, facts = together(m, here, server, tenants, MANY_S)
    there = [answer for answer in answers if answer]
    m.facts.setdefault("torch", {})[title] = facts | {"answers": answers}
    m.say(f"{title}, PyTorch: {len(there)} of {count} ended well")
    for word, what in (
        ("started", "lease granted, program started"),
        ("attached", "the GPU's first answer"),
        ("ready", "ready, import included"),
    ):
        times = facts[word]
        m.say(
            f"  {what}: {min(times):.2f} ... {max(times):.2f} s ({len(times)})"
            if times
            else f"  {what}: NONE"
        )
    for kind in ("train", "infer"):
        rates = [steps(answer) for answer in there if answer["kind"] == kind]
        seconds = [
            n
            for answer in there
            if answer["kind"] == kind
            for n in Counts(answer).rates_by_second()
        ]
        if rates and seconds:
            m.say(
                f"  {kind}: steps/s {min(rates):.1f} ... {max(rates):.1f}, mean"
                f" {statistics.mean(rates):.1f}; in any second {min(seconds):.0f} ..."
                f" {max(seconds):.0f}"
            )
    memory = memory_of(there)
    if memory:
        told, peak, least, most = (
            size >> 20 for size in (memory["total"], memory["peak"], *memory["filled"])
        )
        m.say(
            f"  memory, MiB: told {told}, steps took up to {peak}, got until there was no more"
            f" {least} ... {most}; {memory['wrong']} over or without error"
        )
    if len(there) < count:
        m.say("  last words: " + " | ".join(facts["errors"]))


def measure_warm(m, here, count):
    """The same number on a server that keeps workers for them."""
    options = ["--warm-spare", str(count)]
    server = m.server(f"torch-{count}", options)
    if server is None:
        return m.say(f"no server with {' '.join(options)}")
    time.sleep(warming_s(count))
    measure_many(m, here, server, count, ", " + " ".join(options))
    return server.stop()


def warming_s(workers):
    """How long a server takes to make so many contexts."""
    return 1 + 0.25 * workers


def measure_resnet(m, here, server):
    rows = m.facts.setdefault("resnet", {})
    whole, quarter = fractions.Fraction(1), fractions.Fraction(1, 4)
    cases = [
        ("natively", None, [whole], RESNET_ALONE_S),
        ("whole GPU", server, [whole], RESNET_ALONE_S),
        ("4 x 1/4", server, [quarter] * 4, RESNET_S),
    ]
    for name, where, parts, seconds in cases:
        answers, facts = together(
            m, here, where, [Tenant(part, "resnet") for part in parts], seconds
        )
        rates = [64 * steps(answer) for answer in answers if answer]
        if len(rates) < len(parts):
            m.say(
                f"  ResNet-50 {name}: {len(parts) - len(rates)} WITHOUT ANSWER: "
                + " | ".join(facts["errors"])
            )
            continue
        rows[name] = rates
        of = (
            f", {100 * sum(rates) / sum(rows['natively']):.1f} % of native"
            if sum(rows.get("natively", [0]))
            else ""
        )
        m.say(
            f"  ResNet-50 {name}: images/s {' + '.join(f'{rate:.0f}' for rate in rates)} ="
            f" {sum(rates):.0f}{of}"
        )


def measure_attach(m, is_wanted):
    """How long it takes until all of many small programs have the GPU's first answer.
    share_meter starts at once."""
    rows = m.facts.setdefault("attach", {})
    for count, options in (
        (20, None),
        (20, []),
        (50, None),
        (50, []),
        (50, ["--warm-spare", "50"]),
    ):
        name = (
            f"{count}, natively"
            if options is None
            else ", ".join(filter(None, [str(count), " ".join(options)]))
        )
        if not is_wanted(name):
            continue
        server = m.server(f"attach-{len(rows)}", options) if options is not None else None
        if server:
            time.sleep(warming_s(count if options else 2))
        tenants = [Tenant(fractions.Fraction(1, count), "medium")] * count
        processes = [m.start(server, tenant, 0) for tenant in tenants]
        attached, ready = all_say(processes, "attached", 40), all_say(processes, "ready", 20)
        for process in processes:
            process.tell("")
        for process in processes:
            process.end(5)
        if server:
            server.stop()
        rows[name] = {"attached": attached, "ready": ready}
        first, half, last = (
            min(attached, default=0),
            statistics.median(attached or [0]),
            max(attached, default=0),
        )
        m.say(
            f"  {name}: {len(attached)} attached, the first after {first:.2f} s, half after"
            f" {half:.2f} s, all after {last:.2f} s; {len(ready)} ready after"
            f" {max(ready, default=0):.2f} s"
        )
        if m.whole.left() < 40:
            return
