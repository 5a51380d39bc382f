# SPDX-License-Identifier: Apache-2.0
"""Copies between the GPUs of two servers, and waits for each other's events: from worker to worker.
What that costs the client, who may have it, and what becomes of it when something dies."""

import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import unittest

import harness
from support import network
from support import relay
from harness import MIB, Server, eventually
from support.several import COPIES, PREPARE, ProgramTest, TwoServers


LINES = {"TENDRIL_WORKER_PASSAGE_LINES": "3"}  # of each passage, also with few processors


@harness.needs_plain_client
class Passages(TwoServers):
    """Copies between the GPUs of two servers, and waits for each other's events."""

    GPUS, ENVIRONMENT = 1, LINES

    @classmethod
    def setUpClass(cls):
        cls.named = tempfile.mkdtemp(prefix="tendril-e2e-")
        cls.addClassCleanup(shutil.rmtree, cls.named)
        cls.peers = pathlib.Path(cls.named, "peers")
        cls.peers.touch()
        cls.OPTIONS = ("--peers", cls.peers)
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.name(*self.both)

    def name(self, *servers):
        self.peers.write_text("".join(f"{one.endpoint}\n" for one in servers), encoding="utf-8")

    def program(self, text, servers=None, **environment):
        return self.copying(text, servers or self.both, **environment)

    def copies(self, text, **environment):
        return self.passes(self.program(text, **environment))

    def test_the_clients_line_carries_no_copy(self):
        lines = [Counted(one.port) for one in self.both]
        for line in lines:
            line.__enter__()
            self.addCleanup(line.__exit__)
        run = self.program(
            """
size = 16 * MIB
near, far, back = memory(0, size), memory(1, size), memory(0, size)
must(cuda.cuMemsetD8_v2(near, 7, c_size_t(size)))
must(peer(far, 1, near, 0, 1))
tell("prepared")
step("copied")
must(peer(far, 1, near, 0, size))
on = stream(1)
must(peer(back, 0, far, 1, size, on))
must(cuda.cuStreamSynchronize(on))
tell("over")
step("checked")
assert read(1, far, size) == read(0, back, size) == b"\\7" * size
""",
            lines,
        )
        self.comes_to(run, "prepared")
        self.comes_to(run, "copied")
        before = [line.bytes for line in lines]
        self.go_on("copied")
        self.comes_to(run, "over")
        self.comes_to(run, "checked")
        for line, bytes_before in zip(lines, before):
            self.assertLess(line.bytes - bytes_before, 4096)
        self.go_on("checked")
        self.comes_to(run, "passed")
        self.assertEqual(run.wait(20), 0)

    def test_code_is_loaded_while_copies_are_under_way(self):
        """A driver that loads code keeps others out of the context, those that copy, too."""
        self.copies("""
ptx = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry nothing() { ret; }\\n"
size = 24 * MIB
near, far, back = memory(0, size), memory(1, size), memory(0, size)
write(0, near, b"\\7" * size)
there, again = stream(0), stream(1)
for _ in range(10):
    must(peer(far, 1, near, 0, size, there))
    must(peer(back, 0, far, 1, size, again))
    for i in range(2):
        enter(i)
        module = c_void_p()
        must(cuda.cuModuleLoadData(byref(module), ptx))
        must(cuda.cuModuleUnload(module))
for i in range(2):
    enter(i)
    must(cuda.cuCtxSynchronize())
assert read(1, far, size) == b"\\7" * size
""")

    def test_copies_in_both_directions(self):
        """Of all sizes and shapes, in the program's streams and beside them."""
        self.copies("""
for size in (1, 4096, 3 * MIB + 17):
    data = random.Random(size).randbytes(size)
    near, far, again = memory(0, size), memory(1, size), memory(0, size)
    write(0, near, data)
    assert peer(far, 1, near, 0, size) == 0
    assert read(1, far, size) == data
    on = stream(1)
    assert peer(again, 0, far, 1, size, on) == 0
    must(cuda.cuStreamSynchronize(on))
    assert read(0, again, size) == data
class Peer(ctypes.Structure):
    _fields_ = [
        (end + name, ctypes.c_uint64)
        for end in ("src", "dst")
        for name in "x y z lod type host device array context pitch height".split()
    ] + [(name, ctypes.c_uint64) for name in ("width", "height", "depth")]
assert ctypes.sizeof(Peer) == 25 * 8
near, far = memory(0, 5 * 40 * 100), memory(1, 5 * 50 * 300)
data = random.Random(1).randbytes(5 * 40 * 100)
write(0, near, data)
write(1, far, bytes(5 * 50 * 300))
shape = Peer(srctype=2, srcdevice=near.value, srccontext=contexts[0].value, srcpitch=100)
shape.srcheight, shape.srcx, shape.srcy = 40, 3, 2
shape.dsttype, shape.dstdevice, shape.dstcontext = 2, far.value, contexts[1].value
shape.dstpitch, shape.dstheight, shape.dstx = 300, 50, 11
shape.width, shape.height, shape.depth = 90, 30, 5
enter(1)
must(cuda.cuMemcpy3DPeer(byref(shape)))
expected = bytearray(5 * 50 * 300)
for z in range(5):
    for y in range(30):
        row = data[(z * 40 + y + 2) * 100 + 3 :][:90]
        at = (z * 50 + y) * 300 + 11
        expected[at : at + 90] = row
assert read(1, far, len(expected)) == bytes(expected)
""")

    def test_a_thread_is_not_held(self):
        """Neither by a copy behind a stream that stands still, nor by an event that is not over."""
        self.copies("""
size = 2 * MIB
near, far, gate = memory(0, size), memory(1, size), memory(0, 4)
write(0, gate, bytes(4))
write(0, near, b"a" * size)
write(1, far, b"b" * size)
standing, after = stream(0), stream(1)
begun = time.monotonic()
must(cuda.cuStreamWaitValue32_v2(standing, gate, 1, 0))
must(peer(far, 1, near, 0, size, standing))
over = event(0)
must(cuda.cuEventRecord(over, standing))
enter(1)
must(cuda.cuStreamWaitEvent(after, over, 0))
must(cuda.cuMemsetD8Async(far, ord("c"), c_size_t(1), after))
assert cuda.cuStreamQuery(standing) == cuda.cuStreamQuery(after) == 600
assert time.monotonic() - begun < 2
other = stream(0)
enter(0)
must(cuda.cuStreamWriteValue32_v2(other, gate, 1, 0))
enter(1)
must(cuda.cuStreamSynchronize(after))
assert read(1, far, size) == b"c" + b"a" * (size - 1)
""")

    def test_random_copies_are_those_of_a_model(self):
        """Streams of both servers, ordered by events both ways."""
        seed = int(os.environ.get("TENDRIL_SEED", "7"))
        self.copies(f"""
draw, SIZE, BUFFERS = random.Random({seed}), 1 << 15, 4
places = [i % 2 for i in range(2 * BUFFERS)]
buffers = [memory(place, SIZE) for place in places]
model = [bytearray(draw.randbytes(SIZE)) for _ in places]
for place, buffer, data in zip(places, buffers, model):
    write(place, buffer, bytes(data))
owners = [0, 1, 0, 1]
streams, seen = [stream(i) for i in owners], [0] * 4
events = []
last = None
for turn in range({os.environ.get("TENDRIL_COPIES", "250")}):
    which = draw.randrange(4)
    if last is not None and last != which:
        enter(owners[last])
        done = event(owners[last])
        must(cuda.cuEventRecord(done, streams[last]))
        enter(owners[which])
        must(cuda.cuStreamWaitEvent(streams[which], done, 0))
        events.append(done)
    last = which
    to, source = draw.randrange(len(buffers)), draw.randrange(len(buffers))
    size = draw.choice((1, 100, 4096, SIZE // 2))
    at, begin = draw.randrange(SIZE - size), draw.randrange(SIZE - size)
    if to == source:
        continue
    enter(owners[which])
    must(peer(ctypes.c_uint64(buffers[to].value + at), places[to],
              ctypes.c_uint64(buffers[source].value + begin), places[source], size, streams[which]))
    model[to][at : at + size] = model[source][begin : begin + size]
for owner, one in zip(owners, streams):
    enter(owner)
    must(cuda.cuStreamSynchronize(one))
for place, buffer, data in zip(places, buffers, model):
    assert read(place, buffer, SIZE) == bytes(data), (place, {seed})
""")

    def test_servers_that_are_not_named(self):
        """The copy goes through the client, which says why once."""
        self.name()
        output = self.copies(
            """
near, far = memory(0, 100), memory(1, 100)
write(0, near, b"x" * 100)
must(peer(far, 1, near, 0, 100))
assert read(1, far, 100) == b"x" * 100
must(peer(near, 0, far, 1, 100))
""",
            TENDRIL_LOG="info",
        )
        self.assertEqual(output.count("has named no other servers"), 2, output)

    def test_who_copies_to_a_dead_worker_is_told(self):
        run = self.program("""
size = 64 * MIB
near, far, gate = memory(0, size), memory(1, size), memory(1, 4)
write(1, gate, bytes(4))
must(peer(far, 1, near, 0, 100))
standing, waiting = stream(1), stream(0)
enter(1)
must(cuda.cuStreamWaitValue32_v2(standing, gate, 1, 0))
must(peer(near, 0, far, 1, size, standing))
over = event(1)
must(cuda.cuEventRecord(over, standing))
enter(0)
must(cuda.cuStreamWaitEvent(waiting, over, 0))
must(cuda.cuMemsetD8Async(near, 1, c_size_t(1), waiting))
step("killed")
begun = time.monotonic()
enter(0)
assert cuda.cuStreamSynchronize(waiting) == 46, "device unavailable"
assert time.monotonic() - begun < 5
must(cuda.cuStreamSynchronize(waiting))
assert peer(far, 1, near, 0, 100) == 46
""")
        self.comes_to(run, "killed")
        for worker in self.far.workers():
            os.kill(worker, signal.SIGKILL)
        self.go_on("killed")
        output = run.stdout.read()
        self.assertIn("passed", output)
        for server in self.both:
            eventually(server.idle, 20)


