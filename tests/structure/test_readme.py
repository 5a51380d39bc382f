# SPDX-License-Identifier: Apache-2.0
"""packaging/readme/transcript.py sees a command or an output that is not as the page shows it. And
README.md has lines that it follows."""

import importlib.util
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("transcript", ROOT / "packaging/readme/transcript.py")
transcript = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(transcript)

PAGE = """
```console
$ first
one ... three
...
last
$ second &
# third
```
"""


def said(*outputs):
    marks = ["3", "7", "8", "end"]
    return "".join(f"{transcript.MARK} {mark}\n{text}" for mark, text in zip(marks, outputs))


class Transcript(unittest.TestCase):
    def test_an_output_as_shown_is_right(self):
        self.assertEqual(transcript.check(PAGE, said("one 2 three\nlast\n", "", "", "")), [])
        self.assertEqual(transcript.check(PAGE, said("one 2 three\na\nb\nlast\n", "", "", "")), [])

    def test_another_output_is_named(self):
        for first in ("one three\nlast\n", "one 2 three\nlast\nmore\n", "one 2 three\n", ""):
            problems = transcript.check(PAGE, said(first, "", "", ""))
            self.assertIn("line 3: first", problems[0])
        problems = transcript.check(PAGE, said("one 2 three\nlast\n", "", "x\n", ""))
        self.assertIn("line 8", problems[0])

    def test_a_command_that_failed_is_named(self):
        problems = transcript.check(PAGE, said("one 2 three\nlast\n"))
        self.assertIn("line 7: was not reached: second &", problems[0])
        self.assertIn("failed", transcript.check(PAGE, said("one 2 three\nlast\n", "", ""))[0])

    def test_readme_has_lines_to_follow(self):
        page = (ROOT / "README.md").read_text(encoding="utf-8")
        commands = [command for _, command, _ in transcript.commands(page)]
        self.assertTrue(any(command.startswith("tendril run ") for command in commands), commands)
        self.assertIn("|| exit 1", transcript.script(page))

    def test_output_without_a_command_is_an_error(self):
        with self.assertRaises(ValueError):
            transcript.commands("```console\nlost\n```\n")


if __name__ == "__main__":
    unittest.main()
