#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the results of scripts/foreign.sh and prints a table. Exits 1 if something differs
that must not.

    compare.py PROGRAM FOLDER RESULTS WAY...

Reads FOLDER/MODULE.WAY, which run_module.py wrote. The first way is the direct one. Every
test that passes directly must pass in every other way that has a file. RESULTS, unless it is
`-`, gets a line `passed|failed|skipped NAME` for each test and way. A test that fails
directly counts as failed, unless tools/PROGRAM/known_failures.txt names it.
"""

import pathlib
import sys


def read(path):
    """Results by name. None, with the reason, if the module could not be imported."""
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


def known_failures(program):
    path = pathlib.Path(__file__).parent.parent / program / "known_failures.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" | ", 1) for line in lines if line and not line.startswith("#"))


def direct_results(found, known):
    """Results of one module on the software GPU itself. Tests that leave themselves out do not
    count."""
    for name, word in found.items():
        if name in known:
            failed = word == "failed"
            yield (
                ("skipped", f"{name} ({known[name]})")
                if failed
                else ("failed", f"{name} (known to, and did not)")
            )
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
        verdicts += [
            ("passed" if remote.get(name) == "passed" else "failed", way, name)
            for name, word in direct.items()
            if word == "passed"
        ]
        verdicts += [
            ("failed", way, name)
            for name, word in remote.items()
            if word == "failed" and name not in direct
        ]
    return verdicts


def tests(program, folder, results, ways):
    folder = pathlib.Path(folder)
    modules = sorted(path.name.rsplit(".", 1)[0] for path in folder.glob(f"*.{ways[0]}"))
    known = known_failures(program)
    width = max(map(len, ["passed/failed/skipped", *modules]))
    print("  " + f"{'passed/failed/skipped':{width}}" + "".join(f"{way:>14}" for way in ways))
    verdicts = []
    for module in modules:
        direct, why = read(folder / f"{module}.{ways[0]}")
        if direct is None:
            print(f"  {module:{width}}   NOT RUN: {why}")
            if results == "-":
                continue
        else:
            found = (read(folder / f"{module}.{way}")[0] for way in ways)
            print(
                f"  {module:{width}}"
                + "".join(f"{counts(one) if one else '':>14}" for one in found)
            )
        verdicts += module_results(folder, module, ways, known)
    failed = [verdict for verdict in verdicts if verdict[0] == "failed"]
    for _, way, name in failed:
        print(f"  FAILED {way}: {name}")
    if results == "-":  # whole modules; some ask more of a GPU than the software GPU has
        return bool(modules) and all(way == ways[0] for _, way, _ in failed)
    with open(results, "a", encoding="utf-8") as out:
        out.writelines(f"{word} {program}/{way}/{name}\n" for word, way, name in verdicts)
    return bool(modules) and not failed


sys.exit(0 if tests(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]) else 1)