@harness.needs_plain_client
class Told(TwoServers):
    """What commands say of the way between two servers."""

    GPUS = 1

    @classmethod
    def setUpClass(cls):
        cls.named = tempfile.mkdtemp(prefix="tendril-e2e-")
        cls.addClassCleanup(shutil.rmtree, cls.named)
        cls.peers = pathlib.Path(cls.named, "peers")
        cls.peers.touch()
        cls.near = Server(warm=0)
        cls.addClassCleanup(cls.near.stop)
        cls.far = Server("--peers", cls.peers, warm=0)
        cls.addClassCleanup(cls.far.stop)
        cls.both = [cls.near, cls.far]

    def doctor(self, *servers):
        words = ("doctor", "--no-attach")
        status, out, err = harness.tendril(*words, "--json", server=servers)
        self.assertEqual(status, 0, err)
        return json.loads(out)["passages"], harness.tendril(*words, server=servers)[1]

    def test_doctor(self):
        """One direction is enough. Without any it says why not, from both."""
        near, far = (one.endpoint for one in self.both)
        self.peers.write_text("127.0.0.1:1\n" + near + "\n", encoding="utf-8")
        (pair,), text = self.doctor(*self.both)
        self.assertEqual(pair["servers"], [near, far])
        self.assertEqual((pair["open"], pair["sealed"]), (True, False))
        self.assertGreater(pair["round_trip_us"], 0)
        self.assertIn(f"{far} knows the other as {near}", pair["detail"])
        self.assertRegex(text, f"{near}, {far} +ok +copies go from server to server, in clear")
        self.peers.write_text(far + "\n", encoding="utf-8")
        (pair,), text = self.doctor(*self.both)
        self.assertFalse(pair["open"])
        self.assertIn(f"{near}: its operator has named no other servers", pair["detail"])
        self.assertIn(f"{far}: its operator has not named the other server", pair["detail"])
        self.assertIn("copies go through the client: ", text)
        self.peers.write_text("127.0.0.1:1\n", encoding="utf-8")
        (pair,), _ = self.doctor(*self.both)
        self.assertIn("127.0.0.1:1: nobody listens", pair["detail"])
        self.assertEqual(self.doctor(self.near)[0], [])

    def test_bench(self):
        """Both ways beside each other, for each pair of GPUs of two servers, and only for these."""
        near, far = (one.endpoint for one in self.both)
        self.peers.write_text(near + "\n", encoding="utf-8")
        words = ("bench", "--endpoints", "--quick", "-p", "0.5")
        status, out, err = harness.tendril(*words, "--json", server=self.both)
        self.assertEqual(status, 0, err)
        report = json.loads(out)
        ends = ("host", "gpu0", "gpu1")
        units = ("us", "gb_per_s")
        pairs = {f"{a}_{b}_{unit}" for a in ends for b in ends for unit in units}
        pairs -= {"host_host_us", "host_host_gb_per_s"}
        between = {f"{pair}_{unit}" for pair in ("gpu0_gpu1", "gpu1_gpu0") for unit in units}
        self.assertEqual(set(report["sides"]), {"endpoints", "endpoints through the client"})
        self.assertEqual(set(report["sides"]["endpoints"]), pairs)
        self.assertEqual(set(report["sides"]["endpoints through the client"]), between)
        self.assertEqual([gpu["server"] for gpu in report["gpus"]], [near, far])
        self.assertTrue(report["passages"][0]["open"])
        self.peers.write_text("", encoding="utf-8")
        status, out, err = harness.tendril(*words, server=self.both)
        self.assertEqual(status, 0, err)
        number = r"\d+\.\d+"
        self.assertRegex(out, rf"gpu0 to gpu1 +n/a +{number} +n/a +{number}")
        self.assertIn(f"{near}, {far}: through the client: ", out)


