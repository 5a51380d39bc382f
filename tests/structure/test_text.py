# SPDX-License-Identifier: Apache-2.0
"""Every file of the repository against the rules of rules_text.py, and those rules against fixtures
that break them."""

import unittest

import cpp_reader
import rules_text as rules
import tree
from check_case import CheckCase

SOURCES = [
    name
    for name in tree.files()
    if name.endswith(tree.CPP + (".py", ".sh")) or tree.is_script(name)
]
CODE = [name for name in SOURCES if not name.endswith(".inc")]
BUILD_FILES = [name for name in tree.files() if name.endswith((".cmake", "CMakeLists.txt"))]
PAGES = [
    name
    for name in tree.files()
    if name.endswith(
        (".md", ".txt", ".spec", ".cmake", ".json", ".toml", ".csv", ".map", ".service")
    )
]


class Tree(CheckCase):
    def each(self, rule, names):
        self.assertTrue(names)
        self.clean(problem for name in names for problem in rule(name, tree.text(name)))

    def test_heads(self):
        self.each(rules.head, SOURCES)

    def test_pragma_once(self):
        self.each(rules.pragma_once, SOURCES)

    def test_file_length(self):
        self.each(rules.file_length, SOURCES)

    def test_columns(self):
        self.each(rules.columns, CODE + BUILD_FILES)

    def test_line_ends(self):
        self.each(rules.line_ends, SOURCES + BUILD_FILES)

    def test_function_length(self):
        self.each(
            rules.function_length, [name for name in CODE if name.endswith(tree.CPP + (".py",))]
        )

    def test_no_machine_paths(self):
        self.each(rules.machine_paths, SOURCES + PAGES)

    def test_no_registry_hosts(self):
        self.each(rules.registry_hosts, SOURCES + PAGES)

    def test_nothing_generated(self):
        tracked = (tree.git("ls-files", "-z") or "").split("\0")
        self.clean(problem for name in tracked if name for problem in rules.generated_name(name))

    def test_nothing_built(self):
        for name in tree.files():
            with open(tree.ROOT / name, "rb") as stream:
                self.clean(rules.binary_content(name, stream.read(8)))

    def test_room_readmes(self):
        rooms = {tree.room(name) for name in tree.files()} & set(tree.ROOMS)
        self.clean(
            f"{room}/ has no README.md"
            for room in sorted(rooms)
            if not (tree.ROOT / room / "README.md").is_file()
        )
        self.each(
            rules.readme_length,
            [
                f"{room}/README.md"
                for room in sorted(rooms)
                if (tree.ROOT / room / "README.md").is_file()
            ],
        )


GOOD = "// SPDX-License-Identifier: Apache-2.0\n// What it is for.\n#pragma once\n"
LONG_FUNCTION = (
    "namespace a {\nclass B {\n  int f(int x) const {\n" + "    x += 1;\n" * 80 + "  }\n};\n}\n"
)


class Rules(CheckCase):
    def test_head(self):
        self.clean(rules.head("a/b.h", GOOD))
        self.clean(rules.head("a/b", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n# What.\n"))
        self.finds(rules.head("a/b.h", "#pragma once\n"), ["first line"])
        self.finds(
            rules.head("a/b.cc", "// SPDX-License-Identifier: Apache-2.0\n#include <a>\n"),
            ["what the file is for"],
        )
        self.finds(
            rules.head("a/b.py", "# SPDX-License-Identifier: Apache-2.0\nimport a\n"),
            ["what the file is for"],
        )

    def test_pragma_once(self):
        self.clean(rules.pragma_once("a.h", GOOD))
        self.finds(rules.pragma_once("a.h", "// a\n"), ["#pragma once"])

    def test_length_and_columns(self):
        self.clean(rules.file_length("a.cc", "x\n" * 1000))
        self.finds(rules.file_length("a.cc", "x\n" * 1001), ["1001 lines"])
        self.clean(rules.columns("a.cc", "x" * 100 + "\n// " + "y" * 97 + "\n"))
        self.finds(
            rules.columns("a.cc", "x" * 101 + "\n// " + "y" * 98 + "\n"),
            ["a.cc:1: 101 columns", "a.cc:2: 101 columns"],
        )

    def test_line_ends(self):
        self.clean(rules.line_ends("a.cc", "x\n\ny\n"))
        self.finds(rules.line_ends("a.cc", "x \ny\t"), ["a.cc:1", "a.cc:2", "last line"])

    def test_function_length(self):
        self.finds(rules.function_length("a.cc", LONG_FUNCTION), ["a.cc:3: a function of 82 lines"])
        self.clean(
            rules.function_length(
                "a.cc", LONG_FUNCTION.replace("x += 1;", "", 12).replace("    \n", "", 12)
            )
        )
        self.clean(
            rules.function_length(
                "a.cc", LONG_FUNCTION.replace("x += 1;", "// structure: table", 1)
            )
        )
        self.clean(
            rules.function_length("a.cc", "const int table[] = {\n" + "  1,\n" * 90 + "};\n")
        )
        self.finds(rules.function_length("a.py", "def f():\n" + "    a = 1\n" * 71), ["72 lines"])

    def test_finds_functions(self):
        found = cpp_reader.functions(
            'extern "C" {\nint a() {\n}\n}\n'  # 2-3
            "template <typename T>\nauto b(T x) -> int {\n"  # 5-7
            "}\nstruct S : P<int> {\n  S() : a{1}, b_(2) {}\n"
            '  const char* s = "{";  // }\n'
            "  bool operator()(int) const { return '{' == 0; }\n};\n"  # 11
            "enum class E { kA };\nint v = [] { return 1; }();\n"
            "#define M(x) \\\n  {\nint c(int n = 1'000) {\n  if (n) {\n  }\n}\n"
        )
        self.assertEqual(
            [span for span in found if span[0] in (2, 5, 11, 17)],
            [(2, 3), (5, 7), (11, 11), (17, 20)],
            found,
        )

    def test_machine_paths(self):
        self.clean(rules.machine_paths("a", "client/wor" + "ker a/ho" + "me $X/ho" + "me/a\n"))
        for word in ("wor" + "k", "far" + "m", "roo" + "t", "hom" + "e"):
            self.finds(rules.machine_paths("a", f"cd /{word}/x\n"), ["somebody's machine"])

    def test_registry_hosts(self):
        self.clean(rules.registry_hosts("a", "https://www.apache.org/licenses/\n"))
        self.finds(rules.registry_hosts("a", "x\nhttps://py" + "pi.org/simple\n"), ["a:2"])

    def test_generated(self):
        self.clean(rules.generated_name("api/gen/main.py"))
        for name in ("a/b.gen.h", "build/a", "x/libcuda.so.1", "a/b.o", "a/__pycache__/b"):
            self.finds(rules.generated_name(name), ["build folder"])
        self.finds(rules.binary_content("a", b"\x7fELF\x02"), ["build folder"])

    def test_readme_length(self):
        self.clean(rules.readme_length("a", "x\n" * 60))
        self.finds(rules.readme_length("a", "x\n" * 61), ["at most 60"])


if __name__ == "__main__":
    unittest.main()
