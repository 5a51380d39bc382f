# SPDX-License-Identifier: Apache-2.0
"""What tenants get of a GPU against what they asked for. gpu_run.py calls it for the group
`shares`, when nothing else runs.

Every tenant is a `share_meter` (tests/programs): fixed pieces of work without end, counted by
tenths of a second. A tenant's part is its rate divided by the rate of the same program
natively and alone. Prints measurements and judges nothing. shares.json has every count.
"""

import fractions
import json
import os
import pathlib
import signal
import statistics
import time

import share_neighbours
import share_torch
from tenants import SETTLE_S, Counts, Tenant, Tenants

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ["tiny", "medium", "long", "graph", "memory", "sync"]
F = fractions.Fraction


def tenants(kind, *shares):
    return [Tenant(F(share), kind) for share in shares]


CASES = [
    ("1/2 1/2", tenants("medium", "1/2", "1/2")),
    ("1/4 3/4", tenants("medium", "1/4", "3/4")),
    ("1/10 9/10", tenants("medium", "1/10", "9/10")),
    ("1/20 19/20", tenants("medium", "1/20", "19/20")),
    ("1/7 2/7 4/7", tenants("medium", "1/7", "2/7", "4/7")),
    ("4 x 1/4", tenants("medium", *["1/4"] * 4)),
    ("20 x 1/20", tenants("medium", *["1/20"] * 20)),
    ("1/10 9/10, 5 us", tenants("tiny", "1/10", "9/10")),
    ("1/10 9/10, 50 ms", tenants("long", "1/10", "9/10")),
    ("1/10 9/10, graphs", tenants("graph", "1/10", "9/10")),
    ("1/2 capped, alone", [Tenant(F("1/2"), "medium", ("--cap",))]),
    ("1/20 capped, alone", [Tenant(F("1/20"), "medium", ("--cap",))]),
    ("sync beside backlog", [Tenant(F("1/2"), "sync"), Tenant(F("1/2"), "medium")]),
    (
        "5 us, 500 us, 50 ms",
        [Tenant(F("1/3"), "tiny"), Tenant(F("1/3"), "medium"), Tenant(F("1/3"), "long")],
    ),
    (
        "graph, memory, sync",
        [Tenant(F("1/3"), "graph"), Tenant(F("1/3"), "memory"), Tenant(F("1/3"), "sync")],
    ),
    ("10 s: 1/3 2/3", tenants("medium", "1/3", "2/3")),
    (
        "10 s: 1/20 1/7 1/3 1/3",
        [*tenants("medium", "1/20", "1/3", "1/3"), Tenant(F("1/7"), "graph")],
    ),
    (
        "10 s: 1/20 1/5 3/4",
        [Tenant(F("1/20"), "tiny"), Tenant(F("1/5"), "graph"), Tenant(F("3/4"), "medium")],
    ),
    (
        "10 s: 1/10 2/5 1/2",
        [Tenant(F("1/10"), "medium"), Tenant(F("2/5"), "long"), Tenant(F("1/2"), "memory")],
    ),
    ("10 s: 1/4, 1/7, 18 x 1/30", tenants("medium", "1/4", "1/7", *["1/30"] * 18)),
]
# Pieces of 50 ms end twice in a second at a tenth of the GPU, six times at a third.
LONGER = {"1/10 9/10, 50 ms": 2.1, "5 us, 500 us, 50 ms": 1.7}
TEN_SECONDS = {name: 10 + SETTLE_S for name, _ in CASES if name.startswith("10 s")}
PACKED = ["1/2 1/2", "4 x 1/4", "20 x 1/20"]
COMPARED = ["1/2 1/2", "1/10 9/10", "4 x 1/4"]
# Shows what else the service's pairs of processors leave unused or give twice. Only when asked for
# by this name.
STEPS = "packed-steps"
STEP_CASES = [
    (name, tenants(kind, *[f"1/{count}"] * count))
    for name, kind, count in (
        ("10 x 1/10", "medium", 10),
        ("1/2 1/2, memory-bound", "memory", 2),
        ("4 x 1/4, memory-bound", "memory", 4),
    )
]
# One tenant alone with a whole GPU and with half of it: with this word, or where everything is
# measured.
WHOLE = "whole"
TWO_GPUS = "two-gpus"
BOTH = Tenant(F("1/2"), "both", ("-n", "2"))
TWO_GPU_CASES = [
    ("two GPUs: 2 x 1/2 of both", [BOTH, BOTH]),
    (
        "two GPUs: 9/20 of both, 11/20 of each",
        [BOTH._replace(share=F("9/20")), *tenants("medium", "11/20", "11/20")],
    ),
    (
        "two GPUs: 1/4 of both, 3/4 of each",
        [BOTH._replace(share=F("1/4")), *tenants("medium", "3/4", "3/4")],
    ),
]
MODES = {
    "turns only": ["--hardware-slices", "off"],
    "hardware slices only": ["--turns", "off"],
    "neither": ["--turns", "off", "--hardware-slices", "off"],
}


