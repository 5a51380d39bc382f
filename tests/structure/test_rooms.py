# SPDX-License-Identifier: Apache-2.0
"""Every C++ file against the rules of rules_rooms.py (include direction, banned calls, dead files),
and those rules against fixtures."""

import re
import unittest

import rules_rooms as rules
import tree
from check_case import CheckCase

SUFFIXES = tree.CPP + (".py",)
SOURCES = {
    name: tree.text(name) for name in tree.files() if name.endswith((".cc", ".h", ".cpp", ".c"))
}
CMAKE = {
    name: tree.text(name)
    for name in tree.files()
    if name.endswith(("CMakeLists.txt", ".cmake")) and "/" in name
}


class Tree(CheckCase):
    def each(self, rule):
        self.assertTrue(SOURCES)
        self.clean(problem for name, text in SOURCES.items() for problem in rule(name, text))

    def test_include_direction(self):
        self.each(rules.direction)

    def test_rooms_without_cuda_types(self):
        self.clean(rules.cuda_reach(SOURCES))

    def test_banned_calls(self):
        self.each(rules.banned)

    def test_vendor_names(self):
        self.each(rules.vendor_names)

    def test_folders(self):
        self.clean(rules.crowded([name for name in tree.files() if name.endswith(SUFFIXES)]))

    def test_stems(self):
        names = [name for name in tree.files() if re.fullmatch(r"api/\w+/\w+\.spec", name)]
        self.assertTrue(names)
        self.clean(rules.stems({name: tree.text(name) for name in names}, SOURCES))

    def test_every_source_is_built(self):
        tracked = set((tree.git("ls-files", "-z") or "").split("\0"))
        self.clean(rules.unbuilt([name for name in SOURCES if name in tracked], CMAKE))


class Rules(CheckCase):
    def test_direction(self):
        self.clean(
            rules.direction(
                "session/a.cc",
                '#include "wire/frame.h"\n#include "session/b.h"\n#include <vector>\n',
            )
        )
        self.finds(rules.direction("client/a.cc", '\n#include "worker/run.h"\n'), ["client/a.cc:2"])
        self.finds(
            rules.direction("worker/a.cc", '#include "client/cuda/state.h"\n'),
            ["must not include client/"],
        )
        self.finds(
            rules.direction("base/a.h", ' #  include "wire/frame.h"\n'), ["must not include wire/"]
        )
        self.finds(
            rules.direction("softgpu/a.h", '#include "gpu/driver.h"\n'), ["must not include gpu/"]
        )
        self.finds(
            rules.direction("daemon/a.h", '#include "worker/run.h"\n'), ["must not include worker/"]
        )
        self.clean(rules.direction("tests/a.h", '#include "worker/run.h"\n#include "client/a.h"\n'))

    def test_cuda_reach(self):
        sources = {
            "daemon/a.cc": '#include "gpu/inventory.h"\n',
            "gpu/inventory.h": '#include "gpu/driver.h"\n',
            "gpu/driver.h": '#include "api/cuda_abi.gen.h"\n',
            "daemon/b.cc": '#include "base/result.h"\n',
            "client/cuda/state.h": '#include "api/cuda_abi.gen.h"\n',
            "client/core/a.cc": '#include "client/cuda/state.h"\n',
        }
        self.finds(
            rules.cuda_reach(sources),
            [
                "gpu/inventory.h -> gpu/driver.h -> api/cuda_abi.gen.h",
                "client/core/a.cc: knows CUDA types",
            ],
        )

    def test_banned(self):
        bad = [
            "#include <iostream>",
            "throw 1;",
            "try {",
            "dynamic_cast<A*>(b);",
            "std::thread t;",
            "printf(x);",
            "std::abort();",
            "assert(x);",
            "strcpy(a, b);",
            'dlopen("libcuda.so.1", 1);',
            "using namespace std;",
            "#include <format>",
        ]
        for line in bad:
            self.finds(rules.banned("client/a.cc", line + "\n"), ["client/a.cc:1"])
        for line in ["free(p);", "delete p;", "p = malloc(1);"]:
            self.finds(rules.banned("worker/a.cc", line + "\n"), ["worker/a.cc:1"])
        good = [
            "// printf(x) would be wrong",
            'const char* s = "throw 1;";',
            "A(const A&) = delete;",
            "static_assert(x);",
            "snprintf(a, n, b);",
            "arena.free(p);",
            "void free(int x);",
            "std::this_thread::yield();",
            "thread->exit();",
            "// structure: allow free: the C library made it\nfree(p);",
            "using namespace std::literals;",
            "void A::free(int x) {\n}\nvoid g() {\n  free(1);\n}\n",
            "void operator delete(void* p);",
        ]
        for line in good:
            self.clean(rules.banned("softgpu/a.cc", line + "\n"))
        self.clean(rules.banned("client/a_test.cc", "printf(x);\n"))
        self.clean(rules.banned("client/test_pair.h", "printf(x);\n"))
        self.clean(rules.banned("gpu/driver.cc", "dlopen(x);\n"))
        self.clean(rules.banned("cli/a.cc", "printf(x);\n"))
        self.finds(
            rules.banned("softgpu/a.cc", "// structure: allow free:\nfree(p);\n"),
            ["softgpu/a.cc:2"],
        )

    def test_vendor_names(self):
        self.clean(
            rules.vendor_names("client/cuda/a.cc", 'extern "C" CUresult cuInit(unsigned flags) {')
        )
        self.finds(
            rules.vendor_names("worker/a.cc", 'extern "C" CUresult cuInit(unsigned flags) {'),
            ["only client/"],
        )
        self.finds(
            rules.vendor_names("base/a.h", '__attribute__((visibility("default"))) int x;'),
            ["only client/"],
        )

    def test_crowded(self):
        names = [f"a/b/{number}.cc" for number in range(40)]
        self.clean(rules.crowded(names + ["a/b/c/d.cc", "a/e.cc"]))
        self.finds(rules.crowded(names + ["a/b/e.h"]), ["a/b/: 41 source files"])

    def test_stems(self):
        specs = {"api/x/event.spec": "local xRecord\nop event_record a:u64\n"}
        sources = {
            "client/x/stream/event.cc": "int xRecord(int a) {\n}\n",
            "worker/x/event.cc": "int handle(W& w, const wire::x::event_record_request& m) {\n}\n",
        }
        self.clean(rules.stems(specs, sources))
        self.clean(rules.stems({"api/x/none.spec": "call xGet a=out\n"}, sources))
        lacks = {path: text for path, text in sources.items() if "worker" in path}
        self.finds(rules.stems(specs, lacks), ["client/x/ has no event.cc"])
        empty = sources | {"worker/x/event.cc": "int handle(W& w, const other_request& m);\n"}
        self.finds(rules.stems(specs, empty), ["event.cc of worker/x/ has nothing of it"])

    def test_unbuilt(self):
        cmake = {"a/CMakeLists.txt": "add_library(x STATIC one.cc sub/two.cc)\nadd_test(three)"}
        self.clean(rules.unbuilt(["a/one.cc", "a/sub/two.cc", "a/three.cc", "a/b.h"], cmake))
        self.finds(rules.unbuilt(["a/four.cc", "b/one.cc"], cmake), ["a/four.cc", "b/one.cc"])


if __name__ == "__main__":
    unittest.main()
