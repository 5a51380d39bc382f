# SPDX-License-Identifier: Apache-2.0
"""Listens to the packets of this host's loopback, as whoever is on the line does. Needs the right
to open packet sockets (CAP_NET_RAW)."""

import socket
import struct
import threading

ETHERTYPE_ALL = 3
SO_RCVBUFFORCE = 33
ETHERNET_BYTES = 14


def is_allowed():
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_ALL)).close()
    except OSError:
        return False
    return True


class Capture:
    """Use as a context manager. What connections with one TCP port carry, in both directions."""

    def __init__(self, port):
        self.port = port
        self.streams = {}  # (source, destination) -> what was sent, as it came
        self.socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_ALL)
        )
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.2)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.socket.close()

    def run(self):
        while True:
            try:
                packet, address = self.socket.recvfrom(1 << 17)
            except socket.timeout:
                if self.ended.is_set():
                    return
                continue
            if address[2] != socket.PACKET_OUTGOING:  # on loopback each packet comes twice
                self.take(packet[ETHERNET_BYTES:])

    def take(self, packet):
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
            return
        segment = packet[(packet[0] & 15) * 4 :]
        ports = struct.unpack(">HH", segment[:4])
        if self.port in ports:
            payload = segment[(segment[12] >> 4) * 4 :]
            self.streams.setdefault(ports, bytearray()).extend(payload)

    def everything(self):
        return b"\n".join(bytes(stream) for stream in self.streams.values())
