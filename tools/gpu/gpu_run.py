# SPDX-License-Identifier: Apache-2.0
"""Runs every program natively and through Tendril and compares. run_all starts it; README.md has
the options.

The three sides (native, tcp, shm) work through the same list at the same time, one thread and
one program each, unless --serial asks for undisturbed times. Nothing here waits without a
limit. After every group, $OUT has what is known.
"""

import argparse
import importlib.metadata
import itertools
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import bench
import build
import catalog
import compare
import network
import parcels
import parts
import pauses
import report
import sealed
import security
import servers
import shares
import sides as side_room
import speed

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Groups that need the GPU for themselves and have a function of their own.
OWN_SERVERS = {"shares", "security", "sealed", "pauses", "servers"}
ALONE = {
    "network": network,
    "security": security,
    "sealed": sealed,
    "pauses": pauses,
    "servers": servers,
}


def options():
    parser = argparse.ArgumentParser(prog="run_all")
    everything = ",".join(catalog.GROUPS)
    parser.add_argument(
        "--only",
        default=",".join(g for g in catalog.GROUPS if g not in catalog.ON_REQUEST),
        help="groups, comma separated: " + everything + " (from shares on only when named)",
    )
    parser.add_argument(
        "--part", choices=parts.PARTS, help="the options of one part of everything (parts.py)"
    )
    parser.add_argument(
        "--match", default="", help="only programs whose name holds one of these, comma separated"
    )
    parser.add_argument(
        "--except", dest="but", default="", help="and none whose name holds one of these"
    )
    parser.add_argument(
        "--sides",
        default="native,tcp,shm",
        help="also: two (two servers with a GPU each, over TCP)",
    )
    parser.add_argument("--gpus", type=int, default=1, help="GPUs that each program gets")
    parser.add_argument(
        "--times", type=int, default=1, help="how often each program runs: for what fails seldom"
    )
    parser.add_argument("--limit", type=float, default=60, help="seconds for a program")
    parser.add_argument("--budget", type=float, default=500, help="seconds in all")
    parser.add_argument(
        "--serial", action="store_true", help="one side at a time, for times that nothing disturbs"
    )
    parser.add_argument(
        "--no-retry", action="store_true", help="do not repeat a program that differs"
    )
    parser.add_argument(
        "--no-stats", action="store_true", help="leave TENDRIL_STATS off (no transport column)"
    )
    parser.add_argument(
        "--binaries", type=pathlib.Path, default=ROOT / ".gpu", help="what prepare packed"
    )
    parser.add_argument(
        "--driver",
        type=pathlib.Path,
        help="a driver library instead of the system's, for all sides",
    )
    parser.add_argument(
        "--serve", default="", help="more options for tendril serve, space separated"
    )
    parser.add_argument(
        "--share-seconds", type=float, default=6, help="of each measurement of the group shares"
    )
    parser.add_argument(
        "--native-build", action="store_true", help="build with nvcc here even what was carried"
    )
    out = parser.parse_args(parts.arguments(sys.argv[1:]))
    out.only = [group for group in catalog.GROUPS if group in out.only.split(",")]
    out.sides = [side for side in report.SIDES if side in out.sides.split(",")]
    return out


