# SPDX-License-Identifier: Apache-2.0
"""A second machine, as far as the network goes: a namespace with two lines to this one, each a pair
of virtual interfaces. A line can lose every packet. Needs the right to make networks (root)."""

import contextlib
import ctypes
import os
import subprocess

CLONE_NEWNET = 0x40000000


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def remove_leftovers():
    """Of tests that were killed. With a network its lines go, too."""
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for name in (line.split()[0] for line in names.stdout.splitlines() if line.split()):
        owner = name[len("tendril-") :]
        if name.startswith("tendril-") and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def is_allowed():
    name = f"tendril-try-{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    except OSError:
        return False
    return made.returncode == 0


class Elsewhere:
    """Use as a context manager. `addresses`: its own, one on each line."""

    def __init__(self):
        number = os.getpid() % 250 + 1
        self.name = f"tendril-{os.getpid()}"
        self.lines = [f"tl{line}n{os.getpid() % 10**8}" for line in (0, 1)]
        self.networks = [f"10.{201 + line}.{number}" for line in (0, 1)]
        self.addresses = [f"{network}.2" for network in self.networks]

    def __enter__(self):
        remove_leftovers()
        ip("netns", "add", self.name)
        self.there("link", "set", "lo", "up")
        for line, network in zip(self.lines, self.networks):
            # Both ends have one name, each in its own namespace.
            peer = ("peer", "name", line, "netns", self.name)
            ip("link", "add", line, "type", "veth", *peer)
            ip("addr", "add", f"{network}.1/24", "dev", line)
            ip("link", "set", line, "up")
            self.there("addr", "add", f"{network}.2/24", "dev", line)
            self.there("link", "set", line, "up")
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", self.name], check=False)
        for line in self.lines:
            subprocess.run(["ip", "link", "del", line], capture_output=True, check=False)

    def there(self, *words):
        ip("-n", self.name, *words)

    def lose(self, line):
        """From now on nothing passes on that line, in either direction."""
        self.there("link", "set", self.lines[line], "down")

    def find(self, line):
        self.there("link", "set", self.lines[line], "up")

    @contextlib.contextmanager
    def inside(self):
        """Processes that are started meanwhile, and sockets that are made, are there."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net", "rb") as here:
            with open(f"/run/netns/{self.name}", "rb") as there:
                if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "cannot enter the network")
            try:
                yield
            finally:
                libc.setns(here.fileno(), CLONE_NEWNET)
