# SPDX-License-Identifier: Apache-2.0
"""The driver for Kubernetes beside a fake API server and a fake kubelet, with a real pool. No
cluster has run it. What is missing here (gRPC, Debian's python3-grpcio, kubectl) is named."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import harness
from harness import Pool, Server, eventually
from support.fake_api_server import ApiServer

DRIVER = harness.BUILD / "bin" / "tendril-kubernetes"
SOURCES = pathlib.Path(__file__).parents[3] / "packaging" / "kubernetes"
KUBELET = pathlib.Path(__file__).parents[1] / "support" / "fake_kubelet.py"
PYTHON = "/usr/bin/python3"


def has_grpc():
    if not os.path.exists(PYTHON) or shutil.which("protoc") is None:
        return False
    return subprocess.run([PYTHON, "-c", "import grpc"], capture_output=True).returncode == 0


TOKEN = "a token of the service account"


@unittest.skipUnless(DRIVER.exists(), "NO gRPC OR libcurl HERE: the driver was not built")
class Driver(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pool = cls.enterClassContext(Pool())
        cls.server = cls.enterClassContext(Server(gpus=2, pool=cls.pool))
        cls.folder = pathlib.Path(
            cls.enterClassContext(tempfile.TemporaryDirectory(prefix="tendril-e2e-"))
        )
        (cls.folder / "token").write_text(TOKEN + "\n", encoding="ascii")

    def setUp(self):
        self.api = self.enterContext(ApiServer(TOKEN))

    def words(self, verb, *more):
        words = [DRIVER, verb, "--api", self.api.url, "--api-token", self.folder / "token"]
        return [*words, "--tendril", harness.TENDRIL, *more]

    def environment(self):
        return harness.clean_environment(TENDRIL_SERVERS=self.pool.endpoint)

    def publish(self, *more):
        return subprocess.run(
            self.words("publish", "--once", *more),
            capture_output=True,
            text=True,
            timeout=60,
            env=self.environment(),
            check=False,
        )

    def published(self):
        """The devices, once the pool knows its server."""

        def look():
            done = self.publish()
            self.assertEqual(done.returncode, 0, done.stderr)
            return self.api.slices["tendril-0"]["spec"].get("devices")

        return eventually(look, 20, "a published GPU")

    def result(self, device, compute, memory):
        capacity = {"compute": compute, "memory": memory}
        conditions = {
            name: device[name]
            for name in ("bindingConditions", "bindingFailureConditions")
            if name in device
        }
        return {"request": "gpu", "driver": "gpu.tendril.io", "pool": "tendril",
                "device": device["name"], "consumedCapacity": capacity, **conditions,
                "shareID": f"of-{compute}"}  # fmt: skip

    def program(self, written):
        """What a container with that file of CDI runs, beside the libraries mounted there."""
        (named,) = written["devices"]
        edits = named["containerEdits"]["env"] + written["containerEdits"]["env"]
        variables = dict(entry.split("=", 1) for entry in edits)
        environment = {name: value for name, value in variables.items() if "TENDRIL" in name}
        environment["TENDRIL_SERVERS"] = self.pool.endpoint
        return variables, harness.clean_environment(
            LD_LIBRARY_PATH=harness.CLIENT.parent, **environment
        )


class Publishing(Driver):
    def test_each_gpu_is_a_device_that_pods_share(self):
        devices = self.published()
        self.assertEqual(len(devices), 2)
        first = devices[0]
        self.assertTrue(first["allowMultipleAllocations"])
        self.assertEqual(first["capacity"]["memory"]["value"], "1Gi")
        self.assertEqual(first["capacity"]["compute"]["value"], "1")
        self.assertEqual([one["attributes"]["index"]["int"] for one in devices], [0, 1])
        self.assertEqual(
            first["attributes"]["model"]["string"], "Tendril Test Device (software)"
        )

    def test_what_has_not_changed_is_not_written(self):
        self.published()
        writes, generation = self.api.writes, self.api.slices["tendril-0"]["spec"]["pool"]
        self.assertEqual(self.publish().returncode, 0)
        self.assertEqual(self.api.writes, writes)
        self.api.slices["tendril-0"]["spec"]["devices"].pop()
        self.api.slices["tendril-7"] = json.loads(json.dumps(self.api.slices["tendril-0"]))
        self.api.slices["tendril-7"]["metadata"]["name"] = "tendril-7"
        self.assertEqual(len(self.published()), 2)
        self.assertEqual(list(self.api.slices), ["tendril-0"])
        now = self.api.slices["tendril-0"]["spec"]["pool"]
        self.assertEqual(now["generation"], generation["generation"] + 1)

    def test_refusals_are_said_and_nothing_is_lost(self):
        self.published()
        before = json.dumps(self.api.slices)
        self.api.token = "another"
        done = self.publish()
        self.assertEqual(done.returncode, 1)
        self.assertIn("answered 401 (Unauthorized)", done.stderr)
        self.api.token = TOKEN
        environment = harness.clean_environment(TENDRIL_SERVERS="127.0.0.1:1")
        done = subprocess.run(self.words("publish", "--once"), capture_output=True, text=True,
                              env=environment, timeout=60, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 1)
        self.assertIn("127.0.0.1:1", done.stderr)
        self.assertEqual(json.dumps(self.api.slices), before)

    def test_outside_a_cluster_it_says_what_is_missing(self):
        done = subprocess.run([DRIVER, "publish", "--once"], capture_output=True, text=True,
                              env=harness.clean_environment(), check=False)  # fmt: skip
        self.assertEqual(done.returncode, 1)
        self.assertIn("give --api URL", done.stderr)


@unittest.skipUnless(has_grpc(), "NO protoc OR python3-grpcio HERE: no kubelet was played")
class Kubelet(Driver):
    def setUp(self):
        super().setUp()
        self.place = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        protos = [path.name for path in SOURCES.glob("*.proto")]
        subprocess.run(["protoc", f"--proto_path={SOURCES}", f"--python_out={self.place}", *protos],
                       check=True)  # fmt: skip
        self.known = 0  # how often a kubelet looked
        self.cdi, self.registry = self.place / "cdi", self.place / "registry"
        folders = ["--plugins", self.place / "plugins", "--registry", self.registry]
        self.node = subprocess.Popen(
            self.words("node", *folders, "--cdi", self.cdi),
            env=self.environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end)
        eventually(lambda: list(self.registry.glob("*-reg.sock")), 20, "the plug-in's socket")

    def end(self):
        self.node.terminate()
        said = self.node.communicate(timeout=20)[1]
        self.assertEqual(said.count("the kubelet knows this driver"), self.known)
        self.assertEqual(self.node.returncode, 0)
        self.assertEqual(list(self.registry.iterdir()), [])

    def kubelet(self, *words):
        self.known += 1
        # Python's protobuf of Debian may be older than protoc; both are Debian's here.
        done = subprocess.run([PYTHON, KUBELET, self.place, self.registry, *words],
                              capture_output=True, text=True, timeout=60, check=False,
                              env=harness.clean_environment())  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def file(self, uid):
        return self.cdi / f"tendril-claim-{uid}.json"


class Node(Kubelet):
    def test_it_says_who_it_is(self):
        info = self.kubelet("info")
        self.assertEqual((info["type"], info["name"]), ("DRAPlugin", "gpu.tendril.io"))
        self.assertEqual(info["supportedVersions"], ["v1.DRAPlugin", "v1beta1.DRAPlugin"])

    def test_a_claim_becomes_a_device_that_a_program_can_use(self):
        second = self.published()[1]
        self.api.allocate("lab", "train", "uid-1", [self.result(second, "500m", "256Mi")])
        for version in ("v1", "v1beta1", "v1"):  # again and again, as after a restart
            answer = self.kubelet(version, "prepare", "lab/train/uid-1")["uid-1"]
            (device,) = answer["devices"]
            self.assertEqual(device["cdiDeviceIds"], ["tendril.io/gpu=claim-uid-1"])
            self.assertEqual(device["deviceName"], second["name"])
            self.assertEqual((device["poolName"], device["requestNames"]), ("tendril", ["gpu"]))
        variables, environment = self.program(json.loads(self.file("uid-1").read_text()))
        self.assertEqual(variables["TENDRIL_SLICE"], "0.50")
        self.assertEqual(variables["TENDRIL_MEMORY"], "256M")
        self.assertNotIn("TENDRIL_OFFER", variables)
        done = subprocess.run(
            [harness.PROGRAMS / "vector_add", "1000"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("index = 1", variables["TENDRIL_FILTER"])
        for _ in range(2):
            self.assertEqual(self.kubelet("v1", "unprepare", "lab/train/uid-1"), {"uid-1": {}})
        self.assertFalse(self.file("uid-1").exists())

    def test_two_gpus_of_one_size(self):
        results = [self.result(device, "1", "1Gi") for device in self.published()]
        self.api.allocate("lab", "two", "uid-2", results)
        answer = self.kubelet("v1", "prepare", "lab/two/uid-2")["uid-2"]
        self.assertEqual(len(answer["devices"]), 2)
        text = self.file("uid-2").read_text()
        self.assertIn("TENDRIL_GPUS=2", text)
        self.assertNotIn("TENDRIL_MEMORY", text)

    def test_each_claim_has_an_answer_of_its_own(self):
        first = self.published()[0]
        self.api.allocate("lab", "good", "uid-3", [self.result(first, "10m", "64Mi")])
        self.api.allocate("lab", "other", "uid-4", [self.result(first, "10m", "64Mi")])
        self.api.claims["lab", "waits"] = {"metadata": {"uid": "uid-5"}}
        claims = ["lab/good/uid-3", "lab/other/uid-of-before", "lab/waits/uid-5", "lab/no/uid-6"]
        claims.append("lab/good/..%2Fx")
        answers = self.kubelet("v1", "prepare", *claims)
        self.assertEqual(len(answers["uid-3"]["devices"]), 1)
        self.assertIn("another claim", answers["uid-of-before"]["error"])
        self.assertIn("not allocated", answers["uid-5"]["error"])
        self.assertIn("404 (no not found)", answers["uid-6"]["error"])
        self.assertIn("no usable name", answers["..%2Fx"]["error"])
        self.assertEqual([path.name for path in self.cdi.iterdir()], [self.file("uid-3").name])


@harness.needs_client
class Binding(Kubelet):
    """Pods wait until the pool has granted, and their programs take the leases over."""

    LEASED, REFUSED = "gpu.tendril.io/leased", "gpu.tendril.io/refused"

    def setUp(self):
        super().setUp()
        self.binder = self.start_binder()

    def start_binder(self):
        with open(self.place / "binder.log", "a", encoding="utf-8") as log:
            binder = subprocess.Popen(self.words("bind"), env=self.environment(), stderr=log)
        self.addCleanup(harness.end, binder)
        return binder

    def publish(self, *more):
        return super().publish("--bind", *more)

    def leases(self):
        return self.server.leases()

    def is_leased(self, name):
        return self.api.condition("lab", name, self.LEASED)

    def wait_for_lease(self, name, seconds=20):
        granted = ("True", "the pool has granted the slices")
        try:
            eventually(lambda: self.is_leased(name) == granted, seconds, f"the lease of {name}")
        except AssertionError as error:
            log = (self.place / "binder.log").read_text(encoding="utf-8")
            self.fail(f"{error}: {self.api.claims}, {log}")

    def prepared(self, name, uid):
        answer = self.kubelet("v1", "prepare", f"lab/{name}/{uid}")[uid]
        self.assertNotIn("error", answer)
        return json.loads(self.file(uid).read_text())

    def end(self):
        self.api.claims.clear()
        eventually(lambda: not self.leases(), 20, "the end of all leases")
        super().end()

    def test_a_program_takes_its_lease_over(self):
        device = self.published()[1]
        self.assertEqual(device["bindingConditions"], [self.LEASED])
        self.api.allocate("lab", "train", "uid-1", [self.result(device, "500m", "256Mi")])
        self.wait_for_lease("train")
        (lease,) = self.leases()
        self.assertEqual((lease["slices"][0]["gpu"], lease["slices"][0]["share"]), (1, 0.5))
        shown = harness.tendril("ls", TENDRIL_SERVERS=self.pool.endpoint)[1]
        self.assertIn("claim-lab.train", shown)
        variables, environment = self.program(self.prepared("train", "uid-1"))
        self.assertIn(f"={lease['lease']}:", variables["TENDRIL_OFFER"])
        self.assertEqual(self.file("uid-1").stat().st_mode & 0o777, 0o600)
        words = [harness.PROGRAMS / "hold", "8", "60"]
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as first:
            self.addCleanup(harness.end, first)
            self.assertIn("holding", first.stdout.readline())
            self.assertEqual([one["lease"] for one in self.leases()], [lease["lease"]])
            # The program has it now, whatever becomes of who took it.
            self.binder.send_signal(signal.SIGKILL)
            self.binder.wait()
            time.sleep(0.5)
            self.assertEqual([one["processes"] for one in self.leases()], [1])
            first.kill()
        eventually(lambda: not self.leases(), 20, "the lease's end with its program")
        # A container that starts again asks for a lease of its own.
        self.start_binder()
        done = subprocess.run([harness.PROGRAMS / "vector_add", "1000"], env=environment,
                              capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_pod_waits_while_others_hold_its_gpu(self):
        device = self.published()[0]
        filter_ = "index = 0"
        other = harness.start("run", "--filter", filter_, "--", "sleep", "60",
                              TENDRIL_SERVERS=self.pool.endpoint)  # fmt: skip
        self.addCleanup(harness.end, other)
        eventually(self.leases, 20, "a lease of others")
        self.api.allocate("lab", "late", "uid-2", [self.result(device, "1", "1Gi")])
        status, message = eventually(lambda: self.is_leased("late"), 20, "what it waits for")
        self.assertEqual(status, "False")
        self.assertRegex(message, "position|Resources|start|waiting")
        self.assertEqual(self.api.secrets, {})
        harness.end(other)
        self.wait_for_lease("late", 40)

    def test_what_the_pool_refuses_fails_and_is_not_asked_again(self):
        device = self.published()[0]
        gone = dict(device, name="gpu-that-left-0")
        self.api.allocate("lab", "never", "uid-3", [self.result(gone, "500m", "256Mi")])
        status, message = eventually(
            lambda: self.api.condition("lab", "never", self.REFUSED), 20, "the refusal"
        )
        self.assertEqual(status, "True")
        self.assertIn("is not in the pool any more", message)
        # Kubernetes' scheduler takes the devices away, and chooses others.
        self.api.allocate("lab", "never", "uid-3", [self.result(device, "500m", "256Mi")])
        self.wait_for_lease("never")

    def test_the_lease_of_a_claim_that_goes_ends(self):
        device = self.published()[0]
        self.api.allocate("lab", "brief", "uid-4", [self.result(device, "500m", "256Mi")])
        self.wait_for_lease("brief")
        self.assertEqual(list(self.api.secrets), ["tendril-claim-uid-4"])
        del self.api.claims["lab", "brief"]
        eventually(lambda: not self.leases(), 20, "the lease's end")
        eventually(lambda: not self.api.secrets, 20, "the secret's end")

    def test_leases_that_nobody_took_over_end_with_the_binder(self):
        device = self.published()[0]
        self.api.allocate("lab", "orphan", "uid-5", [self.result(device, "500m", "256Mi")])
        self.wait_for_lease("orphan")
        self.binder.send_signal(signal.SIGKILL)
        self.binder.wait()
        eventually(lambda: not self.leases(), 20, "the lease's end")
        _, environment = self.program(self.prepared("orphan", "uid-5"))
        done = subprocess.run([harness.PROGRAMS / "vector_add", "1000"], env=environment,
                              capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


@unittest.skipUnless(shutil.which("kubectl"), "NO kubectl HERE: manifests were not rendered")
class Manifests(unittest.TestCase):
    def test_they_render(self):
        done = subprocess.run(["kubectl", "kustomize", SOURCES / "deploy"], capture_output=True,
                              text=True, check=True)  # fmt: skip
        kinds = [line for line in done.stdout.splitlines() if line.startswith("kind: ")]
        for kind in ("DeviceClass", "DaemonSet", "Deployment", "ClusterRole", "Namespace"):
            self.assertIn(f"kind: {kind}", kinds)
        self.assertEqual(done.stdout.count("image: localhost/tendril-kubernetes"), 3)

    def test_pods_wait_with_the_component(self):
        with tempfile.TemporaryDirectory(dir=SOURCES) as folder:
            overlay = "resources: [../deploy]\ncomponents: [../deploy/binding]\n"
            pathlib.Path(folder, "kustomization.yaml").write_text(overlay, encoding="ascii")
            done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True,
                                  check=True)  # fmt: skip
        self.assertIn("- --bind", done.stdout)
        self.assertIn("name: tendril-bind", done.stdout)


if __name__ == "__main__":
    unittest.main()