def settle_of(case):
    return SETTLE_S * (3 if case in LONGER else 1)


class Measurement(Tenants):
    def __init__(self, whole, seconds):
        super().__init__(whole)
        self.seconds, self.alone = seconds, {}

    def together(self, server, tenants_now, seconds, meanwhile=None):
        """Runs them all from one moment on; (answers or None each, seconds to attach all)."""
        if server:
            self.await_nobody(server)
        processes = [self.start(server, tenant, seconds) for tenant in tenants_now]
        until = time.monotonic() + 40
        attach_s = max(
            process.wait_for("ready", until - time.monotonic()) or float("nan")
            for process in processes
        )
        at_ns = time.monotonic_ns() + 300_000_000
        for process in processes:
            process.tell(at_ns)
        if meanwhile:
            meanwhile(processes, at_ns)
        limit = at_ns / 1e9 + seconds + 15
        return [process.end(limit - time.monotonic()) for process in processes], attach_s

    # ---- What is measured ----
    def measure_alone(self, server, kinds=None):
        """Natively, for comparison, and remotely, unless only some `kinds` are asked for."""
        seconds = max(2.5, self.seconds / 3)
        heads = f"{'whole GPU':>12}{'of native':>11}{'1/2, alone':>12}{'of native':>11}"
        self.say(f"{'alone, pieces/s':22}{'natively':>12}" + heads)
        for kind in kinds or KINDS:
            rates = []
            ours = (
                [(server, F(1)), (server, F("1/2"))]
                if not kinds and kind not in ("long", "memory")
                else []
            )
            for at, share in [(None, F(1)), *ours]:
                answer = self.together(at, [Tenant(share, kind)], seconds)[0][0]
                rates.append(Counts(answer).rate() if answer else float("nan"))
                if at is None and answer:
                    self.facts["processors"] = answer.get("processors", 0)
            self.alone[kind] = rates[0]
            self.facts.setdefault("alone", {})[kind] = rates
            each = (
                "".join(f"{rate:12.1f}{100 * rate / rates[0]:10.2f}%" for rate in rates[1:])
                if rates[0]
                else ""
            )
            self.say(f"  {kind:20}{rates[0]:12.1f}{each}")

    def measure_case(self, server, name, tenants_now, mode="", seconds=None):
        seconds = seconds or TEN_SECONDS.get(name, self.seconds * LONGER.get(name, 1))
        answers, attach_s = self.together(server, tenants_now, seconds)
        self.facts.setdefault("cases", []).append(
            {
                "case": name,
                "mode": mode,
                "attach_s": attach_s,
                "answers": answers,
                "asked": [str(tenant.share) for tenant in tenants_now],
            }
        )
        rows = []
        for tenant, answer in zip(tenants_now, answers):
            counts = (
                Counts(answer, self.facts.get("processors"), settle_of(name)) if answer else None
            )
            alone = self.alone.get(tenant.kind)
            if counts and alone:
                by_second = [100 * rate / alone for rate in counts.rates_by_second()]
                rows.append((tenant, 100 * counts.rate() / alone, by_second, counts.latency))
        total = sum(row[1] for row in rows)
        missing = f", {len(answers) - len(rows)} WITHOUT ANSWER" if len(rows) < len(answers) else ""
        self.say(
            f"{name + (' | ' + mode if mode else '')}: sum {total:.2f} %, attached in"
            f" {attach_s:.2f} s{missing}"
        )
        if len(rows) > 7 and len({row[0] for row in rows}) == 1:
            return self.say_alike(rows)
        for tenant, got, by_second, latency in rows:
            late = f"  p50 {latency['p50']:.0f} us, p99 {latency['p99']:.0f} us" if latency else ""
            seconds_range = f"{min(by_second):8.2f} ...{max(by_second):7.2f}" if by_second else ""
            asked = 100 * float(tenant.share)
            self.say(
                f"  asked {asked:6.2f} %  {tenant.kind:7} got {got:6.2f} %  ({got - asked:+6.2f})  "
                f"of all {100 * got / total:6.2f} %  1 s: {seconds_range}{late}"
            )
        return None

    def say_alike(self, rows):
        got = [row[1] for row in rows]
        seconds = [value for row in rows for value in row[2]]
        self.say(
            f"  asked {100 * float(rows[0][0].share):6.2f} % each  got {min(got):.2f} ..."
            f" {max(got):.2f} %, mean {statistics.mean(got):.2f} %  1 s: {min(seconds):.2f} ..."
            f" {max(seconds):.2f}"
        )

    def measure_kill(self, server):
        """One of two neighbours is killed in the middle: what the other one gets before and
        after."""

        def kill(processes, at_ns):
            time.sleep(max(0.0, at_ns / 1e9 + self.seconds / 2 - time.monotonic()))
            os.killpg(processes[1].process.pid, signal.SIGKILL)

        answers, _ = self.together(server, tenants("medium", "1/2", "1/2"), self.seconds, kill)
        if not answers[0]:
            return self.say("a neighbour is killed: the survivor has NO ANSWER")
        counts, alone = Counts(answers[0]), self.alone["medium"]
        middle = round(self.seconds / 2 / counts.bucket_s)
        after = [100 * pieces / counts.bucket_s / alone for pieces in counts.pieces[middle:]]
        regained = next((i for i, share in enumerate(after) if share > 95), None)
        when = "never" if regained is None else f"from tenth of a second {regained} on"
        self.facts["kill"] = answers[0]
        before = 100 * counts.rate(None, middle) / alone
        return self.say(
            f"a neighbour of 1/2 is killed: before {before:.2f} %, above 95 % {when}, "
            f"last second {statistics.mean(after[-10:]):.2f} %"
        )

    def measure_priority(self, server):
        """A tenant that waits for each 300 us piece and pauses 2 ms, beside one that always wants
        more; natively for comparison."""
        beside, long = [Tenant(F("3/4"), "medium")], [Tenant(F("3/4"), "long")]
        for name, at, group, priority in (
            ("natively, alone", None, [], "-"),
            ("natively, beside a backlog", None, beside, "-"),
            ("natively, beside 50 ms kernels", None, long, "-"),
            ("alone", server, [], "0"),
            ("beside a backlog", server, beside, "0"),
            ("beside a backlog", server, beside, "1"),
            ("beside 50 ms kernels", server, long, "1"),
        ):
            one = Tenant(F("1/4"), "pause", ("--priority", priority) if priority == "1" else ())
            answers, _ = self.together(at, [one, *group], self.seconds / 2)
            latency = answers[0]["latency_us"] if answers[0] else {}
            self.facts.setdefault("priority", {})[f"{name}, {priority}"] = latency
            text = ", ".join(f"{place} {value:.0f} us" for place, value in latency.items())
            if latency and group and answers[1]:
                latency["neighbour_per_s"] = Counts(answers[1]).rate()
                text += f"; the neighbour {latency['neighbour_per_s']:.1f} pieces/s"
            self.say(f"300 us and wait, priority {priority}, {name}: {text or 'NO ANSWER'}")


