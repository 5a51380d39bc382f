# SPDX-License-Identifier: Apache-2.0
"""Runs pyopencl's own tests (parts.py), which lie in the folder TENDRIL_PYOPENCL_TESTS: those of
each EVERYth of its files. Debian's interpreter runs it."""

import os
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree

import parts

FOLDER = os.environ.get("TENDRIL_PYOPENCL_TESTS", "")


def programs(every):
    return sorted(pathlib.Path(FOLDER).glob("test_*.py"))[every - 1 :: every]


def results(program):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.xml")
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        status, _ = parts.run([sys.executable, *words, program], cwd=FOLDER)
        if not report.exists():
            return {program.name: f"ended with {status}"}
        found = {}
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            # The device, which the name says too, has another address each time.
            name = re.sub(r"0x[0-9a-f]+", "", case.get("name"))
            result = next((child.tag for child in case if child.tag != "system-out"), "pass")
            found[f"{program.stem}.{name}"] = {"skipped": "skip"}.get(result, result)
        return found


if __name__ == "__main__":
    parts.main(programs, results)
