# SPDX-License-Identifier: Apache-2.0
"""The repository as the structure tests see it: which files there are, their text, and git's
history of one of them."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

CPP = (".cc", ".h", ".cpp", ".hpp", ".c", ".cu")
ROOMS = (
    "api",
    "base",
    "wire",
    "transport",
    "session",
    "client",
    "worker",
    "gpu",
    "softgpu",
    "softnccl",
    "access",
    "identity",
    "reception",
    "daemon",
    "pool",
    "store",
    "scheduler",
    "cli",
    "dashboard",
    "demo",
    "tests",
    "bench",
    "tools",
    "packaging",
)


def git(*arguments):
    """Output of a git command in the repository, or None where it fails (no git, no such
    commit)."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def files():
    """Every file that is in git or not ignored, as relative paths with forward slashes."""
    listing = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listing is None:
        raise RuntimeError("the structure tests need the git repository")
    return sorted({name for name in listing.split("\0") if name and (ROOT / name).is_file()})


def text(name):
    """A file's text; undecodable bytes stay visible as replacement characters."""
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


def is_script(name):
    """Programs without a suffix: shell or Python by their first line."""
    path = ROOT / name
    if "." in path.name.lstrip(".") or path.is_symlink():
        return False
    with open(path, "rb") as stream:
        return stream.read(2) == b"#!"


def room(name):
    """The room a file lies in: its first folder."""
    return name.split("/", 1)[0] if "/" in name else ""