def parts_in_turns(m, server, seconds, cases, kinds):
    """(name, seconds that it needs, what to call) of the cases on one server, and of what follows.
    `kinds`: of neighbours, () for all."""
    parts = [
        (name, seconds + 10, lambda name=name, who=who: m.measure_case(server, name, who))
        for name, who in cases
    ]
    return parts + [
        ("kill", seconds + 10, lambda: m.measure_kill(server)),
        ("priority", 4 * seconds + 15, lambda: m.measure_priority(server)),
        (
            "neighbours " + " ".join(share_neighbours.KINDS),
            30,
            lambda: share_neighbours.measure(m, server, kinds),
        ),
        ("torch 20", 60, lambda: share_torch.measure_many(m, HERE, server, 20)),
        ("torch 50", 90, lambda: share_torch.measure_warm(m, HERE, 50)),
        ("resnet", 60, lambda: share_torch.measure_resnet(m, HERE, server)),
    ]


def parts_in_packs(m, server, seconds, packed, steps, several):
    """The same of packed slices, of cases in steps and of those on two GPUs."""
    packed_of = lambda who: [tenant._replace(options=("--packed",)) for tenant in who]
    parts = [
        (
            "packed",
            seconds + 10,
            lambda name=name, who=who: m.measure_case(
                server, name, packed_of(who), "packed", max(2.0, seconds / 2)
            ),
        )
        for name, who in packed
    ]
    parts += [
        (
            STEPS,
            10,
            lambda name=name, who=who: m.measure_case(server, name, packed_of(who), "packed", 2.5),
        )
        for name, who in steps
    ]
    return parts + [
        (TWO_GPUS, seconds + 10, lambda name=name, who=who: m.measure_case(server, name, who))
        for name, who in several
    ]


