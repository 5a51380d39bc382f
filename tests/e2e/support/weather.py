# SPDX-License-Identifier: Apache-2.0
"""Bad weather on a wire: connections are reset, swallow what they were given, end in one direction,
stand still, or nobody comes through. What happens when is decided by a seed."""

import random
import socket
import threading
import time

from harness import eventually
from support.relay import Wire, reset

SESSION = 6  # connections: the lane, four for bulk data, one for acknowledgements


class Line(Wire):
    """A wire of the weather. It passes a reset on as a reset, as a network does."""

    def __init__(self, port):
        self.swallows = False
        super().__init__(port)

    def passing(self, number, to_server, data):
        data = super().passing(number, to_server, data)
        return b"" if self.swallows else data

    def was_reset(self, number, client, server):
        self.resets.add(number)
        reset(client)
        reset(server)

    def open_pairs(self):
        with self.lock:
            return sorted(self.pairs.items())

    def is_whole(self, since):
        """All connections of a session that began after the first `since` ones are there."""
        return sum(number >= since for number, _ in self.open_pairs()) >= SESSION

    def reset_some(self, chance):
        pairs = self.open_pairs()
        for number, (client, server, _) in chance.sample(pairs, chance.randint(1, len(pairs))):
            self.was_reset(number, client, server)

    def close_one_direction(self, chance):
        number, (client, server, _) = chance.choice(self.open_pairs())
        self.half_closed.add(number)
        try:
            chance.choice((client, server)).shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Weather:
    """Use as a context manager while programs run. `happened`: how often what did. `cuts`: how
    often the client had to connect again, or would have had. After `most` cuts it is calm."""

    def __init__(self, line, server, seed, most, shortest_s=0.02, longest_s=0.25):
        self.line, self.server, self.seed, self.most = line, server, seed, most
        self.random, self.mended_s, self.since = None, 0, len(line.recorded)
        self.times, self.before = (shortest_s, longest_s), self.sessions()
        self.over, self.happened = threading.Event(), {}
        self.thread = threading.Thread(target=self.run)

    # ---- what can happen; each returns whether it is a cut ----

    def all_are_reset(self):
        self.line.reset()
        return True

    def some_are_reset(self):
        self.line.reset_some(self.random)
        return True

    def packets_vanish(self):
        """For a while all seems well, and then what was given is lost."""
        self.line.swallows = True
        self.over.wait(self.random.uniform(0.005, 0.2))
        self.line.reset()
        self.line.swallows = False
        return True

    def one_direction_ends(self):
        self.line.close_one_direction(self.random)
        return True

    def nobody_comes_through(self):
        self.line.lose()
        self.over.wait(self.random.uniform(0.05, 0.7))
        self.line.mend()
        return True

    def stands_still(self):
        self.line.hold()
        self.over.wait(self.random.uniform(0.02, 0.4))
        self.line.mend()
        return False

    def stands_still_and_is_reset(self):
        self.line.hold()
        self.over.wait(self.random.uniform(0.02, 0.4))
        self.line.reset()
        self.line.mend()
        return True

    def is_slow(self):
        self.line.slow(self.random.uniform(0.001, 0.01))
        self.over.wait(self.random.uniform(0.05, 0.3))
        self.line.mend()
        return False

    KINDS = (
        all_are_reset,
        all_are_reset,
        some_are_reset,
        some_are_reset,
        packets_vanish,
        packets_vanish,
        one_direction_ends,
        one_direction_ends,
        nobody_comes_through,
        stands_still_and_is_reset,
        stands_still,
        is_slow,
    )

    # ----

    def run(self):
        # An attach that is cut fails.
        attached = lambda: self.begun() and self.line.is_whole(self.since)
        eventually(lambda: attached() or self.over.is_set(), 60, "the session")
        self.over.wait(0.5)
        for number in range(10**6):
            # Each of its own, so that a seed says the same whatever the programs did meanwhile.
            self.random = random.Random(f"{self.seed}/{number}")
            pause, kind = self.random.uniform(*self.times), self.random.choice(self.KINDS)
            # The next one may come while the client connects again.
            waits = 10 if self.random.randrange(8) != 0 else 0
            # Programs get on also where all is slow.
            pause = max(pause, self.mended_s)
            while self.over.wait(pause) or not self.line.is_whole(self.since):
                if self.over.is_set():
                    return
            if self.cuts >= self.most:
                return
            self.happen(kind, waits)

    def happen(self, kind, waits_s):
        returns, is_cut = self.returns(), kind(self)
        self.happened[kind.__name__] = self.happened.get(kind.__name__, 0) + 1
        if kind is Weather.one_direction_ends:
            waits_s = min(waits_s, 1)  # nobody may need that connection
        began = time.monotonic()
        deadline = began + (waits_s if is_cut else 0)
        while self.returns() == returns and time.monotonic() < deadline:
            if self.over.wait(0.01):
                return
        self.mended_s = time.monotonic() - began

    @property
    def cuts(self):
        calm = ("stands_still", "is_slow")
        return sum(count for kind, count in self.happened.items() if kind not in calm)

    def begun(self):
        return self.sessions() > self.before

    def sessions(self):
        return self.server.log().count(" on lease ")

    def returns(self):
        return self.server.log().count("its client is back")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.line.mend()
