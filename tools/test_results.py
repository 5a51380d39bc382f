#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up test results for scripts/test. Results are lines `passed|failed|skipped NAME`.

  read RUN JUNIT_FILE CTEST_STATUS   prints the results in a JUnit file of ctest
  brief RUN RESULTS                  one phrase about one run
  total RESULTS                      failures, then the line `N passed, N failed, N skipped`; exit
                                     status 1 unless all is well

A skipped test is never a passed one, a test that could not be started is a failed one, and a run
that says it failed without naming a failed test, or that held no test at all, counts as one
failure."""

import re
import sys
import xml.etree.ElementTree as ElementTree


def outcome(case):
    """passed, failed or skipped, for one testcase element as ctest writes it."""
    status = case.get("status")
    if case.find("failure") is not None or status == "fail":
        return "failed"
    skipped = case.find("skipped")
    if skipped is None and status == "run":
        return "passed"
    if status == "disabled":
        return "skipped"
    why = (skipped.get("message") or "") if skipped is not None else ""
    # The test's own reason; anything else is a program that was not there.
    return "skipped" if re.match(r"SKIP_|Disabled", why) else "failed"


def read(run, junit_file, status):
    try:
        cases = [
            (case.get("name"), outcome(case))
            for case in ElementTree.parse(junit_file).getroot().iter("testcase")
        ]
    except (OSError, ElementTree.ParseError) as error:
        return [("failed", f"{run} (no results: {error})")]
    results = [(verdict, f"{run}/{name}") for name, verdict in cases]
    if not results:
        results = [("failed", f"{run} (no test was found)")]
    elif status != 0 and not any(verdict == "failed" for verdict, _ in results):
        results.append(("failed", f"{run} (ctest ended with status {status})"))
    return results


def load(results_file):
    with open(results_file, encoding="utf-8") as stream:
        return [tuple(line.rstrip("\n").split(" ", 1)) for line in stream if line.strip()]


def count(results):
    verdicts = [verdict for verdict, _ in results]
    passed, failed, skipped = (verdicts.count(word) for word in ("passed", "failed", "skipped"))
    return passed, failed, skipped


def line(results):
    passed, failed, skipped = count(results)
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")


def main():
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "read":
        for verdict, name in read(arguments[0], arguments[1], int(arguments[2])):
            print(verdict, name)
    elif command == "brief":
        print(
            line(
                [
                    result
                    for result in load(arguments[1])
                    if result[1].startswith((arguments[0] + "/", arguments[0] + " "))
                ]
            )
        )
    elif command == "total":
        results = load(arguments[0])
        for word in ("skipped", "failed"):
            for _, name in (result for result in results if result[0] == word):
                print(f"{word}: {name}")
        print(line(results))
        passed, failed, _ = count(results)
        sys.exit(0 if failed == 0 and passed > 0 else 1)


if __name__ == "__main__":
    main()
