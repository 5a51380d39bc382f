# SPDX-License-Identifier: Apache-2.0
"""`tendril pool check`: what it says of the examples in docs/pool, of a user and of mistakes."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import harness

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pool"
HAVE_ZONES = pathlib.Path("/usr/share/zoneinfo/Europe/Berlin").exists()


def check(*words):
    return subprocess.run(
        [harness.TENDRIL, "pool", "check", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        env=harness.clean_environment(),
    )


class PoolPolicy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def written(self, text):
        path = self.folder / "policy.toml"
        path.write_text(text)
        return path

    @unittest.skipUnless(HAVE_ZONES, "this machine has no time zones")
    def test_examples_are_right(self):
        for name in ("lab", "company", "university"):
            answer = check(EXAMPLES / f"{name}.toml")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertIn("is right", answer.stdout)

    @unittest.skipUnless(HAVE_ZONES, "this machine has no time zones")
    def test_says_who_is_where_and_what_holds(self):
        words = ("--user", "alice", "--group", "vision", "--at", "Mon 10:00", "--json")
        answer = check(EXAMPLES / "company.toml", *words)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        found = json.loads(answer.stdout)
        self.assertEqual(found["user"]["account"], "vision")
        self.assertEqual(found["user"]["class"], "batch")
        self.assertEqual(found["schedules"], ["working-hours (Mon-Fri 09:00-18:00)"])
        self.assertTrue(found["next_change"].endswith("18:00"))

    def test_mistakes_name_line_and_column(self):
        path = self.written('[[user_class]]\nname = "a"\nmax_wal = "8h"\n')
        answer = check(path)
        self.assertEqual(answer.returncode, 1)
        self.assertEqual(answer.stdout, "")
        self.assertIn(f"{path}, line 3, column 1: unknown key 'max_wal'", answer.stderr)
        self.assertIn("did you mean 'max_wall'?", answer.stderr)
        self.assertIn("cannot read", check(self.folder / "missing").stderr)
        zone = check(self.written('[pool]\ntimezone = "Europe/Nowhere"\n'))
        self.assertIn("line 2, column 12: in 'timezone': there is no time zone", zone.stderr)

    def test_compares_two(self):
        before = self.written('[[account]]\nname = "lab"\nquota = 4\n')
        after = self.folder / "after.toml"
        after.write_text('[[account]]\nname = "lab"\nquota = 2\n')
        answer = check(after, "--against", before)
        self.assertIn("account lab: quota.any 4.0 -> 2.0\n", answer.stdout)
        self.assertIn("nothing differs", check(after, "--against", after).stdout)


if __name__ == "__main__":
    unittest.main()