class Counted(relay.Wire):
    """Counts what passes."""

    def __init__(self, port):
        self.bytes = 0
        super().__init__(port)

    def passing(self, number, to_server, data):
        with self.lock:
            self.bytes += len(data)
        return data


@harness.needs_plain_client
class LocalBesideRemote(ProgramTest):
    """This machine's server is named to the other. Copies between them touch no line of the client,
    neither shared memory nor TCP."""

    def test_copies_go_from_server_to_server(self):
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()

        def as_from_afar(_, __, data):
            return data.replace(boot, b"0" * len(boot))

        peers = pathlib.Path(self.folder, "peers")
        peers.touch()
        program = """
contexts = each(2)
size = 16 * MIB
near, far, back = memory(0, size), memory(1, size), memory(0, size)
must(cuda.cuMemsetD8_v2(near, 7, c_size_t(size)))
must(peer(far, 1, near, 0, 1))
step("copied")
must(peer(far, 1, near, 0, size))
must(peer(back, 0, far, 1, size))
step("checked")
assert read(0, back, size) == b"\\7" * size
tell("passed")
"""
        with Server("--peers", peers, warm=0) as here, Server(warm=0) as far:
            peers.write_text(far.endpoint + "\n", encoding="utf-8")
            with relay.Relay(far.port, as_from_afar) as there:
                text = f"{PREPARE}folder = {self.folder!r}\n{COPIES}{program}"
                run = harness.start(
                    *("run", "--local", "1", "-s", there.endpoint, "-n", "1", "--"),
                    *(sys.executable, "-c", text),
                    TENDRIL_LOCAL_SERVER=here.endpoint,
                )
                self.addCleanup(harness.end, run)
                self.comes_to(run, "copied")
                link, local_before = self.carried(here)
                remote_before = len(there.everything())
                self.go_on("copied")
                self.comes_to(run, "checked")
                self.assertEqual(link, "shm")
                self.assertLess(self.carried(here)[1] - local_before, 4096)
                self.assertLess(len(there.everything()) - remote_before, 4096)
                self.go_on("checked")
                self.passes(run)

    def carried(self, server):
        """How the only session there is linked, and how many bytes it has carried."""
        out = harness.tendril("top", "--once", "--json", server=server)[1]
        (session,) = json.loads(out)["servers"][0]["sessions"]
        return session["link"], session["bytes_to_gpu"] + session["bytes_from_gpu"]


