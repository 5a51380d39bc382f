# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: a real server with the software GPU on a port of its own, a real
`tendril`, and a view of their processes from outside. Standard library only. TENDRIL_BUILD_DIR
names the build folder."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ.get("TENDRIL_BUILD_DIR", "build/dev")).resolve()
TENDRIL = BUILD / "bin" / "tendril"
DRIVER = BUILD / "lib" / "libtendril-softgpu.so"
PROGRAMS = BUILD / "bin" / "programs"
CLIENT = BUILD / "lib" / "client" / "libcuda.so.1"
MIB = 1 << 20
THREAD_SANITIZED = TENDRIL.exists() and b"libtsan" in TENDRIL.read_bytes()
ADDRESS_SANITIZED = TENDRIL.exists() and b"libasan" in TENDRIL.read_bytes()
# A sanitized client library does not load into an interpreter that was built without the sanitizer.
needs_plain_client = unittest.skipIf(
    THREAD_SANITIZED or ADDRESS_SANITIZED, "python cannot load a sanitized library"
)
NO_LEASE = 125  # `tendril run` could not get its GPUs


def clean_environment(**more):
    """The environment without Tendril's variables, plus what is given. Exception: how late threads
    are (tests/delays)."""
    environment = {
        k: v
        for k, v in os.environ.items()
        if k.startswith("TENDRIL_DELAYS_")
        or not k.startswith("TENDRIL_")
        and k != "LD_LIBRARY_PATH"
    }
    environment["HOME"] = "/nonexistent"
    environment.update(more)
    return environment


