# SPDX-License-Identifier: Apache-2.0
"""A relay between clients and a server: it keeps what passes, and may change it. Each connection
has a thread for each direction."""

import socket
import threading


class Relay:
    """Use as a context manager. `change(connection, to_server, data)` returns what to pass on, or
    None to cut the connection."""

    def __init__(self, port, change=None):
        self.port = port
        self.change = change or (lambda connection, to_server, data: data)
        self.recorded = []  # per connection: (bytes to the server, bytes to the client)
        self.lock = threading.Lock()
        self.ends = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        with self.lock:
            for end in self.ends:
                end.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                return
            with self.lock:
                number = len(self.recorded)
                self.recorded.append((bytearray(), bytearray()))
                self.ends += [client, server]
            for to_server in (True, False):
                threading.Thread(
                    target=self.pump, args=(number, client, server, to_server), daemon=True
                ).start()

    def pump(self, number, client, server, to_server):
        source, sink = (client, server) if to_server else (server, client)
        try:
            while True:
                data = source.recv(1 << 16)
                if not data:
                    break
                with self.lock:
                    self.recorded[number][0 if to_server else 1].extend(data)
                    data = self.change(number, to_server, data)
                if data is None:
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (client, server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def everything(self):
        with self.lock:
            return b"".join(bytes(side) for pair in self.recorded for side in pair)
