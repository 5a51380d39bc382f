# SPDX-License-Identifier: Apache-2.0
"""Rules about rooms: which room may include which, what each room may call, and that every source
is built. The tables below are the ones that CONTRIBUTING.md describes in words."""

import collections
import fnmatch
import re

import cpp_reader

# What a room may include besides itself. Rooms that are not listed (tests, bench, tools) may
# include anything.
MAY_INCLUDE = {
    "api": {"base"},
    "base": set(),
    "wire": {"base"},
    "config": {"base", "wire"},
    "lease": {"base", "wire", "config"},
    "transport": {"base"},
    "session": {"base", "wire", "transport"},
    "gpu": {"base", "api"},
    "softgpu": {"base", "api"},
    "softnccl": {"base", "api"},
    "client": {"base", "wire", "config", "lease", "transport", "session", "api"},
    "worker": {"base", "wire", "transport", "session", "gpu", "api"},
    "http": {"base", "transport", "session"},
    "view": {"base", "wire", "config"},
    "access": {"base", "wire", "config"},
    "identity": {"base", "wire", "config", "session"},
    "reception": {
        "base",
        "wire",
        "config",
        "transport",
        "session",
        "http",
        "access",
        "identity",
    },
    "store": {"base", "config", "http", "identity"},
    "observe": {"base", "config", "gpu", "store"},
    "daemon": {
        "base",
        "wire",
        "config",
        "lease",
        "transport",
        "session",
        "gpu",
        "http",
        "view",
        "access",
        "identity",
        "reception",
        "dashboard",
    },
    "pool": {"base", "wire", "config", "lease", "view"},
    "dashboard": {"base", "wire", "config", "view", "http", "access", "reception"},
    "plan": {"base", "config", "lease", "pool", "view"},
    "scheduler": {
        "base",
        "wire",
        "config",
        "session",
        "transport",
        "pool",
        "http",
        "store",
        "dashboard",
        "reception",
        "access",
        "identity",
        "view",
    },
    "cli": {
        "base",
        "wire",
        "config",
        "lease",
        "transport",
        "session",
        "reception",
        "daemon",
        "scheduler",
        "view",
        "pool",
        "plan",
        "observe",
        "gpu",
        "api",
        "access",
        "identity",
    },
    "demo": {"api", "tests"},
}
ROOM_NAMES = set(MAY_INCLUDE) | {"tests", "bench", "tools"}
# Rooms, and folders of rooms, that know no CUDA types: none of their files may reach the driver's
# ABI, however indirectly.
NO_CUDA = (
    "daemon",
    "reception",
    "http",
    "view",
    "pool",
    "plan",
    "observe",
    "scheduler",
    "dashboard",
    "access",
    "identity",
    "store",
    "base",
    "wire",
    "config",
    "lease",
    "transport",
    "session",
    "client/core",
    "client/common",
    "worker/core",
    "worker/process",
)
NO_CUDA_FOLDERS = tuple(room + "/" for room in NO_CUDA)
CUDA_HEADER = re.compile(r"^api/cuda.*\.h$|^cuda(_runtime)?\.h$|^nvml\.h$")
IN_CLIENT = ("base", "wire", "config", "lease", "transport", "session", "client")
PRODUCT = tuple(MAY_INCLUDE)
# Rooms where containers own memory. Where the client may come an allocation must be able to fail
# without an exception, so there malloc and nothrow new have their place.
OWNING = ("worker", "daemon", "cli", "gpu", "softgpu", "pool", "access", "identity", "reception")
OWNING += ("store", "scheduler", "softnccl", "plan", "observe", "dashboard")
EVERYWHERE = PRODUCT + ("tests", "bench", "tools")

