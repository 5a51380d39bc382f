# SPDX-License-Identifier: Apache-2.0
"""A pool of real processes for the tests of pools: schedulers on one store, servers with software
GPUs, and a policy in few words. test_pool.py and test_pool_chaos.py use it."""

import concurrent.futures
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request

from harness import Pool, Server, eventually, start, tendril

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


class Lab:
    """`servers` named gpu1, gpu2 and so on. Use as a context manager."""

    def __init__(self, servers=2, gpus=1, schedulers=1, text=None, store=None, options=None):
        self.pools, self.servers = [], []
        try:
            first = Pool(policy=text, **({"store": store} if store else {}))
            self.pools.append(first)
            shared = store or f"sqlite:{first.folder}/pool.db"
            for _ in range(schedulers - 1):
                self.pools.append(Pool(policy=text, store=shared))
            options = options or {}
            with concurrent.futures.ThreadPoolExecutor(4) as threads:
                names = [f"gpu{i + 1}" for i in range(servers)]
                starts = [threads.submit(self.lend, n, gpus, options.get(n, ())) for n in names]
                self.servers = [each.result() for each in starts]
            self.await_servers()
        except BaseException:
            self.__exit__()
            raise

    def lend(self, name, gpus, options):
        server = Server("--name", name, *options, gpus=gpus, warm=0, pool=self.pools)
        server.name = name
        return server

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in [*self.servers, *self.pools]:
            each.stop()

    @property
    def pool(self):
        """A scheduler's process that lives."""
        return next(each for each in self.pools if each.process.poll() is None)

    @property
    def addresses(self):
        return ",".join(each.endpoint for each in self.pools)

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
        return tendril("run", *arguments, TENDRIL_SERVERS=self.addresses, **environment)

    def start(self, *arguments, **environment):
        """`tendril run` in the background."""
        return start("run", *arguments, TENDRIL_SERVERS=self.addresses, **environment)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


class Etcd:
    """Three members of etcd on this machine. Use as a context manager."""

    PRESENT = shutil.which("etcd") is not None

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="tendril-etcd-")
        self.clients, self.peers = [[free_port() for _ in range(3)] for _ in range(2)]
        self.members = [None] * 3
        for index in range(3):
            self.begin(index)
        try:
            eventually(self.is_healthy, 30, "a leader of etcd")
        except AssertionError:
            self.__exit__()
            raise

    @property
    def store(self):
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in self.clients)

    def begin(self, index):
        """Starts a member, or starts it again."""
        client, peer = (f"http://127.0.0.1:{ports[index]}" for ports in (self.clients, self.peers))
        cluster = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(self.peers))
        with open(f"{self.folder}/log{index}", "ab") as log:
            self.members[index] = subprocess.Popen(
                [
                    "etcd",
                    *("--name", f"m{index}", "--data-dir", f"{self.folder}/m{index}"),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", cluster, "--initial-cluster-token", self.folder),
                    *("--heartbeat-interval", "100", "--election-timeout", "1000"),
                ],
                stdout=log,
                stderr=log,
            )

    def is_healthy(self):
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.clients[0]}/health", timeout=2
            ) as answer:
                return b"true" in answer.read()
        except OSError:
            return False

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
        shutil.rmtree(self.folder, ignore_errors=True)
