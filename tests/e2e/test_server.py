# SPDX-License-Identifier: Apache-2.0
"""The server as its operator meets it: starting, tokens, workers' isolation, listing, leasing,
doctor, and strangers at the port. Needs no client library."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import harness
from harness import MIB, Server, eventually, tendril

SECRET = "a-token-of-some-length"


class Starting(unittest.TestCase):
    def serve(self, *options, **environment):
        """Runs a server that is expected to refuse to start."""
        done = subprocess.run(
            [harness.TENDRIL, "serve", "--port", "0", *options],
            capture_output=True,
            text=True,
            timeout=60,
            env=harness.clean_environment(**environment),
            check=False,
        )
        return done.returncode, done.stderr

    def test_a_warm_worker_has_pinned_its_memory(self):
        with Server(
            environment={"TENDRIL_SOFTGPU_TRACE": "1"}
        ) as server:  # else the first program waits for it
            eventually(
                lambda: "cuMemHostRegister" in server.log(), 10, "pinning before any client came"
            )

    def test_no_driver_is_said_clearly(self):
        status, error = self.serve("--driver", "/nonexistent/libcuda.so.1")
        self.assertEqual(status, 1)
        self.assertIn("/nonexistent/libcuda.so.1", error)
        self.assertIn("--driver", error)

    def test_a_data_interface_that_is_not_there_is_named(self):
        asked = ["--driver", harness.DRIVER]
        status, error = self.serve(*asked, "--data-interface", "lo,no-such-one")
        self.assertEqual(status, 1)
        self.assertIn("--data-interface names 'no-such-one'", error)
        with Server("--data-interface", "lo") as server:
            self.assertEqual(server.leases(), [])

    def test_other_addresses_need_an_identity_or_a_token(self):
        asked = ["--driver", harness.DRIVER, "--listen", "0.0.0.0"]
        status, error = self.serve(*asked, "--identity", "/dev/null/identity")
        self.assertEqual(status, 1)
        self.assertIn("--token-file", error)
        status, error = self.serve(*asked, "--identity", "/tmp", TENDRIL_TOKEN=SECRET)
        self.assertEqual(status, 2)
        self.assertIn("not both", error)

    def test_a_readable_token_file_is_refused(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(SECRET)
            file.flush()
            os.chmod(file.name, 0o644)
            status, error = self.serve("--driver", harness.DRIVER, "--token-file", file.name)
        self.assertEqual(status, 2)
        self.assertIn("chmod 600", error)
        self.assertNotIn(SECRET, error)

    def test_a_full_disk_is_said_clearly(self):
        status, error = self.serve("--driver", harness.DRIVER, "--port-file", "/dev/full/port")
        self.assertNotEqual(status, 0)
        self.assertIn("port file", error)

    def test_a_log_on_a_full_disk_does_not_stop_it(self):
        with Server() as server:
            self.assertTrue(server.idle())
        with open("/dev/full", "wb") as full, tempfile.TemporaryDirectory() as folder:
            port_file = os.path.join(folder, "port")
            process = subprocess.Popen(
                [
                    harness.TENDRIL,
                    "serve",
                    "--driver",
                    harness.DRIVER,
                    "--port",
                    "0",
                    "--port-file",
                    port_file,
                ],
                stdout=full,
                stderr=full,
                env=harness.clean_environment(),
            )
            try:
                eventually(lambda: os.path.exists(port_file), 30, "the server")
                self.assertIsNone(process.poll())
            finally:
                process.terminate()
                self.assertEqual(process.wait(15), 0)

    def test_ends_on_sigterm_with_everything(self):
        with Server() as server:
            workers = eventually(server.workers, 10)
            server.process.terminate()
            self.assertEqual(server.process.wait(10), 0)
            for worker in workers:
                self.assertFalse(harness.is_running(worker))

    def test_a_killed_server_takes_its_workers_with_it(self):
        with Server() as server:
            workers = eventually(server.workers, 10)
            server.process.kill()
            server.process.wait()
            eventually(
                lambda: not any(harness.is_running(worker) for worker in workers),
                10,
                "the workers' end",
            )


class Tokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w")
        cls.file.write(SECRET + "\n")
        cls.file.flush()
        cls.server = Server("--token-file", cls.file.name)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.file.close()

    def test_missing(self):
        status, _, error = tendril("ls", server=self.server)
        self.assertEqual(status, 1)
        self.assertIn("token", error)

    def test_wrong(self):
        status, _, error = tendril("ls", server=self.server, TENDRIL_TOKEN="another-wrong-token")
        self.assertEqual(status, 1)
        self.assertIn("wrong", error)
        self.assertNotIn("another-wrong-token", error)

    def test_right_by_every_way(self):
        self.assertEqual(tendril("ls", server=self.server, TENDRIL_TOKEN=SECRET)[0], 0)
        self.assertEqual(tendril("ls", server=self.server, TENDRIL_TOKEN_FILE=self.file.name)[0], 0)
        self.assertEqual(tendril("ls", "--token-file", self.file.name, server=self.server)[0], 0)

    def test_never_in_the_log(self):
        tendril("ls", server=self.server, TENDRIL_TOKEN="another-wrong-token")
        tendril("ls", server=self.server, TENDRIL_TOKEN=SECRET)
        log = self.server.log()
        self.assertIn("token is wrong", log)
        self.assertNotIn(SECRET, log)
        self.assertNotIn("another-wrong-token", log)

    def test_doctor_names_authentication(self):
        status, out, _ = tendril("doctor", "--json", server=self.server)
        self.assertEqual(status, 1)
        steps = {step["step"]: step["state"] for step in json.loads(out)["servers"][0]["steps"]}
        self.assertEqual(steps["authentication"], "failed")
        self.assertEqual(steps["port"], "ok")
        self.assertNotIn("latency", steps)


class Workers(unittest.TestCase):
    def test_isolation(self):
        with Server() as server:
            worker = eventually(server.workers, 10)[0]
            eventually(
                lambda: harness.status_field(worker, "Seccomp") == ["2"],
                10,
                "the system call filter",
            )
            self.assertEqual(harness.status_field(worker, "NoNewPrivs"), ["1"])
            self.assertEqual(set(harness.status_field(worker, "CapEff")), {"0" * 16})
            if os.geteuid() == 0 and "workers run as root" not in server.log():
                self.assertNotIn("0", harness.status_field(worker, "Uid"))

    def test_each_runs_as_a_user_of_its_own(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        with Server("--warm-max", "2", warm=2) as server:
            if "workers run as root" in server.log():
                self.skipTest("an unprivileged user cannot read this build folder")
            eventually(lambda: len(server.workers()) >= 2, 10)
            users = lambda: {
                harness.status_field(worker, "Uid")[0] for worker in server.workers()
            } - {"0"}
            eventually(lambda: len(users()) == 2, 5, "two users")

    @harness.needs_client
    def test_a_worker_is_made_ready_for_each_lease_whose_program_has_yet_to_attach(self):
        with Server() as server:
            holders = [
                harness.start("run", "-p", "0.25", "--", "sleep", "60", server=server)
                for _ in range(3)
            ]
            for holder in holders:
                self.addCleanup(harness.end, holder)
            eventually(lambda: len(server.workers()) == 3, 10, "three warm workers")
            status, out, err = tendril(
                "run", "-p", "0.25", "--", harness.PROGRAMS / "vector_add", server=server
            )
            self.assertEqual(status, 0, out + err)
            harness.end(holders[0])
            eventually(
                lambda: len(server.workers()) == 2 and len(server.leases()) == 2,
                10,
                "one worker less",
            )
            for holder in holders:
                harness.end(holder)
            eventually(server.settled, 10, "one warm worker, no lease")
            self.assertNotIn("warning", server.log())

    def test_spare_workers_take_only_memory_that_nobody_was_promised(self):
        with Server("--warm-spare", "3") as server:
            eventually(
                lambda: len(server.workers()) == 4, 10, "one warm worker and three spare ones"
            )
            holder = harness.start(
                "run", "-p", "1", "--", "sh", "-c", "echo granted; exec sleep 60", server=server
            )
            self.addCleanup(harness.end, holder)
            self.assertEqual(holder.stdout.readline().strip(), "granted")
            self.assertEqual(len(server.workers()), 1)
            harness.end(holder)
            eventually(lambda: len(server.workers()) == 4, 10, "the spare ones again")

    def test_a_dead_warm_worker_is_replaced(self):
        with Server() as server:
            worker = eventually(server.workers, 10)[0]
            os.kill(worker, signal.SIGKILL)
            eventually(lambda: any(w != worker for w in server.workers()), 10, "another worker")

    def test_a_driver_that_fails_in_workers_does_not_make_a_storm(self):
        with tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False) as script:
            real = harness.BUILD / "bin" / "tendril-worker"
            script.write(
                f'#!/bin/sh\n[ "$1" = --probe ] && exec {real} "$@"\necho "driver broken"'
                " >&2\nexit 3\n"
            )
        os.chmod(script.name, 0o755)
        try:
            with Server(
                "--worker", script.name, "--worker-user", "none", "--weak-isolation"
            ) as server:
                time.sleep(2)
                failures = server.log().count("while starting")
                self.assertGreater(failures, 0)
                self.assertLess(failures, 6)
                self.assertIn("driver broken", server.log())
        finally:
            os.unlink(script.name)


class Views(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(gpus=2)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_smi(self):
        gpus = harness.listing(self.server, "smi")["gpus"]
        self.assertEqual([gpu["index"] for gpu in gpus], [0, 1])
        self.assertNotEqual(gpus[0]["uuid"], gpus[1]["uuid"])
        self.assertTrue(gpus[0]["name"])
        self.assertGreater(gpus[0]["memory_total_bytes"], 0)
        self.assertIsNone(gpus[0]["utilization_percent"])
        status, out, _ = tendril("smi", server=self.server)
        self.assertEqual(status, 0)
        self.assertIn("TENANTS", out)

    def test_ls_without_leases(self):
        status, out, _ = tendril("ls", server=self.server)
        self.assertEqual((status, out), (0, "no leases\n"))

    def test_one_dead_server_does_not_hide_the_others(self):
        status, out, err = tendril("smi", "--server", "127.0.0.1:1", server=self.server)
        self.assertEqual(status, 1)
        self.assertIn("GPU", out)
        self.assertIn("127.0.0.1:1", err)

    def test_unix_socket(self):
        for name in ("users", "administrators"):
            status, _, err = tendril("ls", "--server", f"unix:{self.server.sockets}/{name}")
            self.assertEqual(status, 0, err)

    def test_version_coverage_completion_help(self):
        self.assertEqual(json.loads(tendril("version", "--json")[1])["protocol"], 2)
        self.assertIn("cuLaunchKernel", tendril("coverage")[1])
        for shell in ("bash", "zsh", "fish"):
            self.assertIn("doctor", tendril("completion", shell)[1])
        status, out, _ = tendril("run", "--help")
        self.assertEqual(status, 0)
        self.assertIn("FRACTION", out)
        self.assertEqual(tendril("nonsense")[0], 2)
        self.assertEqual(tendril("ls", "--nonsense")[0], 2)


class Plan(unittest.TestCase):
    def test_plan_reads_records_and_names_bad_lines(self):
        rows = "time_s,gpu,user,utilisation_percent,memory_bytes\n"
        for minute in range(10):
            for user in ("ada", "bob"):
                busy = 50 if (minute < 5) == (user == "ada") else 0
                rows += f"{60 * minute},GPU-{user},{user},{busy},30000000000\n"
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            print(rows, end="", file=file, flush=True)
            words = ("--format", "json", "--card", "80", "--wait", "1m")
            status, out, err = tendril("plan", file.name, *words)
            self.assertEqual(status, 0, err)
            found = {rung["step"]: rung["simulated"]["gpus"] for rung in json.loads(out)["ladder"]}
            self.assertEqual((found["whole GPUs"], found["idle time lent"]), (2, 1))
            for form, start in (("html", "<!DOCTYPE html>"), ("svg", "<svg"), ("text", "20 rows")):
                out = tendril("plan", file.name, "--format", form)[1]
                self.assertEqual(out[: len(start)], start)
            print("600,GPU-ada,ada,200,1", file=file, flush=True)
            status, _, err = tendril("plan", file.name)
            self.assertEqual(status, 1)
            self.assertIn(f"{file.name}: line 22 of the trace", err)


class Doctor(unittest.TestCase):
    def steps(self, *arguments):
        status, out, _ = tendril("doctor", "--json", *arguments)
        return status, {step["step"]: step for step in json.loads(out)["servers"][0]["steps"]}

    def test_tells_causes_apart(self):
        status, steps = self.steps("--server", "no-such-host.invalid")
        self.assertEqual((status, steps["name"]["state"]), (1, "failed"))
        status, steps = self.steps("--server", "127.0.0.1:1")
        self.assertEqual(
            (status, steps["name"]["state"], steps["port"]["state"]), (1, "ok", "failed")
        )
        self.assertIn("tendril serve", steps["port"]["detail"])

    def test_another_service_at_the_port(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            status, steps = self.steps("--server", f"127.0.0.1:{port}", "--timeout", "500")
        self.assertEqual((status, steps["port"]["state"]), (1, "failed"))
        self.assertIn("not a Tendril server", steps["port"]["detail"])

    def test_healthy(self):
        with Server() as server:
            status, out, _ = tendril("doctor", "--no-attach", server=server)
            self.assertEqual(status, 0, out)
            self.assertIn("round trip", out)
            status, steps = self.steps("--server", server.endpoint)
            self.assertGreater(steps["latency"]["round_trip_us"], 0)
            self.assertEqual(steps["driver"]["state"], "ok")
            self.assertEqual(steps["transport"]["state"], "ok", steps)
            eventually(server.idle, 5, "doctor's slice given back")


class Strangers(unittest.TestCase):
    """A peer that does not speak the protocol, or stops speaking, costs the server nothing that
    lasts."""

    def test_garbage_and_silence(self):
        with Server() as server:
            eventually(server.workers, 10)
            time.sleep(0.5)
            before = harness.descriptors(server.pid)
            silent = [harness.raw_connection(server) for _ in range(50)]
            for payload in (
                b"GET / HTTP/1.1\r\n\r\n",
                b"\xff" * 4096,
                b"TNRD" + b"\xff" * 60,
                bytes(1),
            ):
                with harness.raw_connection(server) as connection:
                    connection.sendall(payload)
            self.assertEqual(tendril("ls", server=server)[0], 0)
            # A peer that says nothing is dropped after the hello's time limit. These close first.
            for connection in silent[:25]:
                connection.close()
            for connection in silent[25:]:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                connection.close()
            eventually(
                lambda: harness.descriptors(server.pid) <= before + 1, 10, "all connections closed"
            )

    def test_silent_peers_are_dropped(self):
        with Server() as server, harness.raw_connection(server) as connection:
            connection.settimeout(15)
            self.assertEqual(connection.recv(1), b"")

    def test_too_many_connections_are_told_so(self):
        with Server("--connections-max", "3") as server:
            path = f"{server.sockets}/administrators"
            held = [harness.Control(server) for _ in range(3)]
            status, _, err = tendril("ls", server=server)
            self.assertEqual(status, 1)
            self.assertIn("maximum of 3", err)
            # Administrators have places of their own.
            self.assertEqual(tendril("ls", "--server", f"unix:{path}")[0], 0)
            for connection in held:
                connection.socket.close()
            eventually(lambda: tendril("ls", server=server)[0] == 0, 10, "room again")


@harness.needs_client
class Sizes(unittest.TestCase):
    def test_stated_context_cost_is_kept_back(self):
        with Server("--context-memory", "64M", memory=1024 * MIB) as server:
            status, _, err = tendril("run", "-m", "32M", "--", "true", server=server)
            self.assertEqual(status, harness.NO_LEASE)
            self.assertIn("before it allocates anything", err)

    def test_what_code_may_take_is_kept_back_too(self):
        slices = lambda server: [one for lease in server.leases() for one in lease["slices"]]
        used = lambda server: sum(one["memory_used_bytes"] for one in slices(server)) // MIB
        for options, kept in (
            ([], 80),
            (["--code-memory", "36M"], 100),
            (["--code-memory", "0"], 64),
        ):
            with Server("--context-memory", "64M", *options, memory=1024 * MIB) as server:
                holder = harness.start(
                    "run", "-m", "512M", "--", harness.PROGRAMS / "hold", "8", "60", server=server
                )
                self.addCleanup(harness.end, holder)
                # the program's 8, and a page for its code's variables
                all_mib = kept + 10
                eventually(lambda: used(server) == all_mib, 10, f"{all_mib} MiB")
                harness.end(holder)


if __name__ == "__main__":
    unittest.main()
