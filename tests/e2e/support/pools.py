# SPDX-License-Identifier: Apache-2.0
"""A pool of real processes for the tests of pools: schedulers on one store, servers with software
GPUs, and a policy in few words. test_pool.py and test_pool_chaos.py use it."""

import concurrent.futures
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request

from harness import Pool, Server, eventually, start, tendril
from support.relay import Wire

POLICY = """
[pool]
name = "lab"
{pool}
[[user_class]]
name = "batch"
{batch}
"""


def policy(batch="", pool=""):
    """One class of use for everybody, with these lines."""
    return POLICY.format(batch=batch, pool=pool)


def quietly(question):
    """No answer is False: another scheduler is just taking over."""
    try:
        return question()
    except AssertionError:
        return False


class Lab:
    """`servers` named gpu1, gpu2 and so on. Use as a context manager. With `wired` each line
    between two processes is a Wire: pool.ways[0] leads users to a scheduler, pool.stores it to the
    members of etcd, server.ways users to a server, and server.reports it to the schedulers. `more`:
    options of each scheduler, as `options` has those of each server."""

    def __init__(
        self,
        servers=2,
        gpus=1,
        schedulers=1,
        text=None,
        etcd=None,
        options=None,
        wired=False,
        more=(),
    ):
        self.pools, self.servers, self.wired = [], [], wired
        self.stack, self.more = contextlib.ExitStack(), more
        try:
            for _ in range(schedulers):
                self.pools.append(self.schedule(text, etcd))
            options = options or {}
            with concurrent.futures.ThreadPoolExecutor(4) as threads:
                names = [f"gpu{i + 1}" for i in range(servers)]
                starts = [threads.submit(self.lend, n, gpus, options.get(n, ())) for n in names]
                self.servers = [each.result() for each in starts]
            self.await_servers()
        except BaseException:
            self.__exit__()
            raise

    def wire(self, port=0):
        return self.stack.enter_context(Wire(port))

    def schedule(self, text, etcd):
        more, stores = {}, []
        if etcd is not None:
            stores = [self.wire(port) for port in etcd.clients] if self.wired else []
            members = [each.endpoint for each in stores] or etcd.endpoints
            more["store"] = "etcd://" + ",".join(members)
        elif self.pools:
            more["store"] = f"sqlite:{self.pools[0].folder}/pool.db"
        pool = Pool(*self.more, policy=text, **more)
        pool.stores, pool.ways = stores, [self.wire(pool.port)] if self.wired else []
        return pool

    def lend(self, name, gpus, options):
        reports, ways = list(self.pools), []
        if self.wired:
            reports, ways = [self.wire(each.port) for each in self.pools], [self.wire()]
            options = ["--advertise", ways[0].endpoint, *options]
        server = Server("--name", name, *options, gpus=gpus, warm=0, pool=reports)
        server.name, server.reports, server.ways = name, reports, ways
        for way in ways:
            way.port = server.port
        return server

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in [*self.servers, *self.pools]:
            each.stop()
        self.stack.close()

    @property
    def pool(self):
        """A scheduler's process that lives."""
        return next(each for each in self.pools if each.process.poll() is None)

    @property
    def addresses(self):
        return ",".join(each.endpoint for each in self.pools)

    @property
    def ways(self):
        """The addresses that users have."""
        if not self.wired:
            return self.addresses
        return ",".join(pool.ways[0].endpoint for pool in self.pools)

    def command(self, *arguments):
        return self.pool.command(*arguments, TENDRIL_SERVERS=self.addresses)

    def status(self):
        return self.command("status")

    def states(self):
        return {each["name"]: each["state"] for each in self.status()["servers"]}

    def await_servers(self, seconds=20):
        names = {server.name for server in self.servers}
        up = {name: "up" for name in names}

        def all_up():
            try:
                return self.states() == up
            except AssertionError:  # a scheduler is just being elected
                return False

        eventually(all_up, seconds, f"{sorted(names)} in the pool")

    def leases(self):
        return self.status()["leases"]

    def waiting(self):
        return self.pool.queue(TENDRIL_SERVERS=self.addresses)["waiting"]

    def run(self, *arguments, **environment):
        """`tendril run` to its end: (status, stdout, stderr)."""
        return tendril("run", *arguments, TENDRIL_SERVERS=self.ways, **environment)

    def start(self, *arguments, **environment):
        """`tendril run` in the background."""
        return start("run", *arguments, TENDRIL_SERVERS=self.ways, **environment)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


class Etcd:
    """Three members of etcd on this machine, which reach each other over wires (`lines`). Use as a
    context manager."""

    PRESENT = shutil.which("etcd") is not None

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="tendril-etcd-")
        self.clients, self.peers = [[free_port() for _ in range(3)] for _ in range(2)]
        self.members = [None] * 3
        self.lines = [Wire(port) for port in self.peers]
        for index in range(3):
            self.begin(index)
        try:
            eventually(self.is_healthy, 30, "a leader of etcd")
        except AssertionError:
            self.__exit__()
            raise

    @property
    def endpoints(self):
        return [f"127.0.0.1:{port}" for port in self.clients]

    def begin(self, index):
        """Starts a member, or starts it again."""
        client, peer = (f"http://127.0.0.1:{ports[index]}" for ports in (self.clients, self.peers))
        lines = [f"http://{line.endpoint}" for line in self.lines]
        cluster = ",".join(f"m{i}={line}" for i, line in enumerate(lines))
        with open(f"{self.folder}/log{index}", "ab") as log:
            self.members[index] = subprocess.Popen(
                [
                    "etcd",
                    *("--name", f"m{index}", "--data-dir", f"{self.folder}/m{index}"),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", lines[index]),
                    *("--initial-cluster", cluster, "--initial-cluster-token", self.folder),
                    *("--heartbeat-interval", "100", "--election-timeout", "1000"),
                ],
                stdout=log,
                stderr=log,
            )

    def ask(self, path, body=None, member=0):
        """What a member answers; GET without a body."""
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.clients[member]}{path}", data, timeout=2
        ) as answer:
            return json.load(answer)

    def is_healthy(self):
        try:
            return self.ask("/health")["health"] == "true"
        except OSError:
            return False

    def alarm(self, action, member=0):
        """ACTIVATE: etcd is full, as it says itself when its quota is used up. DEACTIVATE: it has
        room again."""
        alarms = self.ask("/v3/maintenance/alarm", {"action": "GET"}, member).get("alarms", [])
        for each in alarms if action == "DEACTIVATE" else [{"memberID": "1"}]:
            words = {"action": action, "alarm": "NOSPACE", "memberID": each["memberID"]}
            self.ask("/v3/maintenance/alarm", words, member)

    def stop(self, *indexes):
        for index in indexes:
            self.members[index].send_signal(signal.SIGSTOP)

    def go_on(self, *indexes):
        for index in indexes:
            self.members[index].send_signal(signal.SIGCONT)

    def kill(self, index):
        self.members[index].kill()
        self.members[index].wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            if member is not None and member.poll() is None:
                member.send_signal(signal.SIGCONT)
                member.kill()
                member.wait()
        for line in self.lines:
            line.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)
