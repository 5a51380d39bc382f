# SPDX-License-Identifier: Apache-2.0
"""Suites of others, natively and through Tendril, compared test by test: what passes natively
passes through Tendril, on PoCL and on the machine's other drivers without hardware. scripts/test
runs a sample, a part of it over TCP and a part over shared memory. With
TENDRIL_OPENCL_SUITES=whole (scripts/longtest opencl) everything runs over both."""

import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from server import HAS_LOADER, HAS_POCL, POCL, WHOLE, OpenclServer, natively, run
from harness import ADDRESS_SANITIZED, THREAD_SANITIZED

SUITES = pathlib.Path(__file__).resolve().parent / "suites"
sys.path.insert(0, str(SUITES))
import parts  # noqa: E402

LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
HAS_PIGLIT = (LIBRARIES / "piglit" / "tests" / "cl.xml.gz").exists()
CTS = {name: value for name, value in os.environ.items() if name.startswith("TENDRIL_OPENCL_CTS")}
GOOD = ("pass", "skip", "warn")
# Parts of names of tests that ask for what devices truthfully do not have through Tendril.
NOT_CLAIMED = ("fine_grain_svm",)
HOURS = 6 * 3600


class Comparison(unittest.TestCase):
    """A server in front of one driver. `found`: where the loader finds it."""

    found = {}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        os.chmod(cls.folder.name, 0o755)
        cls.server = OpenclServer("--warm", 2, environment=cls.environment())
        cls.home = tempfile.TemporaryDirectory()

    @classmethod
    def environment(cls):
        return cls.found

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.home.cleanup()
        cls.folder.cleanup()

    def places(self):
        """Where programs may write."""
        return {"HOME": self.home.name, "XDG_CACHE_HOME": self.home.name}

    def compare(self, runner, every, shares, python=sys.executable, seconds=HOURS, **environment):
        """`shares`: (transport, part, parts) of the suite that go over it."""
        words = [python, SUITES / f"{runner}.py", "1" if WHOLE else str(every)]
        if WHOLE:
            shares = [("tcp", 0, 1), ("shm", 0, 1)]
        wanted, environment = {}, {**environment, **self.places()}
        for transport, part, parts in shares:
            numbers = [str(part), str(parts)]
            if (part, parts) not in wanted:
                given = {**environment, **self.environment()}
                done = natively([*words, *numbers], seconds=seconds, **given)
                self.assertEqual(done.returncode, 0, done.stderr)
                wanted[part, parts] = json.loads(done.stdout)
            natively_said = wanted[part, parts]["results"]
            with self.subTest(transport):
                done = run(
                    self.server,
                    [*words, *numbers],
                    seconds=seconds,
                    TENDRIL_TRANSPORT=transport,
                    TENDRIL_SUITE_SECONDS=json.dumps(wanted[part, parts]["seconds"]),
                    **environment,
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                said = json.loads(done.stdout)["results"]
                passed = collections.Counter(natively_said.values())
                print(f"{runner} over {transport}: natively {dict(passed)}", file=sys.stderr)
                self.assertGreater(passed["pass"], 0)
                lost = {
                    name: (result, said.get(name))
                    for name, result in natively_said.items()
                    if result in GOOD
                    and said.get(name) not in ("pass", result)
                    and not (said.get(name) == "skip" and any(map(name.count, NOT_CLAIMED)))
                }
                self.assertEqual(lost, {})

    def check_clinfo(self):
        """It ends well, and finds as many devices as natively."""
        wanted = natively(["clinfo", "-l"], **self.environment()).stdout.count("Device #")
        done = run(self.server, ["clinfo", "-l"])
        self.assertEqual((done.returncode, done.stdout.count("Device #")), (0, 1), done.stderr)
        self.assertGreater(wanted, 0)
        done = run(self.server, ["clinfo"])
        self.assertEqual(done.returncode, 0, done.stderr)


class Parts(unittest.TestCase):
    """What the runners have in common."""

    def test_a_program_that_hangs_is_stopped_soon(self):
        """It took no time before, so it gets a minute. The runner goes on with the others."""
        self.assertEqual(parts.limit_after(0), 60)
        self.assertEqual(parts.limit_after(parts.SECONDS), parts.SECONDS)
        code = (
            "import parts\n"
            "parts.limit_after = lambda seconds: seconds / 100\n"
            "hangs, ends = ['sleep', '1000'], ['true']\n"
            "parts.main(lambda every: [hangs, ends], lambda words: {words[0]: parts.run(words)[0]})"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, "1", "0", "1"],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "TENDRIL_SUITE_SECONDS": '{"0": 10}', "PYTHONPATH": str(SUITES)},
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said["results"], {"sleep": None, "true": 0})
        self.assertLess(said["seconds"]["1"], 10)


