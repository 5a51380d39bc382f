# SPDX-License-Identifier: Apache-2.0
"""What the command line says to somebody who mistypes, asks for too much, or has a server down: one
line that names the cause and the way on, and the documented exit status."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import termios
import time
import unittest

import harness
from harness import MIB, Pool, Server, eventually, tendril


class Words(unittest.TestCase):
    """Without any server."""

    def said(self, *words):
        """The only line on stderr; nothing else was printed, and the status says wrong usage."""
        status, out, err = tendril(*words)
        self.assertEqual((status, out), (2, ""), err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("tendril: "), err)
        return err[len("tendril: ") : -1]

    def test_a_mistyped_command_is_named_with_the_one_that_was_meant(self):
        self.assertEqual(self.said("rn"), "unknown command 'tendril rn'; did you mean 'run'?")
        self.assertIn("did you mean 'drain'?", self.said("pool", "drian", "gpu1"))

    def test_a_mistyped_option_is_no_program(self):
        for words in (["--parts", "0.5", "--", "true"], ["-n", "1", "--parts=0.5", "true"]):
            self.assertEqual(
                self.said("run", *words),
                "unknown option '--parts' of 'tendril run'; did you mean '--part'?",
            )
        self.assertIn("did you mean '--json'?", self.said("ls", "--jsn"))

    def test_a_word_too_many_and_a_bad_value_are_named(self):
        self.assertIn("'all'", self.said("smi", "all"))
        self.assertIn("--timeout", self.said("ls", "--timeout", "0"))
        self.assertIn("--json", self.said("env", "--docker", "--json"))

    def test_help_of_a_command_is_what_its_option_prints(self):
        for words in (["pool", "apply"], ["run"], []):
            status, out, err = tendril("help", *words)
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(out, tendril(*words, "--help")[1])
        self.assertIn("did you mean 'apply'?", self.said("help", "pool", "aply"))


class Manual(unittest.TestCase):
    """Help, pages and completion come from one description."""

    def test_help_fits_eighty_columns(self):
        status, out, _ = tendril("--help-all")
        self.assertEqual(status, 0)
        self.assertEqual([line for line in out.splitlines() if len(line) > 80], [])
        self.assertIn("tendril pool apply", out)

    def test_pages_have_what_help_has_and_read_without_warnings(self):
        with tempfile.TemporaryDirectory(prefix="tendril-e2e-") as folder:
            self.assertEqual(tendril("manual", folder), (0, "", ""))
            pages = sorted(os.listdir(folder))
            self.assertIn("tendril.1", pages)
            run = pathlib.Path(folder, "tendril-run.1").read_text(encoding="utf-8")
            for option in re.findall(r"--[a-z-]+", tendril("run", "--help")[1]):
                self.assertIn(option.replace("-", "\\-"), run)
            if shutil.which("man") is None:
                self.skipTest("NO man HERE: whether the pages read well was not checked")
            for page in pages:
                read = subprocess.run(
                    ["man", "--warnings", "-l", os.path.join(folder, page)],
                    capture_output=True,
                    text=True,
                    env={**os.environ, "MANPAGER": "cat", "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
                    check=False,
                )
                self.assertEqual((read.returncode, read.stderr), (0, ""), page)

    def test_shells_read_their_scripts(self):
        for shell in ("bash", "zsh", "fish"):
            script = tendril("completion", shell)[1]
            self.assertIn("apply", script)
            with self.subTest(shell):
                if shutil.which(shell) is None:
                    self.skipTest(f"NO {shell} HERE: its completion script was not read")
                read = subprocess.run(
                    [shell, "-n"], input=script, capture_output=True, text=True, check=False
                )
                self.assertEqual((read.returncode, read.stderr), (0, ""))

    def complete(self, folder, *words, server):
        """What bash offers for the last of these words."""
        script = pathlib.Path(folder, "script")
        script.write_text(
            tendril("completion", "bash")[1]
            + f"COMP_WORDS=(tendril {' '.join(words)} ''); COMP_CWORD={len(words) + 1}\n"
            + '_tendril; printf "%s\\n" "${COMPREPLY[@]}"\n',
            encoding="utf-8",
        )
        path = f"{harness.TENDRIL.parent}:{os.environ['PATH']}"
        environment = harness.clean_environment(TENDRIL_SERVERS=server.endpoint, PATH=path)
        done = subprocess.run(
            ["bash", script], capture_output=True, text=True, env=environment, check=True
        )
        return done.stdout.split()

    def test_bash_offers_leases_servers_and_choices(self):
        with Server() as server, tempfile.TemporaryDirectory(prefix="tendril-e2e-") as folder:
            hold = harness.PROGRAMS / "hold"
            program = harness.start("run", "--", hold, "1", "60", server=server)
            self.addCleanup(harness.end, program)
            self.assertIn("holding", program.stdout.readline())
            lease = str(harness.listing(server)["leases"][0]["lease"])
            complete = lambda *words: self.complete(folder, *words, server=server)
            self.assertEqual(complete("release"), [lease])
            self.assertEqual(complete("lease", "park"), [lease])
            self.assertEqual(complete("ls", "--server"), [server.endpoint])
            self.assertEqual(complete("completion"), ["bash", "zsh", "fish"])
            self.assertIn("apply", complete("pool"))


class Servers(unittest.TestCase):
    def test_who_asks_for_too_many_gpus_reads_what_there_is(self):
        with Server(gpus=2, memory=512 * MIB) as server:
            status, _, err = tendril("run", "-n", "3", "--", "true", server=server)
            self.assertEqual(status, 125)
            self.assertIn("2 of 3 slices found", err)
            free = r"has 2 GPUs with 1.00 and [\d.]+ MiB, 1.00 and [\d.]+ MiB free"
            self.assertRegex(err, free)
            self.assertTrue(eventually(lambda: not server.leases()))

    def test_a_server_that_is_down_does_not_hide_the_others(self):
        with socket.socket() as unused, Server() as server:
            unused.bind(("127.0.0.1", 0))  # nobody listens there
            down = f"127.0.0.1:{unused.getsockname()[1]}"
            shown_by = {"ls": "no leases on the servers that answered", "smi": "BUS ID"}
            for command, shown in shown_by.items():
                words = ("-s", server.endpoint, "-s", down)
                status, out, err = tendril(command, *words)
                self.assertEqual(status, 1)
                self.assertIn(shown, out)
                self.assertIn(down, err)

    def test_release_takes_several_numbers_and_names_those_that_are_none(self):
        with Server() as server:
            status, _, err = tendril("release", "7", "8", server=server)
            self.assertEqual(status, 1)
            for number in ("7", "8"):
                self.assertIn(number, err)

    def test_a_port_that_is_taken_is_named(self):
        with Server() as server:
            words = [*server.words]
            port = server.endpoint.rsplit(":", 1)[1]
            words[words.index("--port") + 1] = port
            status, _, err = tendril(*map(str, words))
            self.assertEqual(status, 1)
            self.assertIn(f"cannot listen on 127.0.0.1:{port}: another program listens there", err)

    def test_a_monitoring_library_that_is_not_there_is_said(self):
        with Server("--monitor", "/nonexistent/library.so") as server:
            self.assertTrue(eventually(lambda: "'/nonexistent/library.so'" in server.log()))


class Terminals(unittest.TestCase):
    def test_a_terminal_that_is_closed_ends_no_session(self):
        """The kernel sends SIGHUP to the terminal's foreground group, and some send it to the
        server alone: it reads its files again, whether it has any or not."""
        with Server(become={"start_new_session": True}) as server:
            hold = harness.PROGRAMS / "hold"
            program = harness.start("run", "--", hold, "1", "60", server=server)
            self.addCleanup(harness.end, program)
            self.assertIn("holding", program.stdout.readline())
            workers = server.workers()
            os.killpg(server.pid, signal.SIGHUP)
            server.process.send_signal(signal.SIGHUP)
            self.assertEqual(len(harness.listing(server)["leases"]), 1)
            time.sleep(0.3)
            self.assertEqual((server.process.poll(), program.poll()), (None, None), server.log())
            self.assertLessEqual(set(workers), set(server.workers()))

    def test_a_pools_scheduler_outlives_its_terminal(self):
        with harness.Pool() as pool:
            for _ in range(3):
                pool.process.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            self.assertEqual(pool.queue()["waiting"], [])


def on_a_terminal(columns, *words, server):
    """What the command writes to a terminal of so many columns, as lines."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    command = [harness.TENDRIL, *words, "--server", server.endpoint]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, env=harness.clean_environment()
    ) as process:
        os.close(theirs)
        written = b""
        try:
            while more := os.read(ours, 65536):
                written += more
        except OSError:
            pass  # the end of a terminal
        os.close(ours)
        process.wait(30)
    return written.decode().replace("\r\n", "\n").splitlines()


