# SPDX-License-Identifier: Apache-2.0
"""tools/test_results.py, which computes the last line of scripts/test, against JUnit files as ctest
writes them. tools/foreign/ on results of other people's tests, and tools/coverage.py."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import tree

sys.path.insert(0, str(tree.ROOT / "tools"))
import coverage  # noqa: E402
import test_results as results  # noqa: E402

CASES = """<?xml version="1.0"?>
<testsuite tests="5">
  <testcase name="good" status="run"/>
  <testcase name="bad" status="fail"><failure message=""/></testcase>
  <testcase name="left out" status="notrun">
    <skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
  </testcase>
  <testcase name="off" status="disabled"/>
  <testcase name="missing" status="notrun"><skipped message="Unable to find executable"/></testcase>
</testsuite>
"""


class Results(unittest.TestCase):
    def read(self, text, status=0):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "junit.xml"
            page.write_text(text)
            return results.read("run", page, status)

    def test_counts(self):
        self.assertEqual(results.line(self.read(CASES)), "1 passed, 2 failed, 2 skipped")

    def test_nothing_is_not_success(self):
        self.assertEqual(results.line(self.read("<testsuite/>")), "0 passed, 1 failed")
        self.assertEqual(results.line(self.read("no xml")), "0 passed, 1 failed")

    def test_a_status_alone_is_a_failure(self):
        one = '<testsuite><testcase name="a" status="run"/></testsuite>'
        self.assertEqual(results.line(self.read(one)), "1 passed, 0 failed")
        self.assertEqual(results.line(self.read(one, status=8)), "1 passed, 1 failed")


class Coverage(unittest.TestCase):
    def test_lines_by_room(self):
        def report(name, lines, folder="/r/build"):
            counted = [{"line_number": number, "count": count} for number, count in lines.items()]
            files = [{"file": name, "lines": counted}]
            return {"current_working_directory": folder, "files": files}

        files = coverage.merge(
            [
                report("../wire/a.cc", {1: 0, 2: 3}),
                report("/r/wire/a.cc", {1: 1, 2: 0, 3: 0}),
                report("/r/base/b.h", {7: 0}),
                report("/r/base/b_test.cc", {7: 1}),
                report("/r/build/generated/c.h", {7: 1}),
                report("/usr/include/d.h", {7: 1}),
                {},
            ],
            "/r",
        )
        self.assertEqual(files, {"wire/a.cc": {1: 1, 2: 3, 3: 0}, "base/b.h": {7: 0}})
        self.assertEqual(coverage.rooms(files), {"wire": (2, 3), "base": (0, 1), "all": (2, 4)})
        text = coverage.table(coverage.rooms(files))
        self.assertEqual([line.split()[:2] for line in text][-1], ["all", "50.0"])


MODULE = """import os
import time
import unittest


class Some(unittest.TestCase):
    def test_good(self):
        pass

    def test_late(self):
        time.sleep(20)

    def test_parts(self):
        for part in ("a", "b"):
            with self.subTest(part):
                self.fail()

    def test_parts_left_out(self):
        with self.subTest("of two\\nlines"):
            self.skipTest("so")

    def test_z_ends(self):
        os._exit(3)
"""


class Foreign(unittest.TestCase):
    def test_one_line_for_each_test(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / "some.py").write_text(MODULE)
            runner = str(tree.ROOT / "tools" / "foreign" / "run_module.py")
            run = subprocess.run(
                [sys.executable, "-B", runner, "some", "out", "1", "60"],
                cwd=folder,
                capture_output=True,
            )
            self.assertEqual(run.returncode, 3)
            lines = (place / "out").read_text().splitlines()
        self.assertEqual(
            [line.split(" (")[0] for line in lines],
            [
                "passed some.Some.test_good",
                "failed some.Some.test_late",
                "failed some.Some.test_parts",
                "skipped some.Some.test_parts_left_out [of two lines]",
            ],
        )

    def judged(self, **files):
        """(exit status, lines of results) for result files of the form module.way."""
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            for name, lines in files.items():
                (place / name.replace("_", ".")).write_text("".join(line + "\n" for line in lines))
            out = place / "results"
            compare = str(tree.ROOT / "tools" / "foreign" / "compare.py")
            run = subprocess.run(
                [
                    sys.executable,
                    "-B",
                    compare,
                    "tinygrad",
                    folder,
                    str(out),
                    "direct",
                    "tcp",
                    "shm",
                ],
                capture_output=True,
                text=True,
            )
            return run.returncode, out.read_text().splitlines()

    def test_what_passes_directly_passes_remotely(self):
        lines = ["passed t.a", "skipped t.b"]
        self.assertEqual(
            self.judged(m_direct=lines, m_tcp=lines),
            (0, ["passed tinygrad/direct/t.a", "passed tinygrad/tcp/t.a"]),
        )
        status, found = self.judged(m_direct=lines, m_tcp=["skipped t.a"], m_shm=[])
        self.assertEqual(
            (status, found[1:]), (1, ["failed tinygrad/tcp/t.a", "failed tinygrad/shm/t.a"])
        )

    def test_failures_count(self):
        self.assertEqual(
            self.judged(m_direct=["failed t.a"], m_tcp=["failed t.a"]),
            (1, ["failed tinygrad/direct/t.a"]),
        )
        ended = "m: its process ended with status 139"
        status, found = self.judged(
            m_direct=["passed t.a"], m_tcp=["passed t.a", "failed " + ended]
        )
        self.assertEqual((status, found[-1]), (1, "failed tinygrad/tcp/" + ended))

    def test_what_did_not_run_failed(self):
        self.assertEqual(
            self.judged(m_direct=["unavailable no torch"]),
            (1, ["failed tinygrad/direct/m (not run: no torch)"]),
        )
        self.assertEqual(
            self.judged(m_direct=[]), (1, ["failed tinygrad/direct/m (not run: no results)"])
        )

    def test_known_failures(self):
        known = "test.test_const_folding.TestTautologicalCompare.test_a_ne_a"
        status, found = self.judged(
            m_direct=["failed " + known, "passed t.a"], m_tcp=["failed " + known, "passed t.a"]
        )
        self.assertEqual(
            (status, [line.split(" ")[0] for line in found]), (0, ["skipped", "passed", "passed"])
        )
        self.assertEqual(self.judged(m_direct=["passed " + known])[0], 1)


if __name__ == "__main__":
    unittest.main()