def eventually(condition, seconds=5.0, what="the condition"):
    """Waits until condition() is true and returns it; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {seconds} s")
        time.sleep(0.02)


def children(pid):
    """Process ids of the direct children."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found += [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            pass
    return found


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def processor_seconds(pid):
    """That a process has used since its start."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended_children_seconds(pid):
    """Processor time that a process's children have used, once it knows that they ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def shared_memory_kib(pid):
    """Of the memory files that a process has open."""
    total = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        try:
            if os.readlink(path).startswith(("/memfd:", "/dev/shm/")):
                total += os.stat(path).st_blocks // 2
        except OSError:
            pass
    return total


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def status_field(pid, field):
    """One line of /proc/PID/status, without its name."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return line.split(":", 1)[1].split()
    return []


def is_running(pid):
    try:
        return status_field(pid, "State")[0] != "Z"
    except OSError:
        return False


class Daemon:
    """A process of `tendril` that serves, with a folder of its own and its log in it. Use as a
    context manager. `files`: texts for its folder; FOLDER in a word is that folder."""

    def __init__(self, words, environment=None, become=None, files=None):
        self.folder = tempfile.mkdtemp(prefix="tendril-e2e-")
        self.log_path = os.path.join(self.folder, "log")
        self.port_file = os.path.join(self.folder, "port")
        self.words = [word.replace("FOLDER", self.folder) for word in map(str, words)]
        for name, text in (files or {}).items():
            self.write(name, text)
        self.environment, self.become = dict(environment or {}), become or {}
        self.environment.setdefault("TENDRIL_STATE", os.path.join(self.folder, "state"))
        if "user" in self.become:
            os.chown(self.folder, become["user"], become["group"])
        elif os.geteuid() != 0:
            self.environment["TENDRIL_DUMPABLE"] = "1"  # these tests look into the server
        self.begin()
        try:
            self.ready()
        except AssertionError:
            self.stop()
            raise

    def write(self, name, text):
        """A file in its folder."""
        pathlib.Path(self.folder, name).write_text(text, encoding="utf-8")

    def begin(self):
        """Without waiting."""
        if os.path.exists(self.port_file):
            os.unlink(self.port_file)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [TENDRIL, *self.words, "--port-file", self.port_file],
                stdout=log,
                stderr=log,
                env=clean_environment(**self.environment),
                **self.become,
            )

    def ready(self):
        """Waits until it listens."""
        eventually(
            lambda: os.path.exists(self.port_file) or self.process.poll() is not None,
            30,
            "the port file",
        )
        if self.process.poll() is not None:
            raise AssertionError("it did not start: " + self.log())
        with open(self.port_file, encoding="ascii") as file:
            self.port = int(file.read())
        self.endpoint = f"127.0.0.1:{self.port}"

    def kill(self):
        """Dies without a word."""
        self.process.kill()
        self.process.wait()

    def restart(self):
        """Again, with the same folder and port."""
        self.words[self.words.index("--port") + 1] = str(self.port)
        self.begin()
        self.ready()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return pathlib.Path(self.log_path).read_text(encoding="utf-8", errors="replace")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Server(Daemon):
    """`tendril serve` with the software GPU on a free port. The log is kept for assertions.
    `become`: the user that serves, as subprocess takes it. `pool`: its pool's scheduler, or all of
    them."""

    def __init__(
        self, *options, gpus=1, memory=None, warm=1, environment=None, become=None, pool=()
    ):
        self.warm = warm * gpus
        options = [str(option) for option in options]
        if "--audit-log" not in options:
            options += ["--audit-log", "off"]
        if "--sockets" not in options:
            options += ["--sockets", "FOLDER/sockets"]
        schedulers = [pool] if isinstance(pool, Daemon) else list(pool)
        if schedulers:
            options += ["--pool", ",".join(each.endpoint for each in schedulers)]
        more = {
            "TENDRIL_SOFTGPU_DEVICES": str(gpus),
            "TENDRIL_MODULE_STORE": "off",
            **(environment or {}),
        }
        if memory:
            more["TENDRIL_SOFTGPU_MEMORY_MB"] = str(memory // MIB)
        words = ["serve", "--driver", DRIVER, "--port", 0, "--warm", warm, *options]
        super().__init__(words, more, become)
        self.sockets = self.words[self.words.index("--sockets") + 1]

    def leases(self):
        return listing(self)["leases"]

    def workers(self):
        """Processes that serve a client or wait for one."""
        return [pid for pid in children(self.pid) if b"--gpu" in command_line(pid)]

    def idle(self):
        """No lease and only idle workers: everything was given back."""
        return not self.leases() and len(self.workers()) <= self.warm

    def settled(self):
        """Idle, with every warm worker there, so that what the server holds can be compared with
        another time."""
        return not self.leases() and len(self.workers()) == self.warm


class Pool(Daemon):
    """`tendril pool serve` with a store of its own, or one that it shares with others (`store`).
    `policy`: the text of its policy; `apply` gives it another one."""

    def __init__(self, *options, policy=None, store="sqlite:FOLDER/pool.db", environment=None):
        words = ["pool", "serve", "--port", 0, "--store", store, "--audit-log", "off"]
        words += ["--sockets", "FOLDER/sockets"]
        files = {}
        if policy is not None:
            words += ["--policy", "FOLDER/pool.toml"]
            files["pool.toml"] = policy
        super().__init__([*words, *options], environment, files=files)

    def command(self, *arguments, **environment):
        """The answer of `tendril pool ...` as JSON."""
        environment.setdefault("TENDRIL_SERVERS", self.endpoint)
        status, out, err = tendril("pool", *arguments, "--json", **environment)
        if status != 0:
            raise AssertionError(f"tendril pool {' '.join(map(str, arguments))}: {err}")
        return json.loads(out)

    def apply(self, policy):
        self.write("new.toml", policy)
        return self.command("apply", os.path.join(self.folder, "new.toml"))

    def queue(self, **environment):
        environment.setdefault("TENDRIL_SERVERS", self.endpoint)
        status, out, err = tendril("queue", "--json", **environment)
        if status != 0:
            raise AssertionError(f"tendril queue: {err}")
        return json.loads(out)


def tendril(*arguments, server=None, timeout=60, user=None, **environment):
    """Runs the command line to its end, as another user if one is given; (status, stdout,
    stderr)."""
    command = [TENDRIL, arguments[0]]
    for one in [server] if isinstance(server, Server) else server or []:
        command += ["--server", one.endpoint]
    done = subprocess.run(
        [*command, *arguments[1:]],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=clean_environment(**environment),
        check=False,
        user=user,
    )
    return done.returncode, done.stdout, done.stderr


def start(*arguments, server=None, user=None, **environment):
    """Starts the command line and returns the process, with a pipe for its stdout."""
    command = [TENDRIL, arguments[0]]
    for one in [server] if isinstance(server, Server) else server or []:
        command += ["--server", one.endpoint]
    return subprocess.Popen(
        [*command, *arguments[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=clean_environment(**environment),
        user=user,
    )


def listing(server, command="ls", **environment):
    status, out, err = tendril(command, "--json", server=server, **environment)
    if status != 0:
        raise AssertionError(f"tendril {command} failed: {err}")
    return json.loads(out)["servers"][0]


def end(process):
    """Ends a process that a test left behind."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


