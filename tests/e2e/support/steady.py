# SPDX-License-Identifier: Apache-2.0
"""Programs that write the same whatever happens to their network, and what they write natively."""

import os
import subprocess
import tempfile

from harness import BUILD, CLIENT, DRIVER, PROGRAMS, clean_environment

SUITE = BUILD / "bin" / "tendril_conformance"
# Calls, copies of all sizes both ways, pinned and managed memory, host functions, streams.
STEADY = (
    ("streams_overlap", "4", "65536"),
    ("copy_sizes", "12"),
    ("changed_graph", "60"),
    ("host_memory", "40"),
    ("stream_memory", "40"),
    ("histogram", "4000000"),
)


def program(name, *arguments, path=CLIENT.parent, **environment):
    environment.setdefault("TENDRIL_TRANSPORT", "tcp")
    return subprocess.Popen(
        [PROGRAMS / name, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(LD_LIBRARY_PATH=str(path), **environment),
    )


def natively(*words):
    """What the program writes on the software GPU itself."""
    with tempfile.TemporaryDirectory(prefix="tendril-steady-") as folder:
        os.symlink(DRIVER, os.path.join(folder, "libcuda.so.1"))
        process = program(*words, path=folder)
        out, err = process.communicate(timeout=300)
        if process.returncode != 0:
            raise AssertionError(out + err)
        return out
