# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/slices.md from made-up counts."""

import unittest

import share_tables


def answer(kind, pieces):
    return {"kind": kind, "bucket_ns": 100_000_000, "pieces": [0] * 10 + pieces, "latency_us": {}}


def held(**more):
    case = {
        "case": "1/4 3/4",
        "mode": "",
        "attach_s": 0.5,
        "asked": ["1/4", "3/4"],
        "answers": [answer("medium", [2, 3] * 10), answer("medium", [7, 8] * 10)],
    }
    return {
        "alone": {"medium": [100.0, 99.0, 98.0], "long": [20.0]},
        "cases": [{**case, **more}],
        "priority": {"alone, 0": {"p50": 400, "p90": 500, "p99": 1600}, "beside a backlog, 1": {}},
    }


class Tables(unittest.TestCase):
    def test_parts_are_of_what_the_program_does_alone(self):
        rows = share_tables.parts(held(), held()["cases"][0])
        self.assertEqual(
            [row[:3] for row in rows], [("medium", 25.0, 25.0), ("medium", 75.0, 75.0)]
        )

    def test_shares(self):
        text = "\n".join(share_tables.share_table(held()))
        self.assertIn(
            "| 1/4 3/4 | 500 us kernels | 25.00 | 25.00 | 25.00 to 25.00 | 100.00 |", text
        )
        self.assertIn("|  | 500 us kernels | 75.00 | 75.00 | 75.00 to 75.00 |  |", text)

    def test_pieces_of_packed_tenants_are_smaller(self):
        part = {**answer("medium", [5] * 20), "processors": 33}
        rows = share_tables.parts(
            {**held(), "processors": 132}, {**held()["cases"][0], "answers": [part, None]}
        )
        self.assertEqual([row[:3] for row in rows], [("medium", 25.0, 12.5)])

    def test_pieces_that_fill_memory_are_not(self):
        part = {**answer("memory", [5] * 20), "processors": 33}
        alone = {"alone": {"memory": [100.0]}, "processors": 132}
        rows = share_tables.parts(
            {**held(), **alone}, {**held()["cases"][0], "answers": [part, None]}
        )
        self.assertEqual([row[:3] for row in rows], [("memory", 25.0, 50.0)])

    def test_a_tenant_without_answer_is_left_out(self):
        rows = share_tables.parts(
            held(), {**held()["cases"][0], "answers": [None, answer("medium", [5] * 20)]}
        )
        self.assertEqual([row[:3] for row in rows], [("medium", 75.0, 50.0)])

    def test_many_alike_are_one_line(self):
        answers = [answer("medium", [2, 3] * 10)] * 8
        text = "\n".join(share_tables.share_table(held(asked=["1/4"] * 8, answers=answers)))
        self.assertIn("25.00 each", text)
        self.assertIn("200.00", text)
        some = share_tables.share_table(held(asked=["1/2"] + ["1/4"] * 7, answers=answers))
        self.assertEqual([line.split(" | ")[2] for line in some[2:]], ["50.00", "25.00 each"])

    def test_modes_latency_and_plot(self):
        self.assertEqual(len(share_tables.mode_table(held())), 2)  # nothing to compare with
        text = "\n".join(share_tables.mode_table(held(mode="neither")))
        self.assertIn("| 1/4 3/4 | the driver's own time-slicing | 25.00 + 75.00 | 100.00 |", text)
        self.assertEqual(len(share_tables.latency_table(held())), 3)
        self.assertEqual(
            share_tables.plot(held()).count("<circle"), 2 + 2
        )  # tenants, and what the colours mean

    def test_later_runs_replace_what_they_measured_again(self):
        again = held(answers=[answer("medium", [4, 6] * 10), None])
        again["alone"]["medium"] = [200.0]
        text = share_tables.tables(share_tables.merged([held(), again | {"source": "later"}]))
        self.assertIn(";\nlater.", text)
        self.assertIn("| 1/4 3/4 | 500 us kernels | 25.00 | 25.00 |", text)
        self.assertNotIn("75.00", text)

    def test_neighbours_attaching_and_pytorch(self):
        one = {
            "of_good": 1.01,
            "worst_second": 0.985,
            "slot_s": 0.25,
            "memory_s": None,
            "ended": "",
        }
        text = "\n".join(share_tables.neighbours_table({"neighbours": {"hang": one}}))
        self.assertIn("| runs an endless kernel | 101.0 % | 98.5 % | 0.25 s |  |", text)
        text = "\n".join(
            share_tables.attach_table({"attach": {"3 natively": {"attached": [1.0, 3.0, 2.0]}}})
        )
        self.assertIn("| 3 natively | 1.00 s | 2.00 s | 3.00 s (3) |", text)
        memory = {
            "total": 200 << 20,
            "peak": 50 << 20,
            "filled": 180 << 20,
            "error": "OutOfMemoryError",
        }
        steps = [
            answer("train", [1] * 20) | {"memory": memory},
            answer("infer", [2] * 20) | {"memory": memory},
            None,
        ]
        facts = {"answers": steps, "started": [0.5], "attached": [1.5, 2.5]}
        text = "\n".join(share_tables.torch_table({"torch": {"3 x 1/3": facts}}))
        self.assertIn(
            "| 3 x 1/3, 2 ended well | within 0.50 s | within 2.50 s | 10.00 | 20.00 | 10.00 | "
            "200 MiB, 50 MiB, 180 MiB |",
            text,
        )
        text = "\n".join(
            share_tables.resnet_table({"resnet": {"natively": [1000.0], "4 x 1/4": [240.0] * 4}})
        )
        self.assertIn("| 4 x 1/4 | 240 + 240 + 240 + 240 = 960 | 96.0 % |", text)


if __name__ == "__main__":
    unittest.main()
