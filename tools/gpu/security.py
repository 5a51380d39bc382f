# SPDX-License-Identifier: Apache-2.0
"""What only a real driver can tell about the promises of docs/security.md. gpu_run.py calls it as
its group `security`, when nothing else runs.

* memory: what slices were charged beside what NVML says the GPU has less;
* quota: programs that take all they can get of a small slice, in ways that do not ask for bytes;
* leftovers, remains: what a program finds in GPU, shared and local memory that it never wrote;
* pageable: whether kernels reach the memory of their worker;
* stale: handles of objects that are gone;
* learned: the system calls that frameworks make of the driver, beyond the recorded list;
* pinned: a cgroup's bound beside PyTorch's pinned memory.
"""

import concurrent.futures
import fractions
import pathlib
import signal
import subprocess
import tempfile
import time

import build
import catalog
import sides
from steps import WHOLE, Gpu, Steps

MIB = 1 << 20
# Way, pieces, seconds at most; probes/memory_taker.py. A share of half of the GPU.
TAKEN = [
    ("large", 16, 30),
    ("tiny", 1_000_000, 90),
    ("contexts", 20, 60),
    ("processes", 20, 90),
    ("stack", 4, 30),
    ("local", 4, 30),
    ("heap", 4, 30),
    ("printf", 4, 30),
    ("graphs", 100, 60),
    ("variables", 32, 30),
    ("fatbins", 16, 30),
    ("code", 200, 60),
    ("streams", 500, 30),
    ("pooled", 300, 30),
    ("pinned", 16, 30),
]
# The same without a bound in a slice of so much memory.
QUOTA, QUOTA_OF_TINY = "3G", "1G"
REFUSED = ["tiny", "contexts", "processes", "stack", "local", "heap", "graphs", "fatbins"]
MOST = {"tiny": 1_000_000, "graphs": 1500}
LEARN = [
    ("torch_matmul",),
    ("torch_conv",),
    ("torch_train",),
    ("torch_streams",),
    ("torch_graph",),
    ("torch_attention",),
    ("torch_loader",),
    ("torch_numeric",),
    ("torch_processes",),
    ("torch_profiler",),
    ("torch_compile",),
    ("torch_extension",),
    ("triton_kernels",),
    ("cupy_checks",),
    ("jax_stages",),
    ("gpt2_generate",),
    ("transformers_models",),
    ("nvml_users",),
]
BIG = '__device__ char big[64 << 20] = {1};\nextern "C" __global__ void touch() { big[1] = 2; }\n'
WARM_NONE = ["--warm", "0"]


