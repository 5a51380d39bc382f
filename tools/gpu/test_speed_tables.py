# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/performance.md from made-up figures, and where they are written."""

import pathlib
import tempfile
import unittest

import pages
import speed_tables


def figures(*turns, trips=0.0):
    middle = sorted(turns)[len(turns) // 2]
    return {
        "ms": middle,
        "q1": min(turns),
        "q3": max(turns),
        "turns": list(turns),
        "trips": trips,
        "blocks": 9,
    }


def run(**more):
    model = {
        "sides": {"native": figures(10.0, 10.0, 10.0), "tcp": figures(8.0, 8.0, trips=2.0)},
        "busy_ms": 5.0,
    }
    return {
        "date": "2026-11-21 22:00",
        "gpu": "NVIDIA H200, 580.1, 1 MiB",
        "commit": "abc",
        "speed": {"models": {"gpt2-generate-32": model}, **more},
    }


class Tables(unittest.TestCase):
    def test_a_model(self):
        text = speed_tables.tables([run()])
        self.assertIn("2026-11-21, NVIDIA H200, driver 580.1, commit abc", text)
        self.assertIn(
            "| GPT-2 generating 32 tokens | 10.00 ms (10.00 to 10.00) | 1.00 to 1.00 | 5.00 ms, 50"
            " % | 8.00 ms (8.00 to 8.00) | 1.250 (1.25 to 1.25) | no figure |  | 2.0; - |",
            text,
        )

    def test_slower_is_bold_and_a_busy_gpu_has_no_part(self):
        held = run()
        model = held["speed"]["models"]["gpt2-generate-32"]
        model["sides"]["tcp"], model["busy_ms"] = figures(12.5, 12.5), 9.5
        text = speed_tables.tables([held])
        self.assertIn("| 9.50 ms |", text)
        self.assertIn("**0.800**", text)

    def test_a_later_file_wins(self):
        later = run(idle={"tcp": {"cpu": 0.001, "served": 0.0}})
        later["commit"] = "def"
        later["speed"]["models"] = {
            "jax-transformer-train-8x512": run()["speed"]["models"]["gpt2-generate-32"]
        }
        text = speed_tables.tables([run(), later])
        self.assertIn("commit abc; 2026", text)
        for title in ("GPT-2 generating", "JAX training loop", "0.10 %; 0.00 %"):
            self.assertIn(title, text)

    def test_starts(self):
        memory = {"VmRSS": 500.0, "RssAnon": 300.0}
        turn = {"imported": 1.0, "zeros": 1.02, "code": 1234567, "memory": memory}
        text = "\n".join(
            speed_tables.start_table(
                {
                    "first_result_ms": {
                        "native": [270.0],
                        "tcp": [28.0, 29.0, 31.0],
                        "cold": [190.0],
                        "shm": None,
                    },
                    "torch_start": {"tcp": {"second": turn}, "shm": {"first": turn}},
                    "launch_cpu_us": {
                        "native": {"program": 2.9, "server": 0.0},
                        "tcp": {"program": 0.3, "server": 3.1},
                    },
                }
            )
        )
        self.assertIn("| 270 ms (270 to 270) | 29 ms (28 to 31) |  | 0.1 s |", text)
        self.assertIn("|  | 190 ms (190 to 190) |  | - |", text)
        self.assertIn("|  | 1,234,567 bytes |  | 0 |", text)
        self.assertIn("| 2.90 us | 0.30 us; 3.10 us |", text)


class Pages(unittest.TestCase):
    def test_only_what_lies_between_the_marks_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text(f"before\n{pages.begin('x.py')}\nold\n{pages.END}\nafter\n")
            pages.write(page, "x.py", "new")
            self.assertEqual(
                page.read_text(), f"before\n{pages.begin('x.py')}\n\nnew\n\n{pages.END}\nafter\n"
            )
            with self.assertRaises(SystemExit):
                pages.write(page, "y.py", "new")


if __name__ == "__main__":
    unittest.main()