class Looks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(gpus=2)
        cls.program = harness.start(
            *("run", "-n", "2", "-p", "0.5", "--", harness.PROGRAMS / "hold", "1", "120"),
            server=cls.server,
        )
        assert "holding" in cls.program.stdout.readline()

    @classmethod
    def tearDownClass(cls):
        harness.end(cls.program)
        cls.server.stop()

    def test_a_terminal_gets_lines_that_fit_and_wide_gets_all(self):
        for words in (["ls"], ["smi"], ["top", "--once"], ["doctor", "--no-attach"]):
            lines = on_a_terminal(80, *words, server=self.server)
            self.assertEqual([line for line in lines if len(line) > 80], [], words)
        narrow = on_a_terminal(80, "ls", server=self.server)
        self.assertRegex(" ".join(narrow), r"left out: DATA.*--wide shows all")
        wide = on_a_terminal(80, "ls", "--wide", server=self.server)
        self.assertIn("DATA", wide[0])
        self.assertNotIn("left out", " ".join(wide))

    def test_what_is_no_terminal_gets_everything_without_escapes(self):
        for command in ("ls", "smi", "doctor"):
            status, out, err = tendril(command, server=self.server)
            self.assertEqual((status, err), (0, ""))
            self.assertNotIn("\x1b", out)
            self.assertNotIn("left out", out)
        pictures = harness.start("ls", "--watch", "--interval", "0.1", server=self.server)
        self.addCleanup(harness.end, pictures)
        text = "".join(pictures.stdout.readline() for _ in range(6))
        self.assertEqual(text.count("LEASE"), 3, text)
        self.assertNotIn("\x1b", text)

    def test_no_picture_on_a_terminal_has_a_color(self):
        for words in (["ls"], ["smi"], ["top", "--once"]):
            text = "\n".join(on_a_terminal(100, *words, server=self.server))
            self.assertNotRegex(text, "\x1b\\[[0-9;]*m")

    def test_filters_keep_what_was_asked_for(self):
        lease = harness.listing(self.server)["leases"][0]["lease"]
        for words in (["program=hold"], ["lease=%d" % lease], ["program=hold", "host="]):
            options = [each for word in words for each in ("--filter", word)]
            for command in (["ls"], ["top", "--once"]):
                self.assertIn("hold", tendril(*command, *options, server=self.server)[1])
        status, out, _ = tendril("ls", "--filter", "program=other", server=self.server)
        self.assertEqual((status, out), (0, "no leases\n"))
        status, out, err = tendril("ls", "--filter", "colour=red", server=self.server)
        self.assertEqual((status, out, err.count("\n")), (2, "", 1))
        status, _, err = tendril("top", "--sort", "colour", server=self.server)
        self.assertEqual(status, 2)
        self.assertIn("launches", err)

    def test_one_is_no_plural(self):
        out = tendril("top", "--once", "--sort", "memory", server=self.server)[1]
        self.assertIn(": 1 lease, 1 session", out.replace(") ", ": ").replace("): ", ": "))


