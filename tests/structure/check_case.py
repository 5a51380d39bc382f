# SPDX-License-Identifier: Apache-2.0
"""The base of the structure tests: shows every problem of a rule at once, and proves that a rule
can fail."""

import unittest


class CheckCase(unittest.TestCase):
    def clean(self, problems):
        """Fails with the list of problems if there is any."""
        problems = list(problems)
        if problems:
            self.fail("\n  " + "\n  ".join(problems[:200]) + f"\n({len(problems)} problems)")

    def finds(self, problems, expected):
        """A rule on a fixture reports each of the expected words, and as many problems as there are
        words."""
        problems = list(problems)
        self.assertEqual(len(problems), len(expected), problems)
        for problem, word in zip(problems, expected):
            self.assertIn(word, problem)
