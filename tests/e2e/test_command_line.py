# SPDX-License-Identifier: Apache-2.0
"""What the command line says to somebody who mistypes, asks for too much, or has a server down: one
line that names the cause and the way on, and the documented exit status."""

import socket
import unittest

from harness import MIB, Server, eventually, tendril


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


if __name__ == "__main__":
    unittest.main()