SECRET = {"TENDRIL_TOKEN": "a token of more than sixteen letters"}
MARK = b"what a listener must not read, "
# Copies a text that a listener would know, both ways, and looks at what comes.
COPY_MARKED = f"""
data = {MARK!r} * 30000
near, far = memory(0, len(data)), memory(1, len(data))
write(0, near, data)
must(peer(far, 1, near, 0, len(data)))
assert read(1, far, len(data)) == data
on = stream(0)
must(peer(near, 0, far, 1, len(data), on))
must(cuda.cuStreamSynchronize(on))
assert read(0, near, len(data)) == data
"""


# Until the lines after the first are there, all goes over that one.
LONG_COPIES = """
size = 16 * MIB + 17
data = random.Random(3).randbytes(size)
near, far, again = memory(0, size), memory(1, size), memory(0, size)
write(0, near, data)
for _ in range(4):
    must(peer(far, 1, near, 0, size))
    must(peer(again, 0, far, 1, size))
    assert read(0, again, size) == data
    write(0, again, bytes(size))
"""


MAGIC, JOIN = 0x44524E54, 5  # wire/control.h


def messages(stream):
    """The whole control messages at its beginning: kind, code and body."""
    found = []
    while len(stream) >= 16:
        magic, length, kind, code, _ = struct.unpack("<IIHHI", stream[:16])
        if magic != MAGIC or len(stream) < 16 + length:
            break
        found.append((kind, code, stream[16 : 16 + length]))
        stream = stream[16 + length :]
    return found


