# SPDX-License-Identifier: Apache-2.0
"""What the framework programs share: named checks with one line of output each, so that a line
which differs names the check.

A check is a function that returns values. Arrays are shown as checksum and sum of absolute
values, the rest as text. An exception ends its check only and becomes a line with RAISED,
because errors must equal native too. report.py counts those, because a check that raises
natively shows nothing. Lines that begin with `time` are not compared. Arguments choose checks
by a part of their name.
"""

import importlib
import os
import re
import subprocess
import sys
import time
import zlib

SKIP_STATUS = 77  # compare.py reports it as not run
DEVICE = os.environ.get("CHECKS_DEVICE", "cuda")  # "cpu" tries a script where there is no GPU
REGISTERED = []


class Skipped(Exception):
    """A check, or a case in it, that this machine cannot do."""


def need(name):
    """A module. Without it, ends this program as `skip`."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.split(".")[0]:
            raise
        skip(f"{name} is not installed")


def want(name):
    """A module that one check needs. Without it the check is skipped."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.split(".")[0]:
            raise
        raise Skipped(f"{name} is not installed") from None


def skip(why):
    """Ends this program, which can show nothing on this machine."""
    print(f"skip: {why}", flush=True)
    sys.exit(SKIP_STATUS)


def check(function):
    REGISTERED.append((function.__name__, function))
    return function


def check_each(**cases):
    """One check for each case: the function gets the case's value."""

    def register(function):
        for name, value in cases.items():
            REGISTERED.append((f"{function.__name__}/{name}", lambda value=value: function(value)))
        return function

    return register


def host_array(value):
    """A numpy array of anything that lies on a device, or None."""
    if hasattr(value, "detach"):  # torch, whose bfloat16 and fp8 numpy does not know
        value = value.detach().cpu()
        value = value.resolve_conj().resolve_neg() if value.is_complex() else value
        wide = value if value.is_complex() else value.double()
        return value.reshape(-1).contiguous().view(dtype=torch_bytes()).numpy(), wide.numpy()
    if hasattr(value, "get") and hasattr(value, "dtype"):  # cupy
        value = value.get()
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # jax and numpy
        import numpy

        value = numpy.asarray(value)
        return value, value if value.dtype.kind == "c" else value.astype(numpy.float64)
    return None


def torch_bytes():
    return sys.modules["torch"].uint8


def crc(value):
    return f"{zlib.crc32(host_array(value)[0].tobytes()):08x}"


def shown(value):
    """One value as text. The text is the same only for the same bits."""
    if isinstance(value, (list, tuple)):
        return " ".join(shown(item) for item in value)
    if isinstance(value, dict):
        return " ".join(f"{key} {shown(item)}" for key, item in value.items())
    arrays = host_array(value)
    if arrays is None:
        return repr(value) if isinstance(value, float) else str(value)
    return f"#{zlib.crc32(arrays[0].tobytes()):08x} {float(abs(arrays[1]).sum()):.9g}"


def error_line(error):
    """Kind and first line of an error, without what differs between two runs of the same
    program."""
    text = (str(error).strip().splitlines() or [""])[0]
    if "out of memory" in text:  # goes on with how much is free and who holds what
        text = text.split(". GPU")[0]
    text = re.sub(
        r"^.*\[with [^]]*\] *", "", text
    )  # whole names of C++ functions, before what ONNX Runtime has to say
    text = re.sub(r"0x[0-9a-fA-F]+", "0x?", text)
    return f"{type(error).__name__}: {re.sub(r'(/[^/ ]+)+/', '', text)[:200]}"


def run():
    """All checks that the arguments choose, in order."""
    words = sys.argv[1:]
    for name, function in REGISTERED:
        if words and not any(word in name for word in words):
            continue
        begun = time.perf_counter()
        try:
            print(name, shown(function()), flush=True)
        except Skipped as error:
            print(name, "SKIPPED", error, flush=True)
        except Exception as error:  # errors are results here
            print(name, "RAISED", error_line(error), flush=True)
        print(f"time {name} {time.perf_counter() - begun:.2f} s", flush=True)


def in_child(name, *, env=None, limit_s=60, script=None):
    """Runs one part of the calling script in a new process, `script NAME`. Returns what it
    printed and how it ended."""
    script = script or sys.modules["__main__"].__file__
    try:
        done = subprocess.run(
            [sys.executable, script, "--child", name],
            env=os.environ | (env or {}),
            timeout=limit_s,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        return "HANG after " + " | ".join(str(error.stdout or b"").splitlines()[-3:])
    lines = [line for line in done.stdout.splitlines() if not line.startswith("time")]
    if done.returncode and not lines:
        lines = done.stderr.strip().splitlines()[-1:]
    return " | ".join([*lines, f"exit {done.returncode}"])


def child_part():
    """The name of the part that this process was started for by in_child, or None."""
    return sys.argv[2] if len(sys.argv) > 2 and sys.argv[1] == "--child" else None
