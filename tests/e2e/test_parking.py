# SPDX-License-Identifier: Apache-2.0
"""Parked leases: their GPU memory leaves for the server's host memory and comes back with every
byte, others have the GPU meanwhile, and whoever dies in between takes nobody else along.
TENDRIL_PARK_CYCLES sets how often programs are parked at arbitrary moments."""

import collections
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness
from harness import MIB, PROGRAMS, Pool, Server, eventually, tendril
from support.page_client import PageClient, free_port

CYCLES = int(os.environ.get("TENDRIL_PARK_CYCLES", "0"))
long = unittest.skipUnless(CYCLES, "long: TENDRIL_PARK_CYCLES says how often to park")

# Answers lines. "take SEED MIB..." allocates blocks and fills them by copies and by the GPU. "sum"
# reads all of them and prints a hash. "hold MIB" allocates a block and leaves it alone. "touch" has
# the GPU write what is there already. "write N" copies a word to one. "free N" gives one back.
# "info" says free and total memory.
NOTEBOOK = """
import ctypes, hashlib, random, sys
from ctypes import byref, c_size_t, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
def must(code):
    assert code == 0, code
context = c_void_p()
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
blocks = []
def take(seed, sizes):
    dice = random.Random(seed)
    for mib in sizes:
        address, size = c_uint64(), mib << 20
        must(cuda.cuMemAlloc_v2(byref(address), c_size_t(size)))
        must(cuda.cuMemsetD32_v2(address, dice.getrandbits(32), c_size_t(size // 4)))
        for _ in range(3):
            data = dice.randbytes(70000)
            at = c_uint64(address.value + dice.randrange(size - len(data)))
            must(cuda.cuMemcpyHtoD_v2(at, data, c_size_t(len(data))))
        blocks.append((address, size))
def digest():
    sum = hashlib.sha256()
    for address, size in blocks:
        into = ctypes.create_string_buffer(size)
        must(cuda.cuMemcpyDtoH_v2(into, address, c_size_t(size)))
        sum.update(into.raw)
    return sum.hexdigest()
print("ready", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "take":
        take(int(rest[0]), [int(mib) for mib in rest[1:]])
        print("taken", flush=True)
    elif word == "hold":
        must(cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(int(rest[0]) << 20)))
        print("held", flush=True)
    elif word == "sum":
        print(digest(), flush=True)
    elif word == "free":
        must(cuda.cuMemFree_v2(blocks.pop(int(rest[0]))[0]))
        print("freed", flush=True)
    elif word == "write":
        must(cuda.cuMemcpyHtoD_v2(blocks[int(rest[0])][0], b"written", c_size_t(7)))
        print("written", flush=True)
    elif word == "touch":  # needs the GPU, and changes nothing
        for address, _ in blocks:
            four = c_uint64()
            must(cuda.cuMemcpyDtoH_v2(byref(four), address, c_size_t(4)))
            must(cuda.cuMemsetD32_v2(address, four.value & 0xFFFFFFFF, c_size_t(1)))
        must(cuda.cuCtxSynchronize())
        print("touched", flush=True)
    elif word == "info":
        free, total = c_size_t(), c_size_t()
        must(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
        print(free.value, total.value, flush=True)
"""


SUITE = harness.BUILD / "bin" / "tendril_conformance"
TESTS = os.environ.get("TENDRIL_PARK_TESTS", "Memory*:Copy*:Stream*:Launch*:Event*:Graph*")
PARK = 12  # the request (wire/control.h)


class Mover:
    """Parks and wakes the newest lease of a server at random moments, without a pause."""

    def __init__(self, server):
        self.server, self.parks, self.over = server, 0, threading.Event()
        self.thread = threading.Thread(target=self.move)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def move(self):
        dice, lease = random.Random(7), 1
        with harness.Control(self.server) as control:
            while not self.over.is_set():
                # Numbers of leases and sessions grow together.
                for number in range(lease, lease + 12):
                    code, _ = control.ask(PARK, harness.number(1, number))
                    if code == 0:
                        self.parks += 1
                        lease = number
                        break
                if dice.random() < 0.5:
                    control.ask(PARK, harness.number(1, lease) + harness.number(2, 1, "<B"))
                time.sleep(dice.random() * 0.01)


