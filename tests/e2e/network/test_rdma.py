# SPDX-License-Identifier: Apache-2.0
"""Sessions over RDMA: what is chosen, what keeps programs from it, and links that are lost. Twice:
on a card of this machine, hard or soft, where there is one; and on cards that tests/cards plays.
scripts/rdma-guest runs the first in an emulated machine with soft RoCE. It names the network
interface below it in TENDRIL_RDMA_INTERFACE, which the tests then take down, and one that leads
nowhere in TENDRIL_RDMA_STRANGER. With a server on another machine it names that in
TENDRIL_RDMA_SERVER."""

import contextlib
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from harness import CLIENT, PROGRAMS, Server, clean_environment, eventually, tendril
from support.cards import KERNEL, LIBRARY, Cards, Fault, remembered, worse_connections
from support.steady import STEADY, SUITE, natively

DEVICES = pathlib.Path("/sys/class/infiniband")
INTERFACE = os.environ.get("TENDRIL_RDMA_INTERFACE", "")
STRANGER = os.environ.get("TENDRIL_RDMA_STRANGER", "")
SOFT = "rxe0"  # the card on INTERFACE
# An emulated machine is ten times slower than this one.
PATIENCE_S = 500
NETWORKS = pathlib.Path(__file__).parents[3] / "docs" / "networks.md"
NOBODY = "(the peer's card does not answer|nothing came back over|finding the way to)"
TOKEN = "a token of more than sixteen letters"


class CardOfThisMachine:
    """The same as Cards, as far as it goes."""

    can_be_cut = INTERFACE != ""

    @contextlib.contextmanager
    def stranger(self):
        """What a program needs to have a card that no other one reaches."""
        if not STRANGER:
            raise unittest.SkipTest("no interface was named that leads nowhere")
        words = ["rdma", "link", "add", "stranger", "type", "rxe", "netdev", STRANGER]
        subprocess.run(words, check=True)
        try:
            yield {"TENDRIL_RDMA_DEVICE": "stranger"}
        finally:
            subprocess.run(["rdma", "link", "delete", "stranger"], check=True)

    def environment(self, *_, **more):
        token = os.environ.get("TENDRIL_TOKEN")  # of the server on the other machine
        return {"TENDRIL_TOKEN": token, **more} if token else more

    def set_cable(self, is_in):
        subprocess.run(["ip", "link", "set", INTERFACE, "up" if is_in else "down"], check=True)

    def take_away(self):
        """Soft RoCE waits for whoever has the card open, and cannot be killed meanwhile."""
        deleting = subprocess.Popen(["rdma", "link", "delete", SOFT])
        eventually(lambda: deleting.poll() is not None, PATIENCE_S, "nobody has the card open")
        assert deleting.returncode == 0

    def put_back(self):
        if not (DEVICES / SOFT).exists():
            words = ["rdma", "link", "add", SOFT, "type", "rxe", "netdev", INTERFACE]
            subprocess.run(words, check=True)

    def __exit__(self, *_):
        pass


class PlayedCards(Cards):
    can_be_cut = True

    @contextlib.contextmanager
    def stranger(self):
        yield self.environment("network=2")


