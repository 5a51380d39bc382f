# SPDX-License-Identifier: Apache-2.0
"""Rules about what runs on other people's systems. Of the client libraries: what they export, what
they need, how old a C library they accept, and that nothing of ours runs when they are loaded. Of
the command line: what it needs, and how old a C library it accepts. The rules read the output of
binutils, so fixtures are plain text.
"""

import re
import subprocess

GLIBC_FLOOR = (2, 28)
# The C library's own files and nothing else.
NEEDED = {
    "libc.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libm.so.6",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}
# Objects of the static C++ runtime that initialise themselves; none of ours may.
RUNTIME_INITIALISERS = re.compile(r"^_GLOBAL__sub_I_(eh_\w+|_\w*|.*\.(s|S))(\.cc)?$")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def dynamic_symbols(path):
    """objdump's table of what the library exports and imports."""
    return output("objdump", "-T", str(path))


def exported(table):
    """Names of the symbols that a library defines, from objdump -T."""
    names = set()
    for line in table.splitlines():
        match = re.match(
            r"[0-9a-f]{8,16} (.{7}) (\S+)\s+[0-9a-f]+\s+(?:\(?[\w.]+\)?\s+)?(?:\.\w+\s+)?(\w\S*)$",
            line,
        )
        if match and match.group(2) not in ("*UND*", "*ABS*") and "l" not in match.group(1)[:1]:
            names.add(match.group(3))
    return names


def exports(table, prefix, wanted):
    """Every wanted name is exported, and nothing that does not begin with the prefix."""
    names = exported(table)
    problems = [
        f"exports '{name}', which is not {prefix}*"
        for name in sorted(names)
        if not re.match(prefix + "[A-Z]", name)
    ]
    return problems + [f"does not export '{name}'" for name in sorted(set(wanted) - names)]


def surplus(table, wanted):
    """Exports beyond the wanted ones."""
    return [
        f"exports '{name}', which the description does not name"
        for name in sorted(exported(table) - set(wanted))
    ]


def glibc_floor(table, floor=GLIBC_FLOOR):
    """No imported symbol is younger than the floor."""
    problems = []
    for match in re.finditer(r"\(?GLIBC_([0-9.]+)\)?\s+(\S+)$", table, re.M):
        if tuple(int(part) for part in match.group(1).split(".")) > floor:
            problems.append(
                f"needs {match.group(2)} of glibc {match.group(1)}; the floor is"
                f" {floor[0]}.{floor[1]}"
            )
    return problems


def needed(dynamic):
    """readelf -d names only the C library's files."""
    names = re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic)
    problems = [
        f"needs {name}; what runs elsewhere links the C library only"
        for name in names
        if name not in NEEDED
    ]
    problems += [
        f"has {kind}: {value}"
        for kind, value in re.findall(r"\((RPATH|RUNPATH)\).*\[(.+?)\]", dynamic)
    ]
    return (
        problems
        if names
        else problems + ["readelf found no NEEDED entry: is this a dynamic binary?"]
    )


def initialisers(symbols):
    """nm: no object of ours has a global with a constructor."""
    names = re.findall(r" t (_GLOBAL__sub_I_\S+|__cxx_global_var_init\S*)$", symbols, re.M)
    return [
        f"has a global with a constructor ({name})"
        for name in names
        if not RUNTIME_INITIALISERS.match(name)
    ]


# Other libraries write a jump over an entry and move the instructions there out of the way. The
# longest jump takes 12 bytes.
MOVABLE = re.compile(r"^(push\s+%\w+|mov\s+%rsp,%rbp|sub\s+\$0x[0-9a-f]+,%rsp)$")
PATCHED_BYTES = 12


def movable_prologues(disassembly, names):
    """objdump -d --no-show-raw-insn: the first 12 bytes of each named function consist of movable
    instructions."""
    problems = []
    for name, body in re.findall(
        r"^[0-9a-f]+ <(\w+)>:\n((?: +[0-9a-f]+:\t.*\n){1,16})", disassembly, re.M
    ):
        if name not in names:
            continue
        lines = [
            (int(at, 16), text.strip())
            for at, text in re.findall(r"^ +([0-9a-f]+):\t(.*)$", body, re.M)
        ]
        first = lines[0][0]
        stuck = [
            text for at, text in lines if at - first < PATCHED_BYTES and not MOVABLE.match(text)
        ]
        if stuck:
            problems.append(
                f"'{name}': '{stuck[0]}' in the first {PATCHED_BYTES} bytes, which patchers must"
                " move"
            )
    return problems
