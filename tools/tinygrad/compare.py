#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what scripts/tinygrad gathered, and says so in a table. Exits 1 when something differs that must not.

  compare.py losses CPU DIRECT REMOTE...   JSON files of train.py: remote equals direct to the last bit, both are close to the CPU
  compare.py tests FOLDER WAY...           FOLDER/MODULE.WAY of run_module.py, the first way being the direct one: every test that
                                           passes directly passes in every other way
"""
import json
import pathlib
import sys

TOLERANCE = 1e-3  # between back ends: they add up in different orders


def losses(paths):
    runs = {}
    for path in map(pathlib.Path, paths):
        if not path.exists():
            print(f"  {path.stem:8} no result")
            continue
        with open(path, encoding="ascii") as file:
            runs[path.stem] = json.load(file)
    cpu, direct = (pathlib.Path(path).stem for path in paths[:2])
    good = len(runs) == len(paths)
    for name, run in runs.items():
        verdict = ""
        if name not in (cpu, direct) and direct in runs:
            same = run["losses"] == runs[direct]["losses"]
            verdict = f"the same as {direct}, bit by bit" if same else f"NOT the same as {direct}"
            good &= same
        elif name == direct and cpu in runs:
            off = max(abs(a - b) for a, b in zip(run["losses"], runs[cpu]["losses"]))
            verdict = f"at most {off:.1e} from {cpu}" + ("" if off < TOLERANCE else ", TOO FAR")
            good &= off < TOLERANCE
        print(f"  {name:8} loss {run['losses'][0]:.4f} -> {run['losses'][-1]:.4f}, {run['seconds']:6.1f} s   {verdict}")
    return good


def read(path):
    """Results by name; None when the module could not be imported, with the reason."""
    found = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            word, name = line.split(" ", 1)
            if word == "unavailable":
                return None, name
            found[name] = word
    return found, ""


def counts(found):
    words = list(found.values())
    return "/".join(str(words.count(word)) for word in ("passed", "failed", "skipped"))


def tests(folder, ways):
    folder = pathlib.Path(folder)
    modules = sorted(path.name.rsplit(".", 1)[0] for path in folder.glob(f"*.{ways[0]}"))
    print("  " + f"{'passed/failed/skipped':26}" + "".join(f"{way:>14}" for way in ways))
    broken, failed_directly = [], []
    for module in modules:
        direct, why = read(folder / f"{module}.{ways[0]}")
        if direct is None:
            print(f"  {module:26}   NOT RUN: {why}")
            continue
        line = f"  {module:26}{counts(direct):>14}"
        failed_directly += [name for name, word in direct.items() if word == "failed"]
        for way in ways[1:]:
            remote = read(folder / f"{module}.{way}")[0] or {}
            line += f"{counts(remote):>14}"
            broken += [f"{way}: {name}: {remote.get(name, 'not run')}" for name, word in direct.items()
                       if word == "passed" and remote.get(name) != "passed"]
        print(line)
    for name in failed_directly:
        print(f"  failed directly: {name}")
    for line in broken:
        print(f"  PASSED DIRECTLY ONLY: {line}")
    return bool(modules) and not broken


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    good = losses(arguments) if what == "losses" else tests(arguments[0], arguments[1:])
    sys.exit(0 if good else 1)


main()