class Programs:
    """What programs do over `cards` with `server`."""

    def runs(self, *words, server=None, **environment):
        """(stdout, stderr) of `tendril run`, which ends well."""
        status, out, err = tendril(
            "run",
            *words,
            server=[server or self.server],
            timeout=PATIENCE_S,
            **{"TENDRIL_LOG": "info", **self.cards.environment(**environment)},
        )
        self.assertEqual(status, 0, out[-4000:] + err[-4000:])
        return out, err

    def started(self, name, *arguments):
        """A program over RDMA that has attached, with a pipe for what it writes."""
        process = subprocess.Popen(
            [PROGRAMS / name, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=clean_environment(
                **self.cards.environment(
                    LD_LIBRARY_PATH=str(CLIENT.parent),
                    TENDRIL_TRANSPORT="rdma",
                    TENDRIL_SERVERS=self.server.endpoint,
                    TENDRIL_LOG="info",
                )
            ),
        )
        self.addCleanup(process.kill)
        lines = iter(process.stdout.readline, "")
        said = next((line for line in lines if "attached to" in line), "nothing")
        self.assertIn("over rdma", said)
        time.sleep(self.begins_s)
        self.assertIsNone(process.poll(), "it ended before the link did")
        return process

    def falls_back(self, process, said=""):
        out, _ = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 0, said + out[-3000:])
        self.assertRegex(said + out, "RDMA to .* failed .*the program connects over TCP")
        self.assertIn("nothing was lost", out)

    def gives_the_same(self, *transports):
        """Each test of the suite, and what programs write."""
        names = os.environ.get("TENDRIL_RDMA_CONFORMANCE", "Copies*:HostMemory*:Launch*:Stream*")
        expected = {words: natively(*words) for words in STEADY}
        passed = []
        for transport in transports:
            environment = {"TENDRIL_TRANSPORT": transport}
            for words in STEADY:
                program = (str(PROGRAMS / words[0]), *words[1:])
                out, err = self.runs("-p", "0.5", "--", *program, **environment)
                self.assertIn(f"over {transport} (", err)
                self.assertEqual(out, expected[words], (transport, words))
            out, err = self.runs("-n", "2", "--", SUITE, "--gtest_filter=" + names, **environment)
            self.assertIn(f"over {transport} (", err)
            passed.append(re.findall(r"       OK \] (\S+)", out))
        self.assertGreater(len(passed[0]), 50)
        for each in passed[1:]:
            self.assertEqual(each, passed[0])


