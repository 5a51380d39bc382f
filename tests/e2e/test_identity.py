# SPDX-License-Identifier: Apache-2.0
"""Identities from the first start to a revoked certificate, with two servers of a pool: joining,
proving, renewing, expiring, standing in for a server, one secret, and identity providers."""

import base64
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

from support import capture
import harness
from harness import Server, eventually, start, tendril

JOIN_TOKEN = r"[0-9a-f]{10}\.[0-9a-f]{32}\.[\w-]{43}"


class Folders(unittest.TestCase):
    """Each identity has a folder of its own below one that vanishes."""

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tendril-identity-")
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)

    def folder(self, name):
        return os.path.join(self.root, name)

    def serve(self, name, *options):
        return self.enterContext(Server("--identity", self.folder(name), *options))

    def identity(self, name, *arguments):
        return tendril(*arguments, TENDRIL_IDENTITY=self.folder(name))

    def ls(self, server, name):
        return tendril("ls", server=server, TENDRIL_IDENTITY=self.folder(name))

    def invite(self, authority, *arguments):
        status, out, err = self.identity(authority, "identity", "invite", *arguments, "--json")
        self.assertEqual(status, 0, err)
        return json.loads(out)["token"]

    def join(self, server, name, token, *arguments):
        return self.identity(name, "join", server.endpoint, "--token", token, *arguments)

    def joined(self, server, name, authority, *invitation):
        token = self.invite(authority, *invitation)
        status, out, err = self.join(server, name, token)
        self.assertEqual(status, 0, err)
        return out

    def assert_refused(self, done, part):
        status, out, err = done
        self.assertNotEqual(status, 0, out)
        self.assertIn(part, err)
        self.assertEqual(err.count("\n"), 1, err)


