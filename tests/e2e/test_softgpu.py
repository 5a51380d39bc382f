# SPDX-License-Identifier: Apache-2.0
"""The software GPU as a stand-in for hardware: what workers share, how its faults look to a program
behind Tendril, its monitoring, and its clocks."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

import harness
from harness import BUILD, DRIVER, PROGRAMS, Server, eventually, start, tendril

NVML = BUILD / "lib" / "libtendril-softgpu-nvml.so"
TOOL = BUILD / "bin" / "tendril-softgpu"
VECTOR_ADD = str(PROGRAMS / "vector_add")


class Board:
    """A board in a folder of its own, and the tool for it."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="tendril-board-")
        self.path = os.path.join(self.folder, "board")
        # Workers may run as users of their own.
        os.chmod(self.folder, 0o755)

    def environment(self, **more):
        return {
            "TENDRIL_SOFTGPU_BOARD": self.path,
            **{"TENDRIL_SOFTGPU_" + key: value for key, value in more.items()},
        }

    def tool(self, *arguments):
        done = subprocess.run(
            [TOOL, *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=harness.clean_environment(**self.environment()),
        )
        if done.returncode != 0:
            raise AssertionError("tendril-softgpu: " + done.stderr)
        return done.stdout

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class OnABoard(unittest.TestCase):
    def setUp(self):
        self.board = Board()
        self.addCleanup(self.board.remove)

    def serve(self, *options, **knobs):
        server = Server(*options, environment=self.board.environment(**knobs))
        self.addCleanup(server.stop)
        return server

    def start_hold(self, server, mib, *options):
        process = start(
            "run", *options, "--", str(PROGRAMS / "hold"), str(mib), "60", server=server
        )
        self.addCleanup(harness.end, process)
        line = process.stdout.readline()
        self.assertIn("holding", line)
        return process


class ControlSocket(OnABoard):
    """Knobs, set by lines to a socket while a server runs."""

    def listen(self):
        path = os.path.join(self.board.folder, "control")
        listener = subprocess.Popen(
            [TOOL, "listen", path], env=harness.clean_environment(**self.board.environment())
        )
        self.addCleanup(harness.end, listener)
        eventually(lambda: os.path.exists(path))
        client = socket.socket(socket.AF_UNIX)
        self.addCleanup(client.close)
        eventually(lambda: client.connect_ex(path) == 0)
        lines = client.makefile("rw")
        self.addCleanup(lines.close)
        return lines

    def ask(self, lines, command):
        lines.write(command + "\n")
        lines.flush()
        answer = []
        while not answer or answer[-1] not in ("ok", "failed"):
            answer.append(lines.readline().rstrip("\n"))
        return answer

    def add(self, server):
        return tendril("run", "--", VECTOR_ADD, server=server)

    def test_knobs_take_hold_and_go(self):
        server = self.serve()
        lines = self.listen()
        self.assertEqual(self.add(server)[0], 0)
        self.assertEqual(self.ask(lines, "set fail=cuLaunchKernel:1+:719"), ["ok"])
        status, out, err = self.add(server)
        self.assertNotEqual(status, 0)
        self.assertIn("LAUNCH_FAILED", out + err)
        self.assertIn("fail=cuLaunchKernel:1+:719", self.ask(lines, "show"))
        self.assertEqual(self.ask(lines, "clear"), ["ok"])
        self.assertEqual(self.add(server)[0], 0)

    def test_what_does_not_parse_is_refused(self):
        self.serve()
        lines = self.listen()
        self.assertEqual(self.ask(lines, "set no_such_knob=1")[-1], "failed")
        self.assertEqual(self.ask(lines, "dance")[-1], "failed")
        self.assertEqual(self.ask(lines, "show")[-1], "ok")


class Page(unittest.TestCase):
    def test_every_knob_is_on_it(self):
        page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "softgpu.md").read_text(
            encoding="utf-8"
        )
        knobs = subprocess.run(
            [TOOL, "knobs"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            env=harness.clean_environment(),
        ).stdout
        names = [line.split()[0] for line in knobs.splitlines()]
        self.assertGreater(len(names), 20)
        rows = "\n".join(line for line in page.splitlines() if line.startswith("| `"))
        self.assertEqual([name for name in names if f"`{name}`" not in rows], [])


@harness.needs_client
class Monitoring(OnABoard):
    def test_busy_gpus_are_seen_as_busy(self):
        # Each second `hold` launches one kernel, which is made to take 0.9 s of it.
        server = self.serve("--monitor", str(NVML), MODE="paced", KERNEL_US="affine:900000")
        self.start_hold(server, 16, "-p", "0.5")

        def busy():
            gpu = harness.listing(server, "smi")["gpus"][0]
            return gpu if (gpu["utilization_percent"] or 0) >= 30 else None

        gpu = eventually(busy, 20, "a busy GPU")
        percent = gpu["utilization_percent"]
        self.assertAlmostEqual(
            gpu["temperature_c"], 30 + 45 * percent // 100, delta=12
        )  # read moments later
        self.assertGreater(gpu["power_mw"] if "power_mw" in gpu else gpu["power_w"] * 1000, 75_000)
        shown = self.board.tool("show")
        self.assertRegex(shown, r"device 0: .* 16 of 1024 MiB")

    def test_the_dead_are_forgotten(self):
        server = self.serve("--monitor", str(NVML))
        process = self.start_hold(server, 64)
        self.assertRegex(self.board.tool("show"), r"process \d+: 64 MiB")
        os.kill(harness.children(process.pid)[0], 9)
        eventually(
            lambda: "64 MiB" not in self.board.tool("show"),
            5,
            "the end of the dead worker's memory",
        )
        eventually(
            lambda: harness.listing(server, "smi")["gpus"][0]["utilization_percent"] == 0,
            10,
            "an idle GPU",
        )


@harness.needs_client
class Faults(OnABoard):
    def run_program(self, server, *command, status=1):
        got, out, err = tendril("run", "--", *command, server=server, timeout=60)
        self.assertEqual(got, status, out + err)
        return out

    def test_each_is_seen_as_a_driver_tells_it(self):
        server = self.serve()
        table = [
            ("fail = cuMemCreate:1+:2", "CUDA_ERROR_OUT_OF_MEMORY"),
            (
                "fail = cuModuleLoadData:1+:209,cuModuleLoadDataEx:1+:209,cuLibraryLoadData:1+:209",
                "CUDA_ERROR_NO_BINARY_FOR_GPU",
            ),
            ("oom_after_mb = 1", "CUDA_ERROR_OUT_OF_MEMORY"),
            ("ecc = 1", "CUDA_ERROR_ECC_UNCORRECTABLE"),
            ("hang = vector_add; steps = 1000", "CUDA_ERROR_LAUNCH_TIMEOUT"),
            ("fail = cuLaunchKernel:1:700,cuLaunchKernelEx:1:700", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ]
        for knobs, code in table:
            with self.subTest(knobs=knobs):
                self.board.tool("set", knobs)
                try:
                    self.assertIn(code, self.run_program(server, VECTOR_ADD, "1000000"))
                finally:
                    self.board.tool("clear")
                eventually(server.settled, 10, "the server's rest")
                self.assertIn("PASS", self.run_program(server, VECTOR_ADD, status=0))

    def test_a_lost_device_while_a_program_runs(self):
        server = self.serve()
        process = self.start_hold(server, 16)
        self.board.tool("set", "device.0.lost = 1")
        out = process.stdout.read()
        self.assertIn("CUDA_ERROR_UNKNOWN", out)
        self.assertEqual(process.wait(10), 1)

    def test_a_kernel_that_never_ends_dies_with_its_program(self):
        server = self.serve()
        self.board.tool("set", "hang = vector_add")
        process = start("run", "--", VECTOR_ADD, server=server)
        self.addCleanup(harness.end, process)
        eventually(lambda: "busy" in self.board.tool("show") and server.leases(), 10, "the lease")
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(1.5)
        process.terminate()
        process.wait(10)
        self.board.tool("clear")
        eventually(server.settled, 10, "the server's rest")
        self.assertIn("PASS", self.run_program(server, VECTOR_ADD, status=0))

    def test_a_wrong_bit_is_noticed_by_who_checks(self):
        server = self.serve()
        self.board.tool("set", "flip_copy = 3", "seed = 11")
        self.assertIn("FAIL", self.run_program(server, VECTOR_ADD))

    def test_a_worker_that_aborts_is_a_lost_gpu(self):
        server = self.serve()
        self.board.tool("set", "abort = cuMemCreate:1")
        out = self.run_program(server, VECTOR_ADD)
        self.assertRegex(out, r"CUDA_ERROR_\w+ \(\d+\)\nFAIL")
        self.board.tool("clear")
        eventually(server.settled, 10, "the server's rest")
        self.assertIn("PASS", self.run_program(server, VECTOR_ADD, status=0))

    def test_slow_contexts_and_late_work_are_only_slow(self):
        server = self.serve(CONTEXT_MS="300", DELAY_US="20000", SEED="4", SLOW="2")
        self.assertIn("PASS", self.run_program(server, VECTOR_ADD, status=0))


@harness.needs_client
class Direct(OnABoard):
    """Programs on the software GPU itself, as several processes on one machine are."""

    def setUp(self):
        super().setUp()
        self.libraries = tempfile.mkdtemp(prefix="tendril-direct-")
        self.addCleanup(shutil.rmtree, self.libraries)
        os.symlink(DRIVER, os.path.join(self.libraries, "libcuda.so.1"))

    def start(self, *command, **knobs):
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **harness.clean_environment(**self.board.environment(**knobs)),
                "LD_LIBRARY_PATH": self.libraries,
            },
        )
        self.addCleanup(harness.end, process)
        return process

    def test_a_full_device_is_full_for_whoever_asks(self):
        first = self.start(str(PROGRAMS / "hold"), "700", "60")
        self.assertIn("holding", first.stdout.readline())
        second = self.start(str(PROGRAMS / "hold"), "700", "60")
        self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", second.stdout.read())
        first.kill()
        first.wait()
        third = self.start(str(PROGRAMS / "hold"), "700", "1")
        self.assertIn("PASS", third.stdout.read())

    def times(self, seats):
        """What each of several programs that share a device sees, on one simulated clock."""
        knobs = {
            "MODE": "virtual",
            "QUORUM": str(seats),
            "KERNEL_US": "affine:1500",
            "PATIENCE_MS": "60000",
            "THREADS": "1",
        }
        running = [
            self.start(str(PROGRAMS / "event_times"), "12", str(2 + seat), SEAT=str(seat), **knobs)
            for seat in range(seats)
        ]
        seen = [process.stdout.read() for process in running]
        for process in running:
            process.wait(60)
        pathlib.Path(self.board.path).unlink()
        return seen

    def test_the_same_programs_see_the_same_times(self):
        alone = self.times(1)
        self.assertIn("PASS", alone[0])
        together = self.times(3)
        for text in together:
            self.assertIn("PASS", text)
        self.assertEqual(together, self.times(3))
        sum_of = lambda text: float(re.search(r"sum: ([\d.]+)", text)[1])
        # 12 rounds of 2 kernels of 1.5 ms, and with two others in the way at least twice that.
        self.assertAlmostEqual(sum_of(alone[0]), 36, delta=0.5)
        self.assertGreater(sum_of(together[0]), 72)


