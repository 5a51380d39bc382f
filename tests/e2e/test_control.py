# SPDX-License-Identifier: Apache-2.0
"""The control protocol as docs/wire.md says it, spoken by hand: the API of a session, the offers of
transports and the worker's answers, sessions that share a lease."""

import pathlib
import struct
import unittest

from harness import Control, Server, eventually, number, record, records

JOIN, TRIAL = 5, 0x2000  # wire/control.h
INVALID, REFUSED = 1, 3  # base/result.h
BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


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
            reason = "no shm: the server is another host; no rdma: the client does not have it"
            self.assertEqual(answers(reply), [("tcp", reason)])
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


class Trial(unittest.TestCase):
    """Connections for the trial of a fabric, from clients that should not bring them."""

    def attach(self, control, offers):
        code, reply = control.attach(offers, outage=30_000)
        self.assertEqual(code, 0, reply)
        return struct.unpack("<Q", reply[1][0])[0], reply[2][0]

    def join(self, server, session, channel):
        """(code, text) of the answer to somebody who says that he belongs to that session."""
        with Control(server) as control:
            ident, secret = session
            body = number(1, ident) + record(2, secret) + number(3, channel, "<H")
            code, text = control.ask(JOIN, body)
            return code, text.decode()

    def test_only_a_sessions_own_client_is_listened_to(self):
        with Server() as server, Control(server) as one, Control(server) as other:
            mine, yours = self.attach(one, [("tcp", "")]), self.attach(other, [("tcp", "")])
            foreign = [(mine[0], yours[1]), (yours[0], mine[1]), (mine[0], b""), (99, mine[1])]
            for session in foreign:
                code, text = self.join(server, session, TRIAL)
                self.assertEqual((code, text), (REFUSED, "there is no such session on this server"))
            self.assertEqual(len(server.leases()), 2)

    def test_where_no_fabric_was_found_there_is_nothing_to_try(self):
        ways = [("tcp", ""), ("shm", BOOT_ID)], [("tcp", ""), ("rdma", "x")]
        with Server() as server:
            for offers in ways:
                with Control(server) as control:
                    session = self.attach(control, offers)
                    for each in (0, 1, 0x1FFF):
                        code, text = self.join(server, session, TRIAL + each)
                        self.assertEqual((code, text), (INVALID, "this session has nothing to try"))

    def test_a_session_that_has_ended_is_not_tried(self):
        with Server() as server:
            with Control(server) as control:
                session = self.attach(control, [("tcp", "")])
            self.assertTrue(eventually(lambda: server.leases() == []))
            code, text = self.join(server, session, TRIAL)
            self.assertEqual((code, text), (REFUSED, "there is no such session on this server"))


if __name__ == "__main__":
    unittest.main()