class Relay:
    """Forwards TCP connections to a port until frozen. `limit`: connections after so many are
    accepted and never served. `sent` keeps what clients sent, one bytearray for each connection,
    up to RECORDED_MAX."""

    RECORDED_MAX = 1 << 16

    def __init__(self, port, limit=None):
        self.target, self.limit, self.frozen, self.sockets, self.sent = port, limit, False, [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = concurrent.futures.ThreadPoolExecutor(64)
        self.threads.submit(self.accept)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cut()
        self.threads.shutdown(wait=False, cancel_futures=True)

    def accept(self):
        count = 0
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            count += 1
            self.sockets.append(near)
            if self.limit is not None and count > self.limit:
                continue
            far = socket.create_connection(("127.0.0.1", self.target))
            self.sockets.append(far)
            self.sent.append(bytearray())
            self.threads.submit(self.pump, near, far, self.sent[-1])
            self.threads.submit(self.pump, far, near, bytearray())

    def pump(self, source, sink, record):
        try:
            while data := source.recv(65536):
                record += data[: self.RECORDED_MAX - len(record)]
                while self.frozen:
                    time.sleep(0.05)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def freeze(self):
        self.frozen = True

    def cut(self):
        for one in [self.listener, *self.sockets]:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()
        self.frozen = False


def raw_connection(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


# ---- the control protocol, spoken by hand (docs/wire.md) ----

HELLO, LIST, LEASE, ATTACH, NEWS = 0, 2, 3, 4, 0x8000
PROTOCOL = 2


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
    """One control connection, after hello. `newest`: the highest protocol that it speaks; `more`:
    further records of its hello."""

    def __init__(self, server, hears_news=False, newest=PROTOCOL, more=b""):
        host, port = server.endpoint.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        hello = number(1, PROTOCOL | newest << 16, "<I") + record(3, "by hand") + more
        code, _ = self.ask(HELLO, hello + (record(7, b"\1") if hears_news else b""))
        assert code == 0, code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def ask(self, kind, body=b""):
        """(code, body of the reply)."""
        self.send(kind, body)
        _, code, reply = self.message()
        return code, reply

    def send(self, kind, body=b""):
        self.socket.sendall(b"TNRD" + struct.pack("<IHHI", len(body), kind, 0, 0) + body)

    def message(self):
        """(kind, code, body) of the next one."""
        _, size, kind, code, _ = struct.unpack("<IIHHI", self.exactly(16))
        return kind, code, self.exactly(size)

    def news(self):
        """(text, place, of) of the next message, which must be news."""
        kind, _, body = self.message()
        assert kind == NEWS, (kind, body)
        return news_of(body)

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

    def attach(self, offers, **wishes):
        """(code, records of the reply, or the refusal's text). The session has no bulk channels."""
        self.send_attach(offers, **wishes)
        _, code, reply = self.message()
        return code, records(reply) if code == 0 else reply.decode()

    def send_attach(
        self, offers, lease=None, api="cuda", digest=None, share=250_000, outage=0
    ):
        digest = self.apis().get(api, 0) if digest is None else digest
        slices = [number(1, 1, "<I"), record(2, [number(1, share, "<I"), number(2, 0)])]
        body = record(3, slices) + number(5, 0, "<H") + record(7, api) + number(8, digest)
        body += record(9, [record(1, [record(1, kind), record(2, blob)]) for kind, blob in offers])
        body += number(14, outage, "<I") if outage else b""
        if lease is not None:
            body += number(1, lease[0]) + record(2, lease[1])
        self.send(ATTACH, body)


def news_of(body):
    """(text, place, of) of news."""
    told = records(body)
    place, of = (struct.unpack("<I", told[tag][0])[0] for tag in (2, 3))
    return told[1][0].decode(), place, of


needs_client = unittest.skipUnless(
    CLIENT.exists() and PROGRAMS.joinpath("vector_add").exists(),
    "the client library or the test programs were not built",
)
