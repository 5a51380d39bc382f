# SPDX-License-Identifier: Apache-2.0
"""The page's interface on real processes: what roles may see and do, what other sites may not, that
answers are as web/openapi.json says, and that a stream tells what changes. The page in a browser is
test_page_browser.py's."""

import json
import re
import tempfile
import time
import unittest

import harness
from harness import Pool, Server, end, eventually, start, tendril
from support.page_client import OPENAPI, OpenApi, PageClient, free_port
from support.pools import policy
from test_identity import Folders

POLICY = policy() + """
[[gpu_class]]
name = "top"
match = "memory > 0"

[[account]]
name = "vision"
quota = 1
[[account]]
name = "nlp"
quota = 1

[[assignment]]
match = "user = alice"
account = "nlp"
[[assignment]]
account = "vision"
"""


def pool_with_page(*options, **more):
    port = free_port()
    pool = Pool("--page", f"127.0.0.1:{port}", *options, **more)
    return pool, PageClient(port)


class Events(unittest.TestCase):
    """What happened before this process started, or while another one scheduled."""

    def test_they_outlive_a_scheduler(self):
        with tempfile.TemporaryDirectory() as folder:
            store = f"sqlite:{folder}/pool.db"
            for turn in range(2):
                pool, page = pool_with_page("--name", f"pool{turn}", store=store)
                try:
                    eventually(lambda: page.ask("GET", "/api/v1/now")[0] == 200, 20, "a term")
                    if turn == 0:
                        page.post("policy", {"policy": policy()})
                        eventually(lambda: self.lines(page, "people"), 10, "it is in the store")
                        pool.kill()
                        continue
                    self.assertIn("apply", json.dumps(self.lines(page, "people")))
                    self.assertIn("pool0", {each["who"] for each in self.lines(page, "pool")})
                    own = json.dumps(page.get("events"))
                    self.assertNotIn("apply", own, "this process did not see it")
                    page.post("policy", {"policy": policy()})
                    eventually(lambda: self.lines(page, "pool")[0]["who"] == "pool1", 10)
                    few = page.get("events/past?limit=1")
                    older = page.get(f"events/past?before={few['before']}")["events"]
                    self.assertTrue(older)
                    self.assertNotIn(few["events"][0], older)
                    self.assertEqual(OpenApi().problems("get", "/events/past", 200, few), [])
                    for odd in ("limit=0", "kind=x", "before=-1"):
                        page.get(f"events/past?{odd}", 400)
                finally:
                    pool.stop()

    @staticmethod
    def lines(page, kind):
        return page.get("events/past" + (f"?kind={kind}" if kind else ""))["events"]


