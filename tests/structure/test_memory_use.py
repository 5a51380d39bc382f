# SPDX-License-Identifier: Apache-2.0
"""What each entry point takes of a GPU's memory is written down, and handlers charge where it says
so."""

import re
import sys
import unittest

import rules_memory_use as rules
import tree
from check_case import CheckCase

sys.path.insert(0, str(tree.ROOT / "api/gen"))
import description  # noqa: E402

USE = "api/cuda/memory_use.txt"


def refused(described, entry_points):
    """Entry points that answer CUDA_ERROR_NOT_SUPPORTED. Variants for per-thread streams share
    their original's body."""
    found = set()
    for name in entry_points:
        bodies = [described.aliases.get(one, one) for one in (name, re.sub(r"_pts[zd]$", "", name))]
        if not any(
            one in described.calls and described.calls[one].kind != "refuse" for one in bodies
        ):
            found.add(name)
    return found


class Tree(CheckCase):
    def setUp(self):
        self.uses, self.problems = rules.parse(tree.text(USE))

    def test_well_formed(self):
        self.clean(self.problems)

    def test_every_entry_point(self):
        api = description.Api(tree.ROOT / "api/cuda")
        entry_points, described = api.signatures, api.spec
        self.clean(rules.complete(self.uses, entry_points, refused(described, entry_points)))
        self.assertGreater(len(self.uses), 600)

    def test_what_is_said_to_be_charged_is(self):
        sources = [path.read_text() for path in sorted((tree.ROOT / "worker/cuda").rglob("*.cc"))]
        self.clean(rules.charged(self.uses, rules.charging(sources)))

    def test_what_nccl_may_call_is_charged_too(self):
        source = (tree.ROOT / "worker/nccl/driver/calls.cc").read_text()
        self.clean(rules.passed_to_nccl(self.uses, source))


class Rules(CheckCase):
    def test_passed_to_nccl(self):
        uses = {"cuA": ("charged", ["take"]), "cuB": ("host", []), "cuModuleLoad": ("charged", [])}
        uses["cuFree"] = ("none", [])
        self.finds(rules.passed_to_nccl(uses, "  X(cuA) \\\n"), ["cuB takes memory"])
        self.clean(rules.passed_to_nccl(uses, "  X(cuA)  X(cuB)"))

    def test_parse(self):
        uses, problems = rules.parse(
            "# c\ncuA none\ncuB charged take more\ncuC uncharged : small\n"
        )
        self.assertEqual((problems, uses["cuB"]), ([], ("charged", ["take", "more"])))
        lines = [
            "cuA what",
            "cuB",
            "cuC none",
            "cuC none",
            "cuD charged",
            "cuE none take",
            "cuF uncharged",
        ]
        lines.append("cuG none : why")
        self.finds(
            rules.parse("\n".join(lines))[1],
            ["known", "known", "twice", "operations", "operations", "reason", "reason"],
        )

    def test_complete(self):
        uses = {
            "cuA": ("none", []),
            "cuB": ("refused", []),
            "cuC": ("host", []),
            "cuOld": ("none", []),
        }
        self.finds(
            rules.complete(uses, ["cuA", "cuB", "cuC", "cuNew"], {"cuC"}),
            ["cuNew is new", "cuOld is no entry point", "cuB is not refused", "cuC is refused"],
        )

    def test_charging(self):
        source = """
CUresult handle(Executor& w, const wire::cuda::one_request& m) {
  if (!w.charge().take(0, m.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
}
static CUresult helper(Executor& w) {
  return w.charge().hold(0, 1, nullptr) != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult handle(Executor& w, const wire::cuda::two_request& m, wire::cuda::two_reply& r) {
  return helper(w);
}
CUresult handle(Executor& w, const wire::cuda::three_request& m) {
  return w.driver().cuMemAlloc_v2(&r.address, m.bytes);
}
"""
        found = rules.charging([source])
        self.assertLessEqual({"one", "two"}, found)
        self.assertNotIn("three", found)
        self.finds(
            rules.charged({"cuX": ("charged", ["one", "three"])}, found), ["three does not charge"]
        )


if __name__ == "__main__":
    unittest.main()