class Sessions(Programs):
    """The tests with a server on this machine. `Kind`: of cards."""

    @classmethod
    def setUpClass(cls):
        cls.cards = cls.Kind()
        cls.server = Server(gpus=2, environment=cls.cards.environment(TENDRIL_RDMA_DEVICE="any"))

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.cards.__exit__()

    def attaches(self, server=None, limit_locked_kib=None, **environment):
        """What a program that ends well says of its session."""
        environment.setdefault("TENDRIL_TRANSPORT", "rdma")
        words = [str(PROGRAMS / "vector_add")]
        if limit_locked_kib:
            # The limit does not hold for who may lock memory, as root may.
            words = ["setpriv", "--bounding-set=-ipc_lock", "bash", "-c"] + [
                f"ulimit -l {limit_locked_kib} && exec {words[0]}"
            ]
        _, err = self.runs("-p", "0.5", "--", *words, server=server, **environment)
        return next(line for line in err.splitlines() if "attached to" in line)

    def serve(self, *options, **environment):
        server = Server(*options, environment=self.cards.environment(**environment))
        self.addCleanup(server.stop)
        return server

    def test_what_was_measured_is_said(self):
        said = self.attaches()
        self.assertIn("over rdma", said)
        self.assertIn("a read takes", said)
        environment = self.cards.environment(TENDRIL_TRANSPORT="rdma")
        _, out, err = tendril("doctor", server=self.server, timeout=PATIENCE_S, **environment)
        self.assertIn("a read takes", out + err)

    def test_it_is_measured_against_tcp(self):
        """While the program runs, and twice: the second time what is remembered decides."""

        def tried(cache):
            program = (str(PROGRAMS / "streams_overlap"), "300", "65536")
            environment = {"TENDRIL_TRANSPORT": "rdma,tcp", "XDG_CACHE_HOME": cache}
            _, err = self.runs("-p", "0.5", "--", *program, **environment)
            self.assertRegex(err, "attached to .* over tcp .*rdma is tried meanwhile")
            return err

        with tempfile.TemporaryDirectory() as cache:
            said = tried(cache)
            self.assertRegex(said, r"calls over (rdma|tcp) \(.* times\), bulk data over")
            way = remembered(cache)
            way.write_text(worse_connections(way.read_text()))
            said = tried(cache)
            self.assertIn("calls over rdma", said)
            self.assertIn("bulk data over rdma", said)

    def test_programs_on_one_host_share_memory_anyhow(self):
        self.assertNotIn("rdma", self.attaches(TENDRIL_TRANSPORT="auto"))

    def test_each_end_may_refuse(self):
        for device, why in (("none", "switches it off"), ("mlx9", "no RDMA device 'mlx9'")):
            said = self.attaches(TENDRIL_RDMA_DEVICE=device)
            self.assertIn("over tcp", said)
            self.assertIn(why, said)
        for arguments, why in (
            ((), "the server lends no RDMA device"),
            (("--trusted-network", "10.0.0.0/8", "--rdma", "off"), "switches it off"),
        ):
            said = self.attaches(self.serve(*arguments))
            self.assertIn("over tcp", said)
            self.assertIn(why, said)

    def test_a_server_that_trusts_a_network_lends_its_cards(self):
        server = self.serve("--trusted-network", "10.0.0.0/8")
        self.assertIn("over rdma", self.attaches(server))

    def test_a_card_that_reaches_nobody_is_given_up(self):
        """Its address is right and its port is up."""
        with self.cards.stranger() as environment:
            said = self.attaches(**environment)
        self.assertRegex(said, "over tcp .*" + NOBODY)

    def test_all_transports_give_the_same(self):
        self.gives_the_same("rdma", "tcp", "shm")

    def test_a_link_that_is_down_at_attach(self):
        self.needs_cable()
        self.cards.set_cable(False)
        said = self.attaches()
        self.assertIn("over tcp", said)
        self.assertIn("is down", said)
        self.cards.set_cable(True)
        self.assertIn("over rdma", self.attaches())

    def needs_cable(self):
        if not self.cards.can_be_cut:
            self.skipTest("no interface was named that may be taken down")
        self.addCleanup(self.cards.set_cable, True)

    def may_take_cards_away(self):
        self.needs_cable()
        self.addCleanup(self.cards.put_back)

    def doctor(self):
        environment = self.cards.environment(TENDRIL_TRANSPORT="rdma")
        _, out, err = tendril("doctor", server=self.server, timeout=PATIENCE_S, **environment)
        return " ".join((out + err).split())

    def soon_over_rdma(self, server=None):
        """A server looks at its cards every 5 s, and starts idle workers anew."""
        eventually(lambda: "over rdma" in self.attaches(server), PATIENCE_S, "the card is used")

    def test_a_card_that_is_taken_away_and_put_back(self):
        """The session goes on over TCP, and later ones use the card again."""
        self.may_take_cards_away()
        process = self.started("streams_overlap", self.overlaps, "65536")
        self.cards.take_away()
        eventually(lambda: self.server.leases()[0]["links"] == "tcp", 60, "it goes on over TCP")
        self.falls_back(process)
        self.assertRegex(self.attaches(), "over tcp .*client: this machine has no RDMA device")
        self.assertIn("client: this machine has no RDMA device", self.doctor())
        self.cards.put_back()
        self.soon_over_rdma()
        self.assertIn("a read takes", self.doctor())
        eventually(self.server.idle, 60, "everything given back")

    def test_a_card_that_comes_back_at_once(self):
        self.may_take_cards_away()
        for _ in range(3):
            self.cards.take_away()
            self.cards.put_back()
        self.soon_over_rdma()

    def test_a_card_that_comes_when_the_server_runs(self):
        self.may_take_cards_away()
        self.cards.take_away()
        server = self.serve(TENDRIL_RDMA_DEVICE="any")
        self.assertRegex(self.attaches(server), "over tcp .*no RDMA device")
        self.cards.put_back()
        self.soon_over_rdma(server)

    def test_a_link_that_flaps(self):
        self.needs_cable()
        process = self.started("streams_overlap", self.overlaps, "65536")
        for is_in in (False, True) * 8:
            self.cards.set_cable(is_in)
            time.sleep(0.2)
        self.falls_back(process)
        self.assertIn("over rdma", self.attaches())
        eventually(self.server.idle, 60, "everything given back")

    def passes_over_a_lost_link(self, program, up_again_s):
        """The link goes down while it runs. It ends well, over TCP, and `ls` says so meanwhile. The
        link comes back, and nobody minds."""
        self.needs_cable()
        process = self.started(*program)
        self.assertIn("rdma", self.server.leases()[0]["links"])
        self.cards.set_cable(False)
        links, down = [], time.monotonic()
        while process.poll() is None and "tcp" not in links:
            links = [lease["links"] for lease in self.server.leases()]
            time.sleep(0.05)
        time.sleep(max(0, down + up_again_s - time.monotonic()))
        self.cards.set_cable(True)
        self.falls_back(process)
        self.assertIn("tcp", links)
        eventually(self.server.idle, 60, "everything given back")

    def test_a_link_that_goes_down_and_up_in_mid_launch(self):
        self.passes_over_a_lost_link(("streams_overlap", self.overlaps, "65536"), 0)

    def test_a_link_that_goes_down_and_up_in_mid_copy(self):
        self.passes_over_a_lost_link(("copy_sizes", self.copies), 1)


