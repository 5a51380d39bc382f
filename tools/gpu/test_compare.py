# SPDX-License-Identifier: Apache-2.0
"""Tests of the comparison (compare.py, report.py): what counts as equal, as within native's
spread, as not run. No GPU needed."""

import unittest

import catalog
import compare
import report
import sides

PROGRAM = catalog.Program("torch", "x", ["x"])
FIRST = "a #11111111 1.5\nloss 2.0000 b 3\ntime 3\n"
AGAIN = "a #11111111 1.5\nloss 2.0001 b 3\n"


def ran(out, status=0):
    return sides.Outcome(status, 1.0, False, out, "")


def judged(native, remote, again=()):
    results = {"program": PROGRAM, "label": "x", "lines": {}, "again": again}
    results |= {"native": native, "tcp": remote, "shm": remote}
    return report.verdict(results, ("native", "tcp", "shm"))


class Spread(unittest.TestCase):
    def within(self, remote, first=FIRST, *again):
        return compare.spread(ran(first), ran(remote), [ran(text) for text in again or (AGAIN,)])

    def test_lines_of_time_do_not_count(self):
        self.assertEqual(0, compare.spread(ran("a\ntime 1\n"), ran("a\ntime 2\n")))

    def test_nothing_may_differ_while_native_ran_once(self):
        self.assertIsNone(compare.spread(ran(FIRST), ran(AGAIN)))

    def test_a_number_within_the_spread(self):
        self.assertAlmostEqual(5e-5, self.within("a #11111111 1.5\nloss 2.0002 b 3\n"), places=6)

    def test_a_number_outside_it(self):
        self.assertIsNone(self.within("a #11111111 1.5\nloss 2.01 b 3\n"))

    def test_a_number_that_native_repeats(self):
        self.assertIsNone(self.within("a #11111111 1.5\nloss 2.0001 b 4\n"))

    def test_a_line_that_native_repeats(self):
        self.assertIsNone(self.within("a #22222222 1.5\nloss 2.0000 b 3\n"))

    def test_a_checksum_goes_with_the_number_beside_it(self):
        self.assertIsNotNone(
            self.within("v #aaaaaaaa 5.00000011", "v #1234abcd 5.0", "v #bbbbbbbb 5.0000001")
        )

    def test_a_checksum_without_a_number_shows_no_spread(self):
        self.assertIsNone(self.within("v #aaaaaaaa", "v #1234abcd", "v #bbbbbbbb"))

    def test_each_further_run_may_widen_it(self):
        remote = "a #11111111 1.5\nloss 2.0004 b 3\n"
        self.assertIsNone(self.within(remote))
        third = FIRST.replace("2.0000", "2.0003")
        self.assertAlmostEqual(1.5e-4, self.within(remote, FIRST, FIRST, AGAIN, third), places=5)

    def test_what_native_gave_once_is_equal(self):
        self.assertEqual(0, self.within("a #11111111 1.5\nloss 2.0001 b 3\n"))

    def test_other_words_or_fewer_lines(self):
        self.assertIsNone(self.within("a #11111111 1.5\ngain 2.0001 b 3\n"))
        self.assertIsNone(self.within("a #11111111 1.5\n"))


class Verdict(unittest.TestCase):
    def test_words(self):
        for expected, native, remote in (
            ("yes", ran("a"), ran("a")),
            ("NO: tcp,shm", ran("a"), ran("b")),
            ("NO: tcp,shm", ran("a"), ran("a", 1)),
            ("native fails", ran("a", 1), ran("a", 1)),
            ("not run", None, None),
            ("skipped", ran("skip: no x", 77), ran("skip: no x", 77)),
            ("NO: tcp,shm", ran("skip", 77), ran("a")),
            ("NO: tcp,shm", ran("a"), ran("skip", 77)),
        ):
            self.assertEqual(expected, judged(native, remote))

    def test_a_run_whose_time_is_over_is_no_hang(self):
        stopped, hung = ran("a", 134), ran("a", 134)
        stopped.timed_out = stopped.cut_short = hung.timed_out = True
        self.assertEqual("no time: tcp,shm", judged(ran("a"), stopped))
        self.assertEqual("not run", judged(stopped, None))
        self.assertEqual("NO: tcp,shm", judged(ran("a"), hung))
        self.assertEqual(
            ["no time", "hang"], [compare.word(PROGRAM, stopped), compare.word(PROGRAM, hung)]
        )

    def test_a_yes_hides_nothing(self):
        text = "one RAISED E: x\ntwo SKIPPED y\nthree 1\n"
        self.assertEqual("yes, 1 raise natively, 1 left out", judged(ran(text), ran(text)))
        self.assertIn(
            "spread", judged(ran(FIRST), ran(FIRST.replace("2.0000", "2.0002")), [ran(AGAIN)])
        )