@harness.needs_plain_client
class Listening(ProgramTest):
    """Whoever stands between two servers. Only the way from one to the other goes by the relay."""

    GPUS = 1

    def servers(self, near=(), far=(), change=None):
        """Two servers with a token, and the relay by which the first knows the second."""
        folder = tempfile.mkdtemp(prefix="tendril-e2e-", dir=self.folder)
        peers = pathlib.Path(folder, "peers")
        peers.touch()
        here = Server("--peers", peers, *near, warm=0, environment=SECRET | LINES)
        self.addCleanup(here.stop)
        there = Server(*far, warm=0, environment=SECRET)
        self.addCleanup(there.stop)
        between = relay.Relay(there.port, change)
        between.__enter__()
        self.addCleanup(between.__exit__)
        peers.write_text(between.endpoint + "\n", encoding="utf-8")
        return [here, there], between

    def links(self, servers):
        """What `ls` says of the way to the other server: whether it is sealed."""
        status, out, err = harness.tendril("ls", "--json", server=servers, **SECRET)
        self.assertEqual(status, 0, err)
        leases = [lease for one in json.loads(out)["servers"] for lease in one["leases"]]
        return [each["sealed"] for lease in leases for each in lease["passages"]]

    def copies(self, servers, **environment):
        """The answer of `links` after the copies."""
        step = f"copied {servers[0].port}"
        run = self.copying(COPY_MARKED + f"step({step!r})", servers, **SECRET, **environment)
        self.comes_to(run, step)
        sealed = self.links(servers)
        text = harness.tendril("ls", server=servers, **SECRET)[1]
        self.assertIn("sealed" if sealed[0] else "in clear", text)
        self.go_on(step)
        self.comes_to(run, "passed")
        self.assertEqual(run.wait(20), 0)
        return sealed

    def test_what_the_rules_say(self):
        """One server's rule is enough, whichever it is, and so is a session that must be sealed."""
        always = ("--encrypt", "always")
        for near, far, insists, sealed in (
            ((), (), False, False),
            (always, always, False, True),
            (always, (), False, True),
            ((), always, False, True),
            ((), (), True, True),
        ):
            with self.subTest(near=near, far=far, insists=insists):
                servers, between = self.servers(near, far)
                wish = {"TENDRIL_ENCRYPT": "always"} if insists else {}
                self.assertEqual(self.copies(servers, **wish), [sealed, sealed])
                seen = between.everything()
                self.assertGreater(len(seen), 2 * 30000 * len(MARK))
                self.assertEqual(MARK in seen, not sealed)

    def test_long_copies_take_all_lines(self):
        for options in ((), ("--encrypt", "always")):
            servers, between = self.servers(options)
            run = self.copying(LONG_COPIES, servers, **SECRET)
            self.comes_to(run, "passed")
            self.assertEqual(run.wait(20), 0)
            with between.lock:
                sides = [min(len(side) for side in pair) for pair in between.recorded]
            self.assertEqual(sum(side > MIB for side in sides), 3, sides)

    def test_changed_bytes_end_it(self):
        """Nobody gets what was changed: both ends are told, and have what they had before."""
        seen = []

        def change(_, to_server, data):
            seen.append(to_server)
            if sum(seen) < 20 or not to_server:
                return data
            return data[:-1] + bytes([data[-1] ^ 1])

        servers, _ = self.servers(("--encrypt", "always"), change=change)
        run = self.copying(
            """
size = 8 * MIB
near, far = memory(0, size), memory(1, size)
write(0, near, b"a" * size)
write(1, far, b"b" * size)
for _ in range(2):
    assert peer(far, 1, near, 0, size) == 46, "device unavailable"
    for place in (0, 1):  # each context says it once
        enter(place)
        cuda.cuCtxSynchronize()
assert set(read(1, far, size)) <= set(b"ab")
assert read(0, near, size) == b"a" * size
""",
            servers,
            **SECRET,
        )
        self.passes(run)

    def test_what_was_recorded_opens_nothing(self):
        """Neither while the passage is there, nor later."""
        servers, between = self.servers()
        run = self.copying(COPY_MARKED + 'step("copied")', servers, **SECRET)
        self.comes_to(run, "copied")
        to_server, to_client = max(between.recorded, key=lambda pair: len(pair[0]))
        hello, join = messages(bytes(to_server))[:2]
        self.assertEqual([kind for kind, _, _ in (hello, join)], [0, JOIN])
        self.assertEqual(messages(bytes(to_client))[1][:2], (JOIN, 0))
        self.assertIn("expects that connection", self.refusal(servers[1], to_server))
        self.go_on("copied")
        self.comes_to(run, "passed")
        self.assertEqual(run.wait(20), 0)
        self.assertIn("expects that connection", self.refusal(servers[1], to_server))

    def refusal(self, server, recorded):
        """The server's answer to the first two messages of a connection, said once more."""
        length = sum(16 + len(body) for _, _, body in messages(bytes(recorded))[:2])
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(recorded[:length])
            answer = b""
            while len(messages(answer)) < 2:
                more = connection.recv(4096)
                self.assertTrue(more, answer)
                answer += more
        kind, code, body = messages(answer)[1]
        self.assertEqual(kind, JOIN)
        self.assertNotEqual(code, 0)
        return body.decode()


