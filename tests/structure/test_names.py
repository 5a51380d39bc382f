# SPDX-License-Identifier: Apache-2.0
"""The names and paths in all comments and pages against rules_names.py, and those rules against
fixtures that break them."""

import unittest

import rules_names as rules
import tree
from check_case import CheckCase

READ = tree.CPP + (
    (".py", ".sh", ".cmake", ".md", ".txt", ".spec", ".csv", ".ini", ".json", ".lock", ".map")
    + (".codes", ".inc", ".service")
)
PARTS = {
    name: rules.parts(name, tree.text(name))
    for name in tree.files()
    if name.endswith(READ) or tree.is_script(name)
}
# The fixtures of the rules name what does not exist.
KNOWN = set().union(
    *(rules.words(code) for name, (code, _) in PARTS.items() if name not in rules.FIXTURES)
)
KNOWN |= {name.rsplit("/", 1)[-1].split(".")[0] for name in PARTS}
IN_CPP = set().union(*(rules.identifiers(name, tree.text(name)) for name in PARTS))


def exists(name):
    return (tree.ROOT / name).exists()


class Tree(CheckCase):
    def test_names(self):
        self.clean(
            problem
            for name, (_, prose) in PARTS.items()
            if name not in rules.AHEAD
            for problem in rules.stale_names(name, prose, KNOWN, IN_CPP)
        )

    def test_paths(self):
        self.clean(
            problem
            for name, (_, prose) in PARTS.items()
            if name not in rules.AHEAD
            for problem in rules.stale_paths(name, prose, tree.ROOMS, exists)
        )


class Rules(CheckCase):
    def found(self, path, source, known=()):
        return list(rules.stale_names(path, rules.parts(path, source)[1], set(known)))

    def test_names(self):
        self.finds(self.found("a.h", "// `has` says it.\nint here;\n"), ["a.h:1: names 'has'"])
        self.finds(
            self.found("a.h", "int x;  // as TENDRIL_GONE, kLost\n"), ["TENDRIL_GONE", "kLost"]
        )
        self.finds(self.found("a.py", 'def f():\n    """A LeaseBook."""\n'), ["a.py:2"])
        self.finds(self.found("a.sh", "run  \n# `B::gone()`\n"), ["a.sh:2: names 'gone'"])
        self.finds(self.found("a.md", "The `LeaseBook` of PyTorch.\n"), ["LeaseBook"])
        self.clean(self.found("a.h", "// LeaseBook, Get*, GetIt.x, `-m`\n", ["LeaseBook"]))
        self.clean(self.found("a.h", 'const char* text = "LeaseBook // kLost";\n'))
        self.clean(self.found("a.md", "Text.\n\n    kGone\n\n```\n`kGone`\n```\n"))

    def test_cpp_names(self):
        prose = [(1, "// Ask `has`, which `max_of` a LeaseBook is.")]
        known = {"has", "max_of", "LeaseBook"}
        self.finds(rules.stale_names("a.h", prose, known, {"max_of"}), ["names 'has'"])
        self.clean(rules.stale_names("a.py", prose, known, {"max_of"}))
        code = 'int here; const char* text = "there";  // gone\n'
        self.assertEqual(rules.identifiers("a.h", code), {"int", "here", "const", "char", "text"})
        self.assertEqual(rules.identifiers("api/a.spec", "call here\n# gone\n"), {"call", "here"})
        self.assertEqual(rules.identifiers("scripts/a.sh", "here\n"), set())

    def test_words(self):
        code, _ = rules.parts("a.py", '"""LeaseBook"""\nname = "kHere"  # kGone\n')
        self.assertEqual(rules.words(code), {"name", "kHere"})
        code, _ = rules.parts("a.h", "int here;  // gone\n")
        self.assertEqual(rules.words(code), {"int", "here"})

    def test_paths(self):
        text = "// See wire/gone.h, wire/here.h, x/wire/no.h, wire/*_test.cc, wire/ROOM/a.h."
        prose = [(1, text)]
        problems = rules.stale_paths("a.h", prose, ["wire"], lambda name: name == "wire/here.h")
        self.finds(problems, ["names wire/gone.h"])


if __name__ == "__main__":
    unittest.main()
