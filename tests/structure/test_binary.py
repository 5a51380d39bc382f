# SPDX-License-Identifier: Apache-2.0
"""The client libraries of this build (TENDRIL_BUILD_DIR) against rules_binary.py, and those rules
against fixtures that break them. With a sanitizer (TENDRIL_SANITIZE) only the exports are checked:
the sanitizer itself needs a C++ runtime.
"""

import os
import pathlib
import platform
import re
import unittest

import rules_binary as rules
import tree
from check_case import CheckCase

BUILD = os.environ.get("TENDRIL_BUILD_DIR")
SANITIZED = bool(os.environ.get("TENDRIL_SANITIZE"))
NEW_GLIBC = os.environ.get("TENDRIL_ALLOW_NEW_GLIBC") == "1"


def described():
    """The names in api/cuda/signatures.txt."""
    return {
        re.search(r"(\w+)\(", line).group(1)
        for line in tree.text("api/cuda/signatures.txt").splitlines()
        if "(" in line
    }


@unittest.skipIf(BUILD is None, "TENDRIL_BUILD_DIR is not set: run by ctest")
class Tree(CheckCase):
    def libraries(self):
        folder = pathlib.Path(BUILD) / "lib" / "client"
        return [folder / "libcuda.so.1", folder / "libnvidia-ml.so.1"] + (
            [] if SANITIZED else [folder / "nccl" / "libnccl.so.2"]
        ) + [folder / "opencl" / "libtendril-opencl.so"]

    def programs(self):
        """The command line, which people copy to old systems together with the libraries."""
        folder = pathlib.Path(BUILD) / "bin"
        return [folder / "tendril", folder / "tendril-bench"]

    def each(self, rule, binaries):
        for binary in binaries:
            with self.subTest(binary=binary.name):
                self.assertTrue(binary.exists(), f"{binary.name} was not built")
                self.clean(rule(binary))

    def test_cuda_exports(self):
        library, wanted = self.libraries()[0], described()
        self.assertGreaterEqual(len(wanted), 637)
        self.assertTrue(library.exists(), "libcuda.so.1 was not built")
        table = rules.dynamic_symbols(library)
        self.clean(rules.exports(table, "cu", wanted) + rules.surplus(table, wanted | graphics()))

    def test_nvml_exports(self):
        library = self.libraries()[1]
        self.assertTrue(library.exists(), "libnvidia-ml.so.1 was not built")
        self.clean(
            rules.exports(
                rules.dynamic_symbols(library),
                "nvml",
                {"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString"},
            )
        )

    def test_opencl_exports(self):
        """What loaders ask for, and nothing that could stand before the loader's own names."""
        library = self.libraries()[-1]
        self.assertTrue(library.exists(), "libtendril-opencl.so was not built")
        self.assertEqual(
            rules.exported(rules.dynamic_symbols(library)),
            {"clGetExtensionFunctionAddress", "clIcdGetPlatformIDsKHR", "clGetPlatformInfo"},
        )

    def test_the_worker_sees_its_drivers_ioctl(self):
        worker = pathlib.Path(BUILD) / "bin" / "tendril-worker"
        self.assertIn(
            "ioctl",
            rules.exported(rules.dynamic_symbols(worker)),
            "HardwareSlices would learn nothing",
        )

    @unittest.skipIf(SANITIZED, "a sanitizer needs more")
    def test_needed(self):
        binaries = self.libraries()
        if not NEW_GLIBC:  # the main build's programs share this machine's C++ runtime
            binaries += self.programs()
        self.each(
            lambda binary: rules.needed(rules.output("readelf", "-dW", str(binary))), binaries
        )

    @unittest.skipIf(SANITIZED, "a sanitizer needs more")
    @unittest.skipIf(NEW_GLIBC, "TENDRIL_ALLOW_NEW_GLIBC=1")
    def test_glibc_floor(self):
        self.each(
            lambda binary: rules.glibc_floor(rules.dynamic_symbols(binary)),
            self.libraries() + self.programs(),
        )

    @unittest.skipIf(SANITIZED, "a sanitizer needs more")
    def test_nothing_runs_on_load(self):
        self.each(
            lambda library: rules.initialisers(rules.output("nm", str(library))), self.libraries()
        )

    @unittest.skipIf(SANITIZED, "a sanitizer's code comes first")
    @unittest.skipIf(platform.machine() != "x86_64", "other libraries patch entries on x86-64")
    def test_entries_may_be_patched(self):
        listing = rules.output("objdump", "-d", "--no-show-raw-insn", str(self.libraries()[0]))
        self.assertIn("<cuMemFree_v2>:", listing)
        self.clean(rules.movable_prologues(listing, described()))