class OpenPool(unittest.TestCase):
    """A pool for its own host: nobody proves anything, and everybody may everything."""

    @classmethod
    def setUpClass(cls):
        cls.pool, cls.page = pool_with_page(policy=policy())
        cls.server = Server("--name", "gpu1", gpus=2, warm=0, pool=cls.pool)
        eventually(lambda: cls.page.get("now").get("servers"), 20, "the server")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.pool.stop()

    def start(self, *words, **environment):
        program = start(*words, **environment)
        self.addCleanup(end, program)  # others find nothing of a test that failed
        return program

    def hold(self, share="0.5", count="1"):
        """A program that holds slices for a minute."""
        words = ["run", "-n", count, "-p", share, "--", "sleep", "60"]
        return self.start(*words, TENDRIL_SERVERS=self.pool.endpoint)

    def test_what_runs_is_seen_and_can_be_ended(self):
        program = self.hold()
        lease = eventually(lambda: self.page.get("leases")["leases"], 20, "a lease")[0]
        self.assertEqual(lease["slices"][0]["share"], 0.5)
        self.assertEqual(self.page.get(f"leases/{lease['id']}")["id"], lease["id"])
        self.page.post(f"leases/{lease['id']}/change", {"share": 0.25, "policy": "cap"})
        changed = eventually(
            lambda: [
                each
                for each in self.page.get("leases")["leases"]
                if each["slices"][0]["share"] == 0.25
            ],
            20,
            "the new share",
        )
        self.assertTrue(changed[0]["capped"])
        self.page.post(f"leases/{lease['id']}/release", {"why": "tests are over"})
        eventually(lambda: not self.page.get("leases")["leases"], 20, "its end")
        end(program)
        whats = [event["what"] for event in self.page.get("events")["events"]]
        self.assertIn("grant", whats)
        self.assertIn("release", whats)

    def test_a_stream_tells_what_changes_and_goes_on_where_it_was(self):
        with self.page.stream("servers=1&queue=1") as stream:
            first = stream.next()
            self.assertTrue(first["whole"])
            number = first["servers"][0]["n"]
        with self.page.stream(f"servers=1&window={number}") as stream:
            stream.next()
            program = self.hold()
            message = stream.until(lambda m: m.get("leases"))
            self.assertEqual(message["leases"][0]["slices"][0]["server"], "gpu1")
            lease = message["leases"][0]["id"]
            end(program)
            message = stream.until(lambda m: m.get("leases_gone"))
            self.assertEqual(message["leases_gone"], [lease])
        since = f"epoch={message['epoch']}&since={message['version']}"
        with self.page.stream(f"servers=1&{since}") as stream:
            self.assertFalse(stream.next()["whole"])
        with self.page.stream("servers=1&epoch=another&since=9") as stream:
            self.assertTrue(stream.next()["whole"])

    def test_servers_drain_and_come_back(self):
        self.page.post("servers/gpu1/drain", {"why": "new fans"})
        self.assertTrue(self.page.get("servers/gpu1")["draining"])
        self.assertEqual(self.page.get("servers/gpu1")["drain_why"], "new fans")
        self.page.post("servers/gpu1/undrain")
        eventually(lambda: not self.page.get("servers/gpu1")["draining"], 5)
        self.assertIn("no", self.page.post("servers/gpu9/drain", status=404)["error"])

    def test_a_policy_is_tried_and_applied(self):
        before = self.page.get("policy")
        trial = self.page.post("policy/dry-run", {"policy": POLICY})
        self.assertTrue(trial["changes"])
        self.assertEqual(self.page.get("policy")["policy_revision"], before["policy_revision"])
        self.assertIn("policy", self.page.post("policy", {"policy": "[poool]"}, 400)["error"])
        self.page.post("policy", {"policy": POLICY})
        names = [each["name"] for each in self.page.get("accounts")["accounts"]]
        self.assertIn("vision", names)
        self.page.post("policy", {"policy": before["policy"]})

    def test_every_route_is_described_and_no_other(self):
        source = (OPENAPI.parents[1] / "api.cc").read_text(encoding="utf-8")
        routes = re.findall(r'\{"(GET|POST|DELETE)", \{("[^}]*")\}, &Page::', source)
        known = {
            (kind.lower(), "/" + "/".join(re.findall('"([^"]*)"', path))) for kind, path in routes
        }
        described = {
            (kind, re.sub(r"\{\w+\}", "*", path)) for kind, path in OpenApi().operations()
        }
        self.assertGreater(len(known), 20)
        self.assertEqual(known, described)

    def test_answers_are_as_described(self):
        api, problems = OpenApi(), []
        program = self.hold(count="2", share="1")
        lease = eventually(lambda: self.page.get("leases")["leases"], 20, "a lease")[0]["id"]
        waits = self.hold(count="2", share="1")
        queue = eventually(lambda: self.page.get("queue")["queue"], 20, "a request that waits")
        self.assertEqual(queue[0]["reason"], "Resources")
        known = {"name": "gpu1", "id": str(lease)}
        bodies = {
            "/policy": {"policy": policy()},
            "/policy/dry-run": {"policy": policy()},
            "/leases/{id}/change": {"priority": 0},
        }
        later = ("/stream", "/session", "/leases/{id}/park", "/leases/{id}/release")
        for method, path in api.operations():
            if path in later or "hold" in path:
                continue
            real = path.format(**known)
            query = "?by=account&lines=3" if path == "/history" else ""
            body = bodies.get(path, {}) if method == "post" else None
            status, _, text = self.page.ask(method.upper(), "/api/v1" + real + query, body)
            problems += api.problems(method, real, status, json.loads(text))
        wanted = queue[0]["id"]
        for method, real, body, status in (
            ("post", f"/leases/{wanted}/hold", {"why": "later"}, 200),
            ("get", "/queue", None, 200),
            ("post", f"/leases/{wanted}/unhold", {}, 200),
            ("post", f"/leases/{wanted}/unhold", {}, 400),
            ("post", f"/leases/{wanted}/release", {"why": "over"}, 200),
            # Not earlier: it makes room, so the request would wait no more.
            ("post", f"/leases/{lease}/park", {}, 200),
            ("post", f"/leases/{lease}/release", {}, 200),
            ("post", "/session", {"token": "wrong"}, 403),
        ):
            got, _, text = self.page.ask(method.upper(), "/api/v1" + real, body)
            self.assertEqual(got, status, text)
            if real == "/queue":
                held = json.loads(text)["queue"][0]
                self.assertTrue(held["held"])
                self.assertIn("later", held["numbers"])
            problems += api.problems(method, real, got, json.loads(text))
        self.assertEqual(problems, [])
        for each in (program, waits):
            end(each)

    def test_the_history_has_what_was(self):
        eventually(lambda: not self.page.get("leases")["leases"], 20, "the end of earlier leases")
        begun = int(time.time())
        program = self.hold()
        lease = eventually(lambda: self.page.get("leases")["leases"], 20, "a lease")[0]["id"]
        time.sleep(4)
        self.page.post(f"leases/{lease}/release")
        end(program)

        def ended():
            got, _, text = self.page.ask("GET", f"/api/v1/leases/{lease}/totals")
            return got == 200 and json.loads(text)["to_at"] and json.loads(text)

        totals = eventually(ended, 20, "the sums of a lease that ended")
        self.assertAlmostEqual(totals["granted_gpu_s"], totals["held_s"] / 2, delta=1e-6)
        time.sleep(3)  # its last second is written
        word = f"from={begun - 60}&to={int(time.time())}"
        answer = self.page.get(f"history?by=lease&{word}")
        mine = [each for each in answer["totals"] if each.get("lease") == str(lease)]
        self.assertEqual(mine[0]["held_ns"], round(totals["held_s"] * 1e9))
        whole = self.page.get(f"history?{word}")
        self.assertEqual([each["series"] for each in whole["charts"]][0], "gpus")
        gpus = whole["charts"][0]
        kinds = [line["kind"] for line in gpus["lines"]]
        capacity = 1 + kinds.index("capacity")
        self.assertTrue(any(row[capacity] and abs(row[capacity] - 2) < 0.1 for row in gpus["rows"]))
        report = tendril(
            "report", "--by", "lease", "--from", "10m", "--format", "csv",
            TENDRIL_SERVERS=self.pool.endpoint,
        )[1]
        self.assertIn(f'"{lease}",1,', report)
        api = OpenApi()
        problems = api.problems("get", f"/leases/{lease}/totals", 200, totals)
        problems += api.problems("get", "/history", 200, answer)
        problems += api.problems("get", "/history", 200, whole)
        self.assertEqual(problems, [])

    @harness.needs_client
    def test_the_calls_of_a_lease_are_counted_while_somebody_looks(self):
        program = self.start(
            "run", "-p", "0.25", "--", harness.PROGRAMS / "hold", "8", "60",
            TENDRIL_SERVERS=self.pool.endpoint,
        )
        lease = eventually(lambda: self.page.get("leases")["leases"], 20, "a lease")[0]
        self.assertNotIn("round_trips", lease["use"])

        def use():
            return self.page.get(f"leases/{lease['id']}")

        seen = eventually(lambda: use()["use"].get("calls") and use(), 20, "its calls")
        self.assertGreater(seen["use"]["round_trips"], 0)
        self.assertEqual(seen["links"], "shm")
        self.assertEqual(OpenApi().problems("get", "/leases/1", 200, seen), [])
        end(program)
        eventually(lambda: not self.page.get("leases")["leases"], 20, "its end")

    def test_strange_questions_of_the_past_are_refused(self):
        for bad in (
            "by=colour", "by=,", "from=x", "from=-1", "from=2&to=1", "to=99999999999999999999",
            "series=all", "points=many", "lines=1.5", "by=lease%00", "from=1&points=1e9",
        ):
            self.assertIn("history", self.page.get(f"history?{bad}", 400)["error"], bad)
        few = self.page.get("history?points=1000000&lines=0&by=user&from=1")
        self.assertLessEqual(len(few["charts"][0]["rows"]), 4000)
        self.assertEqual(few["step_s"] % 3600, 0)
        empty = self.page.get("history?from=1000&to=5000")
        self.assertEqual(empty["totals"], [])
        self.assertEqual([chart["lines"] for chart in empty["charts"]], [[]] * 5)
        self.page.get("leases/x/totals", 400)
        self.page.get("leases/0/totals", 400)
        self.page.get("leases/999999/totals", 404)

    def test_other_sites_reach_nothing(self):
        def status(method, path, **more):
            return self.page.ask(method, path, **more)[0]

        # A name that somebody made to lead here.
        far = PageClient(self.page.port, host="evil.example")
        self.assertEqual(far.ask("GET", "/")[0], 421)
        self.assertEqual(far.ask("GET", "/api/v1/now")[0], 421)
        self.assertEqual(PageClient(self.page.port, host="localhost").ask("GET", "/")[0], 200)
        # A page elsewhere that lets the browser ask.
        drain = "/api/v1/servers/gpu1/drain"
        self.assertEqual(status("POST", drain, body={}, page=False), 403)
        self.assertEqual(status("POST", drain, body={}, Origin="http://evil.example"), 403)
        self.assertEqual(status("POST", drain, body={}, Sec_Fetch_Site="cross-site"), 403)
        self.assertEqual(status("GET", "/api/v1/now", Sec_Fetch_Site="cross-site"), 403)
        text = {"Content_Type": "text/plain"}
        self.assertEqual(status("POST", drain, body=b'{"why":"x"}', **text), 400)
        _, headers, _ = self.page.ask("GET", "/")
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertEqual(headers["X-Frame-Options"], "DENY")

    def test_strange_requests_get_an_answer(self):
        def status(method, path, **more):
            return self.page.ask(method, path, **more)[0]

        self.assertEqual(status("GET", "/api/v1/nothing"), 404)
        self.assertEqual(status("DELETE", "/api/v1/now"), 405)
        self.assertEqual(status("GET", "/../etc/passwd"), 404)
        self.assertEqual(status("GET", "/api/v1/stream?window=1-4000000000"), 400)
        self.assertEqual(status("GET", "/api/v1/leases?limit=x"), 400)
        self.assertEqual(status("POST", "/api/v1/policy", body=b"x" * (600 << 10)), 413)
        self.assertEqual(status("POST", "/api/v1/leases/1/change", body=b"[1]"), 400)
        self.assertEqual(status("POST", "/api/v1/leases/x/release", body={}), 400)