class Missing(unittest.TestCase):
    """Parts of an installation that are not there."""

    def test_doctor_measures_a_slow_line(self):
        """In the minute that it has for that."""
        line = {"TENDRIL_TRANSPORT": "tcp", "TENDRIL_LINK": "200:8"}
        with Server() as server:
            status, out, err = tendril("doctor", server=server, timeout=120, **line)
        self.assertEqual(status, 0, out + err)
        self.assertRegex(out, r"bandwidth +ok +0\.00\d+ GB/s to the GPU, 0\.00\d+ GB/s from it")

    def test_doctor_is_not_content_without_the_client_library(self):
        with Server() as server:
            status, out, err = tendril("doctor", server=server, TENDRIL_CLIENT_DIR="/nonexistent")
            self.assertEqual((status, err), (1, ""))
            self.assertIn("NOT healthy", out)
            self.assertRegex(out, "client library +failed .*TENDRIL_CLIENT_DIR")
            self.assertEqual(tendril("doctor", server=server)[0], 0)

    def test_bench_names_the_program_that_is_missing(self):
        with tempfile.TemporaryDirectory(prefix="tendril-e2e-") as folder:
            alone = shutil.copy(harness.TENDRIL, folder)
            done = subprocess.run(
                [alone, "bench"],
                capture_output=True,
                text=True,
                env=harness.clean_environment(TENDRIL_CLIENT_DIR=str(harness.CLIENT.parent)),
                check=False,
            )
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"'{folder}/tendril-bench'; copy tendril-bench there", done.stderr)