# Copies from one end that take long, and a wait for the other's event, which does not come. Each
# end hears of the loss, once. Nothing else of it is hurt.
UNDER_WAY = """
size = 64 * MIB
near, far, gate = memory(0, size), memory(1, size), memory(1, 4)
write(1, gate, bytes(4))
must(peer(far, 1, near, 0, 100))
copying, waiting, standing, other = stream(0), stream(0), stream(1), stream(1)
def end_of(place, on, limit):
    enter(place)
    begun = time.monotonic()
    while (result := cuda.cuStreamSynchronize(on)) == 0 and time.monotonic() - begun < limit:
        time.sleep(0.01)
    return result
enter(1)
must(cuda.cuStreamWaitValue32_v2(standing, gate, 1, 0))
over = event(1)
must(cuda.cuEventRecord(over, standing))
enter(0)
must(cuda.cuStreamWaitEvent(waiting, over, 0))
for _ in range(COPIES):
    must(peer(far, 1, near, 0, size, copying))
step("under way")
begun = time.monotonic()
assert end_of(0, copying, 0) == 46, "device unavailable"
assert end_of(1, other, BOUND) == 46
assert time.monotonic() - begun < BOUND
assert end_of(0, waiting, 0) == end_of(0, copying, 0) == end_of(1, other, 0) == 0
tell(f"told after {time.monotonic() - begun:.1f} s")
assert peer(far, 1, near, 0, 100) == 46
end_of(0, copying, 0), end_of(1, other, 0)  # each context says it once
for place, memory in ((0, near), (1, far)):
    write(place, memory, b"x" * 100)
    assert read(place, memory, 100) == b"x" * 100
write(1, gate, b"\\1" + bytes(3))
enter(1)
must(cuda.cuStreamSynchronize(standing))
"""


