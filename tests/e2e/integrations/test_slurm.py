# SPDX-License-Identifier: Apache-2.0
"""Jobs of a real Slurm get slices: by the plug-in's --gpu-slice and by licences. The lease belongs
to the job and ends with it. What is missing here is named."""

import os
import pathlib
import unittest

import harness
from harness import Server, eventually
from support import slurm

LEASE = pathlib.Path(__file__).resolve().parents[3] / "packaging/slurm/slurm-lease"
PLUGIN = harness.BUILD / "lib" / "spank_tendril.so"
NOBODY = 65534
VECTOR_ADD = str(harness.PROGRAMS / "vector_add")
HOLD = str(harness.PROGRAMS / "hold")


def setUpModule():
    lacking = slurm.missing()
    if lacking:
        raise unittest.SkipTest(f"NO {lacking} HERE: no job of Slurm was started")
    if not PLUGIN.exists():
        raise unittest.SkipTest("NO libslurm-dev WHEN THIS WAS BUILT: there is no plug-in")


class Jobs(unittest.TestCase):
    """One server with a secret that only root knows, and one cluster."""

    plugstack = f"required {PLUGIN} lease={LEASE} folder=FOLDER/leases settings=FOLDER/tendril.conf"
    more = ""

    @classmethod
    def setUpClass(cls):
        cls.cluster = slurm.Cluster(cls.plugstack, cls.more)
        token = cls.cluster.write("token", "a secret of sixteen characters\n")
        token.chmod(0o600)
        cls.server = cls.enterClassContext(Server("--token-file", token))
        cls.cluster.write(
            "tendril.conf",
            f"TENDRIL='{harness.TENDRIL}'\nTENDRIL_SERVERS={cls.server.endpoint}\n"
            f"TENDRIL_TOKEN_FILE={token}\nWAIT=5s\n",
        ).chmod(0o600)
        cls.token = str(token)
        folder = cls.cluster.folder
        for hook in ("prolog", "epilog", "task-prolog"):
            cls.cluster.write(
                hook,
                f"#!/bin/sh\nexport TENDRIL_SLURM_FOLDER={folder}/leases\n"
                f"export TENDRIL_SLURM_SETTINGS={folder}/tendril.conf\nexec {LEASE} {hook}\n",
            ).chmod(0o755)
        cls.enterClassContext(cls.cluster)

    def leases(self):
        return harness.listing(self.server, TENDRIL_TOKEN_FILE=self.token)["leases"]

    def srun(self, *words):
        return self.cluster.said("srun", *words, user=NOBODY)

    def check(self, done):
        self.assertEqual(done[0], 0, done[1] + done[2] + self.cluster.log()[-3000:])
        self.assertIn("PASS", done[1])
        eventually(lambda: not self.leases(), 20, "no lease after the job")

    def job(self, *options, program):
        """Starts a job that runs on; its number."""
        script = self.cluster.write("script", f"#!/bin/sh\nexec {program}\n")
        script.chmod(0o755)
        words = ("sbatch", "--parsable", "-o", "/dev/null", *options, str(script))
        status, out, err = self.cluster.said(*words, user=NOBODY)
        self.assertEqual(status, 0, err)
        return out.strip()

    def state(self, job):
        return self.cluster.said("squeue", "-h", "-j", job, "-o", "%T %r")[1].strip()


class Plugin(Jobs):
    def test_a_job_of_any_user_has_its_slice_and_gives_it_back(self):
        script = f'echo "had $LD_LIBRARY_PATH"; exec {VECTOR_ADD} 1000'
        path = "--export=ALL,LD_LIBRARY_PATH=/mine"
        done = self.srun("--gpu-slice=0.5", path, "sh", "-c", script)
        self.check(done)
        self.assertRegex(done[1], r"had /\S+:/mine\n")
        eventually(lambda: not os.listdir(f"{self.cluster.folder}/leases"), 10, "no notes")

    def test_steps_of_a_job_share_the_lease_which_ends_with_it(self):
        job = self.job("--gpu-slice=1/2", program=f"srun --overlap {HOLD} 16 120")
        eventually(lambda: [lease["processes"] for lease in self.leases()] == [1], 20)
        lease = self.leases()[0]
        self.assertEqual(os.path.basename(lease["program"]), f"slurm-job-{job}")
        self.assertEqual(self.cluster.said("scancel", job)[0], 0)
        eventually(lambda: not self.leases(), 30, "no lease after scancel")

    def test_a_job_without_the_option_gets_nothing(self):
        status, out, err = self.srun("sh", "-c", 'echo "<$TENDRIL_LEASES>"')
        self.assertEqual((status, out), (0, "<>\n"), err)

    def test_a_refused_lease_fails_the_job_and_not_the_node(self):
        status, out, err = self.srun("--gpu-slice=0.5:3", VECTOR_ADD, "1000")
        self.assertNotEqual(status, 0)
        self.assertIn("--gpu-slice: tendril: ", err)
        self.assertIn("of 3 slices found", err)
        self.check(self.srun("--gpu-slice=0.5", VECTOR_ADD, "1000"))

    def test_nonsense_is_refused_before_there_is_a_job(self):
        for wrong in ("much", "-1", "0.5;true", ""):
            status, _, err = self.srun(f"--gpu-slice={wrong}", "true")
            self.assertNotEqual(status, 0)
            self.assertIn("expected a part of a GPU or a size", err)


class Licences(Jobs):
    """Without the plug-in: Slurm counts, and its own hooks call slurm-lease."""

    plugstack = ""
    more = """
Prolog=FOLDER/prolog
Epilog=FOLDER/epilog
TaskProlog=FOLDER/task-prolog
"""

    def test_licences_are_the_slice_and_who_asks_for_too_many_waits(self):
        job = self.job("-L", "tendril:15", program=f"{HOLD} 16 120")
        eventually(lambda: [lease["processes"] for lease in self.leases()] == [1], 20)
        self.assertEqual(self.leases()[0]["slices"][0]["share"], 0.75)
        waiting = self.job("-L", "tendril:10", program=f"{VECTOR_ADD} 1000")
        eventually(lambda: self.state(waiting) == "PENDING Licenses", 20)
        self.cluster.said("scancel", job)
        eventually(lambda: self.state(waiting) == "", 30, "the job that waited is done")
        self.check(self.srun("-L", "tendril:10", VECTOR_ADD, "1000"))


del Jobs  # it has no tests of its own

if __name__ == "__main__":
    unittest.main()