@unittest.skipUnless(
    DEVICES.is_dir() and any(DEVICES.iterdir()), "this machine has no RDMA device: nothing was run"
)
class OnThisMachine(Sessions, unittest.TestCase):
    Kind = CardOfThisMachine
    begins_s, overlaps, copies = 3, "1000", "100"

    def test_bulk_data_go_over_two_cards(self):
        """What each moves is counted by the kernel. That two are faster nobody can see here: one
        processor plays both."""
        counters = [DEVICES / name / "ports/1/hw_counters/sent_pkts" for name in (SOFT, "stranger")]
        program = ("-p", "0.5", "--", str(PROGRAMS / "copy_sizes"), "60")
        with self.cards.stranger(), tempfile.TemporaryDirectory() as cache:
            server = self.serve("--rdma", "any")
            environment = {"TENDRIL_TRANSPORT": "rdma,tcp", "XDG_CACHE_HOME": cache}
            expected, err = self.runs(*program, server=server, **environment)
            self.assertIn("pairs of ports", err)
            way = remembered(cache)
            known = worse_connections(way.read_text()).splitlines()
            seconds = []
            for beside in ("", "stranger:1>stranger:1"):
                pairs = [f"{SOFT}:1>{SOFT}:1", beside]
                way.write_text("\n".join(known[:3] + pairs) + "\n")
                before = [int(counter.read_text()) for counter in counters]
                began = time.monotonic()
                out, err = self.runs(*program, server=server, **environment)
                seconds.append(f"{time.monotonic() - began:.0f} s")
                moved = [int(counter.read_text()) - was for counter, was in zip(counters, before)]
                self.assertEqual(out, expected)
                self.assertEqual("bulk data go over two pairs at once" in err, bool(beside), err)
                self.assertGreater(moved[0], 1_000)
                self.assertEqual(moved[1] > 1_000, bool(beside), moved)
            print(f"copies over one card and over two: {seconds}, packets of each: {moved}")

    def test_its_server_tells_of_cards_that_come_and_go(self):
        self.may_take_cards_away()
        server = self.serve("--rdma", "any")

        def tells(what):
            lines = server.log().splitlines()
            return sum(f"RDMA port {SOFT}:1 " in line and what in line for line in lines)

        is_here = f"(RoCE on {INTERFACE},"
        eventually(lambda: tells(is_here) == 1, 60, is_here)
        for does, what, times in (
            (self.cards.take_away, "is gone; sessions use TCP instead", 1),
            (self.cards.put_back, is_here, 2),
            (lambda: self.cards.set_cable(False), "is down; sessions use TCP meanwhile", 1),
            (lambda: self.cards.set_cable(True), "is up again; the next sessions may", 1),
        ):
            does()
            eventually(lambda: tells(what) == times, 60, what)

    def test_without_locked_memory_it_says_so(self):
        said = self.attaches(limit_locked_kib=64)
        self.assertIn("over tcp", said)
        self.assertIn("ulimit -l", said)

    def test_without_its_library_it_says_so(self):
        """The file is hidden from the program by a mount of its own."""
        hide = "for each in /usr/lib/*/libibverbs.so.1; do mount --bind /dev/null $each; done; "
        words = ("unshare", "-m", "bash", "-c", hide + "exec " + str(PROGRAMS / "vector_add"))
        _, err = self.runs("-p", "0.5", "--", *words, TENDRIL_TRANSPORT="rdma")
        self.assertRegex(err, "over tcp .*libibverbs.so.1 is missing")


class OtherMachine:
    """Its server."""

    endpoint = os.environ.get("TENDRIL_RDMA_SERVER", "")


