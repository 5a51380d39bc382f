# SPDX-License-Identifier: Apache-2.0
"""A client of the page's interface for tests, and a check of answers against
dashboard/web/openapi.json, as far as that file goes. Standard library only."""

import http.client
import json
import pathlib
import re
import socket
import zlib

OPENAPI = pathlib.Path(__file__).parents[3] / "dashboard" / "web" / "openapi.json"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PageClient:
    """Requests to one page. `token`: said with each; cookies are kept."""

    def __init__(self, port, token=None, host=None):
        self.port, self.token, self.host, self.cookie = port, token, host, None

    def ask(self, method, path, body=None, page=True, **headers):
        """(status, headers, text)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        send = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.host:
            send["Host"] = self.host
        if self.token:
            send["Authorization"] = "Bearer " + self.token
        if self.cookie:
            send["Cookie"] = self.cookie
        if page:
            send["X-Tendril-Page"] = "1"
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            send.setdefault("Content-Type", "application/json")
        connection.request(method, path, data, send)
        answer = connection.getresponse()
        text = answer.read().decode()
        cookie = answer.getheader("Set-Cookie")
        if cookie:
            self.cookie = cookie.split(";")[0]
        connection.close()
        return answer.status, answer.headers, text

    def get(self, path, status=200):
        """The JSON of an answer."""
        got, _, text = self.ask("GET", "/api/v1/" + path)
        if got != status:
            raise AssertionError(f"{path}: {got} {text}")
        return json.loads(text)

    def post(self, path, body=None, status=200):
        got, _, text = self.ask("POST", "/api/v1/" + path, body if body is not None else {})
        if got != status:
            raise AssertionError(f"{path}: {got} {text}")
        return json.loads(text)

    def stream(self, query):
        return Stream(self, query)


class Stream:
    """Messages of /stream, packed as a browser gets them. Use as a context manager."""

    def __init__(self, client, query):
        self.connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
        headers = {"Authorization": "Bearer " + client.token} if client.token else {}
        if client.cookie:
            headers["Cookie"] = client.cookie
        headers["Accept-Encoding"] = "gzip"
        self.connection.request("GET", "/api/v1/stream?" + query, headers=headers)
        self.answer = self.connection.getresponse()
        self.bytes = 0  # as they came
        packed = self.answer.getheader("Content-Encoding") == "gzip"
        self.unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS) if packed else None
        self.text = b""

    def line(self):
        """The next line; empty: the stream has ended."""
        while b"\n" not in self.text:
            piece = self.answer.read1(1 << 16)
            if not piece:
                return b""
            self.bytes += len(piece)
            self.text += self.unpacker.decompress(piece) if self.unpacker else piece
        line, _, self.text = self.text.partition(b"\n")
        return line + b"\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def next(self):
        """The next message; of another kind than data: (kind, JSON)."""
        kind = None
        while True:
            line = self.line()
            if not line:
                raise AssertionError("the stream has ended")
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                kind = text[7:]
            elif text.startswith("data: "):
                json_text = json.loads(text[6:])
                return (kind, json_text) if kind else json_text

    def until(self, condition, most=30):
        """The first message of which the condition holds."""
        for _ in range(most):
            message = self.next()
            if isinstance(message, dict) and condition(message):
                return message
        raise AssertionError("no such message came")


class OpenApi:
    """What the file says, and what an answer lacks of it."""

    def __init__(self):
        self.document = json.loads(OPENAPI.read_text(encoding="utf-8"))

    def operations(self):
        """("get", "/leases/{id}") of all."""
        for path, methods in self.document["paths"].items():
            for method in methods:
                yield method, path

    def problems(self, method, path, status, value):
        """Of an answer to the operation whose path matches."""
        for known, methods in self.document["paths"].items():
            pattern = re.sub(r"\{\w+\}", "[^/]+", known)
            if re.fullmatch(pattern, path) and method in methods:
                answer = methods[method]["responses"].get(str(status))
                if answer is None:
                    return [f"{method} {path}: {status} is not described"]
                schema = answer["content"]["application/json"]["schema"]
                return [f"{method} {path}: {each}" for each in self.check(schema, value, "")]
        return [f"{method} {path} is not described"]

    def check(self, schema, value, where):
        """Texts of what is wrong."""
        if "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if kinds and not any(is_kind(value, kind) for kind in kinds):
            return [f"{where or 'it'} is no {' or '.join(kinds)}: {str(value)[:80]}"]
        if "enum" in schema and value not in schema["enum"]:
            return [f"{where} is none of {schema['enum']}: {value}"]
        found = []
        if isinstance(value, dict):
            found += [f"{where} lacks {k}" for k in schema.get("required", []) if k not in value]
            for key, inner in value.items():
                known = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
                if known is False:
                    found.append(f"{where}.{key} is not described")
                elif isinstance(known, dict):
                    found += self.check(known, inner, f"{where}.{key}")
        if isinstance(value, list) and "items" in schema:
            for at, inner in enumerate(value):
                found += self.check(schema["items"], inner, f"{where}[{at}]")
        return found


def is_kind(value, kind):
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    kinds = {"string": str, "boolean": bool, "object": dict, "array": list, "null": type(None)}
    return isinstance(value, kinds[kind])
