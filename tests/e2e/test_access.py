# SPDX-License-Identifier: Apache-2.0
"""Who may do what: two users of one host over unix sockets, administrators, tokens, limits, reading
settings again, the audit log. Users of other numbers need root."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import harness
from harness import NO_LEASE, PROGRAMS, Server, eventually, tendril

ALICE, BOB = 4711, 4712
SECRET = "a-token-of-some-length"
needs_root = unittest.skipUnless(os.geteuid() == 0, "only root can be two users")


class Place:
    """A folder that other users can reach, with a policy and an audit log."""

    def __init__(self, policy=""):
        self.folder = tempfile.TemporaryDirectory(prefix="tendril-access-")
        os.chmod(self.folder.name, 0o755)
        self.path = pathlib.Path(self.folder.name)
        self.policy, self.audit = self.path / "policy.toml", self.path / "audit.log"
        self.write(policy)

    def write(self, policy):
        self.policy.write_text(policy, encoding="utf-8")

    def options(self):
        folder = str(self.path / "sockets")
        return ["--policy", self.policy, "--audit-log", self.audit, "--sockets", folder]

    def entries(self, what=None):
        """Lines of the audit log. A thread writes them, so they may come a moment later."""
        before = None
        while before != (before := self.audit.stat().st_size):
            time.sleep(0.1)
        lines = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [line for line in lines if what in (None, line["what"])]

    def remove(self):
        self.folder.cleanup()


class AccessCase(unittest.TestCase):
    """A server with a policy. Users and administrators come by its sockets."""

    policy = ""
    options = ()

    def setUp(self):
        self.place = Place(self.policy)
        self.addCleanup(self.place.remove)
        self.server = Server(*self.place.options(), *self.options)
        self.addCleanup(self.server.stop)
        self.running = []

    def tearDown(self):
        for process in self.running:
            harness.end(process)

    def way(self, name="users"):
        return ["--server", f"unix:{self.server.sockets}/{name}"]

    def ask(self, *arguments, user=None, way=None, **environment):
        count = 2 if arguments[0] == "lease" else 1
        way = self.way() if way is None else way
        return tendril(*arguments[:count], *way, *arguments[count:], user=user, **environment)

    def leases(self, user=None, way=None):
        status, out, err = self.ask("ls", "--json", user=user, way=way)
        self.assertEqual(status, 0, err)
        return json.loads(out)["servers"][0]["leases"]

    def take(self, user, *options, program=("sleep", "60"), way=None):
        """Starts a program on a lease and returns the lease."""
        before = {lease["lease"] for lease in self.leases(way=self.way("administrators"))}
        way = self.way() if way is None else way
        process = harness.start("run", *way, *options, "--", *program, user=user)
        self.running.append(process)

        def fresh():
            now = self.leases(way=self.way("administrators"))
            return [lease for lease in now if lease["lease"] not in before]

        return eventually(lambda: fresh() or process.poll() is not None, 20) and fresh()[0]

    def reload(self, word):
        count = self.server.log().count(word)
        self.server.process.send_signal(signal.SIGHUP)
        eventually(lambda: self.server.log().count(word) > count, 10, "the reload")


@needs_root
@harness.needs_client
class TwoUsers(AccessCase):
    """Finding 1: one tenant changed and ended another's lease."""

    def test_only_the_owner_and_administrators_change_and_end_a_lease(self):
        mine = self.take(ALICE, "-p", "0.25")
        number = str(mine["lease"])
        self.assertEqual((mine["user"], mine["proof"]), (f"uid {ALICE}", "uid"))
        for command in (
            ("release", number),
            ("lease", "set", number, "--priority", "-100"),
            ("lease", "set", number, "-p", "0.000001", "--cap"),
        ):
            status, _, err = self.ask(*command, user=BOB)
            self.assertEqual(status, 1)
            self.assertIn("owner-or-operator", err)
        seen = self.leases(user=BOB)[0]
        self.assertEqual((seen["user"], seen["host"], seen["program"]), ("", "", ""))
        self.assertEqual(self.leases(user=ALICE)[0]["program"], "sleep")
        table = self.ask("ls", user=BOB)[1]
        self.assertNotIn("sleep", table)
        self.assertEqual(self.ask("lease", "set", number, "--cap", user=ALICE)[0], 0)
        admin = self.way("administrators")
        self.assertEqual(self.ask("lease", "set", number, "-p", "0.3", way=admin)[0], 0)
        self.assertEqual(self.ask("release", number, user=ALICE)[0], 0)
        other = self.take(BOB, "-p", "0.25")
        self.assertEqual(self.ask("release", str(other["lease"]), way=admin)[0], 0)
        refused = [e for e in self.place.entries("release") if not e["allowed"]]
        self.assertEqual(refused[0]["id"], f"uid {BOB}")
        self.assertEqual(refused[0]["owner"], f"uid {ALICE}")
        self.assertEqual(refused[0]["rule"], "owner-or-operator")
        allowed = [e["rule"] for e in self.place.entries("release") if e["allowed"]]
        self.assertEqual(allowed, ["owner", "admin"])

    def test_the_end_of_a_lease_whose_holder_left_is_in_the_audit_log(self):
        mine = self.take(ALICE, "-p", "0.25")
        harness.end(self.running.pop())
        end = eventually(lambda: self.place.entries("end"), 10, "the end in the audit log")[0]
        self.assertEqual((end["id"], end["owner"]), (f"uid {ALICE}", f"uid {ALICE}"))
        self.assertEqual((end["object"], end["rule"]), (f"lease {mine['lease']}", "connection"))
        other = self.take(BOB, "-p", "0.25")
        admin = self.way("administrators")
        self.assertEqual(self.ask("release", str(other["lease"]), way=admin)[0], 0)
        harness.end(self.running.pop())  # its connection closes after the release
        self.assertEqual(len(self.place.entries("end")), 1)  # a release is written as a release

    def test_the_end_of_a_lease_that_attaching_made_is_in_the_audit_log(self):
        done = subprocess.run(
            [PROGRAMS / "vector_add"],
            capture_output=True,
            timeout=60,
            user=ALICE,
            env=harness.clean_environment(
                LD_LIBRARY_PATH=str(harness.CLIENT.parent), TENDRIL_SERVERS=self.way()[1]
            ),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        end = eventually(lambda: self.place.entries("end"), 10, "the end in the audit log")[0]
        attached = self.place.entries("attach")[0]
        self.assertEqual((end["id"], end["object"]), (f"uid {ALICE}", attached["object"]))
        self.assertEqual(end["rule"], "connection")

    def test_a_user_cannot_be_an_administrator(self):
        status, _, err = self.ask("ls", user=ALICE, way=self.way("administrators"))
        self.assertEqual(status, 1)
        self.assertIn("may not connect", err)

    def test_a_program_attaches_in_the_name_of_its_user(self):
        mine = self.take(ALICE, "-p", "0.25", program=(PROGRAMS / "hold", "8", "60"))
        self.assertEqual(mine["user"], f"uid {ALICE}")
        eventually(lambda: self.place.entries("attach"), 20)
        self.assertEqual(self.place.entries("attach")[0]["rule"], "lease-secret")
        log = self.server.log()
        self.assertIn(f"uid {ALICE}, who says to be", log)

    def test_root_elsewhere_is_nobody_special(self):
        """Findings 19 and 20: an abstract socket can be reached from any container that shares the
        network, and anybody may take its name first."""
        names = [
            line.split()[-1]
            for line in pathlib.Path("/proc/net/unix").read_text().splitlines()
            if f"@tendril-{self.server.port}-" in line
        ]
        self.assertEqual(len(names), 1)
        self.assertRegex(names[0], r"^@tendril-\d+-[0-9a-f]{32}$")
        mine = self.take(ALICE, "-p", "0.25")
        for way in (["--server", "unix:" + names[0]], self.way()):
            status, _, err = self.ask("release", str(mine["lease"]), way=way)
            self.assertEqual(status, 1)
            self.assertIn("owner-or-operator", err)
        with socket.socket(socket.AF_UNIX) as probe:
            with self.assertRaises(ConnectionRefusedError):
                probe.connect(f"\0tendril-{self.server.port}")


@needs_root
@harness.needs_client
class Limits(AccessCase):
    policy = f"""
[limits]
leases = 2
shares = 0.5
sessions = 1
priority = 0
[user."uid {BOB}"]
cap = true
leases = 1
"""

    def refused(self, user, *options, program=("true",)):
        status, _, err = self.ask("run", *options, "--", *program, user=user)
        self.assertEqual(status, NO_LEASE, err)
        return err

    def test_leases_shares_priority_and_cap(self):
        self.assertIn("limit-priority", self.refused(ALICE, "-p", "0.1", "--priority", "1"))
        self.assertIn("limit-shares", self.refused(ALICE, "-p", "0.51"))
        lease = self.take(ALICE, "-p", "0.25")
        self.assertIn("limit-shares", self.refused(ALICE, "-p", "0.26"))
        status, _, err = self.ask("lease", "set", str(lease["lease"]), "-p", "0.6", user=ALICE)
        self.assertEqual(status, 1)
        self.assertIn("limit-shares", err)
        self.take(ALICE, "-p", "0.25")
        self.assertIn("limit-leases", self.refused(ALICE, "-p", "0.01"))
        mine = self.take(BOB, "-p", "0.1")
        self.assertEqual(mine["policy"], "cap")
        status, _, err = self.ask("lease", "set", str(mine["lease"]), "--lend", user=BOB)
        self.assertIn("limit-cap", err)
        self.assertIn("limit-leases", self.refused(BOB, "-p", "0.01"))
        rules = {e["rule"] for e in self.place.entries("lease") if not e["allowed"]}
        self.assertEqual(rules, {"limit-priority", "limit-shares", "limit-leases"})

    def test_what_ended_counts_no_more(self):
        for _ in range(3):
            lease = self.take(ALICE, "-p", "0.5")
            self.assertEqual(self.ask("release", str(lease["lease"]), user=ALICE)[0], 0)
            eventually(lambda: not self.leases(user=ALICE), 10)

    def test_sessions(self):
        self.take(ALICE, "-p", "0.2", program=(PROGRAMS / "hold", "8", "60"))
        eventually(lambda: self.place.entries("attach"), 20)
        status, out, err = self.ask(
            "run", "-p", "0.2", "--", PROGRAMS / "hold", "8", "0", user=ALICE
        )
        self.assertNotEqual(status, 0)
        self.assertIn("limit-sessions", out + err)


@harness.needs_client
class Time(AccessCase):
    """Finding 16: idle leases and stopped clients held a GPU for ever."""

    policy = '[limits]\nidle = "6s"\n[user.root]\nunattached = "2s"\n'

    def gone(self, lease, rule):
        admin = self.way("administrators")
        numbers = lambda: [each["lease"] for each in self.leases(way=admin)]
        eventually(lambda: lease["lease"] not in numbers(), 30, f"the end by {rule}")
        ends = [e for e in self.place.entries("end") if e["object"] == f"lease {lease['lease']}"]
        self.assertEqual([e["rule"] for e in ends], [rule])

    @unittest.skipUnless(os.geteuid() == 0, "the policy names root")
    def test_a_lease_that_nobody_attaches_to_ends(self):
        self.gone(self.take(None, "-p", "0.25"), "unattached")

    def test_a_stopped_program_ends_and_a_busy_one_stays(self):
        self.place.write('[limits]\nidle = "6s"\n')
        self.reload("read credentials")
        program = (PROGRAMS / "hold", "8", "90")  # it launches a kernel each second
        idle = self.take(None, "-p", "0.25", program=program)
        eventually(lambda: self.place.entries("attach"), 20)
        stopped = harness.children(self.running[0].pid)[0]
        os.kill(stopped, signal.SIGSTOP)
        self.addCleanup(os.kill, stopped, signal.SIGKILL)
        busy = self.take(None, "-p", "0.25", program=program)
        self.gone(idle, "idle")
        self.assertIn(
            busy["lease"], [each["lease"] for each in self.leases(way=self.way("administrators"))]
        )


@harness.needs_client
class Reload(AccessCase):
    policy = "[limits]\npriority = 0\n"

    def setUp(self):
        self.token = tempfile.NamedTemporaryFile("w")
        self.addCleanup(self.token.close)
        self.set_token(SECRET)
        self.options = ("--token-file", self.token.name)
        super().setUp()

    def set_token(self, token):
        self.token.seek(0)
        self.token.truncate()
        self.token.write(token + "\n")
        self.token.flush()

    def over_tcp(self, *arguments, token=SECRET):
        way = ["--server", self.server.endpoint]
        return self.ask(*arguments, way=way, TENDRIL_TOKEN=token)

    def test_settings_change_and_sessions_live_on(self):
        fresh = "another-token-of-some-length"
        admin = self.way("administrators")
        lease = self.take(
            None, "-p", "0.25", program=(PROGRAMS / "hold", "8", "60"), way=admin
        )
        self.assertEqual(self.over_tcp("ls")[0], 0)
        status, _, err = self.over_tcp("run", "--priority", "1", "-p", "0.1", "--", "true")
        self.assertIn("limit-priority", err)
        self.set_token(fresh)
        self.place.write("[limits]\npriority = 5\n")
        self.place.audit.rename(self.place.path / "audit.log.1")
        self.reload("read credentials, policy and limits again")
        self.assertIn("wrong", self.over_tcp("ls")[2])
        status, _, err = self.over_tcp(
            "run", "--priority", "1", "-p", "0.1", "--", "true", token=fresh
        )
        self.assertEqual(status, 0, err)
        self.assertEqual(self.leases(way=admin)[0]["lease"], lease["lease"])
        self.assertIsNone(self.running[0].poll())
        self.assertTrue(self.place.entries("reload"))

    def test_an_error_changes_nothing(self):
        self.set_token("another-token-of-some-length")
        self.place.write("[limits]\npriority = lots\n")
        self.reload("nothing was changed")
        self.assertIn("line 2", self.server.log())
        self.assertEqual(self.over_tcp("ls")[0], 0)

    def test_a_wrong_token_is_in_the_audit_log(self):
        self.over_tcp("ls", token="a-wrong-token-of-some-length")
        refused = self.place.entries("hello")[0]
        self.assertEqual((refused["rule"], refused["allowed"]), ("token", False))
        self.assertRegex(refused["from"], r"^127\.0\.0\.1:\d+$")
        self.assertNotIn("a-wrong-token", self.place.audit.read_text())

    def test_bearers_of_the_token_are_one(self):
        way = ["--server", self.server.endpoint]
        process = harness.start(
            "run", *way, "-p", "0.25", "--", "sleep", "60", TENDRIL_TOKEN=SECRET
        )
        self.running.append(process)
        lease = eventually(lambda: self.leases(way=self.way("administrators")), 20)[0]
        self.assertEqual((lease["user"], lease["proof"]), ("bearer", "token"))
        self.assertRegex(self.over_tcp("ls")[1], r"\w+@\S+\?")
        self.assertEqual(self.over_tcp("release", str(lease["lease"]))[0], 0)


class Starting(unittest.TestCase):
    def serve(self, *options, **environment):
        done = subprocess.run(
            [harness.TENDRIL, "serve", "--driver", harness.DRIVER, "--port", "0", *options],
            capture_output=True,
            text=True,
            timeout=30,
            env=harness.clean_environment(**environment),
            check=False,
        )
        return done.returncode, done.stderr

    def test_metrics_beyond_loopback_need_a_token(self):
        status, err = self.serve("--metrics", "0.0.0.0:0", "--audit-log", "off")
        self.assertEqual(status, 2, err)
        self.assertIn("--metrics-token FILE", err)
        with tempfile.NamedTemporaryFile("w") as short:
            short.write("fifteen-letters")
            short.flush()
            status, err = self.serve("--metrics", "0.0.0.0:0", "--metrics-token", short.name)
            self.assertEqual(status, 2, err)
            self.assertIn("--metrics-token: the token in", err)

    def test_metrics_are_for_those_who_say_the_token(self):
        with tempfile.NamedTemporaryFile("w") as token:
            token.write(SECRET + "\n")
            token.flush()
            server = Server("--metrics", "0.0.0.0:0", "--metrics-token", token.name)
        self.addCleanup(server.stop)
        port = re.search(r"metrics on http://0\.0\.0\.0:(\d+)", server.log())[1]
        page = f"http://127.0.0.1:{port}/metrics"
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(page, timeout=10)
        self.assertEqual(refused.exception.code, 401)
        refused.exception.close()
        asked = urllib.request.Request(page, headers={"Authorization": "Bearer " + SECRET})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            self.assertIn("tendril_", answer.read().decode())

    def test_a_policy_with_an_error_is_refused(self):
        place = Place("[limits]\nleases = 1\nidel = 2\n")
        self.addCleanup(place.remove)
        status, err = self.serve(*place.options())
        self.assertEqual(status, 2)
        self.assertIn("policy.toml, line 3, column 8: unknown limit 'idel'", err)

    def test_a_short_token_is_refused(self):
        status, err = self.serve("--audit-log", "off", TENDRIL_TOKEN="fifteen-letters")
        self.assertEqual(status, 2)
        self.assertIn("16 to 1024 characters", err)

    def test_an_audit_log_that_cannot_be_written_is_refused(self):
        status, err = self.serve("--audit-log", "/dev/null/audit.log")
        self.assertNotEqual(status, 0)
        self.assertIn("cannot append to the audit log", err)

    def test_sockets_of_a_killed_server_are_replaced(self):
        place = Place()
        self.addCleanup(place.remove)
        first = Server(*place.options())
        first.process.kill()
        first.process.wait()
        self.assertTrue((place.path / "sockets" / "administrators").exists())
        with Server(*place.options()) as second:
            way = ["--server", f"unix:{second.sockets}/administrators"]
            self.assertEqual(tendril("ls", *way)[0], 0)
        self.assertFalse((place.path / "sockets").exists())
        first.stop()


class FullDisk(AccessCase):
    policy = "audit_required = true\n"

    def setUp(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full")
        super().setUp()

    def test_the_policy_decides(self):
        self.place.audit = "/dev/full"
        self.server.stop()
        self.server = Server(*self.place.options())
        self.addCleanup(self.server.stop)
        way = self.way("administrators")
        status, _, err = self.ask("run", "-p", "0.1", "--", "true", way=way)
        self.assertEqual(status, NO_LEASE)
        self.assertIn("(rule: audit)", err)
        self.place.write("")
        self.reload("read credentials")
        self.assertEqual(self.ask("run", "-p", "0.1", "--", "true", way=way)[0], 0)
        self.assertEqual(len(re.findall("cannot write the audit log", self.server.log())), 1)


if __name__ == "__main__":
    unittest.main()
