# SPDX-License-Identifier: Apache-2.0
"""What the OpenCL tests have in common: a server that lends OpenCL devices, and programs that use
them through it or natively."""

import ctypes.util
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from harness import PROGRAMS, TENDRIL, Daemon, clean_environment  # noqa: E402

PROGRAM = PROGRAMS / "tendril_opencl_program"
HAS_LOADER = bool(ctypes.util.find_library("OpenCL"))
POCL_FILE = pathlib.Path("/etc/OpenCL/vendors/pocl.icd")
HAS_POCL = POCL_FILE.exists() and HAS_LOADER
PYTHON = "/usr/bin/python3"  # for which Debian's python3-pyopencl is
HAS_PYOPENCL = (
    os.path.exists(PYTHON)
    and subprocess.run([PYTHON, "-c", "import pyopencl"], capture_output=True).returncode == 0
)
# scripts/longtest opencl: also what takes hours.
WHOLE = os.environ.get("TENDRIL_OPENCL_SUITES") == "whole"
POCL = {"OCL_ICD_VENDORS": str(POCL_FILE)}  # and no other driver of the machine


class OpenclServer(Daemon):
    """`tendril serve --opencl` on a free port, in front of PoCL unless `environment` names another
    driver."""

    def __init__(self, *options, environment=None):
        words = ["serve", "--opencl", "--port", 0, "--audit-log", "off", "--sockets", "FOLDER/s"]
        super().__init__([*words, *options], POCL if environment is None else environment)

    def session_worker(self):
        """The worker of the newest session, named in the log."""
        lines = [line for line in self.log().splitlines() if " on lease " in line]
        return int(lines[-1].rsplit("worker ", 1)[1])


def run(server, words, *options, seconds=120, **environment):
    """`tendril run`, for a program with the server's devices."""
    return subprocess.run(
        [TENDRIL, "run", *options, "--", *words],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=clean_environment(**{"TENDRIL_SERVERS": server.endpoint, **environment}),
        check=False,
    )


def natively(words, seconds=120, **environment):
    with tempfile.TemporaryDirectory() as cache:
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=clean_environment(**{"POCL_CACHE_DIR": cache, **POCL, **environment}),
            check=False,
        )


class Working:
    """A program that runs kernels until it is ended, and says each second how many it did."""

    def __init__(self, server, words, *options, **environment):
        self.process = subprocess.Popen(
            [TENDRIL, "run", *options, "--", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=clean_environment(TENDRIL_SERVERS=server.endpoint, **environment),
        )

    def kernels(self):
        """Of the next second."""
        line = self.process.stdout.readline()
        if not line.endswith(" kernels\n"):
            raise AssertionError(line + self.process.stdout.read())
        return int(line.split()[0])

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