class Security(Steps):
    def __init__(self, whole, here):
        super().__init__(whole, here, "security")
        self.gpu = None
        self.fatbin = whole.work / "big.fatbin"

    # ---- Memory ----
    def prepare_memory(self):
        driver = self.whole.args.driver
        self.gpu = Gpu(str(driver) if driver else "libnvidia-ml.so.1")
        source = self.whole.work / "big.cu"
        source.write_text(BIG)
        nvcc = f"{build.toolkit() or ''}/bin/nvcc"
        if pathlib.Path(nvcc).exists():
            kinds = ["-gencode", "arch=compute_90,code=sm_90"]
            argv = [nvcc, "-fatbin", *kinds, "-Xfatbin", "-compress-all", "-o", str(self.fatbin)]
            done = subprocess.run([*argv, str(source)], capture_output=True, text=True, timeout=120)
            if done.returncode:
                self.say("no fatbin: " + done.stderr.strip()[-200:])
        size = self.fatbin.stat().st_size if self.fatbin.exists() else 0
        self.say(f"a fatbin of {size} bytes declares {64 * MIB} bytes of variables")

    def taker(self, server, way, most, share, options=()):
        argv = self.script("memory_taker.py", way, most, self.fatbin)
        return self.begin(server, f"take-{way}", argv, share, options, alone=True)

    def memory_one(self, server, way, most, limit_s):
        """Natively (no server) or charged; bytes."""
        before = self.gpu.settled()
        process = self.taker(server, way, most, fractions.Fraction(1, 2))
        ready = self.asked(process, "ready", 40)
        if "error" in ready:
            process.end(1)
            return ready
        idle = self.gpu.settled()
        charged_idle = self.charged(server) if server else None
        process.tell("")
        taken = self.asked(process, "taken", limit_s)
        held = self.gpu.settled()
        charged = self.charged(server) if server else None
        process.tell("")
        process.end(20)
        after = self.gpu.settled()
        facts = {
            **taken,
            "gpu_ready": idle - before,
            "gpu_taken": held - before,
            "gpu_after": after - before,
        }
        if server:
            facts |= {"charged_ready": charged_idle, "charged": charged}
        return facts

    def memory(self):
        self.prepare_memory()
        server = self.server("memory", WARM_NONE)
        facts = {}
        for way, most, limit_s in TAKEN:
            if self.whole.left() < 30 or way == "fatbins" and not self.fatbin.exists():
                continue
            native = self.memory_one(None, way, most, limit_s)
            ours = self.memory_one(server, way, most, limit_s)
            facts[way] = {"native": native, "ours": ours}
            self.say(f"memory {way:10} native {shown(native)} | ours {shown(ours)}")
            self.facts["memory"] = facts
            self.write()
        server.stop()
        return facts

    def quota(self):
        if self.gpu is None:
            self.prepare_memory()
        server, facts = self.server("quota", WARM_NONE), {}
        for way in REFUSED:
            if self.whole.left() < 40 or way == "fatbins" and not self.fatbin.exists():
                continue
            before = self.gpu.settled()
            most = MOST.get(way, 10_000)
            quota = QUOTA_OF_TINY if way == "tiny" else QUOTA
            process = self.taker(server, way, most, fractions.Fraction(1, 20), ("-m", quota))
            self.asked(process, "ready", 40)
            process.tell("")
            taken = self.asked(process, "taken", 40)
            facts[way] = {**taken, "gpu_taken": self.gpu.settled() - before}
            facts[way]["charged"] = self.charged(server)
            process.tell("")
            process.end(20)
            self.say(f"quota of {quota}, {way:10} {shown(facts[way])}")
        server.stop()
        return facts

    # ---- Leftovers ----
    def one(self, server, label, argv, share=WHOLE, options=(), beside=False):
        process = self.begin(server, label, argv, share, options, alone=not beside)
        found = self.asked(process, "found", 60)
        process.end(10)
        return found

    def leftovers(self):
        facts = {}
        server = self.server("leftovers", [])
        half = fractions.Fraction(1, 2)
        for name, at, share, options in (
            ("native", None, WHOLE, ()),
            ("whole GPU", server, WHOLE, ()),
            ("half", server, half, ()),
            ("half, packed", server, half, ("--packed",)),
        ):
            other = None
            if options:  # the service lives on between the two
                argv = self.script("leftovers.py", "look", 60)
                other = self.begin(at, "leftovers-beside", argv, fractions.Fraction(1, 4), options)
                self.asked(other, "begun", 40)
            facts[name] = {
                what: self.one(
                    at,
                    f"leftovers-{what}",
                    self.script("leftovers.py", what),
                    share,
                    options,
                    beside=other is not None,
                )
                for what in ("write", "read", "again")
            }
            if other:
                sides.end_group(other.process)
                other.end(5)
            self.say(f"leftovers, {name}: {facts[name]}")
        for name, at in (("native", None), ("ours", server)):
            worker = self.begin(at, "work", self.script("leftovers.py", "work", 6), half)
            self.asked(worker, "begun", 40)
            looked = self.one(at, "look", self.script("leftovers.py", "look", 3), half, beside=True)
            facts[f"beside a neighbour, {name}"] = looked
            self.asked(worker, "found", 20)
            worker.end(5)
            self.say(f"unwritten shared and local memory beside a neighbour, {name}: {looked}")
        server.stop()
        return facts

    def remains(self):
        """On-chip memory of a tenant that is killed while another one reads its own, which it has
        never written."""
        server, facts, half = self.server("remains", []), {}, fractions.Fraction(1, 2)
        for name, at in [("native", None), ("ours", server)] * 3:
            worker = self.begin(at, "work", self.script("leftovers.py", "work", 20), half)
            self.asked(worker, "begun", 40)
            looker = self.begin(at, "look", self.script("leftovers.py", "look", 4), half)
            self.asked(looker, "begun", 40)
            time.sleep(1.5)
            sides.end_group(worker.process, signal.SIGKILL)
            facts.setdefault(name, []).append(self.asked(looker, "found", 30))
            worker.end(2)
            looker.end(5)
            argv = self.script("leftovers.py", "look", 1)
            facts[name].append(self.one(at, "look-after", argv, half))
            self.say(f"on-chip memory beside one that is killed, and after, {name}: {facts[name]}")
        server.stop()
        return facts

    # ---- What kernels and handles reach ----
    def pageable(self):
        server, argv = self.server("pageable", []), self.script("pageable_probe.py")
        facts = {
            name: self.one(at, f"pageable-{name}", argv)
            for name, at in (("native", None), ("ours", server))
        }
        lines = server.log.read_text(errors="replace").splitlines()
        facts["server"] = [line for line in lines if "pageable" in line or "HMM" in line]
        server.stop()
        self.say(f"pageable: {facts}")
        return facts

    def stale(self):
        server, facts = self.server("stale", []), {}
        listed = subprocess.run(
            self.script("stale_handles.py", "list"),
            capture_output=True,
            text=True,
            env=self.environment(False),
            timeout=30,
        )
        for case in listed.stdout.split():
            facts[case] = {}
            for name, at in (("native", None), ("ours", server)):
                argv = self.script("stale_handles.py", case)
                process = self.begin(at, f"stale-{case}", argv, alone=True)
                answer = self.asked(process, "answers", 30)
                process.end(10)
                status = process.process.returncode
                facts[case][name] = answer.get("codes") or f"{answer.get('error')}, {status}"
            self.say(f"stale, {case}: {facts[case]}")
        lines = server.log.read_text(errors="replace").splitlines()
        facts["workers"] = [line for line in lines if "signal" in line or "stays" in line]
        facts["server deaths"] = server.deaths
        server.stop()
        self.say(f"stale: {facts['workers'] or 'no worker ended by a signal'}")
        return facts

    # ---- The list of system calls ----
    def learned(self):
        file = self.whole.out / "learned"
        server = self.server("learn", ["--learn-filter", str(file), "--warm", "2"])
        shares = fractions.Fraction(1, 8)

        def run(program):
            environment = {
                name: value.replace("{side}", str(self.whole.work / "learn"))
                for name, value in catalog.FRAMEWORK_ENV.items()
            } | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
            process = self.begin(
                server,
                "learn-" + program[0],
                self.script(program[0] + ".py", *program[1:]),
                shares,
                (),
                environment,
            )
            limit_s = max(5, min(150, self.whole.left() - 20))
            process.wait_for("never", limit_s)
            done = process.process.poll()
            process.end(1)
            return program[0], (
                "no end" if done is None and not process.gone_s else (process.process.returncode)
            )

        (self.whole.work / "learn").mkdir(exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(6) as many:
            ended = dict(many.map(run, LEARN))
        server.stop()
        names = sorted(set(file.read_text().split())) if file.exists() else None
        self.say(f"learned beyond the list: {names}; programs ended with {ended}")
        return {"names": names, "programs": ended}

    # ---- A cgroup ----
    def delegated(self):
        """A folder of cgroup v2 with the controllers, or why there is none."""
        point = pathlib.Path("/sys/fs/cgroup")
        if not (point / "cgroup.controllers").exists():
            point = pathlib.Path(tempfile.mkdtemp(prefix="tendril-cgroup-"))
            argv = ["mount", "-t", "cgroup2", "none", str(point)]
            done = subprocess.run(argv, capture_output=True, text=True)
            if done.returncode:
                return None, done.stderr.strip()
        has = (point / "cgroup.controllers").read_text().split()
        for name in has:
            try:
                (point / "cgroup.subtree_control").write_text(f"+{name}")
            except OSError:
                pass
        folder = point / "tendril"
        folder.mkdir(exist_ok=True)
        return folder, " ".join(has)

    def pinned(self):
        folder, has = self.delegated()
        self.say(f"cgroup: {folder}, {has}")
        if folder is None:
            return {"error": has}
        server = self.server("pinned", ["--cgroup", str(folder)])
        if server is None:
            return {"error": self.whole.servers[-1].log.read_text(errors="replace")[-300:]}
        facts = {"controllers": has}
        for side, transport in (("tcp", {"TENDRIL_TRANSPORT": "tcp"}), ("shm", {})):
            part = fractions.Fraction(1, 20)
            argv = self.script("torch_pinned.py", 40_000)
            process = self.begin(server, f"pinned-{side}", argv, part, (), transport)
            neighbour = self.begin(server, "beside", self.script("leftovers.py", "look", 8), part)
            self.asked(process, "ready", 60)
            held = self.asked(process, "held", 90)
            bounds = read_bounds(folder)
            process.tell("")
            after = self.asked(process, "after", 20)
            beside = self.asked(neighbour, "found", 20)
            process.end(5)
            neighbour.end(5)
            facts[side] = {"held": held, "after": after, "beside": beside, "cgroups": bounds}
            self.say(f"pinned, {side}: {facts[side]}")
        server.stop()
        time.sleep(0.5)
        facts["left over"] = [each.name for each in folder.iterdir() if each.is_dir()]
        return facts


def read_bounds(folder):
    """Of the servers' groups below this one, and of their leases' groups."""
    found = {}
    for group in sorted(path for path in folder.glob("**/") if path != folder):
        found[str(group.relative_to(folder))] = {
            name: (group / name).read_text().split()
            for name in ("memory.current", "memory.peak", "memory.max", "memory.events")
            if (group / name).exists()
        }
    return found


def shown(facts):
    if "gpu_taken" not in facts:
        return facts.get("error", "nothing")
    text = f"{facts.get('pieces')} pieces in {facts.get('seconds', 0):.1f} s, the GPU has"
    text += f" {facts['gpu_taken'] / MIB:.0f} MiB less"
    if "gpu_ready" in facts:
        text += f" ({facts['gpu_ready'] / MIB:.0f} before)"
    if "charged" in facts:
        text += f", charged {facts['charged'] / MIB:.0f}"
    if facts.get("error"):
        text += f", {facts['error']}"
    return text


def measure(whole, here, words=()):
    """All of it as text; also as security.json in $OUT. `whole` is gpu_run's Run."""
    s = Security(whole, here)
    steps = [
        ("pageable", 20, s.pageable),
        ("stale", 40, s.stale),
        ("leftovers", 60, s.leftovers),
        ("remains", 60, s.remains),
        ("memory", 60, s.memory),
        ("quota", 60, s.quota),
        ("pinned", 60, s.pinned),
        ("learned", 60, s.learned),
    ]
    return s.run_all(steps, words)
