# SPDX-License-Identifier: Apache-2.0
"""PyTorch's wheel with CUDA, unmodified: it is imported, and every symbol of NCCL that its
libraries want is found, in the library that is preloaded. scripts/torch runs it. PyTorch's process
groups need a real GPU, because the CUDA runtime does not start on the software GPU."""

import ctypes
import os
import pathlib
import re
import subprocess


class Where(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    ]


def wanted(library):
    """The undefined symbols of NCCL in a library."""
    lines = subprocess.run(
        ["readelf", "--dyn-syms", "-W", library], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    rows = [line.split() for line in lines]
    names = {row[7].split("@")[0] for row in rows if len(row) > 7 and row[6] == "UND"}
    return {name for name in names if re.match(r"p?nccl[A-Z]", name)}


def main():
    ours = os.environ["LD_PRELOAD"].split(":")[0]
    import torch

    folder = pathlib.Path(torch.__file__).parent / "lib"
    names = set().union(*(wanted(library) for library in folder.glob("*.so*")))
    assert len(names) > 20, names
    everything = ctypes.CDLL(None)
    for name in sorted(names):
        where = Where()
        address = ctypes.cast(getattr(everything, name), ctypes.c_void_p)
        assert everything.dladdr(address, ctypes.byref(where)) != 0, name
        assert os.path.samefile(where.file.decode(), ours), (name, where.file)
    print(f"torch {torch.__version__}: {len(names)} symbols of NCCL, all found in {ours}")
    print("PASS", flush=True)


if __name__ == "__main__":
    main()
