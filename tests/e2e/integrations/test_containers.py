# SPDX-License-Identifier: Apache-2.0
"""Programs that no `tendril run` starts: in containers of podman, and on a machine whose loader
knows the client library. What is missing here (podman, runc, root) is named."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import harness
from harness import Daemon, Server, tendril
from support import small_root

VECTOR_ADD = harness.PROGRAMS / "vector_add"
OPENCL = harness.PROGRAMS / "tendril_opencl_program"
LOADER = next(pathlib.Path("/usr/lib").glob("*-linux-gnu/libOpenCL.so.1"), None)
CHROOT = shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin")


class Words(unittest.TestCase):
    """Without any container."""

    def test_the_images_library_path_is_left_alone(self):
        _, out, err = tendril("env", "--docker", "-s", "gpu1", "-m", "1G", "-p", "0.5")
        self.assertNotIn("LD_LIBRARY_PATH", out)
        self.assertIn("-e LD_PRELOAD=/opt/tendril/lib/tendril/libcuda.so.1:", out)
        self.assertIn(":/opt/tendril/lib/tendril:ro", out)
        self.assertIn("-e TENDRIL_MEMORY=1G", out)
        self.assertEqual(err, "")

    def test_nvidia_smi_and_opencl(self):
        out = tendril("env", "--docker", "-s", "gpu1", "--opencl")[1]
        self.assertRegex(out, r"-v \S+/bin/nvidia-smi:/usr/bin/nvidia-smi:ro")
        folder = "/opt/tendril/lib/tendril/opencl/container"
        self.assertIn(f"-e OCL_ICD_VENDORS={folder}", out)
        self.assertNotIn("OCL_ICD_VENDORS", tendril("env", "--docker", "-s", "gpu1")[1])
        edits = json.loads(tendril("cdi", "generate", "-s", "gpu1", "--opencl")[1])
        self.assertIn(f"OCL_ICD_VENDORS={folder}", edits["containerEdits"]["env"])
        ours = harness.CLIENT.parent / "opencl"
        out = tendril("env", "-s", "gpu1", "--opencl")[1]
        self.assertIn(f"export OCL_ICD_VENDORS={ours}\n", out)
        self.assertIn(f"export LD_LIBRARY_PATH={ours}:{ours.parent}$", out)

    def test_quoted_words_and_an_unreadable_token_are_said(self):
        with tempfile.TemporaryDirectory(prefix="tendril-e2e-") as folder:
            token = pathlib.Path(folder, "token")
            token.write_text("a secret of sixteen characters\n", encoding="ascii")
            token.chmod(0o600)
            words = ("--docker", "-s", "gpu1", "--token-file", str(token))
            out, err = tendril("env", *words)[1:]
            self.assertIn(f"-v {token}:/run/secrets/tendril-token:ro", out)
            self.assertIn("passes the token on", err)
            self.assertNotIn("a secret", out + err)
            token.chmod(0o644)
            self.assertEqual(tendril("env", *words)[2], "")
        out, err = tendril("env", "--docker", "-s", "gpu1", "--filter", "memory >= 40G")[1:]
        self.assertIn("-e 'TENDRIL_FILTER=memory >= 40G'", out)
        self.assertIn("eval", err)

    def test_a_container_without_a_way_to_this_machine_is_said(self):
        err = tendril("env", "--docker", "-s", "127.0.0.1:1")[2]
        self.assertIn("--network host", err)

    def test_a_command_that_starts_no_container_is_refused(self):
        status, out, err = tendril("env", "--docker", "-s", "gpu1", "--", "docker", "ps")
        self.assertEqual((status, out), (2, ""))
        self.assertIn("no word 'run' or 'create'", err)
        status, _, err = tendril("env", "-s", "gpu1", "--", "true")
        self.assertEqual(status, 2)
        self.assertIn("--docker", err)

    def test_devices_of_cdi(self):
        written = json.loads(tendril("cdi", "generate", "-s", "gpu1")[1])
        self.assertEqual((written["cdiVersion"], written["kind"]), ("0.5.0", "tendril.io/gpu"))
        names = [device["name"] for device in written["devices"]]
        self.assertEqual(names, ["whole", "half", "third", "quarter", "tenth"])
        words = ("-s", "gpu1", "--device", "small=10G", "--device", "half=1/2")
        devices = json.loads(tendril("cdi", "generate", *words)[1])["devices"]
        environments = [device["containerEdits"]["env"] for device in devices]
        self.assertEqual(environments, [["TENDRIL_MEMORY=10G"], ["TENDRIL_SLICE=0.50"]])
        out = tendril("cdi", "generate", "-s", "gpu1", "-n", "2", "--device", "both=0.5,10G")[1]
        edits = json.loads(out)
        self.assertIn("TENDRIL_GPUS=2", edits["containerEdits"]["env"])
        both = edits["devices"][0]["containerEdits"]["env"]
        self.assertEqual(both, ["TENDRIL_SLICE=0.50", "TENDRIL_MEMORY=10G"])
        for wrong in ("half", "=0.5", "a b=0.5", "half=2", "half=much", "a=10G,0.5", "a=0.5,9"):
            status, _, err = tendril("cdi", "generate", "-s", "gpu1", "--device", wrong)
            self.assertEqual(status, 1)
            self.assertIn("is no device", err)


@unittest.skipUnless(os.geteuid() == 0, "NOT ROOT: no loader's configuration was changed")
class Machines(unittest.TestCase):
    """A small machine below a folder, in which only root of this one can work."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tendril-e2e-")
        self.addCleanup(folder.cleanup)
        self.root = small_root.make(folder.name, VECTOR_ADD)
        (self.root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
        self.entry = self.root / "etc/ld.so.conf.d/00-tendril.conf"

    def installed(self, *words):
        status, out, err = tendril("install-client", "--root", str(self.root), *words)
        return status, out + err

    def vector_add(self, **variables):
        return subprocess.run(
            [CHROOT, self.root, "/bin/vector_add", "1000"],
            capture_output=True,
            text=True,
            env=variables,
            check=False,
        )

    def test_programs_find_the_library_until_it_is_undone(self):
        small_root.install_client(self.root)
        with Server("--unix", self.root / "run/server") as server:
            self.assertEqual(self.vector_add().returncode, 127)
            status, said = self.installed()
            self.assertEqual(status, 0, said)
            self.assertIn("--undo", said)
            done = self.vector_add(TENDRIL_SERVERS="unix:/run/server", TENDRIL_SLICE="0.5")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertTrue(harness.eventually(server.idle))
            self.assertEqual(self.installed()[0], 0)  # once more does no harm
            self.assertEqual(self.installed("--undo")[0], 0)
            self.assertFalse(self.entry.exists())
            self.assertEqual(self.vector_add().returncode, 127)
            self.assertIn("nothing to undo", self.installed("--undo")[1])

    def test_a_driver_of_the_machine_stays(self):
        small_root.install_client(self.root)
        place = next(self.root.rglob("libc.so.6")).parent
        shutil.copy(harness.CLIENT, place)
        status, said = self.installed()
        self.assertEqual(status, 1)
        self.assertIn("has a driver of its own, /" + str(place.relative_to(self.root)), said)
        self.assertFalse(self.entry.exists())

    def test_what_others_can_change_is_not_for_all(self):
        small_root.install_client(self.root)
        library = self.root / "usr/lib/tendril/libcuda.so.1"
        library.chmod(0o777)
        status, said = self.installed()
        self.assertEqual(status, 1)
        self.assertIn(f"'{library}' can be changed by users other than root", said)

    def test_an_entry_of_others_is_not_touched(self):
        small_root.install_client(self.root)
        self.entry.parent.mkdir()
        self.entry.write_text("/usr/lib/other\n")
        for words in ([], ["--undo"]):
            status, said = self.installed(*words)
            self.assertEqual(status, 1)
            self.assertIn("was not written by", said)
        self.assertEqual(self.entry.read_text(), "/usr/lib/other\n")

    def test_a_missing_library_is_named(self):
        status, said = self.installed()
        self.assertEqual(status, 1)
        self.assertIn("/usr/lib/tendril/libcuda.so.1", said)


class Podman:
    """podman with a storage of its own and without a network. runc, because crun refuses machines
    with both versions of cgroups."""

    def __init__(self, folder):
        self.words = ["podman", "--runtime", "runc", "--storage-driver", "vfs"]
        self.words += ["--root", f"{folder}/store", "--runroot", f"{folder}/run"]
        self.words += ["--cgroup-manager", "cgroupfs", "--events-backend", "file"]
        self.root = small_root.make(f"{folder}/a root", VECTOR_ADD, OPENCL)
        if LOADER:
            (self.root / "usr/bin").mkdir(exist_ok=True)
            place = self.root / str(LOADER).lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(LOADER, place)

    def run(self, *options):
        """The words of a container in that root."""
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
        return [*self.words, "run", "--rm", "--network", "none", *limits, *options, "--rootfs",
                str(self.root)]  # fmt: skip


def ran(words, **variables):
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=120,
        env=harness.clean_environment(**variables),
        check=False,
    )