@unittest.skipUnless(OtherMachine.endpoint, "no server of another machine was named")
class BetweenMachines(Programs, unittest.TestCase):
    """The server is on another machine, and lends its cards because it trusts the network."""

    cards, server = CardOfThisMachine(), OtherMachine()
    begins_s = 3

    def test_it_is_tried_unasked(self):
        environment = self.cards.environment()
        status, out, err = tendril(
            "doctor", server=[self.server], timeout=PATIENCE_S, **environment
        )
        self.assertEqual(status, 0, out + err)
        self.assertRegex(" ".join(out.split()), "rdma is tried meanwhile .*calls over .*bulk data")

    def test_both_transports_give_the_same(self):
        self.gives_the_same("rdma", "tcp")

    def passes_over_a_lost_link(self, *program):
        """The one link of both, so the program waits until it comes back."""
        process = self.started(*program)
        self.addCleanup(self.cards.set_cable, True)
        self.cards.set_cable(False)
        said = process.stdout.readline()
        self.assertRegex(said, "RDMA to .* failed .*the program connects over TCP")
        time.sleep(2)
        self.assertIsNone(process.poll(), "it did not wait")
        self.cards.set_cable(True)
        self.falls_back(process, said)

    def test_a_link_that_goes_down_and_up_in_mid_launch(self):
        self.passes_over_a_lost_link("streams_overlap", "300", "65536")

    def test_a_link_that_goes_down_and_up_in_mid_copy(self):
        self.passes_over_a_lost_link("copy_sizes", "100")

    def test_a_card_that_is_taken_away_and_put_back(self):
        """The server's stays, and so does the network."""
        process = self.started("streams_overlap", "300", "65536")
        self.addCleanup(self.cards.put_back)
        self.cards.take_away()
        self.falls_back(process)
        self.cards.put_back()
        _, err = self.runs("--", str(PROGRAMS / "vector_add"), TENDRIL_TRANSPORT="rdma")
        self.assertIn("over rdma", err)

    def test_a_card_that_reaches_nobody_is_given_up(self):
        program = ("-p", "0.5", "--", str(PROGRAMS / "vector_add"))
        with self.cards.stranger() as environment:
            _, err = self.runs(*program, TENDRIL_TRANSPORT="rdma", **environment)
        self.assertRegex(err, "over tcp .*" + NOBODY)


@unittest.skipUnless(LIBRARY.exists(), "the played cards were not built")
class OnPlayedCards(Sessions, unittest.TestCase):
    Kind = PlayedCards
    begins_s, overlaps, copies = 0.3, "2000", "2000"

    def test_the_whole_suite(self):
        _, err = self.runs(
            "-n", "2", "--", SUITE, "--gtest_brief=1", TENDRIL_TRANSPORT="rdma"
        )
        self.assertIn("over rdma", err)


