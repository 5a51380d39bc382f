# SPDX-License-Identifier: Apache-2.0
"""tools/test_results.py, which computes the last line of scripts/test, against JUnit files as ctest writes them."""
import pathlib
import sys
import tempfile
import unittest

import tree

sys.path.insert(0, str(tree.ROOT / "tools"))
import test_results as results  # noqa: E402

CASES = """<?xml version="1.0"?>
<testsuite tests="5">
  <testcase name="good" status="run"/>
  <testcase name="bad" status="fail"><failure message=""/></testcase>
  <testcase name="left out" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>
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


if __name__ == "__main__":
    unittest.main()
