# SPDX-License-Identifier: Apache-2.0
"""A Python package that the GPU machine lacks and that is too large for one journey: packed in
parcels, unpacked on arrival.

    tools/gpu/prepare --onnx      # where a package index is: .gpu-parcels/1, 2, ... (git-ignored)
    python3 tools/gpu/parcels.py  # on the GPU machine, once for each parcel that came, in any order

A parcel is a folder with one piece of an xz tar. Pieces are collected outside the copy of the
repository, where they stay from one call to the next as long as the machine does. With the
last piece the package is unpacked beside them, into SITE. The programs of the group `onnx`
get SITE as PYTHONPATH on every side. Nothing is installed, and the machine's own packages
stay as they are.
"""

import fnmatch
import importlib.util
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PARCELS = ROOT / ".gpu-parcels"
SITE = pathlib.Path(os.environ.get("GPU_PARCELS_SITE", "/tmp/tendril-gpu-site"))
PIECE_BYTES = 54 << 20  # 64 MiB travel at once, and the repository travels along each time
PIECE_NAME = re.compile(r"(?P<archive>.+)\.(?P<number>\d+)-of-(?P<count>\d+)")
# For the Python of the GPU machine, which may differ from the one here.
WANTED_BY = [
    "--python-version",
    "3.12",
    "--implementation",
    "cp",
    "--platform",
    "manylinux_2_28_x86_64",
]
# Parts of ONNX Runtime that are left out: another provider, the library for C programs (Python has
# its own), tools that no check uses.
LEFT_OUT = [
    "*/libonnxruntime_providers_tensorrt.so",
    "*/capi/libonnxruntime.so.*",
    *(
        f"onnxruntime/{folder}/*"
        for folder in ("transformers", "quantization", "tools", "datasets", "backend")
    ),
]


def pack_package(package):
    """Fetches the wheel of `package`, NAME==VERSION, from the index and packs it, which takes
    minutes. A package that is there stays."""
    if any(PARCELS.glob("1/" + package.replace("-", "_").replace("==", "-") + ".*")):
        return
    with tempfile.TemporaryDirectory() as fresh:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                *WANTED_BY,
                "--dest",
                fresh,
                package,
            ],
            check=True,
        )
        (wheel,) = pathlib.Path(fresh).glob("*.whl")
        pack(wheel, PARCELS, PIECE_BYTES)


def pack(wheel, parcels, piece_bytes):
    """One folder for each piece; returns how many. xz is a quarter smaller for machine code than
    the wheel's own compression."""
    with tempfile.TemporaryFile() as whole:
        with zipfile.ZipFile(wheel) as held, tarfile.open(
            fileobj=whole, mode="w:xz", preset=6
        ) as tar:
            for member in held.infolist():
                if member.is_dir() or any(
                    fnmatch.fnmatch(member.filename, left) for left in LEFT_OUT
                ):
                    continue
                info = tarfile.TarInfo(member.filename)
                info.size, info.mode = member.file_size, (
                    0o755 if ".so" in member.filename else 0o644
                )
                with held.open(member) as content:
                    tar.addfile(info, content)
        size = whole.tell()
        whole.seek(0)
        check = 0
        while block := whole.read(1 << 20):
            check = zlib.crc32(block, check)
        whole.seek(0)
        shutil.rmtree(parcels, ignore_errors=True)
        count = -(-size // piece_bytes)
        for number in range(1, count + 1):
            folder = parcels / str(number)
            folder.mkdir(parents=True)
            name = (  # pieces of two packings do not mix
                f"{wheel.stem.split('-cp')[0]}.{check:08x}.{number}-of-{count}"
            )
            (folder / name).write_bytes(whole.read(piece_bytes))
    return count


class Joined(io.RawIOBase):
    """Files one after another, as one to read from."""

    def __init__(self, paths):
        self.rest = list(paths)
        self.file = open(self.rest.pop(0), "rb")

    def readable(self):
        return True

    def readinto(self, buffer):
        while not (got := self.file.readinto(buffer)) and self.rest:
            self.file.close()
            self.file = open(self.rest.pop(0), "rb")
        return got

    def close(self):
        self.file.close()
        super().close()


def unpack(pieces, site):
    """`site` exists once all of it does; broken pieces leave nothing. The pieces are removed in
    any case, because they have to come again."""
    unfinished = site.with_name(site.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with Joined(pieces) as whole, tarfile.open(fileobj=whole, mode="r|xz") as tar:
            tar.extractall(unfinished, filter="data")
        shutil.rmtree(site, ignore_errors=True)
        unfinished.rename(site)
    finally:
        for piece in pieces:
            piece.unlink()


def collect(parcels, site):
    """Moves what has come beside `site` and unpacks each package that is complete. Returns what
    to print."""
    waiting = site.with_name(site.name + ".pieces")
    waiting.mkdir(parents=True, exist_ok=True)
    for piece in sorted(parcels.glob("*/*")):
        if PIECE_NAME.fullmatch(piece.name):
            shutil.move(piece, waiting / piece.name)
    found = {}
    for piece in waiting.iterdir():
        match = PIECE_NAME.fullmatch(piece.name)
        found.setdefault((match["archive"], int(match["count"])), {})[int(match["number"])] = piece
    told = []
    for (archive, count), pieces in sorted(found.items()):
        missing = [str(number) for number in range(1, count + 1) if number not in pieces]
        if missing:
            told.append(
                f"{archive}: {len(pieces)} of {count} pieces are here, missing: {' '.join(missing)}"
            )
            continue
        unpack([path for _, path in sorted(pieces.items())], site)
        told.append(f"{archive}: unpacked in {site}")
    return told or [f"nothing has come in {parcels}"]


def link_cuda_libraries(site):
    """ONNX Runtime's preload_dlls looks for CUDA's libraries beside itself. Links put those of
    this Python's packages there."""
    link, packages = site / "nvidia", importlib.util.find_spec("nvidia")
    if not site.is_dir() or os.path.lexists(link):
        return
    for folder in packages.submodule_search_locations if packages else ():
        if any(pathlib.Path(folder).glob("cu*/lib/libcudart.so.*")):
            link.symlink_to(pathlib.Path(folder).resolve())
            return
    print(
        "parcels: no CUDA libraries among this Python's packages; the loader's own path has to name"
        " them"
    )


def environment(site=SITE):
    """For programs that use what was unpacked, where there is any."""
    return {"PYTHONPATH": str(site)} if site.is_dir() else {}


def main():
    for line in collect(PARCELS, SITE):
        print(f"parcels: {line}")
    link_cuda_libraries(SITE)


if __name__ == "__main__":
    main()
