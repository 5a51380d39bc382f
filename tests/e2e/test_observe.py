# SPDX-License-Identifier: Apache-2.0
"""tendril observe on a machine without Tendril: programs use the software GPU directly, through the
look-alike of NVML it is found who keeps it how busy, and tendril plan reads what was recorded."""

import http.server
import json
import os
import pathlib
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request

import harness
from harness import DRIVER, TENDRIL, clean_environment, eventually, tendril
from test_history import Prometheus
from test_softgpu import NVML, Board

SECONDS = 12
# Holds memory, and fills other memory for so many milliseconds of each 40; 1 MB takes 1 ms there.
WORK = """
import sys, time
from ctypes import CDLL, byref, c_uint64, c_void_p
cuda, mib, busy_ms = CDLL(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
device = int(sys.argv[4])
def must(code):
    assert code == 0, code
context, held, memory = c_void_p(), c_uint64(), c_uint64()
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(byref(context), device))
must(cuda.cuCtxSetCurrent(context))
must(cuda.cuMemAlloc_v2(byref(held), mib << 20))
must(cuda.cuMemAlloc_v2(byref(memory), 40 << 20))
print("ready", flush=True)
at = time.monotonic()
while True:
    if busy_ms:
        must(cuda.cuMemsetD32Async(memory, 7, busy_ms * 250_000, None))
        must(cuda.cuCtxSynchronize())
    at = max(at + 0.04, time.monotonic())
    time.sleep(at - time.monotonic() if at > time.monotonic() else 0)
"""


class Observed(unittest.TestCase):
    def setUp(self):
        self.board = Board()
        self.addCleanup(self.board.remove)
        self.knobs = self.board.environment(
            MODE="paced", DEVICES="2", BANDWIDTH_GBS="1", COPY_US="0"
        )
        folder = tempfile.TemporaryDirectory(prefix="tendril-observe-")
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "observed.db")

    def work(self, mib, busy_ms, device):
        process = subprocess.Popen(
            [sys.executable, "-c", WORK, DRIVER, str(mib), str(busy_ms), str(device)],
            stdout=subprocess.PIPE,
            env=clean_environment(**self.knobs),
            start_new_session=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(harness.end, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def observe(self, *words):
        """Started, and looking."""
        process = subprocess.Popen(
            [TENDRIL, "observe", self.file, "--library", NVML, *words],
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(**self.knobs),
        )
        self.addCleanup(process.stderr.close)
        self.addCleanup(harness.end, process)
        return process, process.stderr.readline()

    def busy_seconds(self):
        """Of each device, and when."""
        shown = self.board.tool("show")
        return time.monotonic(), [
            float(seconds) for seconds in re.findall(r"^device .* %, ([0-9.]+) s,", shown, re.M)
        ]

    def rows(self):
        with sqlite3.connect(self.file) as file:
            return file.execute(
                "SELECT gpu, user, job, sum(seconds), sum(busy_millionths * seconds) /"
                " sum(seconds) / 1e6, max(memory_bytes) FROM program_minutes JOIN programs"
                " USING (program) GROUP BY gpu, program ORDER BY gpu"
            ).fetchall()

    def plan(self, *words):
        status, out, err = tendril("plan", self.file, "--format", "json", *words)
        self.assertEqual(status, 0, err)
        return json.loads(out)


class Recorded(Observed):
    def test_a_known_load_is_found_within_a_point(self):
        """And costs under half a percent of a processor. A look sees the second before it. On a
        busy machine the load is uneven and a look may come late, so it is recorded again then."""
        worker = self.work(100, 16, 0)
        self.work(300, 0, 1)
        for attempt in range(4):
            self.file += str(attempt)
            truth, is_steady, cost_share = self.record()
            rows = self.rows()
            self.assertEqual(len(rows), 2, rows)
            found = rows[0][4]
            if is_steady and abs(found - truth) <= 0.01:
                break
        print(f"busy {truth:.4f}, found {found:.4f}; {cost_share * 100:.3f} % of a processor")
        self.assertGreater(truth, 0.1)  # 0.4, on a quiet machine
        self.assertAlmostEqual(found, truth, delta=0.01)
        self.assertEqual(rows[1][4], 0)
        self.assertGreaterEqual(rows[0][3], SECONDS - 1)
        self.assertGreaterEqual(rows[0][5], 140 << 20)
        self.assertIn(str(worker.pid), rows[0][2])
        self.assertLess(cost_share, 0.005)
        self.planned()

    def record(self):
        """How busy the first GPU is meanwhile; whether as much in both halves of the time, because
        recording begins and ends a moment apart from this; the part of a processor it takes."""
        process, said = self.observe("--for", f"{SECONDS}s")
        self.assertIn("records 2 GPUs into " + self.file, said)
        cost_ns = -self.processor_ns(process.pid)
        looks = [self.busy_seconds()]
        time.sleep(SECONDS / 2 - 0.7)
        looks.append(self.busy_seconds())
        time.sleep(SECONDS / 2 - 0.8)
        cost_ns += self.processor_ns(process.pid)
        spent_s = time.monotonic() - looks[0][0]
        self.assertEqual(process.wait(timeout=30), 0)
        looks.append(self.busy_seconds())

        def busy(first, last):
            return (looks[last][1][0] - looks[first][1][0]) / (looks[last][0] - looks[first][0])

        return busy(0, 2), abs(busy(0, 1) - busy(1, 2)) < 0.05, cost_ns / 1e9 / spent_s

    def planned(self):
        report = self.plan("--card", "1")
        self.assertTrue(report["measured"])
        self.assertEqual(report["use"]["never_used_holders"], 1)
        self.assertEqual([user["holders"] for user in report["users"]], [2])

    def processor_ns(self, pid):
        return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])

    def test_an_end_and_a_kill_lose_at_most_the_minute(self):
        self.work(50, 4, 0)
        process, _ = self.observe()
        other = subprocess.run(
            [TENDRIL, "observe", self.file, "--library", NVML],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=clean_environment(**self.knobs),
        )
        self.assertEqual(other.returncode, 1)
        self.assertIn("another 'tendril observe' records into", other.stderr)
        time.sleep(2.5)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=30), 0)
        first = sum(row[3] for row in self.rows())
        self.assertGreaterEqual(first, 2)
        process, _ = self.observe()  # a kill leaves nothing behind that keeps the next one away
        time.sleep(1.5)
        process.kill()
        process.wait()
        process, said = self.observe("--for", "2s")
        self.assertIn("records", said)
        self.assertEqual(process.wait(timeout=30), 0)
        self.assertGreaterEqual(sum(row[3] for row in self.rows()), first + 2)