class Roles(Folders):
    """Certificates: who signs in with what `tendril page` shows sees and does what its role may."""

    def setUp(self):
        super().setUp()
        self.pool, self.page = pool_with_page("--identity", self.folder("a"), policy=policy())
        self.addCleanup(self.pool.stop)

    def signed_in(self, name, role):
        """A browser of somebody with that role."""
        self.joined(self.pool, name, "a", name, "--role", role)
        status, out, err = self.identity(name, "page", "--server", self.pool.endpoint)
        self.assertEqual(status, 0, err)
        token = out.strip().split("#pass=")[1]
        client = PageClient(self.page.port)
        client.post("session", {"token": token})
        again = PageClient(self.page.port).post("session", {"token": token}, 403)
        self.assertEqual(again["code"], "refused")
        return client

    def test_each_role_sees_and_does_its_own(self):
        self.assertFalse(self.page.get("me")["signed_in"])
        for path in ("now", "leases", "events", "stream", "policy"):
            self.assertEqual(self.page.get(path, 401)["code"], "sign-in")
        server = Server(
            "--identity", self.folder("gpu"), "--name", "gpu1", warm=0, pool=self.pool
        )
        self.addCleanup(server.stop)
        self.joined(self.pool, "gpu", "a", "gpu1", "--role", "server")
        alice = self.signed_in("alice", "user")
        bob = self.signed_in("bob", "user")
        operator = self.signed_in("olga", "operator")
        admin = self.signed_in("ada", "admin")
        watcher = self.signed_in("mel", "metrics")
        self.assertEqual(alice.get("me")["may"]["operate"], False)
        self.assertEqual(operator.get("me")["may"], {**admin.get("me")["may"], "rule": False})
        for who in (alice, bob, watcher):
            self.assertEqual(who.post("servers/gpu1/drain", status=403)["code"], "refused")
            who.post("policy/dry-run", {"policy": policy()}, 403)
        operator.post("policy/dry-run", {"policy": policy()})
        operator.post("policy", {"policy": policy()}, 403)
        admin.post("policy", {"policy": policy()})
        watcher.post("leases/1/release", status=403)
        # Others' names are not shown, and their leases not ended.
        program = start(
            "run", "--", "sleep", "60",
            TENDRIL_SERVERS=self.pool.endpoint, TENDRIL_IDENTITY=self.folder("alice"),
        )
        self.addCleanup(end, program)

        def waiting_or_running(who):
            return who.get("leases")["leases"] + who.get("queue")["queue"]

        shown = eventually(lambda: waiting_or_running(alice), 20, "what alice asked for")
        self.assertEqual(shown[0]["owner"], "alice")
        self.assertEqual(waiting_or_running(operator)[0]["owner"], "alice")
        self.assertEqual(waiting_or_running(bob)[0]["owner"], "")
        self.assertEqual(waiting_or_running(bob)[0]["program"], "")
        number = shown[0]["id"]
        for act in ("release", "park", "wake", "hold", "unhold"):
            self.assertIn("not yours", bob.post(f"leases/{number}/{act}", status=403)["error"])
            watcher.post(f"leases/{number}/{act}", status=403)
        alice.post(f"leases/{number}/release")
        self.history_is_ones_own(alice, bob, operator)
        mine = {event["who"] for event in bob.get("events")["events"]}
        self.assertLessEqual(mine, {"bob"})
        self.assertIn("alice", {event["who"] for event in admin.get("events")["events"]})
        # Of the events in the store, too, a user sees their own only.
        kept = lambda who: {event["who"] for event in who.get("events/past")["events"]}
        eventually(lambda: "alice" in kept(admin) and "bob" in kept(bob), 10, "they are written")
        self.assertEqual(kept(bob), {"bob"})
        self.assertEqual(self.page.get("events/past", 401)["code"], "sign-in")

    def history_is_ones_own(self, alice, bob, operator):
        """Sums of others are not in it, whatever is asked for; who sees all sees all."""

        def users(who, by="user"):
            answer = who.get(f"history?by={by}&points=10")
            return {each[by] for each in answer["totals"] if not each["others"]}

        eventually(lambda: "alice" in users(operator), 20, "what alice asked for, in the history")
        self.assertIn("alice", users(alice))
        self.assertEqual(users(bob), set())
        self.assertEqual(users(bob, "server"), set())
        sums = bob.get("history?points=10")["totals"]
        self.assertEqual([each for each in sums if each["queued_ns"] or each["held_ns"]], [])
        self.assertEqual(self.page.get("history", 401)["code"], "sign-in")
        self.assertEqual(self.page.get("leases/1/totals", 401)["code"], "sign-in")

    def test_a_session_ends_and_a_stream_with_it(self):
        alice = self.signed_in("alice", "user")
        self.assertIn("tendril_session=", alice.cookie)
        _, headers, _ = alice.ask("DELETE", "/api/v1/session")
        self.assertIn("HttpOnly; SameSite=Strict", headers["Set-Cookie"])
        alice.get("now", 401)

    def test_beyond_loopback_the_page_is_inside_tls(self):
        with self.assertRaisesRegex(AssertionError, "needs TLS there"):
            Pool("--page", f"0.0.0.0:{free_port()}")
        pool = Pool("--page", f"0.0.0.0:{free_port()}", "--identity", self.folder("b"))
        self.addCleanup(pool.stop)
        self.assertIn("the page is https://", pool.log())