@harness.needs_plain_client
class Deaths(ProgramTest):
    """The connection between the servers is lost while something is under way."""

    def pair(self, near=(), far=(), **environment):
        """Two servers, the first of which knows nobody so far, and the file for whom it knows."""
        peers = pathlib.Path(self.folder, "peers")
        peers.touch()
        here = Server("--peers", peers, *near, warm=0, environment=environment | LINES)
        self.addCleanup(here.stop)
        there = Server(*far, warm=0, environment=environment)
        self.addCleanup(there.stop)
        return here, there, peers

    def under_way(self, copies, bound, servers, **environment):
        text = UNDER_WAY.replace("COPIES", str(copies)).replace("BOUND", str(bound))
        return self.copying(text + '\nstep("told")', servers, **environment)

    def ends(self, run, servers, **environment):
        """It hears of the loss. Nothing is left of the passage or of the program."""
        self.assertRegex(run.stdout.readline(), "told after")
        self.comes_to(run, "told")
        for server in servers:
            for worker in server.workers():
                eventually(lambda pid=worker: not passage_threads(pid), 5)
        self.go_on("told")
        self.passes(run)
        for server in servers:
            eventually(lambda one=server: not harness.listing(one, **environment)["leases"], 20)
            eventually(lambda one=server: not one.workers(), 20)

    def test_cut_between_the_servers(self):
        """While a copy is under way, and others wait, and a stream waits for an event."""
        here, there, peers = self.pair()
        with Slow(there.port) as line:
            peers.write_text(line.endpoint + "\n", encoding="utf-8")
            run = self.under_way(4, 5, [here, there])
            line.slow(0.005)
            self.comes_to(run, "under way")
            eventually(lambda: line.bytes > 4 * MIB, 20)
            for server in (here, there):
                self.assertTrue([pid for pid in server.workers() if passage_threads(pid)])
            line.cut()
            self.go_on("under way")
            self.ends(run, [here, there])

    def test_the_other_server_dies(self):
        """Its worker ends with it. This server's session hears it at once."""
        here, there, peers = self.pair()
        peers.write_text(there.endpoint + "\n", encoding="utf-8")
        run = self.copying(
            """
near, far, gate = memory(0, 100), memory(1, 100), memory(1, 4)
write(1, gate, bytes(4))
must(peer(far, 1, near, 0, 100))
waiting, standing = stream(0), stream(1)
enter(1)
must(cuda.cuStreamWaitValue32_v2(standing, gate, 1, 0))
over = event(1)
must(cuda.cuEventRecord(over, standing))
enter(0)
must(cuda.cuStreamWaitEvent(waiting, over, 0))
step("waits")
begun = time.monotonic()
assert cuda.cuStreamSynchronize(waiting) == 46
assert time.monotonic() - begun < 5
must(cuda.cuStreamSynchronize(waiting))
""",
            [here, there],
        )
        self.comes_to(run, "waits")
        there.kill()
        self.go_on("waits")
        self.assertIn("passed", run.stdout.read())
        eventually(here.idle, 20)

    @unittest.skipUnless(network.is_allowed(), "making networks needs root")
    def test_packets_are_lost(self):
        """Nobody closes anything. Both ends find it out by themselves, in the time that
        docs/several-servers.md says."""
        secret = {"TENDRIL_TOKEN": "a token of more than sixteen letters"}
        with network.Elsewhere() as elsewhere:
            peers = pathlib.Path(self.folder, "peers")
            peers.touch()
            here = Server("--peers", peers, warm=0, environment=secret)
            self.addCleanup(here.stop)
            with elsewhere.inside():
                there = Server("--listen", "0.0.0.0", warm=0, environment=secret)
            self.addCleanup(there.stop)
            there.endpoint, other = (f"{one}:{there.port}" for one in elsewhere.addresses)
            peers.write_text(other + "\n", encoding="utf-8")
            run = self.under_way(64, 20, [here, there], **secret)
            self.comes_to(run, "under way")
            elsewhere.lose(1)
            self.go_on("under way")
            self.ends(run, [here, there], **secret)