# As NVIDIA's exporter says it, of a GPU that a pod has and of one that nobody has.
EXPORTED = """
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="box",pod="train",namespace="ada"} 40
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",Hostname="box",pod="train",namespace="ada"} 20480
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",Hostname="box"} 0
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",Hostname="box"} 400
"""


class Exporter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # pylint: disable=invalid-name
        self.send_response(200)
        self.end_headers()
        self.wfile.write(EXPORTED.encode())

    def log_message(self, *_):
        pass


class Imported(unittest.TestCase):
    def test_a_real_prometheus_is_read(self):
        if not Prometheus.PRESENT:
            print("SKIPPED: no prometheus on this machine; scripts/setup installs it", flush=True)
            self.skipTest("no prometheus")
        exporter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
        self.addCleanup(exporter.server_close)
        self.addCleanup(exporter.shutdown)
        threading.Thread(target=exporter.serve_forever, daemon=True).start()
        query = '{__name__=~"DCGM_FI_DEV_GPU_UTIL|DCGM_FI_DEV_FB_USED"}'
        with Prometheus([exporter.server_address[1]]) as prometheus:
            eventually(lambda: prometheus.value("count_over_time(DCGM_FI_DEV_FB_USED[1m]) > 3"), 30)
            now = int(time.time())
            url = urllib.parse.urlencode(
                {"query": query, "start": now - 3, "end": now, "step": "1"}
            )
            address = f"http://127.0.0.1:{prometheus.port}/api/v1/query_range?{url}"
            with urllib.request.urlopen(address, timeout=10) as answer:
                text = answer.read()
        with tempfile.NamedTemporaryFile() as file:
            file.write(text)
            file.flush()
            status, out, err = tendril("plan", file.name, "--format", "json", "--card", "80")
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        self.assertEqual([user["user"] for user in report["users"]], ["ada"])
        self.assertAlmostEqual(report["use"]["mean_busy_gpus"], 0.4, places=5)

    def test_what_is_wrong_is_named_with_its_line(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("JobID|Start|End|AllocTRES\n1|soon|Unknown|gres/gpu=1\n")
            file.flush()
            status, _, err = tendril("plan", file.name)
        self.assertEqual(status, 1)
        self.assertIn(f'{file.name}: line 2: column Start is "soon"; expected a time', err)


class Said(Observed):
    def test_without_a_library_it_says_what_to_do(self):
        status, _, err = tendril("observe", self.file, "--library", "/none/libnvidia-ml.so.1")
        self.assertEqual(status, 1)
        self.assertIn("no monitoring library '/none/libnvidia-ml.so.1'", err)
        self.assertIn("--library", err)
        self.assertFalse(os.path.exists(self.file))

    def test_live_draws_on_a_terminal(self):
        self.work(512, 16, 0)
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        process = subprocess.Popen(
            [TENDRIL, "observe", "--live", "--library", NVML],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=clean_environment(LANG="C.UTF-8", TERM="xterm", **self.knobs),
        )
        os.close(theirs)
        self.addCleanup(harness.end, process)
        shown = b""

        def has_drawn():
            nonlocal shown
            if select.select([ours], [], [], 0.1)[0]:
                shown += os.read(ours, 1 << 16)
            return shown.count(b"GPU 0") >= 3

        eventually(has_drawn, 20, "three pictures")
        os.write(ours, b"q")
        self.assertEqual(process.wait(timeout=10), 0)
        picture = shown.decode().split("\033[H\033[2J")[2]
        self.assertIn("GPU 1", picture)
        self.assertIn("█", picture)
        self.assertRegex(picture, r"552\.0 MiB of 1\.0 GiB")
        self.assertIn("nobody", picture)
        self.assertLessEqual(max(map(len, picture.split("\r\n"))), 80)


if __name__ == "__main__":
    unittest.main()
