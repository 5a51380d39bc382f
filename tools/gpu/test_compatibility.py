# SPDX-License-Identifier: Apache-2.0
"""Tests of compatibility.py: which run counts, what is explained, and what says that it is not.
No GPU needed."""

import unittest

import compatibility

FACTS = {"commit": "abc1234", "gpu": "a GPU, 1.2", "arguments": ["--only", "x|y"], "seconds": 3.4}


def outcome(word="ok", seconds=1.0):
    return {"word": word, "seconds": seconds}


def program(group, name, equal="yes", **more):
    sides = {"native": outcome(), "tcp": outcome(), "shm": outcome()}
    return {"group": group, "name": name, "equal": equal} | sides | more


def run(*programs, **facts):
    return {"run": FACTS | facts, "programs": list(programs)}


def shown(*runs, known=""):
    return compatibility.tables(list(runs), compatibility.known_reasons(known))


class Tables(unittest.TestCase):
    def test_last_run_counts(self):
        text = shown(
            run(program("torch", "a", "NO: tcp")),
            run(program("torch", "a"), date="2026-01-02 03:04"),
        )
        self.assertIn("| torch a | ok 1.00 s | ok 1.00 s | ok 1.00 s |  | yes | 2 |", text)
        self.assertNotIn("**NO", text)
        self.assertIn("| 2 | 2026-01-02 | `abc1234` |", text)
        self.assertIn("| 1 | not recorded |", text)

    def test_a_program_that_was_not_run_keeps_its_earlier_result(self):
        text = shown(run(program("torch", "a")), run(program("torch", "a", "not run", native=None)))
        self.assertIn("| yes | 1 |", text)

    def test_entry_points_of_all_runs(self):
        self.assertNotIn("entry points", shown(run(program("torch", "a"))))
        first = run(program("torch", "a")) | {
            "entry_points": {"called": ["cuInit", "cuCtxCreate"], "refused": {}}
        }
        self.assertIn("called 2 entry points remotely; refused among them: none", shown(first))
        second = run(program("jax", "b")) | {
            "entry_points": {"called": ["cuInit"], "refused": {"cuX": ["jax b"]}}
        }
        self.assertIn(
            "called 3 entry points remotely; refused among them: `cuX` by jax b",
            shown(first, second),
        )

    def test_reasons_by_side(self):
        known = "# a comment\ntorch/a* | tcp | no such memory\n"
        text = shown(run(program("torch", "ab", "NO: tcp,shm", why={"shm": "1 | 2"})), known=known)
        self.assertIn("**NO: tcp,shm**: tcp: no such memory; shm: not explained; `1 \\| 2`", text)

    def test_what_nobody_explained_says_so(self):
        self.assertIn("**NO: tcp**: not explained", shown(run(program("jax", "a", "NO: tcp"))))
        self.assertIn(
            "**native fails**: not explained", shown(run(program("jax", "a", "native fails")))
        )

    def test_conformance_is_one_line_and_what_differs(self):
        sides = {"native": outcome("3/4"), "tcp": outcome("4/4"), "shm": outcome("exit 139")}
        suites = [
            program("conformance", "A", **sides),
            program("conformance", "B", "NO: shm", **sides),
        ]
        text = shown(run(*suites))
        passed = "| 6 of 8 tests 2 s | 8 of 8 tests 2 s | 0 of 0 tests 2 s |  |"
        self.assertIn(f"| conformance, 2 suites {passed} 1 of 2 suites | 1 |", text)
        self.assertIn("| conformance B |", text)
        self.assertNotIn("| conformance A |", text)

    def test_summary_and_missing_groups(self):
        text = shown(
            run(
                program("onnx", "a", "skipped"),
                program("onnx", "b"),
                program("jax", "c", "native fails"),
            )
        )
        self.assertIn("* onnx: 1 of 2 equal to native, 1 not run", text)
        self.assertIn("* jax: 0 of 1 equal to native, 1 fail natively", text)
        self.assertIn("not in these runs: conformance,", text)

    def test_only_the_marked_part_of_the_page_changes(self):
        page = f"by hand\n{compatibility.BEGIN}\nold\n{compatibility.END}\nby hand too\n"
        new = compatibility.replaced(page, "new")
        self.assertTrue(new.startswith("by hand\n") and new.endswith("\nby hand too\n"))
        self.assertNotIn("old", new)
        self.assertEqual(new, compatibility.replaced(new, "new"))

    def test_every_known_reason_names_a_program(self):
        text = (compatibility.HERE / "known_differences.txt").read_text()
        for pattern, sides, reason in compatibility.known_reasons(text):
            self.assertIn(pattern.split("/")[0], compatibility.catalog.GROUPS)
            self.assertTrue(sides <= set(compatibility.SIDES) and reason, pattern)


if __name__ == "__main__":
    unittest.main()
