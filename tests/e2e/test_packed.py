# SPDX-License-Identifier: Apache-2.0
"""Packed slices. Their workers are clients of a multi-process service that the server starts and
ends. A script stands in for the vendor's service. Only a GPU can show that processors are really
divided (tools/gpu)."""

import os
import pathlib
import stat
import tempfile
import unittest

import harness
from harness import Server, children, command_line, eventually, tendril

SERVICE = """#!/bin/sh
if [ "$1" = -f ]; then
  : > "$CUDA_MPS_PIPE_DIRECTORY/control"
  while [ ! -e "$CUDA_MPS_PIPE_DIRECTORY/quit" ]; do sleep 0.05; done
  exit 0
fi
: > "$CUDA_MPS_PIPE_DIRECTORY/quit"
"""


def option_of(words, name):
    return words[words.index(name) + 1].decode() if name in words else None


class Packed(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tendril-e2e-packed-")
        os.chmod(self.folder.name, 0o755)
        self.service = pathlib.Path(self.folder.name, "service")
        self.service.write_text(SERVICE)
        self.service.chmod(self.service.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)

    def tearDown(self):
        self.folder.cleanup()

    def hold(self, server, *options):
        return harness.start(
            "run", *options, "--", harness.PROGRAMS / "hold", "4", "30", server=server
        )

    def test_workers_share_a_service(self):
        with Server("--packed-control", self.service, gpus=1) as server:
            tenants = [self.hold(server, "--packed", "-p", part) for part in ("1/4", "0.6")]
            try:
                lines = lambda: [
                    line
                    for line in map(command_line, children(server.pid))
                    if b"--packed-folder" in line
                ]
                workers = eventually(
                    lambda: len(lines()) == 2 and lines(), 20, "two packed workers"
                )
                folders = {option_of(words, b"--packed-folder") for words in workers}
                self.assertEqual(len(folders), 1)
                # The GPU has four processors, and they go in pairs.
                self.assertEqual(
                    {option_of(words, b"--packed-percent") for words in workers}, {"50", "100"}
                )
                self.assertTrue(os.path.exists(folders.pop() + "/control"))
                self.assertEqual(
                    [s["packed"] for lease in server.leases() for s in lease["slices"]],
                    [True, True],
                )
                self.assertIn("packed", tendril("ls", server=server)[1])
                status, _, error = tendril("run", "-p", "0.1", "--", "/bin/true", server=server)
                self.assertEqual(status, harness.NO_LEASE)
                self.assertIn("for packed slices only", error)
            finally:
                for tenant in tenants:
                    harness.end(tenant)
            eventually(lambda: not server.leases(), 10, "the end of the leases")
            status, _, error = tendril("run", "-p", "0.1", "--", "/bin/true", server=server)
            self.assertEqual(status, 0, error)

    def test_without_the_service_the_refusal_names_it(self):
        with Server("--packed-control", "/nonexistent/service", gpus=1) as server:
            vector_add = harness.PROGRAMS / "vector_add"
            status, out, error = tendril(
                "run", "--packed", "-p", "1/2", "--", vector_add, server=server
            )
            self.assertEqual((status, out), (harness.NO_LEASE, ""), "the program was started")
            self.assertIn("this server has no '/nonexistent/service'; install it there", error)
            self.assertEqual(error.count("\n"), 1, error)
            status, out, error = tendril("run", "-p", "1/2", "--", vector_add, server=server)
            self.assertEqual(status, 0, error)


if __name__ == "__main__":
    unittest.main()
