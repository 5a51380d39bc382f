# SPDX-License-Identifier: Apache-2.0
"""What the vendor's OpenCL driver says of itself: facts for a worker that will call it. It does not
call the CUDA driver's public entries, so every side of a machine with a GPU prints the same."""

import ctypes
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

import checks
from checks import check

NAMES = ("libnvidia-opencl.so.1", "libOpenCL.so.1")
VERSION, NAME, EXTENSIONS = 0x0901, 0x0902, 0x0904
DEVICE = {"name": 0x102B, "version": 0x102F, "driver": 0x102D, "extensions": 0x1030}
GPU = 4


def library():
    for name in NAMES:
        try:
            return name, ctypes.CDLL(name)
        except OSError:
            continue
    checks.skip("no OpenCL driver")


def entries(opencl):
    """Platforms, and the entry points by the dispatch table that every platform begins with."""
    count, platforms = c_uint(), (c_void_p * 4)()
    if hasattr(opencl, "clGetExtensionFunctionAddress"):
        find = opencl.clGetExtensionFunctionAddress
        find.restype = c_void_p
        kind = ctypes.CFUNCTYPE(ctypes.c_int, c_uint, c_void_p, c_void_p)
        code = kind(find(b"clIcdGetPlatformIDsKHR"))(4, platforms, byref(count))
    else:
        code = opencl.clGetPlatformIDs(4, platforms, byref(count))
    return code, [platform for platform in platforms[: count.value]]


def entry(platform, number, *types):
    table = ctypes.cast(platform, ctypes.POINTER(ctypes.POINTER(c_void_p))).contents
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(table[number])


def text(call, of, what):
    size = c_size_t()
    call(of, what, c_size_t(0), None, byref(size))
    held = ctypes.create_string_buffer(size.value or 1)
    code = call(of, what, size, held, None)
    return held.value.decode(errors="replace") if code == 0 else f"code {code}"


@check
def platforms():
    name, opencl = library()
    code, found = entries(opencl)
    out = [name, code, len(found)]
    for platform in found:
        ask = entry(platform, 1, c_void_p, c_uint, c_size_t, c_void_p, c_void_p)
        out += [text(ask, platform, what) for what in (NAME, VERSION, EXTENSIONS)]
    return " | ".join(map(str, out))


@check
def devices():
    _, opencl = library()
    _, found = entries(opencl)
    out = []
    for platform in found:
        list_them = entry(platform, 2, c_void_p, c_uint64, c_uint, c_void_p, c_void_p)
        ask = entry(platform, 3, c_void_p, c_uint, c_size_t, c_void_p, c_void_p)
        held, count = (c_void_p * 16)(), c_uint()
        out.append(list_them(platform, GPU, 16, held, byref(count)))
        for device in held[: count.value]:
            out += [f"{key}: {text(ask, device, what)}" for key, what in DEVICE.items()]
    return " | ".join(map(str, out))


checks.run()
