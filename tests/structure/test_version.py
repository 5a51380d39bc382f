# SPDX-License-Identifier: Apache-2.0
"""The version in CMakeLists.txt, CHANGELOG.md and the tags against rules_version.py, and those
rules against fixtures that break them."""

import unittest

import rules_version as rules
import tree
from check_case import CheckCase


class Tree(CheckCase):
    def test_version(self):
        wanted = rules.version(tree.text("CMakeLists.txt"))
        self.assertIsNotNone(wanted, "CMakeLists.txt has no project(tendril VERSION ...)")
        self.clean(rules.changelog(tree.text("CHANGELOG.md"), wanted))
        every = (tree.git("tag", "--list") or "").split()
        here = (tree.git("tag", "--points-at", "HEAD") or "").split()
        self.clean(rules.tags(every, here, wanted))


class Rules(CheckCase):
    def test_version(self):
        self.assertEqual(rules.version("# a\nproject(tendril VERSION 1.2.3 LANGUAGES C)"), "1.2.3")
        self.assertIsNone(rules.version("project(tendril LANGUAGES C)"))

    def test_changelog(self):
        self.clean(
            rules.changelog("# Changes\n\n## 1.2.3, not released yet\n\n## 1.2.2\n", "1.2.3")
        )
        self.clean(rules.changelog("## 1.2.3\n", "1.2.3"))
        self.finds(rules.changelog("## 1.2.2\n", "1.2.3"), ["is of 1.2.2"])
        self.finds(rules.changelog("# Changes\n", "1.2.3"), ["is of none"])

    def test_tags(self):
        self.clean(rules.tags(["v1.2.3", "v1.2.4"], ["v1.2.4"], "1.2.4"))
        self.finds(rules.tags(["1.2.3"], [], "1.2.4"), ["'1.2.3' is not"])
        self.finds(rules.tags(["v1.2.3"], ["v1.2.3"], "1.2.4"), ["says 1.2.4"])


if __name__ == "__main__":
    unittest.main()
