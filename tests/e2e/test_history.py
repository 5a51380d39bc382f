# SPDX-License-Identifier: Apache-2.0
"""What a pool remembers: reports of who had how much, of leases that live and after a kill of its
scheduler; and metrics on a real Prometheus, with every query of the dashboard and the alerts."""

import calendar
import csv
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import harness
from harness import BUILD, PROGRAMS, eventually, tendril
from support.pools import Lab, free_port, policy

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MONITOR = BUILD / "lib" / "libtendril-softgpu-nvml.so"
MONITORING = os.path.join(ROOT, "docs", "monitoring")


def report(lab, *options):
    """What `tendril report` prints, or None if no scheduler answers."""
    status, out, _ = tendril("report", *options, TENDRIL_SERVERS=lab.addresses)
    return out if status == 0 else None


def rows(lab, *options):
    return list(csv.DictReader(io.StringIO(report(lab, "--format", "csv", *options) or "")))


@harness.needs_client
class History(unittest.TestCase):
    def test_a_lease_is_reported_while_it_lives_and_after_a_kill(self):
        with Lab(servers=2) as lab:
            one = lab.start("-p", "0.5", "--", PROGRAMS / "hold", "8", "60")

            def held():
                found = [row for row in rows(lab, "--by", "lease") if row["lease"]]
                return found and float(found[0]["held_s"]) > 2 and found

            row = eventually(held, 20, "a report of a lease that lives")[0]
            self.assertAlmostEqual(
                float(row["granted_gpu_s"]), float(row["held_s"]) / 2, delta=1e-6
            )
            self.assertGreater(int(row["memory_held_byte_s"]), 0)
            lab.pools[0].kill()
            time.sleep(4)
            lab.pools[0].restart()
            lab.await_servers(30)
            later = eventually(
                lambda: next(
                    (
                        each
                        for each in rows(lab, "--by", "lease")
                        if each["lease"] and float(each["held_s"]) > float(row["held_s"]) + 4
                    ),
                    None,
                ),
                20,
                "the lease in the history of the next scheduler",
            )
            self.assertEqual(later["leases"], "1")
            self.assertIn("nobody recorded from second", lab.pools[0].log())
            self.assertIn("No scheduler recorded from", report(lab, "--by", "account"))
            harness.end(one)
            self.sums_agree(lab)

    def sums_agree(self, lab):
        """By every name, to the nanosecond, once all leases have ended."""
        eventually(lambda: not lab.leases(), 20, "the end of all leases")
        time.sleep(2.5)  # the last second is written
        sums = {}
        for by in ("lease", "user", "account", "server", "gpu_class", "hour", "user,server"):
            total = {}
            for row in rows(lab, "--by", by):
                for key in ("leases", "held_s", "used_gpu_s", "granted_gpu_s", "idle_gpu_s"):
                    total[key] = total.get(key, 0) + int(row[key].replace(".", ""))
            sums[by] = total
        self.assertGreater(sums["lease"]["held_s"], 0)
        for by, total in sums.items():
            self.assertEqual(total, sums["lease"], by)

    def test_formats_and_refusals(self):
        with Lab(servers=1) as lab:
            status, _, err = lab.run("--", PROGRAMS / "vector_add")
            self.assertEqual(status, 0, err)
            eventually(lambda: rows(lab, "--by", "user", "--from", "10m"), 20, "a row")
            answer = json.loads(report(lab, "--format", "json", "--by", "hour", "--from", "2h"))
            self.assertEqual(answer["step_s"], 3600)
            self.assertIn("Used %", report(lab, "--by", "account,server"))
            # Of UTC, also where clocks are set forward in between, or back.
            for day in ("2026-03-29", "2026-10-25"):
                words = ["report", "--by", "day", "--from", day, "--to", f"{day} 12:00"]
                words += ["--format", "json"]
                places = {"TENDRIL_SERVERS": lab.addresses, "TZ": "Europe/Berlin"}
                status, out, err = tendril(*words, **places)
                self.assertEqual(status, 0, err)
                answer = json.loads(out)
                begun = calendar.timegm(time.strptime(day, "%Y-%m-%d"))
                self.assertEqual((answer["from_at"], answer["to_at"]), (begun, begun + 43200))
            page = report(lab, "--format", "html", "--by", "user", "--from", "10m")
            self.assertIn("<svg", page)
            self.assertNotIn("<script", page)
            for wrong in (("--by", "colour"), ("--from", "yesterday"), ("--from", "now")):
                status, _, err = tendril("report", *wrong, TENDRIL_SERVERS=lab.addresses)
                self.assertNotEqual(status, 0, wrong)
                self.assertTrue(err, wrong)