def some_each():
    return [("tcp", 0, 3), ("shm", 1, 3)]


@unittest.skipUnless(HAS_POCL, "PoCL (Debian's pocl-opencl-icd) is not installed")
@unittest.skipIf(THREAD_SANITIZED or ADDRESS_SANITIZED, "the loader is not sanitized")
class Pocl(Comparison):
    found = POCL

    @unittest.skipUnless(HAS_PIGLIT, "Debian's piglit is not installed")
    def test_piglit(self):
        self.compare("piglit", 150, some_each())

    @unittest.skipUnless(shutil.which("clblast_test_xaxpy"), "clblast-tests is not installed")
    def test_clblast(self):
        self.compare("clblast", 22, [("tcp", 0, 2), ("shm", 1, 2)])

    @unittest.skipUnless(
        os.environ.get("TENDRIL_PYOPENCL_TESTS"),
        "TENDRIL_PYOPENCL_TESTS does not say where pyopencl's tests are (scripts/longtest opencl)",
    )
    def test_pyopencl(self):
        folder = os.environ["TENDRIL_PYOPENCL_TESTS"]
        self.compare("pyopencl", 1, some_each(), "/usr/bin/python3", TENDRIL_PYOPENCL_TESTS=folder)

    @unittest.skipUnless(
        CTS.get("TENDRIL_OPENCL_CTS"),
        "TENDRIL_OPENCL_CTS does not say where programs of Khronos' suite are (suites/cts.py)",
    )
    def test_cts(self):
        every = 1 if CTS.get("TENDRIL_OPENCL_CTS_PROGRAMS") else 40
        self.compare("cts", every, some_each(), **CTS)

    @unittest.skipUnless(shutil.which("clinfo"), "Debian's clinfo is not installed")
    def test_clinfo(self):
        self.check_clinfo()

    @unittest.skipUnless(shutil.which("clpeak"), "Debian's clpeak is not installed")
    def test_clpeak(self):
        options = [] if WHOLE else ["--kernel-latency", "--transfer-bandwidth"]
        done = run(self.server, ["clpeak", *options], seconds=HOURS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"Kernel launch latency : +\d")
        self.assertRegex(done.stdout, r"memcpy from mapped ptr +: +\d")


@unittest.skipIf(THREAD_SANITIZED or ADDRESS_SANITIZED, "the loader is not sanitized")
class Oclgrind(Comparison):
    """A simulator, which runs commands when their queue is flushed."""

    library = pathlib.Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
    more = {}

    @classmethod
    def setUpClass(cls):
        if not HAS_LOADER or not cls.library.exists():
            raise unittest.SkipTest(f"{cls.library} is not installed")
        super().setUpClass()

    @classmethod
    def environment(cls):
        """Debian does not give every driver a file for loaders."""
        vendor = pathlib.Path(cls.folder.name, "driver.icd")
        vendor.write_text(f"{cls.library}\n", encoding="utf-8")
        return {"OCL_ICD_VENDORS": cls.folder.name, **cls.more}

    @unittest.skipUnless(HAS_PIGLIT, "Debian's piglit is not installed")
    def test_piglit(self):
        self.compare("piglit", 200, [("tcp", 2, 6)])

    @unittest.skipUnless(shutil.which("clinfo"), "Debian's clinfo is not installed")
    def test_clinfo(self):
        self.check_clinfo()


class Rusticl(Oclgrind):
    """Mesa's, over its software renderer."""

    library = LIBRARIES / "libRusticlOpenCL.so.1"
    more = {"RUSTICL_ENABLE": "llvmpipe"}


if __name__ == "__main__":
    unittest.main()