class Settings(unittest.TestCase):
    """The file of serve --config."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tendril-e2e-")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "server.toml")

    def test_every_option_that_is_printed_can_be_read(self):
        for command in (["serve"], ["pool", "serve"]):
            text = tendril("config", "print", *command)[1]
            options = set(re.findall(r"--[a-z-]+", tendril(*command, "--help")[1]))
            self.assertGreater(len(options), 15)
            for option in options - {"--help", "--help-all", "--config", "--token"}:
                if re.search(rf"^  (-., )?{option}\b", tendril(*command, "--help")[1], re.M):
                    self.assertIn("\n#" + option[2:].replace("-", "_") + " = ", text)
            self.file.write_text(re.sub(r"^#([a-z_]+ = )", r"\1", text, flags=re.M))
            status, out, err = tendril("config", "check", *command, self.file)
            self.assertEqual((status, err), (0, ""))

    def test_what_cannot_be_read_is_named(self):
        for text, why in (
            ("\nwarn = 2", "line 2: there is no setting 'warn'; did you mean 'warm'?"),
            ("warm = 100000", "--warm"),
            ("turns = 'sometimes'", "--turns"),
        ):
            self.file.write_text(text)
            status, out, err = tendril("config", "check", "serve", self.file)
            self.assertEqual((status, out), (1, ""))
            self.assertIn(why, err)
            self.assertEqual(tendril("serve", "--config", self.file)[0], 2)

    def test_a_server_takes_its_settings_from_a_file_and_words_come_first(self):
        self.file.write_text(f"driver = '{harness.DRIVER}'\nport = 1\nverbose = true\n")
        with Server("--config", self.file, gpus=2) as server:
            self.assertNotEqual(server.port, 1)
            self.assertEqual(len(harness.listing(server, "smi")["gpus"]), 2)


class Manager(unittest.TestCase):
    """What serve tells the service manager, which is a socket of the test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tendril-e2e-")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.bind(self.path)
        self.socket.settimeout(10)

    def told(self, word):
        """Waits for a message with this line, and returns it."""
        while True:
            message = self.socket.recv(4096).decode()
            if word in message.split("\n"):
                return message

    def test_it_hears_ready_watchdog_reload_and_stop(self):
        environment = {"NOTIFY_SOCKET": self.path, "WATCHDOG_USEC": "200000"}
        with Server(environment=environment) as server:
            self.assertIn("STATUS=lends 1 GPU on 127.0.0.1:", self.told("READY=1"))
            for _ in range(3):
                self.told("WATCHDOG=1")
            server.process.send_signal(signal.SIGHUP)
            self.assertRegex(self.told("RELOADING=1"), r"MONOTONIC_USEC=\d+")
            self.told("READY=1")
            for worker in eventually(server.workers, 10):
                words = pathlib.Path(f"/proc/{worker}/environ").read_bytes()
                self.assertNotIn(b"NOTIFY_SOCKET", words)
            server.process.terminate()
            self.told("STOPPING=1")
            server.process.wait(10)

    def test_a_watchdog_of_another_process_is_not_fed(self):
        environment = {
            "NOTIFY_SOCKET": self.path,
            "WATCHDOG_USEC": "100000",
            "WATCHDOG_PID": str(os.getpid()),
        }
        with Server(environment=environment):
            self.told("READY=1")
            self.socket.settimeout(0.5)
            self.assertRaises(TimeoutError, self.told, "WATCHDOG=1")

    def test_a_pools_scheduler_tells_too(self):
        with Pool(environment={"NOTIFY_SOCKET": self.path}) as pool:
            self.assertIn("STATUS=serves a pool on", self.told("READY=1"))
            pool.process.terminate()
            self.told("STOPPING=1")


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
