# SPDX-License-Identifier: Apache-2.0
"""`tendril pool serve` and the commands that ask it: who schedules, who takes over, which policy
holds. Without servers."""

import json
import os
import signal
import subprocess
import unittest

from harness import TENDRIL, Pool, clean_environment, eventually, tendril
from support.pools import quietly

POLICY = """
[pool]
name = "lab"

[[user_class]]
name = "normal"
max_wall = "1d"

[[assignment]]
user_classes = ["normal"]
"""


class Service(unittest.TestCase):
    def test_a_policy_is_applied_shown_and_refused(self):
        with Pool(policy=POLICY) as pool:
            eventually(lambda: quietly(lambda: pool.command("status")["policy_revision"] == 1))
            self.assertIn("max_wall", pool.command("show")["policy"])
            pool.write("new.toml", POLICY.replace('"1d"', '"2d"'))
            path = os.path.join(pool.folder, "new.toml")
            before = pool.command("apply", path, "--dry-run")
            self.assertTrue(any("max_wall" in line for line in before["changes"]), before)
            self.assertEqual(pool.command("status")["policy_revision"], 1)
            self.assertEqual(pool.command("apply", path)["policy_revision"], 2)
            pool.write("new.toml", POLICY.replace("max_wall", "max_wal"))
            status, _, err = tendril("pool", "apply", path, TENDRIL_SERVERS=pool.endpoint)
            self.assertEqual(status, 1)
            self.assertIn("max_wal", err)
            self.assertEqual(pool.command("status")["policy_revision"], 2)

    @staticmethod
    def answer(*words, **environment):
        status, out, _ = tendril(*words, **environment)
        return out if status == 0 else None

    def test_tables(self):
        with Pool() as pool:
            eventually(lambda: quietly(lambda: pool.command("status")["term"] == 1))
            # A store that is slow for a moment is told, too; that is not what is asked here.
            asked = {"TENDRIL_SERVERS": pool.endpoint}
            answer = eventually(lambda: self.answer("queue", **asked), 20, "an answer")
            self.assertEqual(answer, "nobody waits\n")
            status, out, err = tendril("pool", "status", TENDRIL_SERVERS=pool.endpoint)
            self.assertEqual(status, 0, err)
            self.assertIn("no servers", out)
            status, _, err = tendril("pool", "drain", "gpu9", TENDRIL_SERVERS=pool.endpoint)
            self.assertEqual(status, 1)
            self.assertIn("gpu9", err)

    def test_a_standby_takes_over(self):
        with Pool("--name", "pool1") as first:
            eventually(lambda: quietly(lambda: first.command("status")["term"] == 1))
            store = "sqlite:" + os.path.join(first.folder, "pool.db")
            with Pool("--name", "pool2", store=store) as second:

                def says_who_schedules():  # once it has looked into the store
                    status, _, err = tendril("queue", TENDRIL_SERVERS=second.endpoint)
                    return status == 1 and "pool1 schedules now" in err

                eventually(says_who_schedules, 20, "the second's hint at the first")
                both = f"{second.endpoint},{first.endpoint}"
                status, out, err = tendril("queue", "--json", TENDRIL_SERVERS=both)
                self.assertEqual(status, 0, err)
                self.assertEqual(json.loads(out)["waiting"], [])
                first.process.send_signal(signal.SIGTERM)
                first.process.wait(20)

                def schedules():
                    return tendril("queue", TENDRIL_SERVERS=second.endpoint)[0] == 0

                eventually(schedules, 20, "the second in its place")
                self.assertEqual(second.command("status")["term"], 2)

    def test_a_bad_policy_file_keeps_it_from_starting(self):
        with Pool() as pool:
            pool.write("bad.toml", POLICY.replace("max_wall", "max_wal"))
            done = subprocess.run(
                [
                    *[TENDRIL, "pool", "serve", "--port", "0", "--audit-log", "off"],
                    *["--store", "sqlite:" + os.path.join(pool.folder, "other.db")],
                    *["--policy", os.path.join(pool.folder, "bad.toml")],
                ],
                env=clean_environment(),
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("bad.toml, line 7", done.stderr)


if __name__ == "__main__":
    unittest.main()
