#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a real driver answered in the conformance suite, and whether the software GPU answers the
same.

    # of a native run on a GPU (tools/gpu/run_all: logs.tar.gz, native/)
    native_codes.py keep TRANSCRIPT... > h200.codes
    # runs the suite on the software GPU; called by CTest
    native_codes.py check h200.codes SUITE LIBRARY

The suite accepts each code that documentation and drivers are known for. This file holds the
code that was seen. It keeps the names of all tests that passed natively, and those of their
calls that were refused. All other calls succeeded. "Not ready" is left out, because it depends
on time. The native answer of a test that was changed since is unknown: take the test out of the
file, or run it on a GPU again.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

# What the software GPU knowingly does differently: test, beginning of the call, reason.
OTHERWISE = [
    (
        "ErrorProcess.ANewContextAfterTheFault",
        "cuCtxCreate_v2",
        "a fault is its context's: many share a process",
    ),
    (
        "JitLogProcess.UnknownInstruction",
        "cuModuleLoadData",
        "kernels are read at their first launch",
    ),
    ("JitLogTest.LibraryErrorLog", "cuLibraryLoadData", "libraries are read when they are loaded"),
    (
        "LaunchTest.ClusterSizesAreRefusedAtTheCall",
        "launch_clusters",
        "it has no clusters, and says so",
    ),
]


def refusals(text):
    """Of a transcript: test -> what it refused, as (call, code), for tests that passed."""
    tests, calls = {}, set()
    for line in text.splitlines():
        call, arrow, code = line.strip().rpartition(" -> ")
        call = call.replace("( ", "(")  # how the source breaks its lines does not matter
        name, _, word = line.partition(" ")
        if arrow:
            calls |= (
                {(call, code)} if code not in ("CUDA_SUCCESS", "CUDA_ERROR_NOT_READY") else set()
            )
        elif word:
            if word == "passed":
                tests[name] = calls
            calls = set()
        elif line and not line.startswith(" "):
            calls = set()
    return tests


def write(tests):
    for name in sorted(tests):
        print(name)
        for call, code in sorted(tests[name]):
            print(f"  {call} -> {code}")


def read(path):
    tests = {}
    for line in path.read_text().splitlines():
        if line.startswith("  "):
            tests[name].add(tuple(line.strip().rsplit(" -> ", 1)))
        elif line and not line.startswith("#"):
            name = line
            tests[name] = set()
    return tests


def excuses(name, call):
    return {
        (test, beginning)
        for test, beginning, _ in OTHERWISE
        if name == test and call.startswith(beginning)
    }


def run(suite, library, devices, chosen):
    with tempfile.TemporaryDirectory() as folder:
        transcript = pathlib.Path(folder) / "transcript"
        environment = os.environ | {
            "TENDRIL_CONFORMANCE_DRIVER": library,
            "TENDRIL_SOFTGPU_DEVICES": str(devices),
            "TENDRIL_CONFORMANCE_TRANSCRIPT": str(transcript),
        }
        subprocess.run(
            [suite, f"--gtest_filter={chosen}", "--gtest_brief=1"],
            env=environment,
            check=False,
            stdout=subprocess.DEVNULL,
            timeout=300,
        )
        return refusals(transcript.read_text())


def differences(native, ours):
    used = set()
    for name in sorted(native.keys() & ours.keys()):
        for call, code in sorted(native[name] ^ ours[name]):
            excused = excuses(name, call)
            used |= excused
            if not excused:
                yield (
                    f"{name}: {call} -> {code}: only"
                    f" {'natively' if (call, code) in native[name] else 'here'}"
                )
    for test, beginning, _ in OTHERWISE:
        if test in ours and (test, beginning) not in used:
            yield f"{test}: {beginning} is excused and does not differ any more"


def check(codes, suite, library):
    native = read(pathlib.Path(codes))
    ours = run(suite, library, 1, "-MultiDevice*") | run(suite, library, 2, "MultiDevice*")
    problems = list(differences(native, ours))
    both = len(native.keys() & ours.keys())
    print(
        f"{both} tests compared, {sum(map(len, native.values()))} refusals, {len(problems)}"
        " differences"
    )
    print("\n".join(problems))
    # Few tests may be skipped or renamed: a suite that does not run at all is not equal.
    return 1 if problems or both < 0.9 * len(native) else 0


def main():
    if sys.argv[1:2] == ["keep"]:
        found = [refusals(pathlib.Path(path).read_text()) for path in sys.argv[2:]]
        write({name: calls for tests in found for name, calls in tests.items()})
        return 0
    if sys.argv[1:2] == ["check"] and len(sys.argv) == 5:
        return check(*sys.argv[2:])
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main())
