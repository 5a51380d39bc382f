# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/slices.md from made-up counts."""
import unittest

import share_tables


def answer(kind, pieces):
    return {"kind": kind, "bucket_ns": 100_000_000, "pieces": [0] * 10 + pieces, "latency_us": {}}


def held(**more):
    case = {"case": "1/4 3/4", "mode": "", "attach_s": 0.5, "asked": ["1/4", "3/4"],
            "answers": [answer("medium", [2, 3] * 10), answer("medium", [7, 8] * 10)]}
    return {"alone": {"medium": [100.0, 99.0, 98.0], "long": [20.0]}, "cases": [{**case, **more}],
            "priority": {"alone, 0": {"p50": 400, "p90": 500, "p99": 1600}, "beside a backlog, 1": {}}}


class Tables(unittest.TestCase):
    def test_parts_are_of_what_the_program_does_alone(self):
        rows = share_tables.parts(held(), held()["cases"][0])
        self.assertEqual([row[:3] for row in rows], [("medium", 25.0, 25.0), ("medium", 75.0, 75.0)])

    def test_shares(self):
        text = "\n".join(share_tables.share_table(held()))
        self.assertIn("| 1/4 3/4 | 500 us kernels | 25.00 | 25.00 | 25.00 to 25.00 | 100.00 |", text)
        self.assertIn("|  | 500 us kernels | 75.00 | 75.00 | 75.00 to 75.00 |  |", text)

    def test_pieces_of_packed_tenants_are_smaller(self):
        part = {**answer("medium", [5] * 20), "processors": 33}
        rows = share_tables.parts({**held(), "processors": 132}, {**held()["cases"][0], "answers": [part, None]})
        self.assertEqual([row[:3] for row in rows], [("medium", 25.0, 12.5)])

    def test_a_tenant_without_answer_is_left_out(self):
        rows = share_tables.parts(held(), {**held()["cases"][0], "answers": [None, answer("medium", [5] * 20)]})
        self.assertEqual([row[:3] for row in rows], [("medium", 75.0, 50.0)])

    def test_many_alike_are_one_line(self):
        answers = [answer("medium", [2, 3] * 10)] * 8
        text = "\n".join(share_tables.share_table(held(asked=["1/4"] * 8, answers=answers)))
        self.assertIn("25.00 each", text)
        self.assertIn("200.00", text)

    def test_modes_latency_and_plot(self):
        self.assertEqual(len(share_tables.mode_table(held())), 2)  # nothing to compare with
        text = "\n".join(share_tables.mode_table(held(mode="neither")))
        self.assertIn("| 1/4 3/4 | the driver's own time-slicing | 25.00 + 75.00 | 100.00 |", text)
        self.assertEqual(len(share_tables.latency_table(held())), 3)
        self.assertEqual(share_tables.plot(held()).count("<circle"), 2 + 2)  # tenants, and what the colours mean


if __name__ == "__main__":
    unittest.main()