class Secret(unittest.TestCase):
    def test_the_token_signs_in_and_guesses_are_slow(self):
        secret = "a secret of sixteen letters"
        port = free_port()
        pool = Pool("--page", f"127.0.0.1:{port}", environment={"TENDRIL_TOKEN": secret})
        self.addCleanup(pool.stop)
        browser = PageClient(port)
        browser.get("now", 401)
        browser.post("session", {"token": secret})
        eventually(lambda: browser.ask("GET", "/api/v1/now")[0] == 200, 20, "a scheduler")
        PageClient(port, token=secret).get("now")
        wrong = PageClient(port, token="wrong")
        errors = [wrong.get("now", 403)["error"] for _ in range(8)]
        self.assertIn("too many wrong", errors[-1])


class LoneServer(unittest.TestCase):
    def test_it_shows_itself(self):
        port = free_port()
        with Server("--page", f"127.0.0.1:{port}", gpus=2, warm=0) as server:
            page = PageClient(port)
            self.assertFalse(page.get("now")["head"]["pool"])
            program = start("run", "-p", "0.5", "--", "sleep", "60", server=server)
            lease = eventually(lambda: page.get("leases")["leases"], 20, "a lease")[0]
            self.assertEqual(lease["slices"][0]["share"], 0.5)
            api = OpenApi()
            problems = api.problems("get", "/leases", 200, page.get("leases"))
            problems += api.problems("get", "/now", 200, page.get("now"))
            self.assertEqual(problems, [])
            self.assertIn("keeps no history", page.get("history", 501)["error"])
            page.get(f"leases/{lease['id']}/totals", 501)
            page.post("servers/x/drain", status=403)
            page.post(f"leases/{lease['id']}/release")
            eventually(lambda: not page.get("leases")["leases"], 20, "its end")
            end(program)


if __name__ == "__main__":
    unittest.main()
