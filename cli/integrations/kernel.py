# SPDX-License-Identifier: Apache-2.0
"""Starts IPython's kernel for a notebook with a network GPU. Beside the kernel.json that `tendril
jupyter install` wrote. The notebook takes its slice at its first GPU call. After the cell that made
it, a line says which one it is; %gpu says so again, at any time."""

import json
import os
import socket
import subprocess
import sys
import time

ASK_AGAIN_S = 2


def own_leases():
    """(server, GPUs, lease) of each lease of this process. Raises OSError, ValueError, or
    subprocess.SubprocessError."""
    command = os.environ.get("TENDRIL_COMMAND", "tendril")
    done = subprocess.run(
        [command, "ls", "--json", "--timeout", "2000"], capture_output=True, timeout=10, check=False
    )
    host, found = socket.gethostname(), []
    for server in json.loads(done.stdout)["servers"]:
        for lease in server.get("leases", []):
            if (lease.get("host"), lease.get("pid")) == (host, os.getpid()):
                found.append((server["server"], server.get("gpus", []), lease))
    return found


def gib(size):
    return f"{size / 2**30:.1f}"


def describe(server, gpus, lease):
    names = {gpu["index"]: gpu["name"] for gpu in gpus}
    lines = []
    for part in lease["slices"]:
        name = names.get(part["gpu"], f"GPU {part['gpu']}")
        used, whole = part["memory_used_bytes"], part["memory_bytes"]
        lines.append(
            f"GPU: {part['share']:g} of {name} on {server}, {gib(used)} of {gib(whole)} GiB in "
            f"use, {part['gpu_time_s']:.1f} s of its time had, lease {lease['lease']}"
        )
    return lines


def status(*_):
    """One line for each slice of this notebook."""
    try:
        leases = own_leases()
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return [f"GPU: the servers did not say what this notebook has ({error})"]
    if not leases:
        return ["GPU: none yet; the first GPU call takes it"]
    return [line for each in leases for line in describe(*each)]


def has_library():
    """Whether this process has loaded the GPU library, so that it may have a lease."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return "/libcuda.so.1" in maps.read()


class Announcer:
    """Says once what the notebook has, after the cell that took it."""

    def __init__(self):
        self.said, self.asked_s = False, -ASK_AGAIN_S

    def __call__(self, *_):
        if self.said or time.monotonic() - self.asked_s < ASK_AGAIN_S or not has_library():
            return
        self.asked_s = time.monotonic()
        lines = status()
        self.said = "lease" in lines[0]
        if self.said:
            print("\n".join(lines))


def main():
    sys.path[0] = ""  # as of `python -m`; this folder has nothing for the notebook
    from ipykernel.kernelapp import IPKernelApp

    app = IPKernelApp.instance()
    app.initialize(sys.argv[1:])
    shell = app.shell
    shell.events.register("post_run_cell", Announcer())
    shell.register_magic_function(lambda _: print("\n".join(status())), magic_name="gpu")
    app.start()


if __name__ == "__main__":
    main()