class Prometheus:
    """A real one that scrapes these ports each second. Use as a context manager."""

    PRESENT = shutil.which("prometheus") is not None

    def __init__(self, ports):
        self.folder = tempfile.mkdtemp(prefix="tendril-prometheus-")
        self.port = free_port()
        shutil.copy(os.path.join(MONITORING, "alerts.yml"), self.folder)
        with open(f"{self.folder}/prometheus.yml", "w", encoding="utf-8") as file:
            targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
            file.write(
                "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
                "rule_files: [alerts.yml]\n"
                "scrape_configs:\n"
                f"  - {{job_name: tendril, static_configs: [{{targets: [{targets}]}}]}}\n"
            )
        with open(f"{self.folder}/log", "wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self.folder}/prometheus.yml",
                    f"--storage.tsdb.path={self.folder}/data",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, path, **words):
        """(status, data); the status of an error is its text."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return "success", json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            return error.read().decode(), None
        except OSError as error:
            return str(error), None

    def value(self, query):
        """Of the first series; None: there is none."""
        _, data = self.ask("query", query=query)
        return float(data["result"][0]["value"][1]) if data and data["result"] else None


def dashboard():
    with open(os.path.join(MONITORING, "grafana.json"), encoding="utf-8") as file:
        board = json.load(file)
    return [
        (panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]
    ]


def alerts():
    """(name, expression); the file has each on a line of its own."""
    with open(os.path.join(MONITORING, "alerts.yml"), encoding="utf-8") as file:
        return re.findall(r"- alert: (\w+)\n +expr: (.+)\n", file.read())


# These have no series in a pool with one lease that works and nobody who waits.
QUIET = ("Why they wait",)


@harness.needs_client
class Metrics(unittest.TestCase):
    def test_every_query_runs_on_a_real_prometheus(self):
        if not Prometheus.PRESENT:
            print("SKIPPED: no prometheus on this machine; scripts/setup installs it", flush=True)
            self.skipTest("no prometheus")
        self.assertEqual(len(alerts()), 9)
        text = policy(batch='idle_timeout = "1d"')
        ports = [free_port(), free_port()]
        scheduler = ("--metrics", f"127.0.0.1:{ports[0]}")
        shown = ("--metrics", f"127.0.0.1:{ports[1]}", "--metrics-dcgm", "--monitor", MONITOR)
        options = {"gpu1": shown}
        with Lab(servers=1, text=text, options=options, more=scheduler) as lab:
            with Prometheus(ports) as prometheus:
                holder = lab.start("-p", "0.5", "--", PROGRAMS / "hold", "8", "60")
                self.watch(lab, prometheus)
                self.ended_leases_are_scraped(lab, prometheus)
                harness.end(holder)

    def watch(self, lab, prometheus):
        eventually(lambda: lab.leases() and prometheus.value("sum(tendril_leases)"), 30, "a lease")
        eventually(lambda: prometheus.value("tendril_lease_idle_seconds") is not None, 10, "idle")
        eventually(
            lambda: prometheus.value("sum(rate(tendril_session_sent_bytes_total[2m]))") is not None,
            20,
            "two scrapes",
        )
        for title, query in dashboard():
            status, _ = prometheus.ask("query", query=query)
            self.assertEqual(status, "success", f"{title}: {query}")
            if title not in QUIET:
                eventually(
                    lambda query=query: prometheus.value(query) is not None, 20, f"{title}: {query}"
                )
        for name, query in alerts():
            status, data = prometheus.ask("query", query=query)
            self.assertEqual(status, "success", f"{name}: {query}")
            self.assertFalse(data["result"], f"{name} fires: {query}")
        # The names that it uses are names that somebody serves.
        _, known = prometheus.ask("label/__name__/values")
        for _, query in dashboard() + alerts():
            for name in re.findall(r"\btendril_\w+", query):
                if name != "tendril_pool_queue_longest_wait_seconds":
                    self.assertTrue(
                        name in known or "tendril_pool_queue" in name, f"{name} in {query}"
                    )
        self.assertIn("DCGM_FI_DEV_FB_USED", known)
        self.assertEqual(prometheus.value('tendril_server_up{server="gpu1"}'), 1)
        self.assertGreaterEqual(prometheus.value("tendril_scheduler_term"), 1)

    def ended_leases_are_scraped(self, lab, prometheus):
        """One that lived less than a scrape takes, too."""
        status, _, err = lab.run("-p", "0.25", "--", PROGRAMS / "vector_add")
        self.assertEqual(status, 0, err)
        query = 'count(tendril_lease_share_ratio{program=~".*vector_add"} == 0.25)'
        eventually(lambda: prometheus.value(query), 10, "the lease that ended")


if __name__ == "__main__":
    unittest.main()
