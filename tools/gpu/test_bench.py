# SPDX-License-Identifier: Apache-2.0
"""What bench.py makes of several turns of the same program."""

import unittest

import bench


class Ratios(unittest.TestCase):
    def test_a_turn_is_compared_with_natives_of_the_same_round(self):
        runs = {
            "native": [{"a": 10.0}, {"a": 16.0}, {"a": 10.0}],
            "tcp": [{"a": 11.0}, {"a": 17.6}, {"a": 30.0}],
        }
        found = bench.ratios(runs)
        self.assertEqual(["tcp"], list(found))
        self.assertAlmostEqual(1.1, found["tcp"]["a"])

    def test_what_one_side_lacks_has_no_ratio(self):
        runs = {
            "native": [{"a": 2.0, "b": 0.0}, {}],
            "shm": [{"a": 3.0, "b": 1.0, "c": 5.0}, {"a": 9.0}],
        }
        self.assertEqual({"shm": {"a": 1.5}}, bench.ratios(runs))

    def test_without_native_there_is_none(self):
        self.assertEqual({}, bench.ratios({"tcp": [{"a": 1.0}], "shm": [{"a": 1.0}]}))


if __name__ == "__main__":
    unittest.main()
