# SPDX-License-Identifier: Apache-2.0
"""Runs piglit's tests of OpenCL (parts.py): all of the API's, and each EVERYth of the kernels. A
test has a result, and so has each of its parts."""

import gzip
import json
import pathlib
import re
import xml.etree.ElementTree

import parts

ROOT = pathlib.Path("/usr/lib/x86_64-linux-gnu/piglit")
PROFILE = ROOT / "tests" / "cl.xml.gz"


def programs(every):
    """(name, words) of each test that does not need graphics."""
    kernels = 0
    for test in xml.etree.ElementTree.fromstring(gzip.open(PROFILE).read()):
        name, option = test.get("name"), test.find("option")
        value = option.get("value").strip("[]'")
        if option.get("name") == "command" and not name.startswith("interop"):
            yield name, [str(ROOT / "bin" / value)]
        elif option.get("name") == "filename":
            kernels += 1
            if kernels % every == 0:
                yield name, [str(ROOT / "bin" / "cl-program-tester"), str(ROOT / value)]


def results(program):
    name, words = program
    status, text = parts.run(words)
    found = {}
    for said in re.findall(r"^PIGLIT: (\{.*\})", text, re.M):
        said = json.loads(said)
        if "result" in said:
            found[name] = said["result"]
        for part, result in said.get("subtest", {}).items():
            found[f"{name}: {part}"] = result
    return found or {name: f"ended with {status}"}


if __name__ == "__main__":
    parts.main(programs, results)