class Containers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0 or not (shutil.which("podman") and shutil.which("runc")):
            raise unittest.SkipTest("NO podman, runc OR root HERE: no container was started")
        folder = tempfile.TemporaryDirectory(prefix="tendril-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder, cls.podman = folder.name, Podman(folder.name)
        tried = ran([*cls.podman.run(), "/bin/sh", "-c", "exit 7"])
        if tried.returncode != 7:
            raise unittest.SkipTest(f"podman STARTS NOTHING HERE: {tried.stderr}")

    def check(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("PASS", done.stdout)

    def test_a_server_of_this_machine_by_command_substitution(self):
        with Server("--sockets", "auto") as server:
            option = f"$({harness.TENDRIL} env --docker -s {server.endpoint} -p 0.5)"
            words = [*self.podman.run(), "/bin/vector_add", "1000"]
            line = " ".join(f"'{word}'" for word in words).replace("'run'", f"run {option}")
            self.check(ran(["sh", "-c", line]))

    def test_any_user_blanks_and_a_token(self):
        """The library lies in a folder with a blank, and only root of this machine can read the
        token. The image's own LD_LIBRARY_PATH stays."""
        token, client = pathlib.Path(self.folder, "token"), pathlib.Path(self.folder, "a client")
        token.write_text("a secret of sixteen characters\n", encoding="ascii")
        token.chmod(0o600)
        shutil.copytree(harness.CLIENT.parent, client, symlinks=True)
        with Server("--token-file", token, "--unix", "FOLDER/socket") as server:
            os.chmod(server.folder, 0o755)
            os.chmod(f"{server.folder}/socket", 0o666)
            script = 'echo "$LD_LIBRARY_PATH"; exec /bin/vector_add 1000'
            options = ["-e", "LD_LIBRARY_PATH=/the/image", "--user", "1234:1234"]
            words = ["env", "--docker", "-s", f"unix:{server.folder}/socket", "-p", "1/2"]
            words += ["--token-file", token, "--", *self.podman.run(*options)]
            done = ran([harness.TENDRIL, *words, "/bin/sh", "-c", script],
                       TENDRIL_CLIENT_DIR=str(client))  # fmt: skip
            self.check(done)
            self.assertIn("/the/image\n", done.stdout)

    def test_nvidia_smi(self):
        with Server("--unix", "FOLDER/socket") as server:
            words = ["env", "--docker", "-s", f"unix:{server.folder}/socket", "-p", "0.5", "--"]
            query = ["/usr/bin/nvidia-smi", "--query-gpu=memory.total", "--format=noheader"]
            done = ran([harness.TENDRIL, *words, *self.podman.run(), *query])
            self.assertEqual((done.returncode, done.stdout), (0, "512 MiB\n"), done.stderr)

    @unittest.skipUnless(LOADER and pathlib.Path("/etc/OpenCL/vendors/pocl.icd").exists(),
                         "NO PoCL HERE: OpenCL in containers was not tried")  # fmt: skip
    def test_opencl(self):
        """The image has a loader and no driver."""
        words = ["serve", "--opencl", "--port", 0, "--audit-log", "off", "--sockets", "FOLDER/s"]
        with Daemon([*words, "--unix", "FOLDER/socket"]) as server:
            place = f"unix:{server.folder}/socket"
            program = ["/bin/tendril_opencl_program", "kernels"]
            words = ["env", "--docker", "-s", place, "-p", "0.5", "--opencl", "--"]
            done = ran([harness.TENDRIL, *words, *self.podman.run(), *program])
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr + server.log())
            self.assertIn("0 failures", done.stdout)
            device = self.cdi_device("-s", place, "--opencl")
            done = ran([*self.podman.run("--device", device), *program])
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr + server.log())
            self.assertIn("0 failures", done.stdout)
            plain = ran([*self.podman.run(), *program])
            self.assertNotEqual(plain.returncode, 0, plain.stdout)

    def cdi_device(self, *words):
        """The name of half a GPU, whose file is where podman reads it."""
        name = f"e2e-{os.getpid()}"
        file = pathlib.Path(f"/var/run/cdi/tendril-{name}.json")
        file.parent.mkdir(exist_ok=True)
        self.addCleanup(file.unlink)
        words = (*words, "--device", f"{name}=0.5", "-o", str(file))
        self.assertEqual(tendril("cdi", "generate", *words), (0, "", ""))
        return f"tendril.io/gpu={name}"

    def test_a_device_of_cdi(self):
        with Server("--unix", "FOLDER/socket") as server:
            device = self.cdi_device("-s", f"unix:{server.folder}/socket")
            script = 'echo "$TENDRIL_SLICE"; exec /bin/vector_add 1000'
            done = ran([*self.podman.run("--device", device), "/bin/sh", "-c", script])
            self.check(done)
            self.assertIn("0.50\n", done.stdout)


