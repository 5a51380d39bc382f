# SPDX-License-Identifier: Apache-2.0
"""What tinygrad's test modules import as test.helpers, which its source distribution leaves out.

scripts/tinygrad puts it beside the unpacked modules. It has what the modules of the list
need, and tests nothing itself.
"""

import functools
import os
import unittest

from tinygrad import Device, Tensor
from tinygrad.codegen import full_rewrite_to_sink, line_rewrite, pm_linearize_cleanups
from tinygrad.codegen.late.linearizer import linearize
from tinygrad.renderer import Renderer
from tinygrad.uop.ops import KernelInfo

REAL_DEV = Device.DEFAULT
slow = unittest.skipUnless(os.environ.get("RUN_SLOW"), "slow")


def get_uops(sink, renderer=None):
    """A kernel's operations in the order of its text."""
    if sink.arg is None:
        sink = sink.replace(arg=KernelInfo())
    lowered = full_rewrite_to_sink(sink, renderer or Renderer(), optimize=sink.tag is None)
    return line_rewrite(linearize(lowered), pm_linearize_cleanups)


def assert_jit_cache_len(function, expected):
    """A captured function has so many kernels, on their own or inside one graph."""
    cache = function.jit_cache
    if cache and type(cache[0].prg).__name__.endswith("Graph"):
        assert len(cache) == 1, len(cache)
        cache = cache[0].prg.jit_cache
    assert len(cache) == expected, f"{len(cache)} kernels, expected {expected}"


def not_support_multi_device():
    return False


def needs_second_gpu(test):
    @functools.wraps(test)
    def wrapper(self, *args, **kwargs):
        try:
            Tensor.zeros(10, device=f"{Device.DEFAULT}:1").contiguous().realize()
        except Exception as error:  # whatever a device that is not there answers
            self.skipTest(f"no second device: {error}")
        return test(self, *args, **kwargs)

    return wrapper
