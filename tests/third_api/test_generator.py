# SPDX-License-Identifier: Apache-2.0
"""The build generates again when a description changes, and the generator says what is wrong with
one. Works on a copy of the third API's description."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GENERATOR = ROOT / "api" / "gen" / "main.py"
PROJECT = """cmake_minimum_required(VERSION 3.22)
project(copy NONE)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
include({include})
tendril_generate_api({folder})
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.api = self.folder / "abacus"
        shutil.copytree(HERE / "abacus", self.api)
        self.spec = self.api / "column.spec"

    def generate(self, *options):
        return run(sys.executable, GENERATOR, self.folder / "out", "--api", self.api, *options)

    def replace(self, before, after):
        text = self.spec.read_text()
        self.assertIn(before, text)
        self.spec.write_text(text.replace(before, after))


@unittest.skipUnless(shutil.which("ninja"), "ninja is not installed")
class Build(Case):
    def build(self):
        cmake = os.environ.get("TENDRIL_CMAKE", "cmake")
        build = self.folder / "build"
        status, text = run(cmake, "--build", build, "--target", "tendril_api_abacus")
        self.assertEqual(status, 0, text)

    def test_editing_a_spec_generates_again(self):
        include = ROOT / "api" / "generate.cmake"
        (self.folder / "CMakeLists.txt").write_text(
            PROJECT.format(include=include, folder=self.api)
        )
        cmake = os.environ.get("TENDRIL_CMAKE", "cmake")
        status, text = run(cmake, "-G", "Ninja", "-S", self.folder, "-B", self.folder / "build")
        self.assertEqual(status, 0, text)
        self.build()
        entry = self.folder / "build" / "generated" / "api" / "abacus_entry.gen.cc"
        self.assertIn("means nothing on another machine", entry.read_text())
        self.replace("means nothing on another machine", "stays where it is")
        self.build()
        self.assertIn("stays where it is", entry.read_text())


class Description(Case):
    def refuses(self, before, after, *words):
        self.replace(before, after)
        status, text = self.generate()
        self.assertNotEqual(status, 0)
        for word in words:
            self.assertIn(word, text)
        self.assertNotIn("Traceback", text)

    def test_a_wire_change_needs_the_registry(self):
        self.refuses("span:span", "span:u64", "schema.lock", "--update-registry")

    def test_a_new_operation_needs_a_number(self):
        self.refuses("op column_fill", "op column_wipe column:u64\nop column_fill", "column_wipe")
        before = (self.api / "registry" / "opcodes.txt").read_text()
        status, text = self.generate("--update-registry")
        self.assertEqual(status, 0, text)
        after = (self.api / "registry" / "opcodes.txt").read_text()
        self.assertTrue(after.startswith(before))
        self.assertIn("column_wipe", after)

    def test_another_order_of_an_enum_is_a_wire_change(self):
        self.refuses("forwards backwards", "backwards forwards", "schema.lock")

    def test_an_unknown_type(self):
        self.refuses("span:span", "span:spam", "column.spec", "spam")

    def test_an_unknown_word(self):
        self.refuses("enqueue abacusColumnApply", "queue abacusColumnApply", "column.spec", "queue")

    def test_an_unknown_argument(self):
        self.refuses("length=out", "size=out", "column.spec", "size")

    def test_an_unknown_folder(self):
        status, text = run(sys.executable, GENERATOR, self.folder, "--api", "opengl")
        self.assertNotEqual(status, 0)
        self.assertIn("api.ini", text)


if __name__ == "__main__":
    unittest.main()
