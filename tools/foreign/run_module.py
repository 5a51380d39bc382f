#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one test module of another project and writes one line per test: "passed|failed|skipped
NAME", flushed at once.

scripts/foreign.sh calls it in a process per module, because what one module does to a context
may spoil the rest. Each test has a time limit; a test that exceeds it counts as failed. When
the time of the whole module is over, the remaining tests are not run and not mentioned. If a
module cannot be imported because something is not installed, the output is one line
"unavailable WHY".
"""

import importlib
import signal
import sys
import time
import unittest


class Lines(unittest.TestResult):
    def __init__(self, out, test_seconds, module_seconds):
        super().__init__()
        self.out, self.test_seconds, self.bad = out, test_seconds, False
        self.deadline = time.monotonic() + module_seconds

    def say(self, word, test, why=""):
        print(
            word, *test.id().split(), file=self.out, flush=True
        )  # the name of a part of a test may have several lines
        if why:
            print(f"== {word} {test.id()}\n{why}", flush=True)

    def startTest(self, test):
        super().startTest(test)
        if time.monotonic() > self.deadline:
            self.stop()
        self.bad = False
        signal.alarm(self.test_seconds)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test):
        self.say("passed", test)

    def addSkip(self, test, reason):
        self.say("skipped", test)

    def addExpectedFailure(self, test, err):
        self.say("skipped", test)

    def addUnexpectedSuccess(self, test):
        self.say("passed", test)

    def addFailure(self, test, err):
        self.say("failed", test, self._exc_info_to_string(err, test))

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None and not self.bad:  # one line per test, whatever it has inside
            self.bad = True
            self.say("failed", test, self._exc_info_to_string(err, test))


def late(number, frame):
    raise TimeoutError("this test took too long")


def main():
    module, out, test_seconds, module_seconds = (
        sys.argv[1],
        sys.argv[2],
        int(sys.argv[3]),
        int(sys.argv[4]),
    )
    signal.signal(signal.SIGALRM, late)
    sys.path.insert(0, "")
    with open(out, "w", encoding="utf-8") as lines:
        try:
            importlib.import_module(module)
        except ImportError as error:
            print("unavailable", error, file=lines)
            return
        suite = unittest.defaultTestLoader.loadTestsFromName(module)
        suite.run(Lines(lines, test_seconds, module_seconds))


if __name__ == "__main__":  # tests start processes that import this file again
    main()