class Compose(unittest.TestCase):
    """packaging/compose.yaml with docker-compose in front of podman (podman-compose 1.0 knows no
    containers without a network): a server and a program in images made of this build."""

    FILE = pathlib.Path(__file__).parents[3] / "packaging" / "compose.yaml"
    STORAGE = '[storage]\ndriver = "vfs"\ngraphroot = "{0}/store"\nrunroot = "{0}/run"\n'
    CONTAINERS = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""

    def setUp(self):
        needed = ("podman", "runc", "docker-compose")
        if os.geteuid() != 0 or not all(shutil.which(name) for name in needed):
            self.skipTest("NO docker-compose, podman, runc OR root HERE: compose.yaml was not run")
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="tendril-e2e-"))
        pathlib.Path(self.folder, "storage").write_text(self.STORAGE.format(self.folder))
        pathlib.Path(self.folder, "containers").write_text(self.CONTAINERS)
        self.variables = {
            "CONTAINERS_STORAGE_CONF": f"{self.folder}/storage",
            "CONTAINERS_CONF": f"{self.folder}/containers",
            "IMAGE": "localhost/program",
            "COMMAND": "/bin/vector_add 1000",
            "DOCKER_HOST": f"unix://{self.folder}/socket",
        }
        self.addCleanup(self.podman, "rm", "--all", "--force")

    def podman(self, *words):
        return ran(["podman", *words], **self.variables)

    def make_image(self, name, root, *changes):
        done = subprocess.run(["tar", "-C", root, "-cf", f"{self.folder}/tar", "."], check=False)
        self.assertEqual(done.returncode, 0)
        words = [word for change in changes for word in ("--change", change)]
        done = self.podman("import", *words, f"{self.folder}/tar", name)
        self.assertEqual(done.returncode, 0, done.stderr)

    def make_images(self):
        binaries = harness.BUILD / "bin"
        server = [binaries / "tendril", binaries / "tendril-worker", harness.DRIVER]
        root = small_root.make(f"{self.folder}/server", *server)
        for place, source in (
            ("usr/libexec/tendril", binaries / "tendril-worker"),
            ("usr/lib/tendril-softgpu", harness.DRIVER),
            ("usr/lib/tendril-softgpu", harness.BUILD / "lib" / "libtendril-softgpu-nvml.so"),
            ("usr/bin", binaries / "tendril"),
        ):
            (root / place).mkdir(parents=True, exist_ok=True)
            shutil.copy(source, root / place)
        self.make_image("localhost/tendril-server", root, 'ENTRYPOINT ["/usr/bin/tendril"]')
        root = small_root.make(f"{self.folder}/program", VECTOR_ADD, shutil.which("sleep"))
        small_root.install_client(root)
        self.make_image("localhost/program", root, "ENV LD_LIBRARY_PATH=/usr/lib/tendril")

    def test_a_server_and_a_program(self):
        self.make_images()
        service = subprocess.Popen(
            ["podman", "system", "service", "--time=0", self.variables["DOCKER_HOST"]],
            env=harness.clean_environment(**self.variables),
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(harness.end, service)
        harness.eventually(pathlib.Path(self.folder, "socket").exists, 20, "podman's service")
        words = ["docker-compose", "-f", str(self.FILE), "-p", "tried"]
        up = [*words, "up", "--no-color", "--exit-code-from", "program"]
        done = ran(up, **self.variables)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("PASS", done.stdout)
        done = ran([*words, "down", "--volumes"], **self.variables)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