@harness.needs_client
class SimulatedBehindTendril(OnABoard):
    def test_hours_pass_at_once(self):
        server = self.serve(MODE="virtual", KERNEL_US="affine:3600e6", SWITCH_US="0")
        for transport in ("tcp", "shm"):
            with self.subTest(transport=transport):
                status, out, err = tendril(
                    "run",
                    "--",
                    str(PROGRAMS / "event_times"),
                    "3",
                    "1",
                    server=server,
                    TENDRIL_TRANSPORT=transport,
                )
                self.assertEqual(status, 0, out + err)
                self.assertEqual(re.findall(r"round \d: ([\d.]+)", out), ["3600000.0000"] * 3)

    def test_two_programs_share_a_gpu_the_same_way_each_time(self):
        def once():
            # Turns run on the host's time: a worker that waits for one holds the simulated clock
            # up.
            server = self.serve(
                "--turns",
                "off",
                MODE="virtual",
                QUORUM="2",
                KERNEL_US="affine:1500",
                PATIENCE_MS="60000",
            )
            running = [
                start(
                    "run",
                    "-p",
                    "0.5",
                    "--",
                    str(PROGRAMS / "event_times"),
                    "10",
                    "3",
                    server=server,
                )
                for _ in range(2)
            ]
            seen = sorted(process.communicate(timeout=60)[0] for process in running)
            server.stop()
            pathlib.Path(self.board.path).unlink()
            return seen

        first = once()
        for text in first:
            self.assertIn("PASS", text)
            # 45 ms of work, with another as large in the way.
            self.assertGreater(float(re.search(r"sum: ([\d.]+)", text)[1]), 90)
        self.assertEqual(first, once())

    def test_work_is_not_executed(self):
        server = self.serve(MODE="noexec", KERNEL_US="affine:10")
        status, out, _ = tendril(
            "run", "--", str(PROGRAMS / "event_times"), "3", "1", server=server
        )
        self.assertEqual(status, 1)  # nothing was computed
        self.assertEqual(re.findall(r"round \d: ([\d.]+)", out), ["0.0100"] * 3)


if __name__ == "__main__":
    unittest.main()
