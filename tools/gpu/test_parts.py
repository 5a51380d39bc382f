# SPDX-License-Identifier: Apache-2.0
"""Tests that the parts of everything leave nothing out and name only what exists. No GPU needed."""

import sys
import unittest
from unittest import mock

import catalog
import gpu_run
import parts
import shares

HERE = gpu_run.HERE


def options(*given):
    with mock.patch.object(sys, "argv", ["run_all", *given]):
        return gpu_run.options()


class Parts(unittest.TestCase):
    def test_every_group_is_in_a_part(self):
        named = {group for part in parts.PARTS for group in options("--part", part).only}
        self.assertEqual(set(catalog.GROUPS), named)

    def test_every_word_finds_something(self):
        programs = [
            p.name
            for p in catalog.test_programs()
            + catalog.own_programs({})
            + catalog.framework_programs()
        ]
        programs += [p.name for p in catalog.samples(HERE, {})]
        cases = [name for name, _ in shares.CASES] + [shares.STEPS, shares.TWO_GPUS, shares.WHOLE]
        cases += [
            "kill",
            "priority",
            "neighbours",
            "torch 20",
            "resnet",
            "attach",
            "modes",
            "packed",
        ]
        for part in parts.PARTS:
            chosen = options("--part", part)
            for word in filter(None, chosen.match.split(",")):
                with self.subTest(part=part, word=word):
                    self.assertTrue(
                        any(
                            word in name
                            for name in (cases if chosen.only == ["shares"] else programs)
                        )
                    )

    def test_every_case_of_shares_is_in_their_part(self):
        words = options("--part", "shares").match.split(",")
        left = [name for name, _ in shares.CASES if not any(word in name for word in words)]
        self.assertEqual([], left)

    def test_no_case_of_shares_is_measured_twice(self):
        packed = shares.PACKED + [name for name, _ in shares.STEP_CASES]
        for names in ([name for name, _ in shares.CASES], packed):
            self.assertEqual(len(names), len(set(names)))

    def test_what_comes_after_a_part_wins(self):
        chosen = options("--part", "frameworks", "--only", "onnx", "--budget", "60")
        self.assertEqual((["onnx"], 60, 120), (chosen.only, chosen.budget, chosen.limit))

    def test_a_part_that_there_is_not(self):
        with self.assertRaises(SystemExit), mock.patch("sys.stderr"):
            options("--part", "everything")


if __name__ == "__main__":
    unittest.main()
