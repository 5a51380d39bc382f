# SPDX-License-Identifier: Apache-2.0
"""The file system of a small machine, made of this one's files: a shell, programs and the libraries
that they and the client library need. For chroot and for containers."""

import pathlib
import re
import shutil
import subprocess

import harness

# What the client libraries need, and what old loaders still look for.
MORE = ["libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6", "libc.so.6"]


def libraries_of(*programs):
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    found = set(re.findall(r"(/\S+) \(0x", said))
    folder = next(pathlib.Path(path).parent for path in found if "libc.so" in path)
    return found | {str(folder / name) for name in MORE}


def make(folder, *programs):
    """Returns the folder, which then has bin/sh, bin/env and these programs."""
    root = pathlib.Path(folder)
    tools = [shutil.which(tool) for tool in ("sh", "env", "cat")]
    for name in ("bin", "tmp", "proc", "sys", "dev", "etc", "run", "opt", "usr/lib"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for program in [*tools, *programs]:
        shutil.copy(program, root / "bin")
    for library in libraries_of(*tools, *programs):
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    return root


def install_client(root):
    """The client libraries where the package has them."""
    shutil.copytree(harness.CLIENT.parent, root / "usr/lib/tendril", symlinks=True)