@unittest.skipUnless(network.is_allowed(), "making networks needs root")
@harness.needs_plain_client
class DataInterface(ProgramTest):
    """Copies leave by the interface that the operator named, whatever way the kernel would take."""

    def test_an_interface_with_an_address_and_without(self):
        secret = {"TENDRIL_TOKEN": "a token of more than sixteen letters"}
        program = "near, far = memory(0, 100), memory(1, 100)\nmust(peer(far, 1, near, 0, 100))\n"
        with network.Elsewhere() as elsewhere:
            peers = pathlib.Path(self.folder, "peers")
            peers.touch()
            named = ("--data-interface", elsewhere.lines[1])
            here = Server("--peers", peers, *named, warm=0, environment=secret)
            self.addCleanup(here.stop)
            with elsewhere.inside():
                there = Server("--listen", "0.0.0.0", warm=0, environment=secret)
            self.addCleanup(there.stop)
            there.endpoint = f"{elsewhere.addresses[0]}:{there.port}"
            peers.write_text(there.endpoint + "\n", encoding="utf-8")
            run = self.copying(program + 'step("copied")', [here, there], **secret)
            self.comes_to(run, "copied")
            (lease,) = harness.listing(there, **secret)["leases"]
            ways = [each["server"] for each in lease["passages"]]
            self.assertEqual(ways, [f"{elsewhere.networks[1]}.1"])
            self.go_on("copied")
            self.passes(run)
            network.ip("addr", "flush", "dev", elsewhere.lines[1])
            run = self.copying(program, [here, there], TENDRIL_LOG="info", **secret)
            self.assertIn("none of the interfaces that --data-interface names", self.passes(run))
            words = ("serve", "--driver", harness.DRIVER, "--port", "0", *named)
            status, _, error = harness.tendril(*words)
            self.assertEqual(status, 1)
            self.assertIn(f"names '{elsewhere.lines[1]}', which has no IP address", error)


class Slow(Counted):
    """Counts what passes, and may hold each piece up for a while."""

    def passing(self, number, to_server, data):
        super().passing(number, to_server, data)
        if self.delay_s:
            time.sleep(self.delay_s)
        return data


def passage_threads(pid):
    """The threads of a worker that carry copies."""
    names = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            names.append(task.joinpath("comm").read_text())
        except OSError:
            pass
    return [name for name in names if name.startswith("passage-")]


if __name__ == "__main__":
    unittest.main()
