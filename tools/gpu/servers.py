# SPDX-License-Identifier: Apache-2.0
"""One program on GPUs of two servers beside the same natively: NCCL's checks and its speed,
training and inference, memory, and what is lost when something dies. gpu_run.py calls it as its
group `servers`, when nothing else runs.

Two tendrilds of this machine have a GPU each. NCCL takes them for two hosts and uses sockets
between them, and so it does natively, where each rank gets a host id. Beside that, one server with
both GPUs stands against native NVLink. All processes of a comparison live at once and take turns.
"""

import concurrent.futures
import fractions
import itertools
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

import build
import catalog
import meters
import server_tables
import sides
from steps import Gpu, Steps
from tenants import Tenant

NCCL_TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests/nccl"
# Calls of one rank alone cannot be compared between a thread and a process natively: in one process
# NCCL reaches the other GPU without a network. So native ranks on sockets are always processes.
SIZES = [8, 1 << 10, 1 << 15, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28]
FEW_SIZES = [8, 1 << 15, 1 << 20, 1 << 24, 1 << 26]
FUNCTIONS = ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"]
# Mode, functions, sizes, eager and in graphs.
TABLES = [
    ("processes", FUNCTIONS, SIZES, ["eager"]),
    ("processes", ["all_reduce", "all_gather"], FEW_SIZES, ["graph"]),
    ("processes", ["all_reduce"], [1 << 30], ["eager"]),
    ("threads", ["all_reduce", "sendrecv"], FEW_SIZES, ["eager", "graph"]),
    ("group", ["all_reduce", "sendrecv"], FEW_SIZES, ["eager", "graph"]),
]
COPIES = [1 << 12, 1 << 20, 1 << 24, 1 << 26, 1 << 28]
ROUNDS, SECONDS = 2, 0.08
# Each with who takes part beside native: all, those without a longer line, or the first four.
TRAINED = {
    "ddp-resnet50-b64": 8,
    "ddp-gpt2-8x512": 6,
    "fsdp2-gpt2-8x512": 4,
    "tp-eager": 4,
    "tp-graph": 4,
}
MAPPED = {"jax-pmap-8x512": 4, "jax-shard-map-8x512": 4}
# Microseconds one way, and MB/s, of the client's line.
LINES = {"two-10G-50us": "25:1250", "two-1G-1ms": "500:125"}
MODES = ["group", "all", "threads", "nonblocking", "graph", "processes"]
# Of tests/nccl/edges.py: those that two GPUs are enough for. NCCL refuses two ranks on one.
SCENARIOS = ["refusals", "stuck_collective", "stuck_connection", "lost_peer", "graph_holds"]
JAX_ENV = {"XLA_FLAGS": "--xla_gpu_autotune_level=0", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class Asking(sides.Side):
    """A side that asks for its GPUs in words of its own."""

    def __init__(self, words, extra, *others):
        self.words, self.extra = words, extra
        super().__init__(*others)

    def command(self, argv):
        tendril = str(self.servers[0].binaries / "bin/tendril")
        return [tendril, "run", *self.words, "--timeout", "20000", "--", *argv]

    def environment_for(self, extra, stats):
        return super().environment_for(extra, stats) | self.extra


def nccl_library(whole):
    """The NCCL that the frameworks of this machine use; softnccl for the software GPU."""
    if whole.args.driver:
        return whole.binaries / "lib/libtendril-softnccl.so"
    for folder in build.library_folders():
        for library in sorted(pathlib.Path(folder).glob("libnccl.so*")):
            return library
    raise RuntimeError("no libnccl.so here")


class Servers(Steps):
    SIDES = ("native", "two", "nvlink", "one", "local", "mixed", *LINES)
    CHECKED = ("nvlink", "two", "one")  # by nccl_check

    def __init__(self, whole, here, words):
        super().__init__(whole, here, "servers")
        self.words, self.lent, self.until = words, {}, 0.0
        self.folder = whole.work / "nccl"
        self.folder.mkdir()
        self.nccl = self.folder / "libnccl.so.2"
        shutil.copy(nccl_library(whole), self.nccl)
        (self.folder / "libnccl.so").symlink_to("libnccl.so.2")
        self.peers = whole.work / "peers"
        self.peers.write_text("")
        subprocess.run(["chmod", "-R", "a+rX", str(self.folder), str(self.peers)], check=False)
        self.ours = whole.binaries / "lib/client/nccl/libnccl.so.2"

    # ---- Who takes part ----
    def open(self, name, gpus, *options):
        environment = dict(os.environ) | {
            "CUDA_VISIBLE_DEVICES": gpus,
            "NCCL_SOCKET_IFNAME": "lo",
            "TENDRIL_SOFTGPU_DEVICES": str(len(gpus.split(","))),
        }
        options = ("--nccl", str(self.nccl), "--peers", str(self.peers), "--warm", "0", *options)
        self.lent[name] = self.whole.start_server(name, environment, options)
        with open(self.peers, "a", encoding="ascii") as peers:
            peers.write(self.lent[name].address() + "\n")
        return self.lent[name]

    def native_environment(self, sockets):
        env = self.whole.environment()
        path = [str(self.folder), env.get("LD_LIBRARY_PATH", "")]
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, path))
        env.setdefault("TENDRIL_SOFTGPU_DEVICES", "2")
        env["GLOO_SOCKET_IFNAME"] = "lo"
        if sockets:
            env |= {"NCCL_BENCH_HOSTS": "1", "NCCL_SOCKET_IFNAME": "lo"}
        return env

    def side(self, name, servers=(), words=(), transport="tcp", extra=None, sockets=False):
        env = self.native_environment(sockets)
        others = (name, self.whole.work, self.logs, env, list(servers), transport, 2)
        if words:
            return Asking(list(words), extra or {}, *others)
        return sides.Side(*others)

    def open_all(self):
        """native: sockets. nvlink: native as NCCL likes. two: a server for each GPU. one: a server
        with both, NCCL forwarded. local: the same over shared memory, as --local gives it.
        mixed: one GPU of this machine, one of another server. Whole GPUs are lent to one program,
        so each side has servers of its own."""
        pairs = ["two", "mixed", *LINES]
        wanted = {f"{pair}-{gpu}": str(gpu) for pair in pairs for gpu in (0, 1)}
        wanted |= {"one": "0,1", "local": "0,1"}
        with concurrent.futures.ThreadPoolExecutor(len(wanted)) as many:
            list(many.map(self.open, wanted, wanted.values()))
        of = lambda pair: [self.lent[f"{pair}-0"], self.lent[f"{pair}-1"]]
        one, local, mixed = self.lent["one"], self.lent["local"], of("mixed")
        ours = {"LD_PRELOAD": str(self.ours)}
        here = lambda server: {"TENDRIL_LOCAL_SERVER": server.address()}
        words = ["--local", "1", "-s", mixed[1].address(), "-n", "1"]
        self.field_sides = {
            "native": self.side("native", sockets=True),
            "two": self.side("two", of("two")),
            "nvlink": self.side("nvlink"),
            "one": self.side("one", [one], ["-s", one.address(), "-n", "2"], extra=ours),
            "local": self.side("local", [local], ["--local", "2"], "auto", here(local)),
            "mixed": self.side("mixed", mixed, words, "auto", here(mixed[0])),
        }
        for name, line in LINES.items():
            words = [word for server in of(name) for word in ("-s", server.address())]
            line = {"TENDRIL_LINK": line}
            self.field_sides[name] = self.side(name, of(name), words, "tcp", line)

    def time_left(self):
        return min(self.until - time.monotonic(), self.whole.left() - 5)

    def run(self, side, label, argv, limit_s, extra=None):
        side = self.field_sides[side]
        limit_s = max(3, min(limit_s, self.time_left()))
        return side.run(f"servers-{label}", argv, extra or {}, side.work, limit_s)

    def outcome(self, label, outcome):
        lines = (outcome.stdout + outcome.stderr).strip().splitlines() or [""]
        good = outcome.status == 0 and not outcome.timed_out
        word = "ok" if good else "TIMEOUT" if outcome.timed_out else f"status {outcome.status}"
        self.say(f"{label}: {word}, {outcome.seconds:.1f} s" + ("" if good else f": {lines[-1]}"))
        facts = {"status": outcome.status, "timeout": outcome.timed_out, "s": outcome.seconds}
        facts["round_trips"] = outcome.round_trips
        return facts | ({} if good else {"said": "\n".join(lines)[-3000:]})

    # ---- Steps ----
    def smoke(self):
        """One short check with everything that NCCL has to say, and the system calls that NCCL
        makes beyond the list."""
        table = self.table(False)
        argv = [str(self.whole.binaries / "bin/programs/nccl_check"), str(table), "group"]
        talk = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,GRAPH"}
        facts = {}
        for name in ("nvlink", "two", "one"):
            outcome = self.run(name, f"smoke-{name}", argv, 40, talk)
            facts[name] = self.outcome(f"smoke, {name}", outcome)
            facts[name]["log"] = (outcome.stdout + outcome.stderr)[-12000:]
        learned = self.whole.out / "learned"
        pair = [
            self.open(f"learn-{gpu}", gpu, "--learn-filter", f"{learned}-{gpu}")
            for gpu in ("0", "1")
        ]
        self.field_sides["learning"] = self.side("learning", pair)
        facts["learning"] = self.outcome("smoke, learning", self.run("learning", "learn", argv, 40))
        for gpu in ("0", "1"):
            file = pathlib.Path(f"{learned}-{gpu}")
            facts[f"calls {gpu}"] = sorted(set(file.read_text().split())) if file.exists() else None
            self.say(f"calls beyond the list on {gpu}: {facts[f'calls {gpu}']}")
        for server in pair:
            server.stop()
        return facts

    def table(self, whole):
        file = self.whole.work / f"table-{whole}"
        if not file.exists():
            made = f"import model; print(model.cases({self.RANKS}, whole={whole}), end='')"
            argv = [sys.executable, "-B", "-c", made]
            file.write_text(subprocess.check_output(argv, cwd=NCCL_TESTS, text=True, timeout=60))
            file.chmod(0o644)
        return file

    def checks(self):
        facts = {}
        program = str(self.whole.binaries / "bin/programs/nccl_check")
        for mode, name in itertools.product(MODES, self.CHECKED):
            if self.time_left() < 5:
                break
            table = str(self.table(mode in ("group", "processes")))
            outcome = self.run(name, f"check-{mode}-{name}", [program, table, mode], 30)
            facts[f"{mode} {name}"] = self.outcome(f"nccl_check {mode}, {name}", outcome)
            facts[f"{mode} {name}"]["said"] = outcome.stdout[-300:]
        return facts

    def scenarios(self):
        """tests/nccl/edges.py and training.py."""
        facts = {}
        python = [self.python, "-B"]
        for scenario, name in itertools.product(SCENARIOS, ("nvlink", "two")):
            if self.time_left() < 5:
                break
            argv = [*python, str(NCCL_TESTS / "edges.py"), scenario]
            outcome = self.run(name, f"edge-{scenario}-{name}", argv, 15)
            facts[f"{scenario} {name}"] = self.outcome(f"{scenario}, {name}", outcome)
        for kind, how in itertools.product(("ddp", "fsdp", "tp"), ([], ["graph"])):
            if self.time_left() < 5:
                break
            argv = [*python, str(NCCL_TESTS / "training.py"), kind, "2", *how]
            words = " ".join([kind, *how])
            outcome = self.run("two", f"training-{kind}-{len(how)}", argv, 20)
            facts[f"training {words}"] = self.outcome(f"training {words}, two", outcome)
        return facts

    def bench(self, field, name, mode, sockets=True):
        program = str(self.whole.binaries / "bin/programs/nccl_bench")
        field.start(self.field_sides[name], f"bench-{mode}", [program, mode, "2"], {}, name)

    def collectives(self):
        facts = {"init": {}, "rows": []}
        for mode in ("processes", "threads", "group"):
            field = meters.Field(self.say)
            try:
                self.bench(field, "native", "processes")
                for name in ("two", "nvlink", "one"):
                    self.bench(field, name, mode)
                if not field.ready(30):
                    continue
                facts["init"][mode] = field.ask_all("init", 40)
                self.say(f"init, {mode}: {facts['init'][mode]}")
                for _, functions, sizes, hows in [t for t in TABLES if t[0] == mode]:
                    for function, size, how in itertools.product(functions, sizes, hows):
                        self.measured(field, facts["rows"], mode, function, size, how)
            finally:
                field.end()
        return facts

    def measured(self, field, rows, mode, function, size, how):
        if self.time_left() < 8:
            return
        command = f"measure {function} {size} {SECONDS} {how}"
        turns = {}
        for _ in range(ROUNDS):
            for meter in field.meters:
                if not meter.gone:
                    answer = field.told(meter, command, meter.ask(command, 30))
                    turns.setdefault(meter.name, []).append(answer)
        row = {"mode": mode, "function": function, "bytes": size, "how": how}
        for name, answers in turns.items():
            blocks = [value for answer in answers for value in answer.get("blocks", [])]
            if blocks:
                row[name] = statistics.median(blocks)
                row[name + " least"] = min(blocks)
                row[name + " wrong"] = sum(answer.get("wrong", 0) for answer in answers)
        rows.append(row)
        self.say(server_tables.row_text(row))

    def links(self):
        """cuMemcpyPeer between the two, and bare sockets between processes of this machine."""
        facts, field = {"rows": []}, meters.Field(self.say)
        bench = [str(self.whole.binaries / "bin/tendril-bench"), "bare", "tcp", "4"]
        outcome = self.run("nvlink", "bare", bench, 30)
        facts["bare"] = outcome.stdout[-2000:]
        self.say(f"bare sockets: {outcome.stdout.strip()[-400:]}")
        try:
            for name in ("nvlink", "two", "one"):
                self.bench(field, name, "group")
            if field.ready(30):
                for size in COPIES:
                    self.measured(field, facts["rows"], "group", "copy", size, "eager")
        finally:
            field.end()
        return facts

    def framework(self, label, argv, environment, names, sides_of):
        facts, field = {}, meters.Field(self.say)
        environment = catalog.FRAMEWORK_ENV | environment
        try:
            for name in sides_of:
                field.start(self.field_sides[name], label, argv, environment, name)
            if not field.ready(90):
                return {"error": "native does not start"}
            chosen = [name for name in names if any(word in name for word in self.words)]
            for name in chosen or names:
                if self.time_left() < 15:
                    self.say(f"{name}: no time left")
                    break
                but = sides_of[names[name] :]
                turns = field.compare(name, 5, 0.5, min(100, self.time_left()), but)
                facts[name] = {each: meters.summary(turn) for each, turn in turns.items()}
                facts[name]["turns"] = turns
                server_tables.add_ratios(facts[name])
                self.say(f"{name}: {server_tables.steps_text(facts[name])}")
            facts["init"] = field.ask_all("init", 20) if label == "ranks" else {}
            self.say(f"one communicator more: {facts['init']}")
        finally:
            field.end()
        return facts

    def torch(self):
        environment = {"OMP_NUM_THREADS": "2"}
        return self.framework("ranks", self.ranks(), environment, TRAINED, list(self.SIDES))

    RANKS = 2

    def ranks(self):
        """PyTorch with a process for each GPU."""
        script = str(self.here / "frameworks/bench_ranks.py")
        argv = [self.python, "-B", "-m", "torch.distributed.run", "--standalone"]
        return [*argv, "--nproc_per_node", str(self.RANKS), script]

    def calls(self):
        """Which calls a step makes, and which of them wait: TENDRIL_STATS of both ranks' steps."""
        facts = {}
        chosen = [name for name in TRAINED if any(word in name for word in self.words)]
        for name, side in itertools.product(chosen or TRAINED, ("two", "one")):
            if self.time_left() < 20:
                break
            file, field = self.whole.work / f"counted-{name}-{side}", meters.Field(self.say)
            environment = catalog.FRAMEWORK_ENV | {"TENDRIL_STATS": str(file)}
            environment["OMP_NUM_THREADS"] = "2"
            try:
                field.start(self.field_sides[side], "counted", self.ranks(), environment, side)
                if field.ready(60):
                    field.ask_all(f"setup {name}", 30)
                    steps = field.ask_all("measure 2", 20)
                    self.say(f"{name}, {side}: {steps}")
            finally:
                field.end()
            facts[f"{name} {side}"] = file.read_text() if file.exists() else ""
            self.say(facts[f"{name} {side}"])
        return facts

    def jax(self):
        argv = [self.python, "-B", str(self.here / "frameworks/bench_sharded.py")]
        env = self.native_environment(False) | {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
        others = (self.whole.work, self.logs, env | {"NCCL_SOCKET_IFNAME": "lo"})
        self.field_sides["sockets"] = sides.Side("sockets", *others)
        everybody = ["sockets", "two", "nvlink", "one"]
        return self.framework("sharded", argv, JAX_ENV, MAPPED, everybody)

    def memory(self):
        """What a communicator takes, as NVML, the driver and the slices' accounts say it."""
        facts = {"quota": self.quota()}
        gpus = [Gpu("libnvidia-ml.so.1", index) for index in (0, 1)]
        for name in ("native", "two"):
            field = meters.Field(self.say)
            self.bench(field, name, "processes")
            meter = field.meters[0]
            held = facts[name] = []

            def look(when):
                used = [gpu.settled(3.0) for gpu in gpus]
                free = meter.ask("memory", 10).get("free")
                servers = [self.lent["two-0"], self.lent["two-1"]] if name == "two" else []
                charged = [self.charged(server) for server in servers]
                held.append({"when": when, "used": used, "free": free, "charged": charged})

            try:
                meter.answer(30)
                look("before")
                self.say(f"init: {meter.ask('init', 30)}")
                look("a communicator")
                for function in FUNCTIONS:
                    meter.ask(f"measure {function} 1048576 0.01", 20)
                look("all functions, 1 MiB")
                meter.ask("end", 10)
                look("communicator ended")
            finally:
                field.end()
            self.say(f"memory, {name}: {server_tables.memory_text(held)}")
        return facts

    def quota(self):
        program = str(self.whole.binaries / "bin/programs/nccl_bench")
        both = [self.lent["two-0"], self.lent["two-1"]]
        words = [word for server in both for word in ("-s", server.address())]
        found = {}
        for memory in ("1500M", "8G"):
            name = f"small-{memory}"
            self.field_sides[name] = self.side(name, both, [*words, "-n", "2", "-m", memory])
            field = meters.Field(self.say)
            try:
                self.bench(field, name, "processes")
                if field.ready(30):
                    found[memory] = field.meters[0].ask("init", 30)
                log = field.meters[0].log.read_text(errors="replace")[-500:]
                found[memory] = {"answer": found.get(memory), "said": log}
            finally:
                field.end()
            self.say(f"a communicator in a slice of {memory}: {found[memory]}")
        return found

    def windows(self):
        """Two halves that meet in each call, alone and beside a half of each server that never
        stops; in common windows, and with turns that each server gives by itself."""
        pair = [self.open(f"gang-{gpu}", str(gpu)) for gpu in (0, 1)]
        words = [word for server in pair for word in ("-s", server.address())]
        words += ["-n", "2", "-p", "0.5"]
        facts, half = {}, fractions.Fraction(1, 2)
        kinds = {"windows": {}, "by chance": {"TENDRIL_WINDOWS": "off"}}
        for name, extra in kinds.items():
            self.field_sides[name] = self.side(name, pair, words, "tcp", extra)
        for beside, name in itertools.product((False, True), kinds):
            label = f"{name}, {'beside others' if beside else 'alone'}"
            others, field = [], meters.Field(self.say)
            try:
                for server in pair if beside else ():
                    tenant = Tenant(half, "medium", ())
                    others.append(self.start(server, tenant, 9))
                    others[-1].wait_for("ready", 20)
                self.bench(field, name, "processes")
                if not field.ready(30) or not field.ask_all("init", 30):
                    continue
                for other in others:
                    other.tell("")
                row = facts[label] = {}
                for size in (8, 1 << 20):
                    answer = field.meters[0].ask(f"measure all_reduce {size} 2", 40)
                    row[size] = answer.get("blocks", answer)
                for other in others:
                    row.setdefault("others", []).append((other.end(15) or {}).get("pieces"))
                self.say(f"{label}: {row}")
            finally:
                field.end()
                for other in others:
                    sides.end_group(other.process, signal.SIGKILL)
        for server in pair:
            server.stop()
        return facts

    # ---- What is lost ----
    def rank(self, number, server):
        """A rank with a GPU of one server, or natively."""
        argv = [self.python, "-B", str(self.here / "probes/nccl_rank.py"), str(number), "2"]
        environment = {"NCCL_HOSTID": f"bench-{number}", "NCCL_SOCKET_IFNAME": "lo"}
        if server is None:
            env = self.native_environment(True) | {"CUDA_VISIBLE_DEVICES": str(number)}
            return self.begin(None, f"rank-{number}", argv, environment=env | environment)
        environment = {"LD_PRELOAD": str(self.ours), "TENDRIL_TRANSPORT": "tcp"}
        return self.begin(server, f"rank-{number}", argv, environment=environment)

    def lose(self, what, server, hurt):
        """Two ranks sum; `hurt` happens to the second one. What the first one hears, and when."""
        ranks = [self.rank(number, server and server[number]) for number in (0, 1)]
        try:
            unique = self.asked(ranks[0], "id", 40)
            ranks[1].tell(unique.get("id", ""))
            for rank in ranks:
                if "error" in (told := self.asked(rank, "sums", 15)):
                    self.say(f"{what}: {told}")
                    return told
            time.sleep(0.5)
            at = time.monotonic()
            hurt(ranks[1])
            found = {}
            for word in ("state", "error"):
                if ranks[0].wait_for(word, 3 if found else 6) is not None:
                    told = ranks[0].said[word][1]
                    found[word] = told | {"after_ms": (told.pop("at") - at) * 1e3}
            ranks[0].tell("abort")
            for word in ("aborted", "freed"):
                if ranks[0].wait_for(word, 25) is not None:
                    found[word] = ranks[0].said[word][1]
            self.say(f"{what}: {found}")
            return found
        finally:
            for rank in ranks:
                sides.end_group(rank.process, signal.SIGKILL)
                rank.end(1)

    def faults(self):
        pair = [self.lent["two-0"], self.lent["two-1"]]

        def kill_program(rank):
            os.killpg(rank.process.pid, signal.SIGKILL)

        def kill_worker(_):
            for worker in self.workers(pair[1]):
                os.kill(worker, signal.SIGKILL)

        def kill_server(_):
            pair[1].process.kill()

        facts = {}
        for name, server, hurt in [
            ("program killed, native", None, kill_program),
            ("program killed, two", pair, kill_program),
            ("stuck and aborted, native", None, lambda rank: rank.tell("stop")),
            ("stuck and aborted, two", pair, lambda rank: rank.tell("stop")),
            ("worker killed, two", pair, kill_worker),
            ("server killed, two", pair, kill_server),
        ]:
            if self.time_left() > 15:
                facts[name] = self.lose(name, server, hurt)
        return facts


class Four(Servers):
    """Four GPUs: all of this machine, two of it beside two of another server, and two of each of
    two servers."""

    SIDES = ("native", "nvlink", "local", "mixed", "remote")
    CHECKED = ("nvlink", "remote", "mixed")
    RANKS = 4

    def open_all(self):
        """native: two ranks a host, sockets between the hosts. nvlink: native as NCCL likes."""
        halves = {f"{pair}-{at}": gpus for pair in ("mixed", "remote") for at, gpus in HALVES}
        wanted = {"local": "0,1,2,3"} | halves
        with concurrent.futures.ThreadPoolExecutor(len(wanted)) as many:
            list(many.map(self.open, wanted, wanted.values()))
        local, lent = self.lent["local"], self.lent
        here = lambda server: {"TENDRIL_LOCAL_SERVER": server.address()}
        mixed = [lent["mixed-0"], lent["mixed-1"]]
        remote = [lent["remote-0"], lent["remote-1"]]
        both = [word for server in remote for word in ("-s", server.address())]
        beside = ["--local", "2", "-s", mixed[1].address(), "-n", "2"]
        self.field_sides = {
            "native": self.side("native", sockets=True),
            "nvlink": self.side("nvlink"),
            "local": self.side("local", [local], ["--local", "4"], "auto", here(local)),
            "mixed": self.side("mixed", mixed, beside, "auto", here(mixed[0])),
            "remote": self.side("remote", remote, [*both, "-n", "4"]),
        }

    def native_environment(self, sockets):
        env = super().native_environment(sockets)
        return env | ({"NCCL_BENCH_HOSTS": "2"} if sockets else {})


HALVES = ((0, "0,1"), (1, "2,3"))


def measure(whole, here, words=()):
    """All of it as text; also as servers.json in $OUT. `whole` is gpu_run's Run."""
    four = whole.args.gpus >= 4
    s = (Four if four else Servers)(whole, here, words)
    s.open_all()

    def within(limit_s, step):
        def limited():
            s.until = time.monotonic() + limit_s
            return step()

        return limited

    steps = [
        ("smoke", 20, within(120, s.smoke)),
        ("checks", 30, within(100, s.checks)),
        ("collectives", 40, within(170, s.collectives)),
        ("torch", 60, within(200, s.torch)),
        ("calls", 60, within(240, s.calls)),
        ("links", 20, within(40, s.links)),
        ("jax", 40, within(170, s.jax)),
        ("memory", 20, within(50, s.memory)),
        ("windows", 40, within(90, s.windows)),
        ("scenarios", 30, within(80, s.scenarios)),
        ("faults", 30, within(100, s.faults)),
    ]
    if four:
        steps = [("checks", 30, within(100, s.checks)), ("torch", 60, within(200, s.torch))]
    text = s.run_all(steps, words)
    return text + "\n\n" + server_tables.tables(s.facts)
