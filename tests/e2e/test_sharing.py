# SPDX-License-Identifier: Apache-2.0
"""Several processes of one program that share GPU memory and events, and what happens when some of
them die."""

import os
import pathlib
import signal
import subprocess
import unittest

import harness
from harness import MIB, PROGRAMS, Server, eventually, start

GONE = (
    "CUDA_ERROR_INVALID_VALUE",
    "CUDA_ERROR_INVALID_HANDLE",
    "CUDA_ERROR_MAP_FAILED",
    "CUDA_ERROR_NOT_PERMITTED",
)

AHEAD = 8 * MIB  # what a client pays ahead at first (client/cuda/memory/device_arena.h)


class Shell:
    """One process. `do` sends a command and returns the answer."""

    def __init__(self, environment):
        self.process = subprocess.Popen(
            [PROGRAMS / "ipc_shell"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.words = None

    def ready(self):
        self.expect(self.process.stdout.readline())
        return self

    def do(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def expect(self, line):
        if not line.startswith("ok"):
            raise AssertionError(
                f"{line!r}: {self.process.stderr.read() if self.process.poll() is not None else ''}"
            )
        return line[2:].strip()

    def must(self, *words):
        return self.expect(self.do(*words))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Its last words on stderr."""
        _, err = self.process.communicate(timeout=30)
        return err

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Run:
    """A lease of `tendril run`, whose programs are started here."""

    def __init__(self, test, server, *options, **environment):
        self.test = test
        self.process = start("run", *options, "--", "sleep", "600", server=server, **environment)
        test.addCleanup(harness.end, self.process)
        sleeper = eventually(
            lambda: [
                c
                for c in harness.children(self.process.pid)
                if harness.command_line(c)[:1] == [b"sleep"]
            ],
            10,
            "the program",
        )[0]
        words = pathlib.Path(f"/proc/{sleeper}/environ").read_bytes().split(b"\0")
        self.environment = {
            k.decode(): v.decode() for k, _, v in (word.partition(b"=") for word in words if word)
        }
        self.lease = int(self.environment["TENDRIL_LEASES"].split("=")[1].split(":")[0])
        test.addCleanup(os.kill, sleeper, signal.SIGKILL)

    def shells(self, count):
        """Started at once, as launchers do."""
        shells = [Shell(self.environment) for _ in range(count)]
        for shell in shells:
            self.test.addCleanup(shell.close)
        return [shell.ready() for shell in shells]


@harness.needs_client
class Sharing(unittest.TestCase):
    def setUp(self):
        self.server = Server(gpus=2)
        self.addCleanup(self.server.stop)

    def processes(self, run):
        return next(
            lease["processes"] for lease in self.server.leases() if lease["lease"] == run.lease
        )

    def each_transport(self):
        for transport in ("tcp", "shm"):
            with self.subTest(transport=transport):
                yield Run(self, self.server, "-p", "0.5", TENDRIL_TRANSPORT=transport)

    def test_processes_of_a_lease_are_one_user(self):
        run = Run(self, self.server, "-p", "0.5")
        run.shells(4)
        lines = [line for line in self.server.log().splitlines() if " on lease " in line]
        users = {
            harness.status_field(int(line.rsplit("worker ", 1)[1]), "Uid")[0] for line in lines
        }
        self.assertEqual(len(lines), 4)
        self.assertEqual(
            len(users), 1, "the driver shares memory between processes of one user only"
        )
        if os.geteuid() == 0:
            self.assertNotIn("0", users)

    def test_a_chain_of_processes(self):
        """Each waits for the one before by an event, adds to the first one's memory, and records
        its own event."""
        for run in self.each_transport():
            first, *others = shells = run.shells(3)
            first.must("alloc", 2)
            first.must("fill", 100)
            handle = first.must("export")
            for shell in others:
                shell.must("open", handle)
            for shell in shells:
                shell.must("event")
            for before, shell in zip([shells[-1], *shells], shells):
                shell.must("open_event", before.must("export_event"))
            for _ in range(10):
                for shell in shells:
                    shell.must("wait")
                    shell.must("add", 3)
                    shell.must("record")
            first.must("wait")
            self.assertEqual(first.must("read"), str(100 + 10 * 3 * 3))

    def test_exporter_killed(self):
        for run in self.each_transport():
            exporter, opener = run.shells(2)
            exporter.must("alloc", 2)
            exporter.must("fill", 7)
            exporter.must("event")
            exporter.must("add", 20)
            exporter.must("record")
            handle, event = exporter.must("export"), exporter.must("export_event")
            opener.must("open", handle)
            opener.must("open_event", event)
            opener.must("wait")
            exporter.kill()
            eventually(lambda: opener.do("query") == "ok\n", 10, "the end of what was recorded")
            opener.must("add", 1)
            self.assertRegex(opener.must("read"), r"^\d+$")
            opener.must("fill", 8)
            self.assertEqual(opener.must("read"), "8")
            opener.must("close")
            eventually(
                lambda: opener.do("open", handle).strip() in GONE, 5, "the end of the handle"
            )
            self.assertIn(opener.do("open_event", event).strip(), GONE)
            opener.must("alloc", 2)
            opener.must("fill", 9)

    def test_opener_killed(self):
        for run in self.each_transport():
            exporter, opener = run.shells(2)
            exporter.must("alloc", 2)
            exporter.must("fill", 7)
            opener.must("open", exporter.must("export"))
            opener.must("add", 50)
            opener.kill()
            # Until then its kernels may still run, as on any GPU.
            eventually(lambda: self.processes(run) == 1, 5, "the end of the other one's session")
            exporter.must("fill", 5)
            exporter.must("free")
            exporter.must("alloc", 2)
            exporter.must("fill", 6)
            self.assertEqual(exporter.must("read"), "6")

    def test_memory_is_charged_once(self):
        run = Run(self, self.server, "-m", "400M")
        exporter, opener, third = run.shells(3)
        before = int(third.must("info"))
        exporter.must("alloc", 100)
        handle = exporter.must("export")

        def charged():
            """Without what the exporter has paid ahead, which it may keep or give back."""
            all_of_it = before - int(third.must("info"))
            return all_of_it - all_of_it % (100 * MIB) if all_of_it % (100 * MIB) <= AHEAD else None

        self.assertEqual(charged(), 100 * MIB)
        opener.must("open", handle)
        opener.must("open", handle)
        self.assertEqual(charged(), 100 * MIB)
        # Freed, it lives on because it is open elsewhere. The slice still pays, once.
        exporter.must("free")
        eventually(lambda: charged() == 100 * MIB, 5, "the charge for what is open")
        opener.must("close")
        # The charge moves from one process to the other, which takes it before the first gives it
        # back.
        eventually(lambda: charged() == 100 * MIB, 5, "the charge for what is open")
        opener.must("close")
        eventually(lambda: charged() == 0, 5, "the memory back")

    def test_memory_of_a_dead_exporter_is_charged(self):
        run = Run(self, self.server, "-m", "400M")
        exporter, opener, third = run.shells(3)
        exporter.must("alloc", 50)  # its own
        exporter.must("alloc", 100)
        opener.must("open", exporter.must("export"))
        charged = int(third.must("info"))
        exporter.kill()
        eventually(
            lambda: int(third.must("info")) - charged >= 50 * MIB, 5, "the exporter's own memory"
        )
        self.assertLess(
            int(third.must("info")) - charged, 100 * MIB, "what is open elsewhere is still paid for"
        )
        opener.kill()
        eventually(lambda: int(third.must("info")) - charged >= 150 * MIB, 5, "the memory back")

    def test_two_leases(self):
        one, other = (Run(self, self.server, "-p", "0.3").shells(1)[0] for _ in range(2))
        one.must("alloc", 2)
        handle = one.must("export")
        answer = other.do("open", handle).strip()
        if os.geteuid() == 0:
            self.assertEqual(answer, "CUDA_ERROR_NOT_PERMITTED")
            self.assertIn("under one 'tendril run'", other.end())
        else:
            self.assertEqual(answer, "ok")

    def test_handle_of_another_server(self):
        with Server() as elsewhere:
            one = Run(self, self.server, "-p", "0.3").shells(1)[0]
            other = Run(self, elsewhere, "-p", "0.3").shells(1)[0]
            one.must("alloc", 2)
            self.assertEqual(
                other.do("open", one.must("export")).strip(), "CUDA_ERROR_INVALID_VALUE"
            )
            self.assertIn("of a GPU server that this process has no GPU of", other.end())

    def test_two_servers_whose_addresses_are_equal(self):
        with Server() as elsewhere:
            owner, opener = Run(self, [self.server, elsewhere], "-n", "2", "-p", "0.9").shells(2)
            # Both servers would open the memory at the same address.
            for device in (0, 1):
                owner.must("device", device)
                owner.must("alloc", 2)
                owner.must("fill", 70 + device)
                opener.must("device", device)
                opener.must("open", owner.must("export"))
            for device in (0, 1):
                opener.must("device", device)
                self.assertEqual(opener.must("read"), str(70 + device))
                opener.must("fill", 80 + device)
                opener.must("close")
                owner.must("device", device)
                self.assertEqual(owner.must("read"), str(80 + device))

    def test_handles_that_are_none(self):
        exporter, opener = Run(self, self.server, "-p", "0.5").shells(2)
        exporter.must("alloc", 2)
        exporter.must("event")
        handle, event = exporter.must("export"), exporter.must("export_event")
        flipped = [
            handle[:at] + ("0" if handle[at] != "0" else "1") + handle[at + 1 :]
            for at in (0, 17, 33, 65, 95)
        ]
        for wrong in ["", "00" * 64, "ff" * 64, event, *flipped]:
            # A descriptor that could be a handle counts as one of memory that is gone.
            answer = opener.do("open", wrong).strip()
            self.assertIn(answer, ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_PERMITTED"), wrong)
            self.assertEqual(
                opener.do("open_event", handle if wrong == event else wrong).strip(),
                "CUDA_ERROR_INVALID_VALUE",
                wrong,
            )
        opener.must("open", handle)
        opener.must("open_event", event)


if __name__ == "__main__":
    unittest.main()
