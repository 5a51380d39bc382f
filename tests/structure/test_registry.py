# SPDX-License-Identifier: Apache-2.0
"""The id registry of this tree and of its history, and the rules of rules_registry.py against
fixtures that break them."""

import subprocess
import sys
import tempfile
import unittest

import rules_registry as rules
import tree
from check_case import CheckCase

OPCODES = "api/cuda/registry/opcodes.txt"
LOCK = "api/cuda/registry/schema.lock"
EARLIER = {OPCODES: ["api/registry/opcodes.txt"]}  # where the same file was in earlier commits
CONTROL = "wire/control.h"


def earlier_versions(version):
    """(commit, {name: number}) of every commit that changed the numbers while the protocol had this
    version."""
    paths = [OPCODES, *EARLIER.get(OPCODES, [])]
    for commit in (tree.git("log", "--format=%H", "--", *paths) or "").split():
        if rules.protocol_version(tree.git("show", f"{commit}:{CONTROL}")) == version:
            for path in paths:
                yield commit, rules.parse(tree.git("show", f"{commit}:{path}") or "")[0]


class Tree(CheckCase):
    def test_opcodes_are_well_formed(self):
        numbers, problems = rules.parse(tree.text(OPCODES))
        self.clean(problems)
        self.assertTrue(numbers)

    def test_opcodes_are_append_only(self):
        now, _ = rules.parse(tree.text(OPCODES))
        version = rules.protocol_version(tree.text(CONTROL))
        self.assertIsNotNone(version, f"{CONTROL} names no kProtocolVersion")
        for commit, before in earlier_versions(version):
            self.clean(
                f"against {commit[:10]}: {problem}" for problem in rules.append_only(before, now)
            )

    def test_lock_is_up_to_date(self):
        """The generator, run without permission to change the registry, refuses if the description
        has changed."""
        before = tree.text(OPCODES), tree.text(LOCK)
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run(
                [sys.executable, str(tree.ROOT / "api/gen/main.py"), out, "--api", "cuda"],
                capture_output=True,
                text=True,
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(
            before,
            (tree.text(OPCODES), tree.text(LOCK)),
            "the generator changed the registry unasked",
        )
        numbers, _ = rules.parse(before[0])
        self.clean(
            f"{name} has a digest but no number"
            for name in sorted(rules.lock_names(before[1]) - set(numbers))
        )
        self.assertTrue(rules.lock_names(before[1]))


class Rules(CheckCase):
    def test_parse(self):
        numbers, problems = rules.parse("# c\n1 a\n2 b  # why\n")
        self.assertEqual((numbers, problems), ({"a": 1, "b": 2}, []))
        self.finds(
            rules.parse("1 a\n1 b\n3 a\nx\n70000 c\n")[1],
            ["belongs to a", "two numbers", "not 'number name'", "fit"],
        )

    def test_append_only(self):
        before = {"a": 1, "b": 2}
        self.clean(rules.append_only(before, {"a": 1, "b": 2, "c": 3}))
        self.finds(rules.append_only(before, {"a": 1, "b": 3}), ["b was 2"])
        self.finds(rules.append_only(before, {"a": 1, "c": 2}), ["2 was b's"])
        self.finds(rules.append_only(before, {"a": 1}), ["has gone"])

    def test_protocol_version(self):
        self.assertEqual(
            rules.protocol_version("inline constexpr uint16_t kProtocolVersion = 7;"), 7
        )
        self.assertIsNone(rules.protocol_version(None))


if __name__ == "__main__":
    unittest.main()
