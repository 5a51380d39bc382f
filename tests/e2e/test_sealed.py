# SPDX-License-Identifier: Apache-2.0
"""Sealed sessions, seen from outside: what a listener between program and server learns, and what
whoever changes, repeats or imitates the traffic gets."""

import os
import socket
import subprocess
import sys
import tempfile
import unittest

from harness import CLIENT, PROGRAMS, TENDRIL, Server, clean_environment, eventually
from support.relay import Relay

TOKEN = "a token of more than sixteen letters"
# Words of the programs' device code, which travels when a program begins.
IN_CODE = (b".version", b".entry", b".visible")
# Attaches, with a handler of SIGCHLD, while another thread waits for any child.
CHILDLESS = """
import ctypes, os, signal, threading, time
seen, ended = [], threading.Event()
signal.signal(signal.SIGCHLD, lambda number, frame: seen.append("a signal"))
def wait():
    while not ended.is_set():
        try:
            seen.append(f"child {os.waitpid(-1, os.WNOHANG)[0]}")
        except ChildProcessError:
            pass
        time.sleep(0.0002)
waiter = threading.Thread(target=wait)
waiter.start()
status = ctypes.CDLL("libcuda.so.1").cuInit(0)
time.sleep(0.2)
ended.set()
waiter.join()
print("cuInit", status, "seen", seen[:5])
"""


def attach(endpoint, program="vector_add", **environment):
    """Runs a program without a launcher; (status, all that it wrote)."""
    return attach_command(endpoint, [PROGRAMS / program], **environment)


def attach_command(endpoint, command, **environment):
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
        env=clean_environment(
            LD_LIBRARY_PATH=str(CLIENT.parent),
            TENDRIL_SERVERS=endpoint,
            TENDRIL_TRANSPORT="tcp",
            TENDRIL_LOG="info",
            USER="somebody-with-a-name",
            **environment,
        ),
    )
    return done.returncode, done.stdout.decode(errors="replace")


class SealedTest(unittest.TestCase):
    def serve(self, *options):
        token_file = os.path.join(self.folder(), "token")
        with open(token_file, "w", encoding="ascii") as file:
            file.write(TOKEN)
        os.chmod(token_file, 0o600)
        server = Server("--token-file", token_file, *options)
        self.addCleanup(server.stop)
        return server

    def folder(self):
        folder = tempfile.TemporaryDirectory(prefix="tendril-sealed-")
        self.addCleanup(folder.cleanup)
        return folder.name

    def test_a_listener_learns_nothing(self):
        server = self.serve("--encrypt", "always")
        with Relay(server.port) as relay:
            status, output = attach(relay.endpoint, TENDRIL_TOKEN=TOKEN)
        self.assertEqual(status, 0, output)
        self.assertIn("sealed(tcp)", output)
        seen = relay.everything()
        self.assertGreater(len(seen), 10_000)
        for secret in (TOKEN.encode(), b"somebody-with-a-name", b"vector_add", *IN_CODE):
            self.assertFalse(secret in seen, secret)

    def test_without_sealing_the_secret_still_does_not_travel(self):
        server = self.serve("--encrypt", "never")
        with Relay(server.port) as relay:
            status, output = attach(relay.endpoint, TENDRIL_TOKEN=TOKEN)
        self.assertEqual(status, 0, output)
        seen = relay.everything()
        self.assertFalse(TOKEN.encode() in seen)
        self.assertFalse(b"somebody-with-a-name" in seen)
        self.assertTrue(any(word in seen for word in IN_CODE), "the test looks for the wrong words")

    def test_changed_bytes_end_the_session(self):
        server = self.serve("--encrypt", "always")
        passed = {}

        def change(connection, to_server, data):
            before = passed.get((connection, to_server), 0)
            passed[connection, to_server] = before + len(data)
            if connection > 0 and not to_server and before > 1000:
                return bytes([data[0] ^ 1]) + data[1:]
            return data

        with Relay(server.port, change) as relay:
            status, output = attach(relay.endpoint, TENDRIL_TOKEN=TOKEN)
        self.assertNotEqual(status, 0, output)
        eventually(lambda: len(server.workers()) <= server.warm, 10, "the session's end")

    def test_a_repeated_handshake_is_refused(self):
        server = self.serve()
        with Relay(server.port) as relay:
            status, output = attach(relay.endpoint, TENDRIL_TOKEN=TOKEN)
        self.assertEqual(status, 0, output)
        said = bytes(relay.recorded[0][0])[:4096]  # hello and the request, from the attaching side
        with socket.create_connection(("127.0.0.1", server.port)) as again:
            again.settimeout(10)
            again.sendall(said)
            heard = b""
            while True:
                try:
                    data = again.recv(4096)
                except ConnectionResetError:
                    break
                if not data:
                    break
                heard += data
        self.assertIn(b"repeats what another client sent", heard)

    def test_an_impostor_learns_and_gives_nothing(self):
        server = self.serve()

        def change(connection, to_server, data):
            # The impostor answers attach with the client's own message.
            if connection == 0 and not to_server and len(relay.recorded[0][1]) > 600:
                return bytes(data[:40]) + os.urandom(len(data) - 40)
            return data

        with Relay(server.port, change) as relay:
            status, output = attach(relay.endpoint, TENDRIL_TOKEN=TOKEN)
        self.assertNotEqual(status, 0)
        self.assertFalse(TOKEN.encode() in relay.everything())

    def test_wrong_and_missing_tokens_have_their_own_texts(self):
        server = self.serve()
        status, output = attach(server.endpoint, TENDRIL_TOKEN="another token of sixteen letters")
        self.assertNotEqual(status, 0)
        self.assertIn("does not know this server's token", output)
        status, output = attach(server.endpoint)
        self.assertNotEqual(status, 0)
        self.assertIn("wants a token", output)

    def command_with_token(self):
        command = os.path.join(self.folder(), "tendril")
        with open(command, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\nexport TENDRIL_TOKEN="{TOKEN}"\nexec "{TENDRIL}" "$@"\n')
        os.chmod(command, 0o755)
        return command

    def test_the_command_is_no_child_of_the_program(self):
        server = self.serve()
        program = [sys.executable, "-c", CHILDLESS]
        command = self.command_with_token()
        status, output = attach_command(server.endpoint, program, TENDRIL_COMMAND=command)
        self.assertEqual(status, 0, output)
        self.assertIn("cuInit 0 seen []", output)
        eventually(lambda: len(server.workers()) <= server.warm, 10, "the session's end")

    def test_a_program_without_launcher_asks_through_the_command(self):
        server = self.serve()
        command = self.command_with_token()
        status, output = attach(server.endpoint, TENDRIL_COMMAND=command)
        self.assertEqual(status, 0, output)
        eventually(lambda: len(server.workers()) <= server.warm, 10, "the session's end")
        status, output = attach(server.endpoint, TENDRIL_COMMAND="/nonexistent")
        self.assertNotEqual(status, 0)
        self.assertIn("TENDRIL_COMMAND", output)

    def test_a_client_may_insist(self):
        server = self.serve()  # trusts this host
        status, output = attach(server.endpoint, TENDRIL_TOKEN=TOKEN, TENDRIL_ENCRYPT="always")
        self.assertEqual(status, 0, output)
        self.assertIn("sealed(tcp)", output)
        status, output = attach(server.endpoint, TENDRIL_TOKEN=TOKEN)
        self.assertEqual(status, 0, output)
        self.assertNotIn("sealed(tcp)", output)


if __name__ == "__main__":
    unittest.main()
