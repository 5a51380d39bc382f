# SPDX-License-Identifier: Apache-2.0
"""What security.py reads of cgroups."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import security  # noqa: E402


class Bounds(unittest.TestCase):
    def test_groups_of_servers_and_of_their_leases(self):
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            lease = folder / "tendril-7" / "lease-2"
            lease.mkdir(parents=True)
            (lease.parent / "memory.max").write_text("max\n")
            (lease / "memory.max").write_text("4096\n")
            (lease / "memory.events").write_text("low 0\noom_kill 1\n")
            self.assertEqual(
                security.read_bounds(folder),
                {
                    "tendril-7": {"memory.max": ["max"]},
                    "tendril-7/lease-2": {
                        "memory.max": ["4096"],
                        "memory.events": ["low", "0", "oom_kill", "1"],
                    },
                },
            )


if __name__ == "__main__":
    unittest.main()