class Life(Folders):
    def test_the_first_user_types_what_the_server_prints(self):
        server = self.serve("a", "--pool-name", "lab")
        self.assertRegex(server.log(), rf"tendril join 127.0.0.1:\d+ --token {JOIN_TOKEN}")
        words = next(line for line in server.log().splitlines() if "tendril join" in line).split()
        at = words.index("join")
        status, out, err = self.identity("bob", *words[at : at + 4], "--name", "bob")
        self.assertEqual(status, 0, err)
        self.assertIn("bob (user) of the pool 'lab'", out)
        status, out, err = self.ls(server, "bob")
        self.assertEqual(status, 0, err)
        _, out, _ = self.identity("bob", "whoami")
        self.assertIn("spiffe://lab/user/bob", out)
        again = self.identity("eve", *words[at : at + 4])
        self.assert_refused(again, "used already")
        # The secret is nowhere in the authority's files.
        secret = words[at + 3].split(".")[1]
        for file in pathlib.Path(self.folder("a")).rglob("*"):
            if file.is_file():
                self.assertNotIn(secret, file.read_text(encoding="ascii"), file)

    def test_who_made_the_pool_is_its_administrator(self):
        server = self.serve("a")
        self.assertEqual(self.ls(server, "a")[0], 0)
        _, out, _ = self.identity("a", "whoami")
        self.assertIn("/admin/", out)

    def test_without_an_identity_nothing_is_answered(self):
        server = self.serve("a")
        status, out, err = self.ls(server, "nobody")
        self.assertNotEqual(status, 0, out)

    def test_tokens_that_are_not_good(self):
        server = self.serve("a")
        token = self.invite("a", "bob")
        identifier, secret, pin = token.split(".")
        wrong = f"{identifier}.{'0' * 32}.{pin}"
        self.assert_refused(self.join(server, "bob", wrong), "secret part")
        unknown = f"{'0' * 10}.{secret}.{pin}"
        self.assert_refused(self.join(server, "bob", unknown), "no such join token")
        self.assert_refused(self.join(server, "bob", token[:-3]), "no join token")
        late = self.invite("a", "eve", "--valid", "1s")
        time.sleep(2.1)
        self.assert_refused(self.join(server, "eve", late), "expired")
        self.assertEqual(self.join(server, "bob", token)[0], 0)

    def test_guessing_join_tokens_is_slow_and_fills_no_log(self):
        server = self.serve("a", "--audit-log", self.folder("audit"))
        identifier, _, pin = self.invite("a", "bob").split(".")
        began, tries, why = time.monotonic(), 0, ""
        while "too many wrong tokens" not in why and tries < 40:
            status, _, why = self.join(server, "eve", f"{identifier}.{tries:032x}.{pin}")
            self.assertNotEqual(status, 0)
            tries += 1
        self.assertIn("too many wrong tokens", why)
        self.assertGreater(tries, 5, "the first few cost nothing")
        lines = server.log().count("wants to join and is refused")
        self.assertLessEqual(lines, 1 + (time.monotonic() - began) // 10, server.log())
        audit = pathlib.Path(self.folder("audit")).read_text("ascii")
        self.assertLessEqual(audit.count('"what":"join","allowed":false'), tries - 1)

    def test_a_token_is_not_sent_to_a_strange_authority(self):
        self.serve("a")
        other = self.serve("b")
        self.assert_refused(
            self.join(other, "bob", self.invite("a", "bob")), "The token was not sent"
        )

    def test_two_servers_of_a_pool(self):
        first = self.serve("a", "--pool-name", "lab")
        self.joined(first, "b", "a", "gpu2", "--role", "server")
        second = self.serve("b")
        self.assertIn("server 'gpu2'", second.log())
        self.joined(first, "bob", "a", "bob")
        self.joined(first, "eve", "a", "eve")
        for server in first, second:
            self.assertEqual(self.ls(server, "bob")[0], 0)
        # The other server gives out nothing, and says where to go.
        self.assert_refused(
            self.join(second, "x", self.invite("a", "x")), f"authority at {first.endpoint}"
        )
        status, out, err = self.identity("a", "identity", "revoke", "bob")
        self.assertEqual(status, 0, err)
        for server in first, second:
            eventually(
                lambda server=server: "revoked" in self.ls(server, "bob")[2], 10, "the refusal"
            )
            self.assertEqual(self.ls(server, "eve")[0], 0)
        self.assert_refused(self.identity("bob", "identity", "renew"), "revoked")
        _, out, _ = self.identity("a", "identity", "list")
        self.assertIn("REVOKED", out)

    def test_a_server_of_the_pool_cannot_stand_in_for_another(self):
        first = self.serve("a", "--pool-name", "lab")
        self.joined(first, "b", "a", "gpu2", "--role", "server")
        second = self.serve("b")
        self.joined(first, "bob", "a", "bob")

        def ls(endpoint):
            return tendril("ls", "--server", endpoint, TENDRIL_IDENTITY=self.folder("bob"))

        status, _, err = ls(f"gpu2={second.endpoint}")
        self.assertEqual(status, 0, err)
        self.assert_refused(ls(f"gpu1={second.endpoint}"), "proven to be 'gpu2'")
        self.assert_refused(ls(f"gpu2={first.endpoint}"), "and not 'gpu2'")

    def test_an_administrator_elsewhere_invites_and_revokes(self):
        first = self.serve("a", "--pool-name", "lab", "--audit-log", self.folder("audit"))
        self.joined(first, "b", "a", "gpu2", "--role", "server")
        second = self.serve("b")
        self.joined(first, "boss", "a", "boss", "--role", "admin")
        self.joined(first, "bob", "a", "bob")
        at = ("--server", first.endpoint)
        status, out, err = self.identity("boss", "identity", "invite", "eve", *at)
        self.assertEqual(status, 0, err)
        self.assertRegex(out, rf"tendril join {re.escape(first.endpoint)} --token {JOIN_TOKEN}")
        status, _, err = self.join(first, "eve", out.split()[-1])
        self.assertEqual(status, 0, err)
        self.assertEqual(self.ls(second, "eve")[0], 0)
        # Others may not, and the other server has no authority.
        for words in (("invite", "x"), ("revoke", "eve"), ("list",)):
            done = self.identity("bob", "identity", *words, *at)
            self.assert_refused(done, "(rule: admin)")
        done = self.identity("boss", "identity", "invite", "x", "--server", second.endpoint)
        self.assert_refused(done, f"authority at {first.endpoint}")
        status, out, err = self.identity("boss", "identity", "revoke", "eve", *at)
        self.assertEqual(status, 0, err)
        self.assertIn("revoked 1", out)
        status, out, err = self.identity("boss", "identity", "list", "--json", *at)
        self.assertEqual(status, 0, err)
        issued = {one["identity"]: one["revoked"] for one in json.loads(out)["issued"]}
        self.assertTrue(issued["spiffe://lab/user/eve"])
        self.assertFalse(issued["spiffe://lab/admin/boss"])
        _, here, _ = self.identity("a", "identity", "list")
        self.assertEqual(self.identity("boss", "identity", "list", *at)[1], here)
        eventually(lambda: "revoked" in self.ls(second, "eve")[2], 10, "the refusal")
        audit = pathlib.Path(self.folder("audit"))
        for word in ('"what":"invite","object":"user/eve","allowed":true', '"what":"revoke"'):
            eventually(lambda word=word: word in audit.read_text("ascii"), 5, word)

    def users_of_leases(self, server):
        _, out, _ = tendril("ls", "--json", server=server, TENDRIL_IDENTITY=self.folder("a"))
        return {lease["user"] for lease in json.loads(out)["servers"][0]["leases"]}

    def hold(self, server, name):
        words = ["run", "-p", "1/4", "--", "sleep", "60"]
        run = start(*words, server=server, TENDRIL_IDENTITY=self.folder(name))
        self.addCleanup(harness.end, run)

    @harness.needs_client
    def test_leases_end_with_what_proved_their_users(self):
        policy = pathlib.Path(self.folder("policy"))
        policy.write_text('certificate_grace = "1s"\n', encoding="ascii")
        server = self.serve("a", "--policy", policy)
        for name, lifetime in (("bob", "1h"), ("kim", "8s"), ("eve", "8s")):
            self.joined(server, name, "a", name, "--lifetime", lifetime)
            if name == "eve":  # her machine does not reach the authority
                issuer = next(pathlib.Path(self.folder("eve")).rglob("issuer"))
                issuer.write_text("127.0.0.1:1\n", encoding="ascii")
            self.hold(server, name)
        _, out, _ = self.identity("a", "identity", "list", "--json")
        issued = sorted(json.loads(out)["issued"], key=lambda one: one["issued_s"])
        ends = {one["identity"].split("/")[-1]: one["ends_s"] for one in reversed(issued)}
        eventually(lambda: len(self.users_of_leases(server)) == 3, 20, "the leases")
        self.assertEqual(self.identity("a", "identity", "revoke", "bob")[0], 0)
        eventually(lambda: "bob" not in self.users_of_leases(server), 10, "the end by revoking")
        eventually(lambda: "eve" not in self.users_of_leases(server), 20, "the end with its time")
        self.assertGreater(time.time(), ends["eve"] + 1)
        while time.time() < ends["kim"] + 3:
            time.sleep(0.2)
        self.assertEqual(self.users_of_leases(server), {"kim"})
        self.assert_refused(self.ls(server, "eve"), "expired")

    def test_certificates_are_renewed(self):
        server = self.serve("a")
        self.joined(server, "eve", "a", "eve", "--lifetime", "1h")
        _, before, _ = self.identity("eve", "whoami", "--json")
        status, out, err = self.identity("eve", "identity", "renew")
        self.assertEqual(status, 0, err)
        _, after, _ = self.identity("eve", "whoami", "--json")
        self.assertNotEqual(*(json.loads(t)["identities"][0]["serial"] for t in (before, after)))

    def test_who_stands_in_for_a_server_is_refused(self):
        server = self.serve("a", "--pool-name", "lab")
        self.joined(server, "bob", "a", "bob")
        impostor = self.serve("b", "--pool-name", "lab")  # the same name, another authority
        self.assert_refused(self.ls(impostor, "bob"), "foreign")

    def test_a_foreign_certificate_is_refused(self):
        server = self.serve("a", "--pool-name", "lab")
        other = self.serve("b", "--pool-name", "lab")
        self.joined(other, "bob", "b", "bob")
        # It believes the first server, and shows what the second one's authority gave it.
        ours = pathlib.Path(self.folder("a")) / "authority/certificate.pem"
        shutil.copy(ours, pathlib.Path(self.folder("bob")) / "pools/lab/user/authority.pem")
        self.assert_refused(self.ls(server, "bob"), "foreign")

    def test_a_recorded_connection_is_of_no_use(self):
        server = self.serve("a")
        self.joined(server, "bob", "a", "bob")
        with harness.Relay(server.port) as relay:
            status, _, err = tendril(
                "ls",
                "--server",
                f"127.0.0.1:{relay.port}",
                TENDRIL_IDENTITY=self.folder("bob"),
            )
            self.assertEqual(status, 0, err)
            recorded = bytes(relay.sent[0])
        self.assertNotIn(b"bob", recorded)
        with harness.raw_connection(server) as replayed:
            replayed.sendall(recorded)
            replayed.settimeout(10)
            answer = b""
            with contextlib.suppress(OSError):
                while data := replayed.recv(65536):
                    answer += data
        # A handshake and an alert, and no answer to the list that was asked for.
        self.assertLess(len(answer), 4096)
        eventually(lambda: "its TLS is wrong" in server.log(), 5, "the line in the log")


class Metrics(Folders):
    """The port of the metrics is for who has a certificate that may read."""

    def setUp(self):
        super().setUp()
        options = ("--pool-name", "lab", "--metrics", "0.0.0.0:0")
        self.server = self.serve("a", *options)
        self.port = re.search(r"metrics on https://0\.0\.0\.0:(\d+)", self.server.log())[1]

    def page(self, name, role):
        """(status, text) as a monitor would get it, which checks the server's name."""
        files = pathlib.Path(self.folder(name)) / "pools/lab" / role
        context = ssl.create_default_context(cafile=files / "authority.pem")
        context.load_cert_chain(files / "certificate.pem", files / "key.pem")
        host = re.search(r"server '([^']+)'", self.server.log())[1]
        with socket.create_connection(("127.0.0.1", int(self.port)), timeout=10) as raw:
            with context.wrap_socket(raw, server_hostname=host) as line:
                line.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                answer = b""
                with contextlib.suppress(ssl.SSLError, ConnectionError):
                    while data := line.recv(65536):
                        answer += data
        head, _, body = answer.decode().partition("\r\n\r\n")
        # Who is revoked between its proof and its question hears nothing.
        return (int(head.split()[1]), body) if head else (0, "")

    def test_who_reads_them(self):
        self.joined(self.server, "m", "a", "prometheus", "--role", "metrics")
        self.joined(self.server, "bob", "a", "bob")
        status, text = self.page("m", "metrics")
        self.assertEqual(status, 200, text)
        self.assertIn("tendril_", text)
        self.assertEqual(self.page("bob", "user")[0], 401)
        # In clear there is nothing.
        with socket.create_connection(("127.0.0.1", int(self.port)), timeout=10) as raw:
            raw.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            self.assertNotIn(b"tendril_", raw.recv(65536))
        self.assertEqual(self.identity("a", "identity", "revoke", "prometheus")[0], 0)
        eventually(lambda: self.page("m", "metrics")[0] == 403, 10, "the refusal")
        self.assertIn("revoked", self.page("m", "metrics")[1])


class Programs(Folders):
    """A program attaches with a lease that its user's certificate got."""

    def setUp(self):
        super().setUp()
        self.server = self.serve("a", "--encrypt", "always")
        self.joined(self.server, "bob", "a", "bob")
        self.settings = {
            "TENDRIL_IDENTITY": self.folder("bob"),
            "TENDRIL_TRANSPORT": "tcp",
            "TENDRIL_LOG": "info",
        }

    def run_alone(self, **settings):
        done = subprocess.run(
            [harness.PROGRAMS / "vector_add"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
            env=harness.clean_environment(
                LD_LIBRARY_PATH=str(harness.CLIENT.parent),
                TENDRIL_SERVERS=self.server.endpoint,
                **settings,
            ),
        )
        return done.returncode, done.stdout.decode(errors="replace")

    def test_under_run(self):
        status, out, err = tendril(
            "run", "--", harness.PROGRAMS / "vector_add", server=self.server, **self.settings
        )
        self.assertEqual(status, 0, err)
        self.assertIn("sealed(tcp)", err)

    def leases(self):
        done = tendril("ls", "--json", server=self.server, **self.settings)
        return json.loads(done[1])["servers"][0]["leases"]

    def test_lists_say_how_data_travels(self):
        held = start(
            "run", "--", harness.PROGRAMS / "hold", "60", server=self.server, **self.settings
        )
        self.addCleanup(harness.end, held)
        eventually(
            lambda: [lease["links"] for lease in self.leases()] == ["sealed(tcp)"], 20, "a session"
        )

    def test_without_launcher(self):
        status, output = self.run_alone(**self.settings)
        self.assertEqual(status, 0, output)
        self.assertIn("sealed(tcp)", output)
        eventually(lambda: self.leases() == [], 10, "the end of the lease")

    def test_a_program_of_a_stranger_gets_nothing(self):
        self.settings["TENDRIL_IDENTITY"] = self.folder("nobody")
        status, output = self.run_alone(**self.settings)
        self.assertNotEqual(status, 0, output)
        self.assertIn("tendril", output)


# Copies a text to the GPU, and says what it knows of its lease.
COPIES = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
text = b"the results of the experiment. " * 4096
statuses = [
    cuda.cuInit(0),
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
    cuda.cuCtxSetCurrent(context),
    cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(len(text))),
    cuda.cuMemcpyHtoD_v2(memory, text, ctypes.c_size_t(len(text))),
    cuda.cuCtxSynchronize(),
]
print("statuses", set(statuses), "lease", os.environ["TENDRIL_LEASES"], flush=True)
"""


@unittest.skipUnless(capture.is_allowed(), "listening to packets needs CAP_NET_RAW")
class Line(Folders):
    """What whoever listens to the packets learns."""

    def use(self, server, **settings):
        """Runs, lists, attaches and releases; the secret of a lease, and what was on the line."""
        settings.update(TENDRIL_TRANSPORT="tcp", USER="wilhelmina", LOGNAME="wilhelmina")
        with capture.Capture(server.port) as line:
            status, out, err = tendril(
                "run", "--", sys.executable, "-c", COPIES, server=server, **settings
            )
            self.assertEqual(status, 0, err)
            self.assertIn("statuses {0}", out)

            def leases():
                listed = json.loads(tendril("ls", "--json", server=server, **settings)[1])
                return listed["servers"][0]["leases"]

            eventually(lambda: not leases(), 20, "the end of the first lease")
            held = start("run", "-p", "0.1", "--", "sleep", "60", server=server, **settings)
            self.addCleanup(harness.end, held)
            number = str(eventually(leases, 20, "a lease")[0]["lease"])
            done = tendril("release", number, server=server, **settings)
            self.assertEqual(done[0], 0, done[2])
        return re.findall(r"[0-9a-f]{32,}", out), line.everything()

    def test_it_is_not_what_people_do(self):
        server = self.serve("a", "--pool-name", "observatory", "--encrypt", "always")
        self.joined(server, "w", "a", "wilhelmina")
        secrets, seen = self.use(server, TENDRIL_IDENTITY=self.folder("w"))
        self.assertGreater(len(seen), 100_000)
        words = ["wilhelmina", "observatory", "spiffe", "experiment", "sleep", *secrets]
        self.assertTrue(secrets)
        for word in words:
            self.assertFalse(word.encode() in seen, word)
        for secret in secrets:
            self.assertFalse(bytes.fromhex(secret) in seen, secret)

    def test_in_clear_it_is(self):
        """So that the other test listens in the right place."""
        server = self.enterContext(Server())
        secrets, seen = self.use(server)
        for word in ("wilhelmina", "experiment", "sleep"):
            self.assertTrue(word.encode() in seen, word)
        self.assertTrue(any(bytes.fromhex(secret) in seen for secret in secrets))


class Secret(Folders):
    def test_the_token_is_proven_and_never_sent(self):
        secret = "correct horse battery"
        token = self.folder("token")
        pathlib.Path(token).write_text(secret, encoding="ascii")
        os.chmod(token, 0o600)
        server = self.enterContext(Server("--token-file", token))
        with harness.Relay(server.port) as relay:
            endpoint = f"127.0.0.1:{relay.port}"
            status, _, err = tendril("ls", "--server", endpoint, TENDRIL_TOKEN=secret)
            self.assertEqual(status, 0, err)
            done = tendril("ls", "--server", endpoint, TENDRIL_TOKEN="incorrect horse!")
            self.assert_refused(done, "the token is wrong")
            for sent in relay.sent:
                self.assertNotIn(b"horse", sent)
                self.assertEqual(sent[0], 0x16)
        eventually(lambda: "token is wrong" in server.log(), 5, "the log's line")
        self.assertNotIn("horse", server.log())

    def test_an_open_server_is_reached_with_a_token_too(self):
        server = self.enterContext(Server())
        status, _, err = tendril("ls", server=server, TENDRIL_TOKEN="correct horse battery")
        self.assertEqual(status, 0, err)


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider:
    """A small identity provider: its key set over HTTP, and tokens signed with openssl."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.keys = {}
        for name in "one", "two":
            path = self.folder / f"{name}.pem"
            command = ["openssl", "genpkey", "-algorithm", "RSA", "-out", path]
            subprocess.run(command, check=True, capture_output=True)
            command = ["openssl", "rsa", "-in", path, "-noout", "-modulus"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            modulus = bytes.fromhex(done.stdout.strip().split("=")[1])
            self.keys[name] = {
                "kty": "RSA",
                "kid": name,
                "alg": "RS256",
                "use": "sig",
                "n": encoded(modulus),
                "e": "AQAB",
            }
        self.published = ["one"]
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                keys = [provider.keys[name] for name in provider.published]
                document = provider.about() if "well-known" in self.path else {"keys": keys}
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = dict(urllib.parse.parse_qsl(text))
                status, answer = provider.device_answer(self.path, form)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def about(self):
        return {
            "issuer": self.issuer,
            "device_authorization_endpoint": self.issuer + "/device",
            "token_endpoint": self.issuer + "/token",
        }

    def device_answer(self, path, form):
        """The device flow. What the person does is in `verdicts`, one for each question."""
        if form.get("client_id") != "tendril":
            return 401, {"error": "invalid_client", "error_description": "who is that?\x1b[2J"}
        if path == "/device":
            self.scope = form.get("scope")
            return 200, {
                "device_code": "a secret & more",
                "user_code": "WDJB-MJHT",
                "verification_uri": self.issuer + "/type",
                "expires_in": 60,
                "interval": 1,
            }
        grant = "urn:ietf:params:oauth:grant-type:device_code"
        if form.get("grant_type") != grant or form.get("device_code") != "a secret & more":
            return 400, {"error": "invalid_request"}
        verdict = self.verdicts.pop(0)
        if verdict != "given":
            return 400, {"error": verdict}
        token = pathlib.Path(self.token()).read_text("ascii").strip()
        return 200, {"id_token": token, "access_token": "another", "token_type": "Bearer"}

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def token(self, key="one", **claims):
        whole = {
            "iss": self.issuer,
            "aud": "tendril",
            "sub": "alice",
            "exp": int(time.time()) + 300,
            **claims,
        }
        head = {"alg": "RS256", "kid": key}
        text = ".".join(encoded(json.dumps(part).encode()) for part in (head, whole))
        command = ["openssl", "dgst", "-sha256", "-sign", self.folder / f"{key}.pem"]
        done = subprocess.run(command, input=text.encode(), check=True, capture_output=True)
        path = self.folder / "token"
        path.write_text(f"{text}.{encoded(done.stdout)}\n", encoding="ascii")
        return str(path)


@unittest.skipUnless(shutil.which("openssl"), "the test's provider signs with openssl")
class Providers(Folders):
    """One server and one provider for all."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = tempfile.mkdtemp(prefix="tendril-identity-")
        cls.addClassCleanup(shutil.rmtree, root, ignore_errors=True)
        cls.provider = Provider(os.path.join(root, "provider"))
        cls.addClassCleanup(cls.provider.stop)
        file, folder = os.path.join(root, "providers.toml"), os.path.join(root, "a")
        pathlib.Path(file).write_text(
            f"""[[provider]]
issuer = "{cls.provider.issuer}"
audience = "tendril"
keys = "{cls.provider.issuer}/keys"
groups_claim = "groups"
[provider.roles]
gpu-admins = "admin"
""",
            encoding="ascii",
        )
        options = ["--identity", folder, "--pool-name", "lab", "--providers", file]
        cls.server = cls.enterClassContext(Server(*options))
        _, out, _ = tendril("whoami", "--json", TENDRIL_IDENTITY=folder)
        cls.pin = json.loads(out)["identities"][0]["pin"]

    def setUp(self):
        super().setUp()
        # The first key set is fetched a moment after the start.
        eventually(lambda: self.login("probe", self.provider.token())[0] == 0, 20, "a login")

    def login(self, name, token, *more):
        return self.identity(
            name, "login", self.server.endpoint, "--pin", self.pin, "--jwt-file", token, *more
        )

    def test_a_signed_token_becomes_an_identity(self):
        status, out, err = self.login("alice", self.provider.token())
        self.assertEqual(status, 0, err)
        self.assertIn("alice (user)", out)
        self.assertEqual(self.ls(self.server, "alice")[0], 0)
        token = self.provider.token(sub="root", groups=["x", "gpu-admins"])
        self.assertIn("root (admin)", self.login("root", token)[1])
        self.assert_refused(self.identity("alice", "identity", "renew"), "tendril login")

    def device_login(self, name, *more):
        provider = ("--provider", self.provider.issuer)
        return self.identity(
            name, "login", self.server.endpoint, "--pin", self.pin, *provider, *more
        )

    def test_a_person_logs_in_with_a_browser(self):
        self.provider.verdicts = ["authorization_pending", "given"]
        status, out, err = self.device_login("alice", "--scope", "openid groups")
        self.assertEqual(status, 0, err)
        self.assertIn(f"open {self.provider.issuer}/type in a browser and type the code", err)
        self.assertIn("WDJB-MJHT", err)
        self.assertIn("alice (user)", out)
        self.assertEqual(self.provider.scope, "openid groups")
        self.assertEqual(self.ls(self.server, "alice")[0], 0)
        for verdict, part in {
            "access_denied": "you did not allow it",
            "expired_token": "the code has expired",
        }.items():
            self.provider.verdicts = [verdict]
            status, _, err = self.device_login("x")
            self.assertNotEqual(status, 0)
            self.assertIn(part, err)
        status, _, err = self.device_login("x", "--client-id", "somebody")
        self.assertIn("invalid_client", err)
        self.assertNotIn("\x1b", err)

    def test_tokens_that_are_not_good(self):
        for part, claims in {
            "expired": {"exp": int(time.time()) - 100},
            "audience": {"aud": "somebody else"},
            "does not know its issuer": {"iss": "https://elsewhere"},
            "is no name": {"sub": "a/b"},
            "no claim": {"sub": ""},
        }.items():
            with self.subTest(part):
                self.assert_refused(self.login("x", self.provider.token(**claims)), part)
        self.assert_refused(
            self.login("x", self.provider.token(key="two")), "none of the provider's keys"
        )

    def test_when_the_provider_changes_its_key(self):
        """The last one: the others know the first key only."""
        token = self.provider.token(key="two")
        self.assertNotEqual(self.login("alice", token)[0], 0)
        self.provider.published = ["two"]
        ends = time.monotonic() + 20
        while self.login("alice", token)[0] != 0:
            self.assertLess(time.monotonic(), ends, "the new key is not known")
            time.sleep(1)
        self.assert_refused(self.login("bob", self.provider.token()), "none of the provider's keys")

    def test_the_pin_decides(self):
        done = self.identity(
            "x",
            "login",
            self.server.endpoint,
            "--pin",
            self.pin[::-1],
            "--jwt-file",
            self.provider.token(),
        )
        self.assertNotEqual(done[0], 0)


if __name__ == "__main__":
    unittest.main()
