# SPDX-License-Identifier: Apache-2.0
"""Relays between two processes. A Relay keeps what passes, and may change it. A Wire can be cut,
held up and slowed. Each connection has a thread for each direction."""

import ctypes
import socket
import struct
import threading
import time


class Relay:
    """Use as a context manager. `change(connection, to_server, data)` returns what to pass on, or
    None to cut the connection."""

    def __init__(self, port, change=None):
        self.port = port
        self.change = change or (lambda connection, to_server, data: data)
        self.recorded = []  # per connection: (bytes to the server, bytes to the client)
        self.lock = threading.Lock()
        self.resets = set()  # connections that must not be ended in order
        self.half_closed = set()  # connections that were ended in one direction
        self.pairs = {}  # open connections: number -> (client, server, its threads)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.endpoint = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.listener)
        self.listener.close()
        self.drop()

    def drop(self):
        """Ends all connections."""
        with self.lock:
            for client, server, _ in self.pairs.values():
                end(client)
                end(server)

    def reach(self):
        """A connection to the server."""
        return socket.create_connection(("127.0.0.1", self.port))

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = self.reach()
            except OSError:  # nobody is there now
                client.close()
                continue
            with self.lock:
                number = len(self.recorded)
                self.recorded.append((bytearray(), bytearray()))
                self.pairs[number] = [client, server, 2]
            for to_server in (True, False):
                threading.Thread(
                    target=self.pump, args=(number, client, server, to_server), daemon=True
                ).start()

    def passing(self, number, to_server, data):
        """What to pass on of this."""
        with self.lock:
            self.recorded[number][0 if to_server else 1].extend(data)
            return self.change(number, to_server, data)

    def pump(self, number, client, server, to_server):
        source, sink = (client, server) if to_server else (server, client)
        try:
            while data := source.recv(1 << 16):
                data = self.passing(number, to_server, data)
                if data is None:
                    break
                sink.sendall(data)
        except OSError as error:
            # Of a reset, one direction hears "reset" and the other one "broken pipe".
            if isinstance(error, ConnectionResetError) or number not in self.half_closed:
                self.was_reset(number, client, server)
        if number not in self.resets:
            end(client)
            end(server)
        with self.lock:
            self.pairs[number][2] -= 1
            if self.pairs[number][2] == 0:
                del self.pairs[number]
                client.close()
                server.close()

    def was_reset(self, number, client, server):
        """One side was. The other one is ended in order, as many proxies do."""

    def everything(self):
        with self.lock:
            return b"".join(bytes(side) for pair in self.recorded for side in pair)


class Wire(Relay):
    """Keeps nothing. While it is held, all bytes wait; nobody sees an end. While it is cut, whoever
    connects is cut off at once."""

    def __init__(self, port=0):
        self.passes, self.is_cut, self.delay_s = threading.Event(), False, 0
        self.passes.set()
        super().__init__(port)

    def __exit__(self, *_):
        self.mend()
        super().__exit__()

    def reach(self):
        if self.is_cut:
            raise OSError("the wire is cut")
        return super().reach()

    def passing(self, number, to_server, data):
        self.passes.wait()
        if self.delay_s:
            time.sleep(self.delay_s)
        return data

    def cut(self):
        self.is_cut = True
        self.drop()

    def reset(self):
        """Resets all connections, as a firewall does that forgets them. Returns how many there
        were."""
        with self.lock:
            pairs = list(self.pairs.values())
            self.resets.update(self.pairs)
            for client, server, _ in pairs:
                reset(client)
                reset(server)
        return len(pairs)

    def lose(self):
        """Resets all connections. Whoever connects is cut off at once, until mend."""
        self.is_cut = True
        self.reset()

    def hold(self):
        self.passes.clear()

    def slow(self, delay_s):
        self.delay_s = delay_s

    def mend(self):
        self.is_cut, self.delay_s = False, 0
        self.passes.set()


def end(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def reset(connection):
    """At once, also while a thread reads it. A close would say that the peer has ended."""
    none = struct.pack("H14x", socket.AF_UNSPEC)
    ctypes.CDLL(None).connect(connection.fileno(), none, len(none))