def measure(whole, seconds, words=()):
    """All of it as text, and as shares.json in $OUT. `words`: only parts and cases whose name
    contains one of them."""
    whole.environment_of_programs = whole.environment()
    m = Measurement(whole, seconds)
    facts = whole.facts
    m.facts["source"] = f"{facts.get('date', '')}, {facts.get('gpu')}, commit {facts.get('commit')}"
    server = m.server("shares", [])
    if server is None:
        return "the server for shares does not start"
    is_wanted = lambda name: not words or any(word in name for word in words)
    chosen = [case for case in CASES if is_wanted(case[0])]
    packed = [case for case in CASES if case[0] in PACKED and is_wanted("packed")]
    steps = STEP_CASES if STEPS in words else []
    several = TWO_GPU_CASES if TWO_GPUS in words else []
    kinds = {tenant.kind for _, who in chosen + packed + steps + several for tenant in who}
    kinds |= {"medium"} if is_wanted("kill") or is_wanted("modes") else set()
    if kinds or WHOLE in words:
        in_order = [kind for kind in [*KINDS, "both"] if kind in kinds]
        m.measure_alone(server, None if not words or WHOLE in words else in_order)
    neighbours = () if is_wanted("neighbours") else words
    parts = parts_in_turns(m, server, seconds, chosen, neighbours)
    parts += parts_in_packs(m, server, seconds, packed, steps, several)
    for name, needed_s, part in parts:
        if not is_wanted(name):
            continue
        if whole.left() < needed_s:
            m.say(f"no time left for {name}")
            continue
        try:
            part()
        except Exception as error:  # what was measured until then is worth keeping
            m.say(f"{name}: {type(error).__name__}: {error}")
        (whole.out / "shares.json").write_text(json.dumps(m.facts))
    server.stop()
    share_torch.measure_attach(m, lambda name: is_wanted("attach, " + name))
    if is_wanted("modes"):
        measure_modes(m)
    (whole.out / "shares.json").write_text(json.dumps(m.facts))
    return "\n".join(m.lines)


def measure_modes(m):
    """The same cases without one of the mechanisms, or both."""
    for mode, options in MODES.items():
        if m.whole.left() < 3 * (m.seconds + 5):
            return m.say("no time left")
        other = m.server("shares-" + mode.replace(" ", "-"), options)
        if other is None:
            m.say(
                f"no server with {' '.join(options)}: "
                + m.whole.servers[-1].log.read_text(errors="replace")[-200:]
            )
            continue
        for name, who in CASES:
            if name in COMPARED:
                m.measure_case(other, name, who, mode, max(2.0, m.seconds / 2))
        other.stop()
    return None