def graphics():
    """Entry points of graphics interoperability: exported, as the driver does, but outside the
    described signatures."""
    page = tree.ROOT / "api/cuda/graphics_names.txt"
    return set(page.read_text().split()) if page.is_file() else set()


TABLE = """
libcuda.so.1:     file format elf64-x86-64

DYNAMIC SYMBOL TABLE:
0000000000000000      DF *UND*	0000000000000000 (GLIBC_2.2.5) free
0000000000000000      DF *UND*	0000000000000000 (GLIBC_2.34) pthread_create
0000000000000000  w   D  *UND*	0000000000000000  Base        __gmon_start__
0000000000004940 g    DF .text	00000000000007ad  Base        cuInit
0000000000004990  w   DF .text	0000000000000012  Base        _ZNSt6vectorIiE
0000000000005000 g    DO .data	0000000000000008 (V1)         cuTable
"""


class Rules(CheckCase):
    def test_exports(self):
        self.assertEqual(rules.exported(TABLE), {"cuInit", "_ZNSt6vectorIiE", "cuTable"})
        self.finds(
            rules.exports(TABLE, "cu", {"cuInit", "cuFoo"}),
            ["_ZNSt6vectorIiE", "does not export 'cuFoo'"],
        )
        self.finds(rules.surplus(TABLE, {"cuInit", "_ZNSt6vectorIiE"}), ["cuTable"])

    def test_glibc_floor(self):
        self.finds(rules.glibc_floor(TABLE), ["pthread_create of glibc 2.34"])
        self.clean(rules.glibc_floor(TABLE.replace("2.34", "2.28")))

    def test_needed(self):
        line = " 0x01 (NEEDED)             Shared library: [{}]\n"
        self.clean(rules.needed(line.format("libc.so.6")))
        self.finds(
            rules.needed(line.format("libc.so.6") + line.format("libstdc++.so.6")), ["libstdc++"]
        )
        self.finds(rules.needed(""), ["no NEEDED"])
        self.finds(
            rules.needed(line.format("libc.so.6") + " 0x1d (RUNPATH) Library runpath: [/x]\n"),
            ["RUNPATH"],
        )

    def test_initialisers(self):
        self.clean(
            rules.initialisers(
                "000000 t _GLOBAL__sub_I_eh_alloc.cc\n000000 t _GLOBAL__sub_I__ZN9\n"
            )
        )
        self.finds(rules.initialisers("000000 t _GLOBAL__sub_I_state.cc\n"), ["state.cc"])

    def test_movable_prologues(self):
        head = "0000000000001000 <cuFoo>:\n    1000:\tpush   %rbp\n    1001:\tmov    %rsp,%rbp\n"
        pushes = "".join(f"    {at:x}:\tpush   %r15\n" for at in range(0x1004, 0x100C, 2))
        self.clean(
            rules.movable_prologues(head + pushes + "    100c:\tcall   2000 <x>\n", {"cuFoo"})
        )
        listing = head + "    1004:\tmov    %rsi,%rdx\n"
        self.finds(rules.movable_prologues(listing, {"cuFoo"}), ["cuFoo"])
        self.clean(rules.movable_prologues(listing, {"cuBar"}))


if __name__ == "__main__":
    unittest.main()