class Notebook:
    """A program that does what it is told, line by line."""

    def __init__(self, server, *options):
        self.process = subprocess.Popen(
            [harness.TENDRIL, "run", *options, "--", sys.executable, "-c", NOTEBOOK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=harness.clean_environment(TENDRIL_SERVERS=server.endpoint),
        )
        self.line()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        harness.end(self.process)
        self.process.stderr.close()

    def line(self):
        return self.process.stdout.readline().strip()

    def begin(self, *words):
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:  # it has ended
            pass

    def ask(self, *words):
        self.begin(*words)
        return self.line()

    def leave(self):
        """Ends as a program ends, and gives its stderr."""
        self.process.stdin.close()
        text = self.process.stderr.read()
        self.process.wait(20)
        return text


def move(server, verb, lease):
    return tendril("lease", verb, str(lease), TENDRIL_SERVERS=server.endpoint)


def lease_of(server, number):
    return next(lease for lease in server.leases() if lease["lease"] == number)


def worker_of(server, lease):
    """The process that serves a lease's only session."""
    return int(re.search(rf"on lease {lease}: .*worker (\d+)", server.log()).group(1))


def newest(server):
    return max(lease["lease"] for lease in server.leases())


@harness.needs_client
class Parking(unittest.TestCase):
    """One server of one GPU with 1 GiB."""

    def parked(self, server, lease):
        status, out, err = move(server, "park", lease)
        self.assertEqual(status, 0, err)
        self.assertIn("parked", out)
        self.assertEqual(lease_of(server, lease)["standing"], "parked")

    def test_bytes_come_back_and_the_gpu_is_free_meanwhile(self):
        with Server(memory=1024 * MIB) as server, Notebook(server, "-m", "600M") as book:
            book.ask("take", 1, 200, 2, 64, 1, 128)
            before, info = book.ask("sum"), book.ask("info")
            number = newest(server)
            used = harness.listing(server, "smi")["gpus"][0]["memory_used_bytes"]
            self.parked(server, number)
            slice_ = lease_of(server, number)["slices"][0]
            self.assertGreaterEqual(slice_["memory_parked_bytes"], 395 * MIB)
            self.assertEqual(
                used - harness.listing(server, "smi")["gpus"][0]["memory_used_bytes"],
                slice_["memory_parked_bytes"],
            )
            self.assertIn("parked", tendril("ls", server=server)[1])
            self.assertRegex(
                tendril("top", "--once", server=server)[1], rf"lease {number}: parked .* for "
            )
            self.assertEqual(book.ask("info"), info, "a question about memory wakes nobody")
            self.assertEqual(lease_of(server, number)["standing"], "parked")
            # Who comes now has the memory and uses it.
            with Notebook(server, "-m", "900M") as other:
                other.ask("take", 2, 700)
                other.ask("sum")
            eventually(lambda: len(server.leases()) == 1, 10)
            self.assertEqual(book.ask("sum"), before, "read from the host's memory")
            self.assertEqual(lease_of(server, number)["standing"], "parked")
            book.ask("touch")
            self.assertEqual(lease_of(server, number)["standing"], "granted")
            self.assertEqual(book.ask("sum"), before)
            self.assertEqual(lease_of(server, number)["slices"][0]["memory_parked_bytes"], 0)
            lines = [line for line in book.leave().splitlines() if "parked on the server" in line]
            self.assertEqual(len(lines), 1, lines)

    def test_the_owner_wakes_it_before_it_works(self):
        with Server(memory=512 * MIB) as server, Notebook(server, "-m", "300M") as book:
            book.ask("take", 3, 100, 30)
            before, number = book.ask("sum"), newest(server)
            for _ in range(3):
                self.parked(server, number)
                status, out, err = move(server, "wake", number)
                self.assertEqual(status, 0, err)
                self.assertIn("on its GPU again", out)
                self.assertEqual(lease_of(server, number)["standing"], "granted")
            self.assertEqual(book.ask("sum"), before)
            self.assertEqual(lease_of(server, number)["parks"], 3)
            status, _, err = move(server, "park", 4711)
            self.assertEqual(status, 1)
            self.assertIn("no lease 4711", err)

    def test_what_was_not_written_is_not_copied_again(self):
        with Server("--park-memory", "250M", memory=512 * MIB) as server:
            with Notebook(server, "-m", "300M") as book:
                book.ask("take", 18, 100, 60)
                before, number = book.ask("sum"), newest(server)

                def copied():
                    self.parked(server, number)
                    line = re.findall(rf"lease {number} is parked .*", server.log())[-1]
                    self.assertEqual(move(server, "wake", number)[0], 0)
                    return re.search(r"; ([0-9.]+ \S+) were copied", line).group(1)

                self.assertEqual(copied(), "160.0 MiB")
                self.assertEqual(copied(), "0 B")
                self.assertEqual(book.ask("sum"), before, "reading changes nothing")
                self.assertEqual(copied(), "0 B")
                book.ask("write", 1)  # to one range of 64 MiB
                changed = book.ask("sum")
                self.assertNotEqual(changed, before)
                self.assertEqual(copied(), "60.0 MiB")
                book.ask("touch")  # the first range of each block
                self.assertEqual(copied(), "124.0 MiB")
                self.assertEqual(book.ask("sum"), changed)
                book.ask("hold", 1)  # with anything else, all counts as written
                self.assertEqual(copied(), "162.0 MiB")
                self.assertEqual(copied(), "0 B")
                # The copies that it keeps make room for others.
                with Notebook(server, "-m", "200M") as other:
                    other.ask("take", 19, 150)
                    self.parked(server, newest(server))
                eventually(lambda: len(server.leases()) == 1, 10, "the other's end")
                self.assertEqual(copied(), "162.0 MiB")
                self.assertEqual(book.ask("sum"), changed)

    def test_an_idle_lease_is_copied_before_it_is_parked(self):
        def own_mib(pid):  # without the software GPU's memory, which is shared
            with open(f"/proc/{pid}/status", encoding="utf-8") as lines:
                known = dict(line.split(":", 1) for line in lines)
            return int(known["RssAnon"].split()[0]) >> 10

        with Server("--park-idle", "6s", memory=512 * MIB) as server:
            with Notebook(server, "-m", "300M") as book:
                book.ask("take", 21, 180)
                before, number = book.ask("sum"), newest(server)
                pid, copied_ahead = worker_of(server, number), False
                while lease_of(server, number)["standing"] == "granted":
                    has_copy = own_mib(pid) >= 175
                    granted = lease_of(server, number)["standing"] == "granted"
                    copied_ahead = copied_ahead or (has_copy and granted)
                self.assertTrue(copied_ahead)
                eventually(lambda: lease_of(server, number)["standing"] == "parked", 20)
                book.ask("touch")
                self.assertEqual(book.ask("sum"), before)

    def test_who_wakes_waits_and_newcomers_do_not_overtake(self):
        with Server(memory=1024 * MIB) as server, Notebook(server, "-m", "600M") as book:
            book.ask("take", 4, 300)
            before, number = book.ask("sum"), newest(server)
            self.parked(server, number)
            with Notebook(server, "-m", "700M") as other:
                other.ask("take", 5, 10)
                book.begin("touch")
                eventually(lambda: lease_of(server, number)["standing"] == "waking", 10)
                status, _, err = tendril(
                    "run", "-m", "200M", "--", "true", TENDRIL_SERVERS=server.endpoint
                )
                self.assertNotEqual(status, 0)
                self.assertIn("parked leases", err)
            self.assertEqual(book.line(), "touched")
            self.assertEqual(book.ask("sum"), before)

    @long
    def test_idle_leases_are_parked_and_make_room(self):
        with Server("--park-idle", "2s", memory=1024 * MIB) as server:
            with Notebook(server, "-m", "600M") as one:
                one.ask("take", 6, 300)
                first, number = one.ask("sum"), newest(server)
                eventually(lambda: lease_of(server, number)["standing"] == "parked", 20)
                with Notebook(server, "-m", "600M") as two:
                    two.ask("take", 7, 300)
                    second = two.ask("sum")
                    for _ in range(3):
                        one.ask("touch")
                        began = time.monotonic()
                        two.ask("touch")
                        waited_s = time.monotonic() - began
                        self.assertGreater(waited_s, 1.9, "the other one had just come back")
                        self.assertEqual(one.ask("sum"), first)
                        self.assertEqual(two.ask("sum"), second)
        # Both came back after the other one had been idle for two seconds.

    def test_refusals_say_why(self):
        with Server("--park-memory", "50M", memory=512 * MIB) as server:
            with Notebook(server, "-m", "300M") as book:
                book.ask("take", 8, 100)
                before, number = book.ask("sum"), newest(server)
                status, _, err = move(server, "park", number)
                self.assertEqual(status, 1)
                self.assertIn("--park-memory", err)
                self.assertEqual(book.ask("sum"), before)
                self.assertEqual(lease_of(server, number)["standing"], "granted")

    def test_more_than_the_free_host_memory_is_refused(self):
        """Blocks that nothing has written take no memory of the software GPU's host."""
        with open("/proc/meminfo", encoding="utf-8") as lines:
            known = dict(line.split(":") for line in lines)
        gib = int(known["MemTotal"].split()[0]) // (1 << 20) + 2
        with Server("--park-memory", f"{2 * gib}G", memory=2 * gib * 1024 * MIB) as server:
            with Notebook(server, "-m", f"{gib + 1}G") as book:
                self.assertEqual(book.ask("hold", gib * 1024), "held")
                number = newest(server)
                status, _, err = move(server, "park", number)
                self.assertEqual(status, 1)
                self.assertIn("of host memory left", err)
                self.assertEqual(lease_of(server, number)["standing"], "granted")
                self.assertEqual(book.ask("touch"), "touched")

    def files_of(self, pid, folder):
        """Paths of a process' files without a name, which still hold bytes."""
        all_files, found = f"/proc/{pid}/fd", []
        for name in os.listdir(all_files):
            path = os.path.join(all_files, name)
            try:
                if os.readlink(path).startswith(folder):
                    found.append(path)
            except FileNotFoundError:
                pass  # closed since it was listed
        return found

    def test_without_memory_for_it_a_lease_goes_to_an_encrypted_file(self):
        with tempfile.TemporaryDirectory() as folder:
            files = ("--park-file", folder, "--park-file-size", "200M")
            with Server("--park-memory", "50M", *files, memory=1024 * MIB) as server:
                with Notebook(server, "-m", "300M") as book:
                    book.ask("take", 22, 100, 30)
                    before, number = book.ask("sum"), newest(server)
                    self.parked(server, number)
                    self.assertRegex(server.log(), rf"lease {number} is parked .* went to a file")
                    self.assertEqual(os.listdir(folder), [], "it has no name")
                    pid = worker_of(server, number)
                    (path,) = self.files_of(server.process.pid, folder)
                    with open(path, "rb") as file:
                        written = file.read(4 << 20)
                    counts = collections.Counter(written)
                    self.assertLess(max(counts.values()), len(written) / 200, "it is encrypted")
                    self.assertEqual(os.stat(path).st_size, 130 * MIB)
                    with Notebook(server, "-m", "900M") as other:
                        other.ask("take", 23, 700)
                        status, _, err = move(server, "park", newest(server))
                        self.assertEqual(status, 1)
                        self.assertIn("--park-file-size", err)
                    eventually(lambda: len(server.leases()) == 1, 10)
                    self.assertEqual(book.ask("touch"), "touched")
                    self.assertEqual(book.ask("sum"), before)
                    self.assertEqual(
                        self.files_of(server.process.pid, folder), [], "the disk has its room again"
                    )
                    # Who dies loses its own.
                    self.parked(server, number)
                    os.kill(pid, signal.SIGKILL)
                    self.assertEqual(book.ask("touch"), "")
                    eventually(lambda: not server.leases(), 20)
                    self.assertEqual(self.files_of(server.process.pid, folder), [])

    @unittest.skipUnless(os.path.isdir("/dev/shm"), "a file system with little room is wanted")
    def test_a_full_disk_refuses_and_says_so(self):
        room = os.statvfs("/dev/shm")
        gib = room.f_blocks * room.f_frsize // (1 << 30) + 2
        with Server(
            *("--park-memory", "off", "--park-file", "/dev/shm", "--park-file-size", f"{gib}G"),
            memory=2 * gib * 1024 * MIB,
        ) as server:
            with Notebook(server, "-m", f"{gib}G") as book:
                self.assertEqual(book.ask("hold", (gib - 1) * 1024), "held")
                number = newest(server)
                status, _, err = move(server, "park", number)
                self.assertEqual(status, 1)
                self.assertIn("there is no room for a file of", err)
                self.assertEqual(lease_of(server, number)["standing"], "granted")
                self.assertEqual(book.ask("touch"), "touched")

    def test_who_dies_on_the_way_to_a_file_leaves_nothing(self):
        dice = random.Random(34)
        seen = collections.Counter()
        with tempfile.TemporaryDirectory() as folder:
            files = ("--park-memory", "off", "--park-file", folder, "--park-file-size", "1G")
            server = Server(*files, memory=1024 * MIB)
            with server, Notebook(server, "-m", "200M") as book:
                book.ask("take", 24, 40)
                before = book.ask("sum")
                held = lambda: self.files_of(server.process.pid, folder)
                for _ in range(max(CYCLES // 50, 3)):
                    with Notebook(server, "-m", "600M") as victim:
                        victim.ask("take", 25, 300, 200)
                        lease = newest(server)
                        pid = worker_of(server, lease)
                        mover = threading.Thread(target=move, args=(server, "park", lease))
                        mover.start()
                        eventually(held, 20, "that its file is there")
                        time.sleep(dice.random() * 0.3)
                        seen[lease_of(server, lease)["standing"]] += 1
                        os.kill(pid, signal.SIGKILL)
                        self.assertEqual(victim.ask("touch"), "")
                        self.assertIn("tendril: ", victim.leave())
                        mover.join()
                    eventually(lambda: len(server.leases()) == 1, 20)
                    self.assertEqual(held(), [], "the disk has its room again")
                self.assertGreater(seen["parking"], 0, seen)
                self.assertEqual(book.ask("sum"), before)
                # The server dies on the way. Its workers end with it, and so do their files.
                with Notebook(server, "-m", "600M") as victim:
                    victim.ask("take", 26, 300, 200)
                    lease, workers = newest(server), server.workers()
                    mover = threading.Thread(target=move, args=(server, "park", lease))
                    mover.start()
                    eventually(held, 20, "that its file is there")
                    server.process.kill()
                    server.process.wait()
                    mover.join()
                    self.assertEqual(victim.ask("touch"), "")
                    eventually(lambda: not any(map(harness.is_running, workers)), 10)
                self.assertEqual(os.listdir(folder), [])

    @long
    def test_only_who_dies_is_lost(self):
        with Server(memory=1024 * MIB) as server, Notebook(server, "-m", "300M") as book:
            book.ask("take", 9, 150)
            before, number = book.ask("sum"), newest(server)
            self.parked(server, number)
            with Notebook(server, "-m", "300M") as other:
                other.ask("take", 10, 100)
                other_number = newest(server)
                self.parked(server, other_number)
                other.process.kill()  # its client, while it is parked
                eventually(lambda: len(server.leases()) == 1, 20)
            with Notebook(server, "-m", "300M") as third:
                third.ask("take", 11, 100)
                self.parked(server, newest(server))
                self.assertEqual(book.ask("sum"), before)
                full = [pid for pid in server.workers() if harness.resident_kib(pid) > 90 << 10]
                self.assertTrue(full)
                for pid in full:
                    os.kill(pid, signal.SIGKILL)  # with what was parked in them
                # Their programs hear of it at their next call.
                for one in (book, third):
                    self.assertEqual(one.ask("touch"), "")
                eventually(lambda: not server.leases(), 20)
            with Notebook(server, "-m", "900M") as last:  # nothing of them is left
                last.ask("take", 12, 600)
                last.ask("sum")

    @long
    def test_a_lease_that_wakes_may_be_killed(self):
        with Server(memory=1024 * MIB) as server, Notebook(server, "-m", "600M") as book:
            book.ask("take", 13, 300)
            number = newest(server)
            self.parked(server, number)
            with Notebook(server, "-m", "700M") as other:
                other.ask("take", 14, 100)
                kept = other.ask("sum")
                book.begin("touch")
                eventually(lambda: lease_of(server, number)["standing"] == "waking", 10)
                book.process.kill()
                eventually(lambda: len(server.leases()) == 1, 20)
                self.assertEqual(other.ask("sum"), kept)
                # What was kept for it is free.
                status, _, err = tendril(
                    "run", "-m", "200M", "--", "true", TENDRIL_SERVERS=server.endpoint
                )
                self.assertEqual(status, 0, err)

    @long
    def test_who_dies_while_it_is_moved_takes_nobody_along(self):
        """Clients and workers are killed at random moments of parking and of waking."""
        dice = random.Random(32)
        outcomes = collections.Counter()
        with Server(memory=1024 * MIB) as server, Notebook(server, "-m", "300M") as book:
            book.ask("take", 15, 40, 30)
            before, number = book.ask("sum"), newest(server)
            in_use = harness.listing(server, "smi")["gpus"][0]["memory_used_bytes"]
            for _ in range(max(CYCLES // 20, 5)):
                with Notebook(server, "-m", "600M") as victim:
                    victim.ask("take", 16, 120, 80)
                    lease, verb = newest(server), dice.choice(("park", "wake"))
                    if verb == "wake":
                        self.parked(server, lease)
                    who = dice.choice(("client", "worker"))
                    pid = victim.process.pid if who == "client" else worker_of(server, lease)
                    mover = threading.Thread(target=move, args=(server, verb, lease))
                    mover.start()
                    time.sleep(dice.random() * 0.25)
                    outcomes[f"{verb} {who} {lease_of(server, lease)['standing']}"] += 1
                    os.kill(pid, signal.SIGKILL)
                    if who == "worker":
                        self.assertEqual(victim.ask("touch"), "")
                    mover.join()
                    eventually(lambda: len(server.leases()) == 1, 20)
                eventually(
                    lambda: harness.listing(server, "smi")["gpus"][0]["memory_used_bytes"]
                    == in_use,
                    20,
                    "all GPU memory is given back",
                )
                self.parked(server, number)  # the server's account of host memory is right, too
                self.assertEqual(book.ask("touch"), "touched")
            self.assertEqual(book.ask("sum"), before)
        print(dict(outcomes), flush=True)

    @long
    def test_a_daemon_that_dies_while_it_parks_leaves_nothing(self):
        dice = random.Random(33)
        for cycle in range(max(CYCLES // 100, 2)):
            server = Server(memory=512 * MIB)
            try:
                with Notebook(server, "-m", "400M") as book:
                    book.ask("take", 17, 200)
                    lease, workers = newest(server), server.workers()
                    if cycle % 2:
                        self.parked(server, lease)
                    verb = "wake" if cycle % 2 else "park"
                    mover = threading.Thread(target=move, args=(server, verb, lease))
                    mover.start()
                    time.sleep(dice.random() * 0.2)
                    server.process.kill()
                    server.process.wait()
                    mover.join()
                    self.assertEqual(book.ask("touch"), "")
                    self.assertNotEqual(book.process.wait(20), 0)
                    eventually(
                        lambda workers=workers: not any(map(harness.is_running, workers)),
                        10,
                        "the workers' end",
                    )
            finally:
                server.stop()

    @long
    def test_programs_are_parked_at_arbitrary_moments(self):
        names = ["histogram", "reduction", "training_step", "matrix_multiply", "stream_memory"]
        dice = random.Random(20)
        with Server(memory=1024 * MIB) as server:
            alone = {name: stable(self.run_program(server, name)) for name in names}
            with Mover(server) as mover:
                until = time.monotonic() + 600
                while mover.parks < CYCLES and time.monotonic() < until:
                    name = dice.choice(names)
                    self.assertEqual(stable(self.run_program(server, name)), alone[name])
            self.assertGreaterEqual(mover.parks, CYCLES)

    def run_program(self, server, name):
        status, out, err = tendril(
            "run", "-m", "400M", "--", PROGRAMS / name, server=server, timeout=120
        )
        self.assertEqual(status, 0, out + err)
        return out

    @long
    @unittest.skipUnless(SUITE.exists(), "the conformance suite is not built")
    def test_conformance_is_parked_at_arbitrary_moments(self):
        """Each test of the suite, while its lease is parked again and again."""
        with Server(memory=2048 * MIB) as server, Mover(server) as mover:
            until = time.monotonic() + 600
            rounds = 0
            while rounds == 0 or (mover.parks < CYCLES and time.monotonic() < until):
                status, out, err = tendril(
                    "run",
                    "-m",
                    "1G",
                    "--",
                    SUITE,
                    "--gtest_brief=1",
                    "--gtest_filter=" + TESTS,
                    server=server,
                    timeout=600,
                )
                self.assertEqual(status, 0, (out + err)[-3000:])
                rounds += 1
            self.assertGreaterEqual(mover.parks, CYCLES)


LIMITED = """
[pool]
name = "lab"

[[user_class]]
name = "normal"
max_per_user = { gpus = 0.6 }

[[assignment]]
user_classes = ["normal"]
"""


# Takes MIB, and works in the spans that a line of stdin names, from a moment on: each as long as it
# is, once its memory is there. Prints how long each one waited.
TENANT = """
import ctypes, json, sys, time
from ctypes import byref, c_size_t, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
def must(code):
    assert code == 0, code
context, address = c_void_p(), c_uint64()
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
must(cuda.cuMemAlloc_v2(byref(address), c_size_t(int(sys.argv[1]) << 20)))
def work():
    must(cuda.cuMemsetD32_v2(address, 7, c_size_t(1)))
    must(cuda.cuCtxSynchronize())
work()
print("ready", flush=True)
begin, spans = json.loads(sys.stdin.readline())
waited = []
for first, last in spans:
    time.sleep(max(0, begin + first - time.monotonic()))
    asked = time.monotonic()
    work()
    waited.append(time.monotonic() - asked)
    until = time.monotonic() + last - first
    while time.monotonic() < until:
        work()
        time.sleep(0.05)
print(json.dumps(waited), flush=True)
sys.stdin.readline()
"""


@harness.needs_client
@harness.needs_plain_client
class Replay(unittest.TestCase):
    """Twenty tenants on four cards, each of which has room for three of its five, do what records
    say. `tendril plan --parked` says beforehand how often they are parked and woken."""

    CARDS, TENANTS, MIB, IDLE_S, SECONDS = 4, 5, 300, 5, 90

    def spans(self, dice):
        """Of work, in whole seconds. Breaks are not near the times after which a lease is parked,
        because a server looks once a second."""
        at, spans = dice.randrange(1, 12), []
        while at < self.SECONDS - 5:
            spans.append((at, at + dice.choice((1, 2, 3))))
            at = spans[-1][1] + dice.choice((1, 4, 8, 10, 13))
        return spans

    def planned(self, tenants):
        """Wakes and parks, without the first park of each tenant: before the records everybody is
        there and idle long enough for that."""
        first_s = 4 * self.IDLE_S
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("time_s,gpu,utilisation_percent,memory_bytes,job\n")
            for at in range(first_s + self.SECONDS):
                for number, spans in enumerate(tenants):
                    works = any(first <= at - first_s < last for first, last in spans)
                    row = (at, number, 100 * works, self.MIB * MIB, f"tenant {number}")
                    file.write(",".join(map(str, row)) + "\n")
            file.flush()
            status, out, err = tendril(
                *("plan", file.name, "--parked", "--cards", "1", "--card", "1.0"),
                *("--idle", f"{self.IDLE_S}s", "--link", "1"),
            )
        self.assertEqual(status, 0, err)
        rows = [line.split() for line in out.splitlines()]
        whole = next(row for row in rows if row[:1] == ["1"])
        return int(whole[1]), int(whole[2]) - len(tenants)

    def start(self, server):
        """Asks again until others have made room."""
        for _ in range(60):
            process = subprocess.Popen(
                [
                    *(harness.TENDRIL, "run", "--server", server.endpoint, "-p", "0.1"),
                    *("-m", f"{self.MIB + 2}M", "--", sys.executable, "-c", TENANT, str(self.MIB)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=harness.clean_environment(),
            )
            self.addCleanup(process.stdout.close)
            self.addCleanup(harness.end, process)
            if process.stdout.readline() == "ready\n":
                return process
            process.stdin.close()
            time.sleep(1)
        return self.fail(server.log()[-2000:])

    @staticmethod
    def counts(server):
        return [server.log().count(text) for text in ("memory is back after", " is parked after ")]

    @long
    def test_twenty_tenants_do_as_planned(self):
        dice = random.Random(int(os.environ.get("TENDRIL_REPLAY_SEED", "24")))
        cards = [[self.spans(dice) for _ in range(self.TENANTS)] for _ in range(self.CARDS)]
        planned = [sum(both) for both in zip(*(self.planned(tenants) for tenants in cards))]
        options = ("--park-idle", f"{self.IDLE_S}s")
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(Server(*options, memory=1024 * MIB)) for _ in cards]
            tenants = [
                (server, self.start(server)) for _ in range(self.TENANTS) for server in servers
            ]
            for server in servers:
                eventually(
                    lambda at=server: all(one["standing"] == "parked" for one in at.leases()), 60
                )
            before = [self.counts(server) for server in servers]
            begin = time.monotonic() + 1
            for number, (_, process) in enumerate(tenants):
                spans = cards[number % self.CARDS][number // self.CARDS]
                process.stdin.write(json.dumps([begin, spans]) + "\n")
                process.stdin.flush()
            waited = [json.loads(process.stdout.readline()) for _, process in tenants]
            time.sleep(max(0, begin + self.SECONDS - time.monotonic()))
            after = [self.counts(server) for server in servers]
            for _, process in tenants:
                process.stdin.close()
                self.assertEqual(process.wait(20), 0)
        wakes, parks = (
            sum(now[i] - then[i] for now, then in zip(after, before)) for i in range(2)
        )
        waits = sorted(wait for mine in waited for wait in mine)
        text = (
            f"replay: {wakes} wakes and {parks} parks, planned {planned[0]} and {planned[1]}; "
            f"work waited {waits[len(waits) // 2]:.2f} s in the median, {waits[-1]:.1f} s at most"
        )
        print(text, flush=True)
        for real, plan in ((wakes, planned[0]), (parks, planned[1])):
            self.assertGreater(plan, 40, "it was not tight")
            self.assertLess(abs(real - plan), 0.15 * plan, text)


@harness.needs_client
class InAPool(unittest.TestCase):
    """A user may have 0.6 GPUs. What is parked holds none of it."""

    def setUp(self):
        self.pool = Pool(policy=LIMITED)
        self.addCleanup(self.pool.stop)
        self.server = Server("--name", "gpu1", warm=0, memory=1024 * MIB, pool=self.pool)
        self.addCleanup(self.server.stop)

    def run_in_pool(self, *options):
        note = Notebook(self.pool, *options)
        self.addCleanup(note.__exit__)
        return note, max(lease["lease"] for lease in self.pool_leases())

    def pool_leases(self):
        return self.pool.command("status")["leases"]

    def park(self, lease):
        self.pool.command("park", str(lease))
        eventually(lambda: self.standings() == ["parked"], 10, "that it is parked")

    def standings(self):
        return [lease["standing"] for lease in self.server.leases()]

    def test_who_wakes_stays_within_the_limit_of_its_user(self):
        first, number = self.run_in_pool("-p", "0.5", "-m", "300M")
        first.ask("take", 1, 60)
        before = first.ask("sum")
        self.park(number)
        # The user has all of it, so the parked lease wakes without asking.
        began = time.monotonic()
        self.assertEqual(first.ask("touch"), "touched")
        self.assertLess(time.monotonic() - began, 5)
        self.park(number)
        second, _ = self.run_in_pool("-p", "0.5", "-m", "300M")
        self.assertEqual(sorted(self.standings()), ["granted", "parked"])
        first.begin("touch")
        time.sleep(3)
        self.assertEqual(sorted(self.standings()), ["granted", "parked"])
        status, _, err = tendril("pool", "wake", str(number), TENDRIL_SERVERS=self.pool.endpoint)
        self.assertEqual(status, 0, err)  # without identities everybody rules: beyond the limit
        self.assertEqual(first.line(), "touched")
        self.assertEqual(first.ask("sum"), before)
        second.leave()
        text = first.leave()
        self.assertIn("it stays parked until a limit allows it to go on (UserLimit: ", text)

    def test_who_waits_for_the_limit_goes_on_when_it_allows(self):
        first, number = self.run_in_pool("-p", "0.5", "-m", "300M")
        first.ask("take", 1, 60)
        before = first.ask("sum")
        self.park(number)
        second, _ = self.run_in_pool("-p", "0.5", "-m", "300M")
        first.begin("touch")
        time.sleep(2)
        self.assertEqual(sorted(self.standings()), ["granted", "parked"])
        second.leave()
        self.assertEqual(first.line(), "touched")
        self.assertEqual(first.ask("sum"), before)

    def test_without_a_scheduler_it_wakes_all_the_same(self):
        first, number = self.run_in_pool("-p", "0.5", "-m", "300M")
        first.ask("take", 1, 60)
        self.park(number)
        self.run_in_pool("-p", "0.5", "-m", "300M")
        first.begin("touch")
        time.sleep(2)
        self.assertEqual(sorted(self.standings()), ["granted", "parked"])
        self.pool.kill()
        self.assertEqual(first.line(), "touched")  # ten seconds after the last word

    def test_memory_of_a_lease_is_changed_within_limits(self):
        note, number = self.run_in_pool("-p", "0.2", "-m", "200M")
        note.ask("take", 1, 150)
        change = lambda size: tendril(
            "lease", "set", str(number), "-m", size, TENDRIL_SERVERS=self.pool.endpoint
        )
        self.assertEqual(change("400M")[0], 0)
        self.assertEqual(self.server.leases()[0]["slices"][0]["memory_bytes"], 400 * MIB)
        self.assertIn("UserLimit: ", change("900M")[2])
        self.assertIn("let its programs free memory first", change("100M")[2])
        # Its server does not decide that.
        status, _, _ = tendril(
            "lease", "set", "1", "-m", "500M", TENDRIL_SERVERS=self.server.endpoint
        )
        self.assertNotEqual(status, 0)


def stable(text):
    """Output without times and rates."""
    return re.sub(r"\d+\.\d+( ms| s| us|x)?", "N", text)


class OnThePage(unittest.TestCase):
    """Who may change a lease parks it on the page of a lone server, and of a pool."""

    def park_and_wake(self, page, note):
        def lease():
            leases = page.get("leases")["leases"]
            return leases[0] if leases else None

        note.ask("take 1 40")
        before = note.ask("sum")
        eventually(lambda: lease() and lease()["use"]["memory_used_bytes"] >= 40 * MIB, 20)
        number = lease()["id"]
        page.post(f"leases/{number}/park")
        parked = eventually(lambda: lease()["standing"] == "parked" and lease(), 20, "the park")
        self.assertGreaterEqual(parked["use"]["memory_parked_bytes"], 40 * MIB)
        page.post(f"leases/{number}/wake")
        eventually(lambda: lease()["standing"] == "granted", 20, "that it is back")
        self.assertEqual(note.ask("sum"), before)
        page.post(f"leases/{number + 1}/park", status=404)
        events = page.get("events")["events"]
        self.assertTrue([e for e in events if "park" in (e["what"], e.get("memory"))], events)

    def test_of_a_lone_server(self):
        port = free_port()
        with Server("--page", f"127.0.0.1:{port}", warm=0) as server:
            page = PageClient(port)
            with Notebook(server, "-p", "0.5") as note:
                self.park_and_wake(page, note)
            page.get("events/past", 501)

    def test_of_a_pool(self):
        port = free_port()
        pool = Pool("--page", f"127.0.0.1:{port}")
        self.addCleanup(pool.stop)
        with Server("--name", "gpu1", warm=0, pool=pool):
            with Notebook(pool, "-p", "0.5") as note:
                self.park_and_wake(PageClient(port), note)


if __name__ == "__main__":
    unittest.main()
