#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs ZLUDA's table of small PTX programs through any libcuda, given by path. The table (a Rust
file) and its programs are read from a checkout outside this repository; nothing of them is kept
here. Called by scripts/ptx- oracles.
  zluda.py CHECKOUT LIBCUDA [--only NAME] [--verbose]
Each case is one process: a crash or a sticky fault of one must not count against the next."""

import argparse
import ctypes
import math
import os
import re
import struct
import subprocess
import sys

FORMATS = {
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "u64": "Q",
    "i64": "q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
}
LAUNCH_BYTES_SHARED = 1024
# What a case may answer beside success if no output is listed. Their owners only compile these
# programs.
TIMEOUT_SECONDS = 30


class Unreadable(Exception):
    pass


def split_list(text):
    """The elements of a Rust array literal, split at commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p.strip() for p in parts if p.strip()]


def integer(text):
    return int(text.replace("_", ""), 0)


def limits(kind):
    bits = int(kind[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "i" else (0, (1 << bits) - 1)


def element(text):
    """(value or raw bytes, type or None) of one Rust expression as the table uses them."""
    if text.startswith("-"):
        value, kind = element(text[1:])
        return -value, kind
    m = re.fullmatch(r"([iu]\d+)::(MIN|MAX|max_value\(\)|min_value\(\))", text)
    if m:
        return limits(m[1])[m[2].upper().startswith("MAX")], m[1]
    m = re.fullmatch(r"(?:half::)?(f16|f32|f64)::(NAN|INFINITY|NEG_INFINITY)(\.to_bits\(\))?", text)
    if m:
        value = {"NAN": math.nan, "INFINITY": math.inf, "NEG_INFINITY": -math.inf}[m[2]]
        if m[3]:
            return (
                struct.unpack(
                    {"f16": "H", "f32": "I", "f64": "Q"}[m[1]], struct.pack(FORMATS[m[1]], value)
                )[0],
                "u" + m[1][1:],
            )
        return value, m[1]
    m = re.fullmatch(r"(?:half::)?(f16|f32|f64)::from_bits\((\w+)\)", text)
    if m:
        bits = element(m[2])[0]
        return struct.pack({"f16": "H", "f32": "I", "f64": "Q"}[m[1]], bits), m[1]
    m = re.fullmatch(r"half::f16::from_f(?:32|64)\((.*)\)", text)
    if m:
        return float(element(m[1])[0]), "f16"
    m = re.fullmatch(r"std::(f32|f64)::consts::PI(?: / (.*))?", text)
    if m:
        return math.pi / (float(element(m[2])[0]) if m[2] else 1), m[1]
    m = re.fullmatch(r"(0[xb][0-9A-Fa-f_]+?|[0-9][0-9_]*)([iu](?:8|16|32|64))?", text)
    if m:
        return (
            integer(m[1].lstrip("0") or "0") if not m[1].startswith(("0x", "0b")) else integer(m[1])
        ), m[2]
    m = re.fullmatch(r"([0-9_]+(?:\.[0-9_]*)?(?:[eE]-?[0-9]+)?)(f16|f32|f64)?", text)
    if m:
        return float(m[1].replace("_", "")), m[2] or ("float" if "." in m[1] else None)
    raise Unreadable(text)


def array(text):
    """Bytes of a Rust array literal, and the type of its elements."""
    items = [element(t) for t in split_list(re.sub(r"//[^\n]*", "", text))]
    kinds = {k for _, k in items if k and k != "float"}
    kind = kinds.pop() if kinds else "f64" if any(k == "float" for _, k in items) else "i32"
    out = b""
    for value, _ in items:
        if isinstance(value, bytes):
            out += value
        elif kind[0] == "f":
            out += struct.pack("<" + FORMATS[kind], value)
        else:
            out += (int(value) & (1 << 8 * struct.calcsize(FORMATS[kind])) - 1).to_bytes(
                struct.calcsize(FORMATS[kind]), "little"
            )
    return out, kind


def read_table(path):
    """Every case: (name, input or None, output or None, type of the output, threads)."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    text = re.sub(r"^\s*//[^\n]*\n", "", text, flags=re.M)
    for m in re.finditer(r"^test_ptx(_warp|_with_32)?!\(\s*(\w+)\s*", text, flags=re.M):
        depth, at = 1, m.end()
        while depth:
            depth += (text[at] in "([") - (text[at] in ")]")
            at += 1
        arguments = [a.strip()[1:-1] for a in split_list(text[m.end() : at - 1].lstrip(", \n"))]
        warp = m[1] == "_warp"
        if not arguments:
            yield m[2], None, None, None, 0
        elif warp:
            yield (m[2], None, *array(arguments[0]), 64)
        else:
            yield (m[2], array(arguments[0])[0], *array(arguments[1]), 1)


class Cuda:
    """The part of the driver API that a case needs."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def __call__(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} answered {code}")


def run_case(library, ptx, name, data, expected, threads):
    cuda = Cuda(library)
    cuda("cuInit", 0)
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    device = ctypes.c_int()
    cuda("cuDeviceGet", ctypes.byref(device), 0)
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda("cuCtxSetCurrent", context)
    cuda("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx))
    if expected is None:
        return None
    cuda("cuModuleGetFunction", ctypes.byref(kernel), module, name.encode())
    source, target = ctypes.c_uint64(), ctypes.c_uint64()
    cuda("cuMemAlloc_v2", ctypes.byref(target), ctypes.c_size_t(len(expected)))
    cuda("cuMemsetD8_v2", target, ctypes.c_ubyte(0), ctypes.c_size_t(len(expected)))
    first = target
    if data is not None:
        cuda("cuMemAlloc_v2", ctypes.byref(source), ctypes.c_size_t(max(len(data), 1)))
        cuda("cuMemcpyHtoD_v2", source, data, ctypes.c_size_t(len(data)))
        first = source
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(first), ctypes.addressof(target))
    cuda(
        "cuLaunchKernel", kernel, 1, 1, 1, threads, 1, 1, LAUNCH_BYTES_SHARED, None, pointers, None
    )
    result = ctypes.create_string_buffer(len(expected))
    cuda("cuMemcpyDtoH_v2", result, target, ctypes.c_size_t(len(expected)))
    return result.raw


def show(data, kind, limit=8):
    values = struct.unpack(f"<{len(data) // struct.calcsize(FORMATS[kind])}{FORMATS[kind]}", data)
    return str(list(values[:limit])) + ("..." if len(values) > limit else "")


def child(folder, library, wanted):
    for name, data, expected, kind, threads in read_table(os.path.join(folder, "mod.rs")):
        if name != wanted:
            continue
        with open(os.path.join(folder, name + ".ptx"), "rb") as f:
            ptx = f.read()
        try:
            got = run_case(library, ptx, name, data, expected, threads)
        except RuntimeError as error:
            print(f"unsupported: {error}")
            return 2
        if got != expected:
            print(f"wrong: got {show(got, kind)}, the table says {show(expected, kind)}")
            return 1
        return 0
    return 3


def main():
    parser = argparse.ArgumentParser(description="run ZLUDA's PTX table")
    parser.add_argument("checkout")
    parser.add_argument("library")
    parser.add_argument("--only")
    parser.add_argument("--child")
    arguments = parser.parse_args()
    folder = os.path.join(arguments.checkout, "ptx/src/test/spirv_run")
    if arguments.child:
        sys.exit(child(folder, arguments.library, arguments.child))
    count = {"passed": 0, "wrong": 0, "unsupported": 0, "crashed": 0}
    for name, _, expected, _, _ in read_table(os.path.join(folder, "mod.rs")):
        if arguments.only and name != arguments.only:
            continue
        command = [
            sys.executable,
            "-B",
            os.path.abspath(__file__),
            arguments.checkout,
            arguments.library,
            "--child",
            name,
        ]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
            code, said = run.returncode, (run.stdout + run.stderr).strip()
        except subprocess.TimeoutExpired:
            code, said = -1, f"no answer in {TIMEOUT_SECONDS} seconds"
        outcome = {0: "passed", 1: "wrong", 2: "unsupported"}.get(code, "crashed")
        count[outcome] += 1
        if outcome != "passed":
            print(f"  {name}{'' if expected else ' (only loaded)'}: {outcome}: {said}")
    print("zluda: " + ", ".join(f"{n} {what}" for what, n in count.items()))
    sys.exit(0 if count["passed"] == sum(count.values()) else 1)


if __name__ == "__main__":
    main()
