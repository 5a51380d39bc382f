# SPDX-License-Identifier: Apache-2.0
"""Notebooks: `tendril jupyter install`, and a real kernel (Debian's python3-ipykernel) that is
driven as Jupyter drives it. What is missing here is named."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import harness
from harness import Server, eventually, tendril

PYTHON = "/usr/bin/python3"

# Runs in that Python: a line of JSON for each cell that it reads, with what the notebook shows.
NOTEBOOK = """
import json, sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name=sys.argv[1], startup_timeout=60)
try:
    for cell in sys.stdin:
        shown = []
        def show(message):
            content = message["content"]
            shown.append(content.get("text") or "".join(content.get("traceback", [])))
        client.execute_interactive(json.loads(cell), output_hook=show, timeout=60)
        print(json.dumps("".join(shown)), flush=True)
finally:
    client.stop_channels()
    manager.shutdown_kernel()
"""

# A program's first steps, as a framework does them.
ATTACH = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
print([cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
       cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
       cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20))])
"""


def has_kernel():
    wanted = [PYTHON, "-c", "import ipykernel, jupyter_client"]
    return os.path.exists(PYTHON) and subprocess.run(wanted, check=False).returncode == 0


class Notebook:
    """One kernel. Use as a context manager; `run` runs a cell and returns what it shows."""

    def __init__(self, name, **environment):
        self.process = subprocess.Popen(
            [PYTHON, "-c", NOTEBOOK, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=harness.clean_environment(**environment),
        )

    def __enter__(self):
        return self

    def run(self, cell):
        self.process.stdin.write(json.dumps(cell) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


class Jupyter(unittest.TestCase):
    def setUp(self):
        if not has_kernel():
            self.skipTest("NO python3-ipykernel AND jupyter-client HERE: no notebook was run")
        folder = tempfile.TemporaryDirectory(prefix="tendril-e2e-")
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name, "a home")
        self.home.mkdir()
        self.variables = {"HOME": str(self.home), "JUPYTER_DATA_DIR": str(self.home / "jupyter")}

    def installed(self, *words):
        words = ("jupyter", "install", "--python", PYTHON, *words)
        return tendril(*words, **self.variables)

    def test_a_notebook_attaches_at_its_first_use_and_says_what_it_has(self):
        with Server() as server:
            status, out, err = self.installed("-s", server.endpoint, "-p", "0.5", "--name", "half")
            self.assertEqual((status, err), (0, ""))
            self.assertIn("'jupyter kernelspec remove half' takes this back", out)
            with Notebook("half", **self.variables) as notebook:
                self.assertEqual(notebook.run("print(6 * 7)"), "42\n")
                self.assertIn("GPU: none yet", notebook.run("%gpu"))
                self.assertEqual(server.leases(), [])
                shown = notebook.run(ATTACH)
                self.assertIn("[0, 0, 0, 0]", shown)
                line = rf"GPU: 0.5 of Tendril Test Device \S+ on {server.endpoint}, .* of 0.5 GiB"
                self.assertRegex(shown, line)
                self.assertEqual(len(server.leases()), 1)
                self.assertEqual(notebook.run("1; print('next')"), "next\n")
                self.assertRegex(notebook.run("%gpu"), line)
            eventually(server.idle, 20, "no lease after the kernel")

    def test_a_python_without_kernel_is_named(self):
        bare = self.home / "python"
        bare.write_text(f"#!/bin/sh\nexec {PYTHON} -I -S \"$@\"\n", encoding="ascii")
        bare.chmod(0o755)
        words = ("jupyter", "install", "-s", "gpu1", "--python", str(bare))
        status, out, err = tendril(*words, **self.variables)
        self.assertEqual((status, out), (1, ""))
        self.assertIn("No module named 'ipykernel'; install ipykernel there", err)
        self.assertFalse((self.home / "jupyter").exists())

    def test_what_cannot_be_a_name_is_refused(self):
        status, _, err = self.installed("-s", "gpu1", "--name", "../half")
        self.assertEqual(status, 2)
        self.assertIn("a kernel's name has small letters", err)

    def test_the_place_can_be_chosen(self):
        prefix = self.home / "prefix"
        self.assertEqual(self.installed("-s", "gpu1", "-m", "10G", "--prefix", str(prefix))[0], 0)
        folder = prefix / "share/jupyter/kernels/tendril"
        kernel = json.loads((folder / "kernel.json").read_text(encoding="utf-8"))
        self.assertEqual(kernel["display_name"], "Python 3 with 10G of a network GPU")
        self.assertEqual(kernel["argv"][2], str(folder / "kernel.py"))
        self.assertEqual(kernel["env"]["TENDRIL_MEMORY"], "10G")


if __name__ == "__main__":
    unittest.main()