# (rooms, pattern, what to do instead, files that may). Matched with comments and literals blanked
# out.
BANNED = [
    (
        EVERYWHERE,
        r"#\s*include\s*<(format|expected|ranges|source_location)>",
        "not in the compilers that we support",
        (),
    ),
    (
        IN_CLIENT,
        r"#\s*include\s*<(iostream|ostream|istream|fstream|sstream|iomanip"
        r"|regex|filesystem|stdexcept|exception|typeinfo)>",
        "base/text.h, base/log.h, Result: no streams, exceptions or RTTI where the client may come",
        (),
    ),
    (
        IN_CLIENT,
        r"\bthrow\b|\btry\s*\{|\bcatch\s*\(",
        "Result: no exceptions where the client may come",
        (),
    ),
    (IN_CLIENT, r"\bdynamic_cast\b|\btypeid\s*\(", "no RTTI where the client may come", ()),
    (
        IN_CLIENT,
        r"\bstd::(jthread|thread|async)\b(?!::)",
        "base/thread.h: starting a std::thread may throw",
        ("session/*server*", "transport/*server*"),
    ),
    (
        IN_CLIENT,
        r"(?<![\w.>])(std::)?(printf|fprintf|vfprintf|vprintf|puts|fputs|putchar|perror)\s*\(",
        "base/log.h (one system call a line)",
        ("base/check.cc", "base/log.cc", "client/*/log.cc", "client/*/stats.cc"),
    ),
    (
        IN_CLIENT,
        r"(?<![\w.>:])(std::|::)?(abort|exit|_exit|quick_exit|terminate)\s*\(",
        "TENDRIL_CHECK or a Status: never end another's program",
        ("base/check.cc",),
    ),
    (PRODUCT, r"(?<![\w.>])assert\s*\(", "TENDRIL_CHECK", ()),
    (
        OWNING,
        r"(?<![\w.>:])(std::|::)?(malloc|calloc|realloc|free|strdup)\s*\(",
        "a container or a unique_ptr",
        (),
    ),
    (
        OWNING,
        r"(?<!operator )\bdelete\b(?!\s*[;,)])|(?<!= )(?<!=)\bdelete\b(?=\s*;)",
        "a unique_ptr",
        (),
    ),
    (
        EVERYWHERE,
        r"(?<![\w.>:])(std::|::)?(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|rand|srand"
        r"|system|popen|alloca|gethostbyname)\s*\(",
        "its bounded, reentrant or shell-free sibling",
        (),
    ),
    (
        PRODUCT,
        r"(?<![\w.>])(::)?dlm?open\s*\(",
        "gpu/: the only room that opens a vendor library",
        ("gpu/*", "transport/rdma*", "transport/*/verbs*"),
    ),
    (PRODUCT, r"\busing\s+namespace\s+std\b(?!::\w*literals)", "name what you use", ()),
]
# "structure: allow malloc: the driver frees it" on the line, or on the one above, permits one call,
# with its reason.
ALLOW = re.compile(r"structure: allow [\w:]+: \S+")


