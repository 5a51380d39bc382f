# SPDX-License-Identifier: Apache-2.0
"""Every C++ file against rules_format.py, and that rule against a file that breaks it."""

import pathlib
import tempfile
import unittest

import rules_format as rules
import tree
from check_case import CheckCase

WITHOUT = f"{rules.FORMATTER} is not installed (scripts/setup installs it): FORMAT IS NOT CHECKED"


@unittest.skipUnless(rules.available(), WITHOUT)
class Tree(CheckCase):
    def test_formatted(self):
        names = [name for name in tree.files() if name.endswith(rules.SUFFIXES)]
        self.assertTrue(names)
        self.clean(rules.problems(tree.ROOT, names))


@unittest.skipUnless(rules.available(), WITHOUT)
class Rules(CheckCase):
    def test_problems(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / ".clang-format").write_text(tree.text(".clang-format"))
            (place / "good.cc").write_text("int* pointer;\n")
            (place / "bad.cc").write_text("int *pointer;\n")
            self.finds(rules.problems(place, ["good.cc", "bad.cc"]), ["bad.cc:1"])
            self.finds(rules.problems(place, ["none.cc"]), ["status 1"])


if __name__ == "__main__":
    unittest.main()
