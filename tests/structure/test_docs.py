# SPDX-License-Identifier: Apache-2.0
"""The documents of the repository against rules_docs.py: commands and links are true. And those
rules against fixtures."""

import os
import pathlib
import subprocess
import unittest

import rules_docs as rules
import tree
from check_case import CheckCase

PAGES = [name for name in tree.files() if name.endswith(".md")]
BUILD = os.environ.get("TENDRIL_BUILD_DIR")


def exists(name):
    return (tree.ROOT / name).exists()


class Tree(CheckCase):
    def test_commands_exist(self):
        self.assertIn("README.md", PAGES)
        self.clean(
            problem for name in PAGES for problem in rules.commands(name, tree.text(name), exists)
        )

    def test_links_lead_somewhere(self):
        self.clean(
            problem for name in PAGES for problem in rules.links(name, tree.text(name), exists)
        )

    def test_scripts_can_be_run(self):
        scripts = [name for name in tree.files() if tree.is_script(name)]
        self.clean(
            f"{name} is not executable"
            for name in scripts
            if not os.access(tree.ROOT / name, os.X_OK)
        )

    @unittest.skipIf(BUILD is None, "TENDRIL_BUILD_DIR is not set: run by ctest")
    def test_subcommands_exist(self):
        program = pathlib.Path(BUILD) / "bin" / "tendril"
        self.assertTrue(program.exists(), "bin/tendril was not built")
        for name in PAGES:
            for command in rules.subcommands(tree.text(name)):
                with self.subTest(page=name, command=command):
                    done = subprocess.run(
                        [program, command, "--help"], capture_output=True, text=True, timeout=20
                    )
                    self.assertEqual(
                        done.returncode, 0, f"{name} shows 'tendril {command}': {done.stderr}"
                    )


class Rules(CheckCase):
    def test_commands(self):
        page = (
            "Text scripts/none\n\n```\n$ scripts/test --quick  # see"
            " scripts/more\n./scripts/gone\n```\n\n"
        )
        page += "    tools/lost.py x\n"
        self.finds(
            rules.commands("R.md", page, lambda name: name == "scripts/test"),
            ["scripts/gone", "tools/lost.py"],
        )

    def test_subcommands(self):
        self.assertEqual(
            rules.subcommands(
                "    $ tendril run -n 1 -- tendril-x\n    build/bin/tendril ls\nuse tendril top\n"
                "    tendril trace: cuInit(Flags=0x0) -> CUDA_SUCCESS\n"
            ),
            ["ls", "run"],
        )

    def test_links(self):
        page = "[a](../CONTRIBUTING.md#code) [b](gone.md) [c](https://example.org/x)\n"
        self.finds(
            rules.links("docs/a.md", page, lambda name: name == "CONTRIBUTING.md"), ["gone.md"]
        )


if __name__ == "__main__":
    unittest.main()
