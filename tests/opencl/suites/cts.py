# SPDX-License-Identifier: Apache-2.0
"""Runs Khronos' conformance tests of OpenCL (parts.py): each EVERYth of the programs that
TENDRIL_OPENCL_CTS_PROGRAMS names ("test_api test_svm"), or of all. TENDRIL_OPENCL_CTS is the folder
where they were built. Each test is a process of its own, in the suite's short mode."""

import json
import os
import pathlib
import re
import subprocess
import tempfile

import parts

FOLDER = pathlib.Path(os.environ.get("TENDRIL_OPENCL_CTS", ""))
WANTED = os.environ.get("TENDRIL_OPENCL_CTS_PROGRAMS", "").split()
# They need a window, another library, or hours.
LEFT_OUT = ("test_gl", "test_gles", "test_vulkan", "test_bruteforce", "test_conversions")
# So that they end soon.
OPTIONS = {"test_cl_get_info": ["small_images"], "test_image_streams": ["CL_FILTER_NEAREST"]}


def binaries():
    for path in sorted(FOLDER.rglob("test_*")):
        wanted = path.name in WANTED if WANTED else path.name not in LEFT_OUT
        if path.is_file() and not path.suffix and os.access(path, os.X_OK) and wanted:
            yield path


def programs(every):
    """(binary, test) of each EVERYth test."""
    found = []
    for binary in binaries():
        listed = subprocess.run([binary, "--list"], capture_output=True, text=True, check=False)
        found += [(binary, name) for name in re.findall(r"^\t(\S+)$", listed.stdout, re.M)]
    return found[every - 1 :: every]


def results(program):
    binary, test = program
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "results.json")
        words = [binary, *OPTIONS.get(binary.name, []), test]
        more = {"CL_WIMPY_MODE": "1", "CL_CONFORMANCE_RESULTS_FILENAME": str(report)}
        status, _ = parts.run(words, cwd=binary.parent, env={**os.environ, **more})
        said = json.loads(report.read_text())["results"].get(test) if report.exists() else None
    return {f"{binary.name} {test}": said or f"ended with {status}"}


if __name__ == "__main__":
    parts.main(programs, results)