class Run:
    def __init__(self, args):
        self.args = args
        self.begun = time.monotonic()
        self.out = pathlib.Path(
            os.environ.get("OUT") or tempfile.mkdtemp(prefix="tendril-out-")
        ).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        # Workers may run as other users. Everything that they open lies in a folder that they can
        # enter.
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tendril-gpu-", dir="/tmp"))
        self.work.chmod(0o755)
        self.logs = self.work / "logs"
        self.logs.mkdir()
        self.binaries = self.work / "carried"
        self.built = self.work / "built"
        self.results = []
        self.facts = {}
        self.bench_text = ""
        self.broken = []  # promises that a measurement found broken
        self.servers, self.sides = [], {}
        self.lock = threading.Lock()
        self.stopping = False

    def say(self, text):
        print(f"[{time.monotonic() - self.begun:6.1f}] {text}", flush=True)

    def left(self):
        return self.args.budget - (time.monotonic() - self.begun)

    # ---- Setting up ----
    def unpack(self):
        shutil.copytree(self.args.binaries, self.binaries, symlinks=True)
        for archive in self.binaries.glob("*.tar.*"):
            with tarfile.open(archive) as tar:
                tar.extractall(self.work, filter="tar")
            archive.unlink()
        self.built.mkdir(exist_ok=True)
        subprocess.run(["chmod", "-R", "a+rX", str(self.work)], check=False)

    def environment(self):
        """The caller's own, with --driver's library in front."""
        env = dict(os.environ)
        env.pop("OUT", None)
        env.pop("PYTHONUNBUFFERED", None)
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        if self.args.driver:
            folder = self.work / "driver"
            if not folder.exists():
                folder.mkdir()
                (folder / "libcuda.so.1").symlink_to(self.args.driver.resolve())
            env["LD_LIBRARY_PATH"] = ":".join(
                filter(None, [str(folder), env.get("LD_LIBRARY_PATH", "")])
            )
        return env

    def start_servers(self):
        env = self.environment()
        for name in self.args.sides:
            if name == "native":
                self.sides[name] = side_room.Side(name, self.work, self.logs, env)
                continue
            each = {name: {}}
            if name == "two":
                each = {f"two-{gpu}": {"CUDA_VISIBLE_DEVICES": str(gpu)} for gpu in range(2)}
            servers = [self.start_server(one, os.environ | shown) for one, shown in each.items()]
            transport = "auto" if name == "shm" else "tcp"
            self.sides[name] = side_room.Side(
                name, self.work, self.logs, env, servers, transport, self.args.gpus
            )

    def start_server(self, name, env, options=(), driver=None):
        server = side_room.Server(
            name,
            self.binaries,
            driver or self.args.driver,
            self.work,
            self.logs,
            [*self.args.serve.split(), *options],
            dict(env),
        )
        begun = time.monotonic()
        started = server.ensure()
        took = time.monotonic() - begun
        self.say(
            f"server for {name}: "
            + (
                f"{server.address()}, ready after {took:.1f} s"
                if started
                else "DOES NOT START: " + tail(server.log)
            )
        )
        self.servers.append(server)
        return server

    def describe_machine(self):
        ask = "name,driver_version,memory.total"
        try:
            asked = subprocess.run(
                ["nvidia-smi", f"--query-gpu={ask}", "--format=csv,noheader"],
                capture_output=True,
                text=True,
                timeout=30,
            )
            gpu = asked.stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            gpu = "no nvidia-smi"
        commit = self.binaries / "commit"
        self.facts = {
            "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
            "gpu": gpu,
            "versions": versions(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "commit": commit.read_text().strip() if commit.exists() else "",
            "arguments": sys.argv[1:],
            "driver_library": str(self.args.driver or "the system's"),
            "serial": self.args.serial,
        }
        self.say(" | ".join(f"{k} {v}" for k, v in self.facts.items()))

    # ---- What to run ----
    def programs(self):
        libraries = {"LD_LIBRARY_PATH": build.library_path()}
        native = self.sides.get("native")
        listed = (
            catalog.test_programs() + catalog.own_programs(libraries) + catalog.framework_programs()
        )
        chosen = []
        for group in self.args.only:
            if group == "conformance":
                listing = native.environment if native else self.environment()
                chosen += catalog.conformance_suites(
                    str(self.binaries / "bin/tendril_conformance"), listing
                )
            elif group == "samples":
                chosen += catalog.samples(HERE, libraries)
            else:
                chosen += [p for p in listed if p.group == group]
        words, but = (
            [word for word in given.split(",") if word]
            for given in (self.args.match, self.args.but)
        )
        return [
            p
            for p in chosen
            if not any(word in p.name for word in but)
            and (not words or any(word in p.name for word in words))
        ] * self.args.times

    def expanded(self, text):
        return (
            text.replace("{bin}", str(self.binaries / "bin"))
            .replace("{built}", str(self.built))
            .replace("{here}", str(HERE))
            .replace("{python}", os.environ.get("PYTHON", "python3"))
        )

    def limit_for(self, program, name):
        """If programs of this group have hung on this side before, the next ones get less time."""
        hangs = sum(
            1
            for r in self.results
            if r["program"].group == program.group
            and r[name]
            and r[name].timed_out
            and not r[name].cut_short
        )
        limit = program.limit_s or self.args.limit
        return max(min(limit, 15), limit / 2**hangs)

    def run_on(self, results, name, key=None):
        """One program on one side. The result goes into `results`, under `key` if it is not the
        side's own."""
        program, side = results["program"], self.sides[name]
        if key:
            side = side.beside(key)
        if self.stopping or self.left() < 5:
            return
        cwd = side.work
        if program.folder:
            source = pathlib.Path(self.expanded(program.folder))
            if not source.is_dir():
                results[key or name] = side_room.Outcome(127, 0, False, "", "was not built")
                return
            cwd = side_room.fresh_copy(source, side.work / "samples" / program.name)
        transcript = program.env.get("TENDRIL_CONFORMANCE_TRANSCRIPT", "").replace(
            "{side}", str(side.work)
        )
        if transcript:
            pathlib.Path(transcript).unlink(missing_ok=True)
        allowed = self.limit_for(program, name)
        limit = min(allowed, max(5, self.left()))
        before, suffix = results.get(key or name), f" {key}" if key else ""
        argv = [self.expanded(word) for word in program.argv]
        attempt = f" try {before.attempts + 1}" if before else ""  # what went wrong before is kept
        label = f"{program.group}-{results['label']}{suffix}{attempt}"
        env = {key: self.expanded(value) for key, value in program.env.items()}
        outcome = side.run(label, argv, env, cwd, limit, not self.args.no_stats)
        outcome.cut_short = outcome.timed_out and limit < allowed
        outcome.before, outcome.attempts = before, before.attempts + 1 if before else 1
        results[key or name] = outcome
        if transcript and os.path.exists(transcript):
            results["lines"][name] = (
                pathlib.Path(transcript).read_text(errors="replace").splitlines()
            )
            shutil.copy(
                transcript, side.logs
            )  # what a real driver answers where the suite accepts several codes
        with self.lock:
            who = results["label"] + suffix
            self.say(
                f"{name:6} {who:28} {compare.word(program, outcome):8} {outcome.seconds:6.2f} s"
            )

    def pair_transcripts(self, group):
        for results in group:
            native = results["lines"].get("native")
            results["transcripts"] = {
                name: (native, results["lines"].get(name))
                for name in self.args.sides[1:]
                if native is not None and results["lines"].get(name) is not None
            }

    def run_group(self, group):
        beside = (
            []
            if self.args.serial
            else [results for results in group if not results["program"].alone]
        )
        work = lambda name: [self.run_on(results, name) for results in beside]
        lanes = [threading.Thread(target=work, args=(name,)) for name in self.args.sides]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        for results, name in itertools.product(
            [r for r in group if r not in beside], self.args.sides
        ):
            self.run_on(results, name)
        self.pair_transcripts(group)
        if not self.args.no_retry and not self.args.serial:
            self.repeat_differing(group)
        if not self.args.no_retry:
            self.repeat_native(group)

    def repeat_differing(self, group):
        """Three programs shared the GPU. A program that differs gets one try alone, unless that
        would take long."""
        until = time.monotonic() + min(60, self.left() / 6)
        for results, name in itertools.product(group, self.args.sides[1:]):
            remote, native = results[name], results["native"]
            if not native or not remote or remote.seconds > 10 or report.is_equal(results, name):
                continue
            if time.monotonic() > until:
                break
            if results["program"].compare == "transcript":
                self.run_on(results, "native")
            self.run_on(results, name)
        self.pair_transcripts(group)

    def repeat_native(self, group):
        """A program that still differs may not repeat natively either. Up to three more native
        runs show native's own spread."""
        for results in group:
            native = results["native"]
            if results["program"].compare != "stdout" or not native or native.status != 0:
                continue
            differs = lambda: any(
                results[n] and not report.is_equal(results, n) for n in self.args.sides[1:]
            )
            runs = results.setdefault("again", [])
            while (
                len(runs) < 3
                and differs()
                and self.left() > native.seconds + 20
                and not self.stopping
            ):
                key = f"again {len(runs) + 1}"
                self.run_on(results, "native", key)
                runs.append(results.pop(key))

    def run_programs(self):
        seen = {}
        for program in self.programs():
            seen[program.name] = seen.get(program.name, 0) + 1
            label = (
                program.name
                if seen[program.name] == 1
                else f"{program.name} ({seen[program.name]})"
            )
            empty = {name: None for name in report.SIDES}
            self.results.append({"program": program, "label": label, "lines": {}, **empty})
        for group in self.args.only:
            mine = [r for r in self.results if r["program"].group == group]
            if mine:
                self.say(f"---- {group}: {len(mine)} programs, {self.left():.0f} s left")
                self.run_group(mine)
                self.write()

    def write(self, final=False):
        self.facts["seconds"] = round(time.monotonic() - self.begun, 1)
        self.facts["server_deaths"] = {server.name: server.deaths for server in self.servers}
        return report.write(
            self.out, self.logs, self.facts, self.results, self.args.sides, self.bench_text, final
        )

    def finish(self):
        for server in self.servers:
            server.stop()
        text = self.write(final=True)
        print("\n==== differences\n" + report.differences(self.results, self.args.sides))
        for server in self.servers:
            print(
                f"---- end of the log of the {server.name} server ({server.deaths}"
                f" deaths):\n{tail(server.log, 5)}"
            )
        if self.bench_text:
            print("\n==== measurements\n" + self.bench_text)
        head = (
            f"{self.facts.get('gpu')}, commit {self.facts.get('commit')}, {self.facts['seconds']} s"
        )
        print(f"\n==== {head}, results in {self.out}\n{text}")
        shutil.rmtree(self.work, ignore_errors=True)

    def go(self):
        self.unpack()
        self.describe_machine()
        build.build_missing(
            HERE, self.work, self.built, self.args.only, self.args.native_build, self.logs, self.say
        )
        subprocess.run(["chmod", "-R", "a+rX", str(self.work)], check=False)
        if set(self.args.only) - OWN_SERVERS:
            self.start_servers()
        self.run_programs()
        words = [word for word in self.args.match.split(",") if word]
        if "bench" in self.args.only and self.left() > 20:
            self.say(f"---- bench, {self.left():.0f} s left")
            self.bench_text = bench.measure(self, HERE)
        if "shares" in self.args.only and self.left() > 30:
            self.say(f"---- shares, {self.left():.0f} s left")
            self.bench_text += "\n\n" + shares.measure(self, self.args.share_seconds, words)
        if "speed" in self.args.only and self.left() > 30:
            self.say(f"---- speed, {self.left():.0f} s left")
            self.bench_text += "\n\n" + speed.measure(self, HERE, words)
        for group, room in ALONE.items():
            if group in self.args.only and self.left() > 20:
                self.say(f"---- {group}, {self.left():.0f} s left")
                self.bench_text += "\n\n" + room.measure(self, HERE, words)


def versions():
    """Versions of the frameworks, as installed for this interpreter, and of the toolkit."""
    names = (
        "torch",
        "triton",
        "jax",
        "cupy-cuda12x",
        "cupy-cuda13x",
        "onnxruntime-gpu",
        "transformers",
        "nvidia-ml-py",
    )
    found = {"python": platform.python_version()}
    for name in names:
        for package in importlib.metadata.distributions(
            name=name, path=[str(parcels.SITE), *sys.path]
        ):
            found.setdefault(name, package.version)
    try:
        nvcc = f"{build.toolkit()}/bin/nvcc"
        told = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return found
    release = re.search(r"release [\d.]+, V([\d.]+)", told.stdout)
    return found | ({"nvcc": release.group(1)} if release else {})


def tail(path, lines=3):
    try:
        return "\n".join(
            line[:300] for line in path.read_text(errors="replace").splitlines()[-lines:]
        )
    except OSError:
        return "(no log)"


def main():
    run = Run(options())

    def stop(number, _):
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        run.go()
    finally:
        run.stopping = True
        side_room.end_everything()
        run.finish()
    everything = [report.verdict(r, run.args.sides) for r in run.results]
    equal = all(v.startswith("yes") or v in ("native fails", "skipped") for v in everything)
    return 0 if equal and not run.broken else 1


if __name__ == "__main__":
    sys.exit(main())
