# SPDX-License-Identifier: Apache-2.0
"""The control protocol as docs/wire.md says it, spoken by hand: the API of a session, the offers of
transports and the worker's answers, sessions that share a lease."""

import pathlib
import socket
import struct
import unittest

from harness import Server, eventually

HELLO, LIST, LEASE, ATTACH = 0, 2, 3, 4
PROTOCOL = 2
BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def record(tag, value):
    """Bytes, text, or records nested in a list."""
    if isinstance(value, str):
        value = value.encode()
    elif isinstance(value, list):
        value = b"".join(value)
    return struct.pack("<HHI", tag, 0, len(value)) + value


def number(tag, value, form="<Q"):
    return record(tag, struct.pack(form, value))


def records(body):
    """{tag: [data]} of a list of records."""
    found, at = {}, 0
    while at < len(body):
        tag, _, size = struct.unpack_from("<HHI", body, at)
        found.setdefault(tag, []).append(body[at + 8 : at + 8 + size])
        at += 8 + size
    return found


class Control:
    """One control connection, after hello."""

    def __init__(self, server):
        host, port = server.endpoint.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        code, _ = self.ask(HELLO, number(1, PROTOCOL | PROTOCOL << 16, "<I") + record(3, "by hand"))
        assert code == 0, code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def ask(self, kind, body=b""):
        """(code, body of the reply)."""
        self.socket.sendall(b"TNRD" + struct.pack("<IHHI", len(body), kind, 0, 0) + body)
        _, size, _, code, _ = struct.unpack("<IIHHI", self.exactly(16))
        return code, self.exactly(size)

    def exactly(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more
        return data

    def apis(self):
        """{name: digest} of what the server serves."""
        _, body = self.ask(LIST)
        listed = [records(each) for each in records(body).get(9, [])]
        return {each[1][0].decode(): struct.unpack("<Q", each[2][0])[0] for each in listed}

    def attach(self, offers, lease=None, api="cuda", digest=None):
        """(code, records of the reply, or the refusal's text). The session has no bulk channels."""
        digest = self.apis().get(api, 0) if digest is None else digest
        slices = [number(1, 1, "<I"), record(2, [number(1, 250_000, "<I"), number(2, 0)])]
        body = record(3, slices) + number(5, 0, "<H") + record(7, api) + number(8, digest)
        body += record(9, [record(1, [record(1, kind), record(2, blob)]) for kind, blob in offers])
        if lease is not None:
            body += number(1, lease[0]) + record(2, lease[1])
        code, reply = self.ask(ATTACH, body)
        return code, records(reply) if code == 0 else reply.decode()


def answers(reply):
    """[(kind, reason)] of the worker's answers."""
    listed = [records(each) for each in records(reply[6][0]).get(1, [])]
    return [(each[1][0].decode(), each[3][0].decode()) for each in listed]


class Attach(unittest.TestCase):
    """What a server answers to attach."""

    def test_an_api_that_is_not_served_is_refused_with_those_that_are(self):
        with Server() as server, Control(server) as control:
            code, text = control.attach([("tcp", "")], api="glide")
            self.assertNotEqual(code, 0)
            self.assertIn("'glide'", text)
            self.assertIn("cuda", text)
            code, text = control.attach([("tcp", "")], digest=1)
            self.assertNotEqual(code, 0)
            self.assertIn("another set of cuda calls", text)
            self.assertEqual(server.leases(), [])

    def test_the_worker_answers_the_nearest_and_a_way_over_connections(self):
        with Server() as server, Control(server) as control:
            code, reply = control.attach([("tcp", ""), ("shm", BOOT_ID)])
            self.assertEqual(code, 0, reply)
            self.assertEqual([kind for kind, _ in answers(reply)], ["shm", "tcp"])
            self.assertIn("one host", answers(reply)[0][1])
            self.assertTrue(reply[5][0])  # where the memory's descriptor can be fetched

    def test_says_what_was_against_a_nearer_one(self):
        with Server() as server, Control(server) as control:
            code, reply = control.attach([("tcp", ""), ("shm", "of another host")])
            self.assertEqual(code, 0, reply)
            self.assertEqual(answers(reply), [("tcp", "no shm: the server is another host")])
            self.assertFalse(reply[5][0])

    def test_nothing_in_common_is_refused_and_costs_nothing(self):
        with Server() as server, Control(server) as control:
            code, text = control.attach([("pigeon", "coo")])
            self.assertNotEqual(code, 0)
            self.assertIn("no transport in common", text)
            self.assertTrue(eventually(lambda: server.leases() == []))

    def test_a_lease_that_attach_took_ends_with_its_last_session(self):
        with Server() as server, Control(server) as first, Control(server) as second:
            code, reply = first.attach([("tcp", "")])
            self.assertEqual(code, 0, reply)
            lease = records(reply[3][0])
            taken = (struct.unpack("<Q", lease[1][0])[0], lease[2][0])
            code, other = second.attach([("tcp", "")], lease=taken)
            self.assertEqual(code, 0, other)
            self.assertEqual(records(other[3][0])[1], lease[1])
            self.assertEqual(server.leases()[0]["processes"], 2)
            first.socket.close()
            self.assertTrue(eventually(lambda: server.leases()[0]["processes"] == 1))
            second.socket.close()
            self.assertTrue(eventually(lambda: server.leases() == []))


if __name__ == "__main__":
    unittest.main()