def includes(source):
    """(line, header) of each quoted include."""
    return [
        (source.count("\n", 0, m.start()) + 1, m.group(1))
        for m in re.finditer(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"', source, re.M)
    ]


def direction(path, source):
    """The include direction of the rooms."""
    room = path.split("/", 1)[0]
    if room not in MAY_INCLUDE:
        return []
    problems = []
    for line, header in includes(source):
        other = header.split("/", 1)[0]
        if other in ROOM_NAMES and other != room and other not in MAY_INCLUDE[room]:
            problems.append(f"{path}:{line}: {room}/ must not include {other}/ ({header})")
    return problems


def cuda_reach(sources):
    """Files of rooms without CUDA types that reach a CUDA header through any chain of includes.
    sources: {path: text}."""
    headers = {path: [header for _, header in includes(text)] for path, text in sources.items()}

    def chain(path, seen):
        for header in headers.get(path, ()):
            if CUDA_HEADER.match(header):
                return [header]
            if header in headers and header not in seen:
                seen.add(header)
                rest = chain(header, seen)
                if rest:
                    return [header, *rest]
        return []

    problems = []
    for path in sources:
        if path.startswith(NO_CUDA_FOLDERS) and not path.endswith("_test.cc"):
            found = chain(path, {path})
            if found:
                problems.append(f"{path}: knows CUDA types, through {' -> '.join(found)}")
    return problems


def banned(path, source):
    """Calls and headers that a room must not use, with what to use instead. Tests and fuzz targets
    are exempt."""
    room = path.split("/", 1)[0]
    if re.search(r"_(test|fuzz|bench)\.cc$|/test_\w+\.h$", path):
        return []
    bare = cpp_reader.TOKEN.sub(cpp_reader.blank, source).splitlines()
    lines = source.splitlines()
    methods = set(
        re.findall(r"\b\w+::(\w+)\([^;]*?\{", "\n".join(bare))
    )  # names that this file defines for itself
    problems = []
    for rooms, pattern, instead, exempt in BANNED:
        if room not in rooms or any(fnmatch.fnmatch(path, each) for each in exempt):
            continue
        for number, line in enumerate(bare, 1):
            match = re.search(pattern, line)
            if (
                not match
                or is_declaration(line, match)
                or match.group(0).rstrip(" (") in methods
                or ALLOW.search("\n".join(lines[max(0, number - 2) : number]))
            ):
                continue
            problems.append(
                f"{path}:{number}: '{match.group(0).strip()}' is not for {room}/; use {instead}"
            )
    return problems


def is_declaration(line, match):
    """A member function of ours may be called free() or exit(): `void free(const X&);` is not a
    call, nor is `X::free(`."""
    before = line[: match.start()].strip()
    return re.search(r"(^|\s)(virtual|void|bool|int|Status|base::Status)\s*$", before) is not None


def vendor_names(path, source):
    """Only the rooms that stand in for a vendor's library may export its names."""
    room = path.split("/", 1)[0]
    doubles = ("softgpu", "softnccl")
    if room in ("client", *doubles, "tests", "tools", "bench", "demo") or room not in MAY_INCLUDE:
        return []
    if path.startswith("gpu/nccl/driver/"):  # what the operator's NCCL gets for the driver
        return []
    bare = cpp_reader.strip_comments(source)
    return [
        f"{path}:{bare.count(chr(10), 0, m.start()) + 1}: only client/ and the doubles export names"
        for m in re.finditer(
            r'visibility\s*\(\s*"default"\s*\)|extern\s+"C"\s+[\w\s*]*\b(cu|nvml)[A-Z]\w*\s*\(',
            bare,
        )
    ]


def unbuilt(sources, cmake_texts):
    """Sources that no CMakeLists.txt above them names. sources: paths; cmake_texts: {path of a
    CMake file: its text}."""
    problems = []
    for path in sources:
        if not path.endswith((".cc", ".cpp", ".c")) or path.startswith(
            "tools/"
        ):  # those are built by hand, where a GPU is
            continue
        folder, name = path.rsplit("/", 1) if "/" in path else ("", path)
        near = [
            text
            for cmake, text in cmake_texts.items()
            if (folder + "/").startswith(cmake.rsplit("/", 1)[0] + "/")
        ]
        stem = re.escape(name.rsplit(".", 1)[0])
        if not any(re.search(rf"\b{stem}\b|\$\{{\w+\}}(_\w+)?\.cc|GLOB", text) for text in near):
            problems.append(f"{path}: no CMakeLists.txt builds it; build it or remove it")
    return problems


FOLDER_SOURCES_MAX = 40


def crowded(names):
    """Folders with more source files than a newcomer can look through; subfolders count for
    themselves."""
    counts = collections.Counter(name.rpartition("/")[0] for name in names)
    return [
        f"{folder}/: {count} source files; at most {FOLDER_SOURCES_MAX}: make subfolders by topic"
        for folder, count in sorted(counts.items())
        if count > FOLDER_SOURCES_MAX
    ]


def stems(specs, sources):
    """One topic has one name: what X.spec leaves to a body or a handler by hand begins in X.cc, on
    the client's side and on the worker's. specs: {path: text} of descriptions; sources: {path:
    text} of C++ files."""
    sides = [
        ("client", r"^local (\w+)", r"\b{name}\("),
        ("worker", r"^op (\w+)", r"\bhandle\([^;{{]*\b{name}_request&"),
    ]
    problems = []
    for spec, text in sorted(specs.items()):
        _, api, file = spec.split("/")
        stem = file.removesuffix(".spec")
        for side, line, use in sides:
            names = re.findall(line, text, re.M)
            own = [
                source
                for path, source in sources.items()
                if re.fullmatch(f"{side}/{api}/(.*/)?{stem}\\.cc", path)
            ]
            uses = re.compile("|".join(use.format(name=name) for name in names))
            if names and not own:
                problems.append(f"{spec}: {side}/{api}/ has no {stem}.cc")
            elif names and not any(uses.search(source) for source in own):
                problems.append(f"{spec}: {stem}.cc of {side}/{api}/ has nothing of it")
    return problems
