#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the Python wheel `tendril` from a build: the command and the client libraries, which pip
puts into the bin and lib of an environment. There is no Python code in it. Equal builds give equal
bytes. Called by scripts/packages.

    packaging/wheel.py BUILD_FOLDER VERSION OUTPUT_FOLDER
"""

import base64
import hashlib
import pathlib
import sys
import zipfile

# The client needs glibc 2.28 (cmake/portable.cmake), and any Python 3 will do.
TAG = "py3-none-manylinux_2_28_x86_64"
WHEN = (2026, 1, 1, 0, 0, 0)


def contents(build, version):
    """(name in the wheel, bytes, is executable) of everything but the list of files."""
    data, info = f"tendril-{version}.data", f"tendril-{version}.dist-info"
    for name in ("tendril", "tendril-bench"):
        yield f"{data}/scripts/{name}", (build / "bin" / name).read_bytes(), True
    for name in (
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        "nccl/libnccl.so.2",
        "opencl/libtendril-opencl.so",
        "opencl/tendril.icd",
        "opencl/container/tendril.icd",
        "bin/nvidia-smi",
    ):
        content = (build / "lib" / "client" / name).read_bytes()
        yield f"{data}/data/lib/tendril/{name}", content, name.startswith("bin/")
    metadata = f"""Metadata-Version: 2.1
Name: tendril
Version: {version}
Summary: Attaches unmodified CUDA programs to slices of GPUs in the network
License: Apache-2.0
Requires-Python: >=3.6
Description-Content-Type: text/plain

The command tendril and the libraries that CUDA programs load. 'tendril run -- python train.py' runs
a program on a leased GPU, on a machine that has neither GPU nor driver.
"""
    yield f"{info}/METADATA", metadata.encode(), False
    wheel = f"Wheel-Version: 1.0\nGenerator: tendril\nRoot-Is-Purelib: false\nTag: {TAG}\n"
    yield f"{info}/WHEEL", wheel.encode(), False


def write(path, build, version):
    record = f"tendril-{version}.dist-info/RECORD"
    rows = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name, content, executable):
            entry = zipfile.ZipInfo(name, WHEN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, content)

        for name, content, executable in contents(build, version):
            add(name, content, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            rows.append(f"{name},sha256={digest.decode()},{len(content)}")
        add(record, "\n".join([*rows, f"{record},,", ""]).encode(), False)


def main():
    if len(sys.argv) != 4:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    build, version, output = sys.argv[1:]
    path = pathlib.Path(output, f"tendril-{version}-{TAG}.whl")
    write(path, pathlib.Path(build), version)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