class EntryPoints(unittest.TestCase):
    STATISTICS = """tendril: calls by function
       calls     total us    us/call   blocked us round trips         bytes  function
          31     982253.9  31685.609     982127.9          31             0  cuCtxSynchronize
           7        174.9     24.986          0.0           0         20400  cuMemcpyHtoDAsync_v2
          38 calls in all: 31 answered here, 7 sent without waiting, 0 waited
tendril: 3 of 4 calls of cuMemAlloc_v2 were answered with an error, the first after \
0.010 s: 1 (CUDA_ERROR_INVALID_VALUE)
tendril: server 127.0.0.1:1 over tcp: 38 calls sent, 31 round trips, 5 sends, \
6 bytes out, 7 bytes in, 0 of them bulk
"""

    def test_what_programs_called_and_what_was_refused(self):
        remote = ran("")
        sides.read_stats(self.STATISTICS, remote)
        told = (
            "tendril: cuImportExternalMemory is not supported: it needs the server; the program"
            " gets ...\ntendril: cuMemExportToShareableHandle: handles of type 8 are not supported,"
            " file descriptors are\ntendril: nvmlInternalGetExportTable is not implemented for"
            " remote GPUs: the program is told so\n"
        )
        remote.refused = frozenset(sides.REFUSED_LINE.findall(told))
        results = {"program": PROGRAM, "label": "x", "native": ran(""), "tcp": remote, "shm": None}
        found = report.entry_points([results], ("native", "tcp", "shm"))
        self.assertEqual(found["called"], ["cuCtxSynchronize", "cuMemcpyHtoDAsync_v2"])
        self.assertEqual(
            found["refused"],
            {"cuImportExternalMemory": ["torch x"], "nvmlInternalGetExportTable": ["torch x"]},
        )
        self.assertEqual((remote.transport, remote.round_trips), ("tcp", 31))


class Transcripts(unittest.TestCase):
    SUITE = catalog.Program("conformance", "S", ["x"], compare="transcript")
    NATIVE = (
        "child.cc:9: Skipped\nthis driver follows the null pointer\n[  SKIPPED ] S.Null (4 ms)\n"
        "no such attribute\n[  SKIPPED ] S.Lacks (0 ms)\n[       OK ] S.Other (0 ms)\n"
    )
    LINES = [
        "S.Null",
        "S.Null",
        "  call(1) -> OK",
        "S.Null skipped",
        "S.Lacks",
        "S.Lacks skipped",
        "S.Other",
        "  f() -> OK",
        "S.Other passed",
    ]

    def judged(self, ours):
        native, remote = ran(self.NATIVE), ran("[       OK ] S.Null (1 ms)\n")
        results = {
            "program": self.SUITE,
            "label": "S",
            "lines": {},
            "native": native,
            "tcp": remote,
        }
        results["transcripts"] = {"tcp": (self.LINES, ours)}
        return report.verdict(results, ("native", "tcp")), report.reasons(
            results, ("native", "tcp")
        )

    def test_a_null_that_the_vendors_driver_follows_shows_nothing(self):
        ours = [
            "S.Null",
            "S.Null",
            "  call(1) -> OK",
            "  call(nullptr) -> INVALID",
            "S.Null passed",
            "S.Null passed",
        ]
        self.assertEqual("yes, 1 follow NULL natively", self.judged(ours + self.LINES[4:])[0])

    def test_any_other_line_counts(self):
        ours = ["S.Null", "S.Null passed", *self.LINES[4:7], "  f() -> NO", "S.Other passed"]
        verdict, why = self.judged(ours)
        self.assertEqual("NO: tcp", verdict)
        self.assertIn("f() -> NO", why["tcp"])

    def test_what_is_left_out_for_another_reason_counts(self):
        self.assertEqual(
            "NO: tcp",
            self.judged(["S.Null passed", "S.Lacks", "S.Lacks passed", *self.LINES[6:]])[0],
        )


if __name__ == "__main__":
    unittest.main()