@unittest.skipUnless(LIBRARY.exists(), "the played cards were not built")
class Reasons(unittest.TestCase):
    """What `doctor` says of each cause, at the client and at the server, with an exit status of 0:
    the server can be used. And what docs/networks.md explains is what it says."""

    ROWS = {
        "libibverbs.so.1 is missing": "test_the_library_is_missing",
        "this machine has no RDMA device": "test_there_is_no_device",
        "the port mlx5_0:1 is down": "test_its_port_is_down",
        "has no usable GID": "test_its_port_has_no_address",
        "cannot lock ... KiB of memory": "test_memory_cannot_be_locked",
        "this end is on InfiniBand and the other one on RoCE": "test_the_ends_do_not_match",
        "the peer's card does not answer": "test_nobody_answers",
        "nothing came back over mlx5_0:1": "test_nothing_is_reported",
        "the server's policy forbids RDMA": "test_the_policy_forbids_it",
        "the session's data are sealed": "test_the_session_is_sealed",
        "the server lends no RDMA device": "test_the_server_lends_none",
        "it failed within the last hour": "test_a_failure_is_remembered",
        "must be asked for": "test_it_must_be_asked_for",
    }

    def setUp(self):
        self.cards = Cards()
        self.addCleanup(self.cards.__exit__)
        row = [row for row, name in self.ROWS.items() if name == self._testMethodName]
        self.row = row[0] if row else ""

    def test_every_row_of_the_table_has_its_test(self):
        table = NETWORKS.read_text().split("| It says | What to do |\n|---|---|\n")[1]
        rows = [line.split("|")[1].strip() for line in table.split("\n\n")[0].splitlines()]
        self.assertEqual(rows, list(self.ROWS))
        for name in self.ROWS.values():
            self.assertTrue(hasattr(self, name), name)

    def doctor(self, client, server=None, *options, transport="rdma,tcp", **environment):
        lends = {"TENDRIL_RDMA_DEVICE": "any", **(server or self.cards.environment())}
        with Server(*options, environment=lends) as serving:
            return self.asks(serving, client, transport, **environment)

    def asks(self, serving, client, transport="rdma,tcp", **environment):
        more = {"TENDRIL_TRANSPORT": transport, **client, **environment}
        status, out, err = tendril("doctor", server=serving, timeout=PATIENCE_S, **more)
        self.assertEqual(status, 0, out + err)
        (line,) = [line for line in out.splitlines() if line.startswith("  transport")]
        return line

    def says(self, line):
        row = re.escape(self.row).replace("mlx5_0", "double0").replace(re.escape("..."), ".*")
        self.assertRegex(line, row)
        self.assertNotIn("calls over", line)

    def at_each_end(self, broken):
        sound = self.cards.environment()
        line = self.doctor(broken, sound)
        self.says(line)
        self.assertIn("client: ", line)
        line = self.doctor(sound, broken)
        self.says(line)
        self.assertIn("server: ", line)

    def test_nothing_is_wrong(self):
        line = self.doctor(self.cards.environment())
        for phrase in ("double0:1 (RoCE)", "a read takes", "calls over", "bulk data over"):
            self.assertIn(phrase, line)

    def test_it_ends_its_session_in_order(self):
        """A server that sees a cut waits for the client, and says so."""
        lends = self.cards.environment(TENDRIL_RDMA_DEVICE="any")
        with Server(environment=lends) as server:
            for transport in ("tcp", "rdma,tcp", "rdma") * 3:
                self.asks(server, self.cards.environment(), transport)
            eventually(server.idle, 40, "everything given back")
            self.assertNotIn("is cut", server.log())

    def test_the_library_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            pathlib.Path(folder, "libibverbs.so.1").touch()
            broken = {
                "LD_PRELOAD": str(KERNEL),
                "LD_LIBRARY_PATH": folder,
                "TENDRIL_RDMA_DOUBLE": "x",
            }
            self.at_each_end(broken)

    def test_there_is_no_device(self):
        self.at_each_end(self.cards.environment("no-card"))

    def test_its_port_is_down(self):
        self.at_each_end(self.cards.environment("port-down"))

    def test_its_port_has_no_address(self):
        self.at_each_end(self.cards.environment("no-address"))

    def test_memory_cannot_be_locked(self):
        self.at_each_end(self.cards.environment("locks=64"))

    def test_the_ends_do_not_match(self):
        other, sound = self.cards.environment("infiniband"), self.cards.environment()
        self.says(self.doctor(sound, other))
        self.assertIn("on RoCE and the other one on InfiniBand", self.doctor(other, sound))

    def test_nobody_answers(self):
        self.says(self.doctor(self.cards.environment("network=2")))

    def test_nothing_is_reported(self):
        self.cards.arm(Fault.REPORTS_LOST, 0)
        self.says(self.doctor(self.cards.environment()))

    def test_a_failure_is_remembered(self):
        """By programs. `doctor` tries anew."""
        with tempfile.TemporaryDirectory() as cache, Server(
            environment=self.cards.environment(TENDRIL_RDMA_DEVICE="any")
        ) as server:
            broken = self.cards.environment(
                "network=2",
                TENDRIL_TRANSPORT="rdma,tcp",
                TENDRIL_LOG="info",
                XDG_CACHE_HOME=cache,
            )
            for expected in ("it was tried", self.row):
                program = ("run", "--", str(PROGRAMS / "hold"), "16", "2")
                status, out, err = tendril(*program, server=server, **broken)
                self.assertEqual(status, 0, out + err)
                self.assertIn(expected, err)
            line = self.asks(server, broken)
            self.assertIn("it was tried", line)

    def test_the_policy_forbids_it(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as policy:
            policy.write("[limits]\nrdma = false\n")
            policy.flush()
            line = self.doctor(self.cards.environment(), None, "--policy", policy.name)
        self.says(line)

    def test_the_session_is_sealed(self):
        with tempfile.NamedTemporaryFile("w") as token:
            token.write(TOKEN)
            token.flush()
            options = ("--token-file", token.name, "--encrypt", "always")
            line = self.doctor(self.cards.environment(), None, *options, TENDRIL_TOKEN=TOKEN)
        self.says(line)

    def test_the_server_lends_none(self):
        with Server(environment=self.cards.environment()) as server:
            line = self.asks(server, self.cards.environment())
        self.says(line)

    def test_it_must_be_asked_for(self):
        line = self.doctor(self.cards.environment(), None, "--outage", "off")
        self.says(line)


if __name__ == "__main__":
    unittest.main()
