# SPDX-License-Identifier: Apache-2.0
"""RDMA cards for real processes (tests/cards), and what goes wrong with them."""

import enum
import mmap
import os
import pathlib
import re
import struct
import tempfile

from harness import BUILD

LIBRARY = BUILD / "lib" / "libtendril-cards.so"
KERNEL = BUILD / "lib" / "libtendril-cards-kernel.so"  # a machine without the library
MARK = 0x31445243
FILE_BYTES = 160 << 20  # most of it is never touched


class Fault(enum.IntEnum):
    """As in tests/cards/fabric.h."""

    UNANSWERED = 1
    ANSWER_LOST = 2
    NOT_READY = 3
    REMOTE_ACCESS = 4
    LOCAL_ACCESS = 5
    OTHER = 6
    REPORTS_LOST = 7
    TELLING_LOST = 8
    PAIR_STOPS = 9
    PEER_PAIR_STOPS = 10
    CABLE_OUT = 11
    CARD_DIES = 12
    NOBODY_IS_WOKEN = 13


class Cards:
    """One fabric. Use as a context manager. All processes with `environment` have a card on it."""

    CABLE, ARMED, HAPPENED, COUNTDOWN, WORKS = 4, 8, 12, 16, 24

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix="tendril-cards-")
        os.chmod(self.file.name, 0o666)  # workers may have another user
        self.file.truncate(FILE_BYTES)
        self.shared = mmap.mmap(self.file.fileno(), mmap.PAGESIZE)
        struct.pack_into("<I", self.shared, 0, MARK)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shared.close()
        self.file.close()

    def environment(self, *options, **more):
        """For one end. Options: see tests/cards/card.h."""
        words = ",".join((self.file.name, *options))
        return {"LD_PRELOAD": str(LIBRARY), "TENDRIL_RDMA_DOUBLE": words, **more}

    def look(self, at, form="<I"):
        return struct.unpack_from(form, self.shared, at)[0]

    @property
    def happened(self):
        return self.look(self.HAPPENED)

    @property
    def works(self):
        return self.look(self.WORKS, "<Q")

    def arm(self, fault, after_works):
        """The work after so many more meets it, whichever card does it. 0: none."""
        struct.pack_into("<I", self.shared, self.ARMED, 0)
        struct.pack_into("<Q", self.shared, self.COUNTDOWN, after_works)
        struct.pack_into("<I", self.shared, self.ARMED, fault)

    def set_cable(self, is_in):
        struct.pack_into("<I", self.shared, self.CABLE, 0 if is_in else 1)

    def take_away(self):
        """All cards."""
        struct.pack_into("<I", self.shared, self.CABLE, 2)

    def put_back(self):
        self.set_cable(True)


def remembered(cache):
    """The file in which a client remembers its one way (session/choice/ways.h)."""
    (way,) = pathlib.Path(cache, "tendril", "ways").iterdir()
    return way


def worse_connections(text):
    """What is remembered of a way, with connections that are worse than anything."""
    return re.sub(r"(-\d+ \d+) .*", r"\1 1000000 0.000001 1 1", text, count=1)
