#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what scripts/tinygrad gathered, and says so in a table. Exits 1 when something differs that must not.

  compare.py losses CPU DIRECT REMOTE...   JSON files of train.py: remote equals direct to the last bit, both are close to the CPU
  compare.py tests FOLDER RESULTS WAY...   FOLDER/MODULE.WAY of run_module.py, the first way being the direct one: every test that
                                           passes directly passes in every other way that has a file. RESULTS, unless it is `-`,
                                           gets a line `passed|failed|skipped NAME` for each test and way; there a test that fails
                                           directly counts as failed, unless known_failures.txt has it
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


def known_failures():
    lines = (pathlib.Path(__file__).parent / "known_failures.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(" | ", 1) for line in lines if line and not line.startswith("#"))


def direct_results(found, known):
    """What the tests of one module say of the software GPU itself. What a test leaves out by itself is no result."""
    for name, word in found.items():
        if name in known:
            failed = word == "failed"
            yield ("skipped", f"{name} ({known[name]})") if failed else ("failed", f"{name} (known to, and did not)")
        elif word != "skipped":
            yield word, name


def module_results(folder, module, ways, known):
    """(verdict, way, name) for every test of a module."""
    direct, why = read(folder / f"{module}.{ways[0]}")
    if not direct:
        return [("failed", ways[0], f"{module} (not run: {why or 'no results'})")]
    verdicts = [(word, ways[0], name) for word, name in direct_results(direct, known)]
    for way in ways[1:]:
        if not (folder / f"{module}.{way}").exists():
            continue
        remote = read(folder / f"{module}.{way}")[0] or {}
        verdicts += [("passed" if remote.get(name) == "passed" else "failed", way, name)
                     for name, word in direct.items() if word == "passed"]
        verdicts += [("failed", way, name) for name, word in remote.items() if word == "failed" and name not in direct]
    return verdicts


def tests(folder, results, ways):
    folder = pathlib.Path(folder)
    modules = sorted(path.name.rsplit(".", 1)[0] for path in folder.glob(f"*.{ways[0]}"))
    known = known_failures()
    print("  " + f"{'passed/failed/skipped':26}" + "".join(f"{way:>14}" for way in ways))
    verdicts = []
    for module in modules:
        direct, why = read(folder / f"{module}.{ways[0]}")
        if direct is None:
            print(f"  {module:26}   NOT RUN: {why}")
            if results == "-":
                continue
        else:
            found = (read(folder / f"{module}.{way}")[0] for way in ways)
            print(f"  {module:26}" + "".join(f"{counts(one) if one else '':>14}" for one in found))
        verdicts += module_results(folder, module, ways, known)
    failed = [verdict for verdict in verdicts if verdict[0] == "failed"]
    for _, way, name in failed:
        print(f"  FAILED {way}: {name}")
    if results == "-":  # whole modules, some of which ask more of a GPU than the software GPU has
        return bool(modules) and all(way == ways[0] for _, way, _ in failed)
    with open(results, "a", encoding="utf-8") as out:
        out.writelines(f"{word} tinygrad/{way}/{name}\n" for word, way, name in verdicts)
    return bool(modules) and not failed


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    good = losses(arguments) if what == "losses" else tests(arguments[0], arguments[1], arguments[2:])
    sys.exit(0 if good else 1)


main()
