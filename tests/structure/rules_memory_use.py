# SPDX-License-Identifier: Apache-2.0
"""Rules about api/cuda/memory_use.txt: every entry point is classified once, what is refused is
refused, and each handler that is listed as charging a slice does so. A handler charges if its
text, or that of a function of the same file that it calls, uses Charge, PageCharge, KeptMemory,
ContextMemory, GraphSizes or LoadedCode::pay."""

import re

CLASSES = {"charged", "host", "owner", "context", "object", "uncharged", "refused", "none"}
CHARGES = re.compile(
    r"\bcharge\(\)\.(take|hold)\(|\bcharge\.hold_block\(|\bpages\.before\(|\bkept_memory\(\)\."
    r"|\bcontext_memory\(\)\.take_|\bmemory\.(before_launch|take_context)\("
    r"|\bsizes\.before_instance\(|\.pay\("
)


def parse(source):
    """({entry point: (class, words after it)}, problems)."""
    uses, problems = {}, []
    for number, line in enumerate(source.splitlines(), 1):
        text, _, reason = line.partition("#")[0].partition(" : ")
        words = text.split()
        if not words:
            continue
        name, use, rest = words[0], words[1] if len(words) > 1 else "", words[2:]
        if use not in CLASSES:
            problems.append(f"memory_use.txt:{number}: {name} has no class that is known")
        elif name in uses:
            problems.append(f"memory_use.txt:{number}: {name} stands here twice")
        elif (use == "charged") != bool(rest):
            problems.append(
                f"memory_use.txt:{number}: {name}: operations belong to 'charged', and to nothing"
                " else"
            )
        elif (use == "uncharged") != bool(reason.strip()):
            problems.append(
                f"memory_use.txt:{number}: {name}: a reason belongs to 'uncharged', and to nothing"
                " else"
            )
        uses.setdefault(name, (use, rest))
    return uses, problems


def complete(uses, entry_points, refused):
    """Every entry point has a use, and 'refused' agrees with the description of the calls."""
    for name in sorted(set(entry_points) - set(uses)):
        yield f"{name} is new: say in memory_use.txt what GPU memory it takes"
    for name in sorted(set(uses) - set(entry_points)):
        yield f"{name} is no entry point"
    for name in sorted(set(uses) & set(entry_points)):
        if (uses[name][0] == "refused") != (name in refused):
            state = "is not refused" if uses[name][0] == "refused" else "is refused"
            yield f"{name} {state}: memory_use.txt says otherwise"


def functions(source):
    """Names and texts of the functions of a C++ file, as far as indentation shows them. Handlers go
    by the name of their operation."""
    head = r"^(?!namespace|class|struct|\})\w[^;{}]*?\b(\w+)\(([^;{}]*)\)[^;{}]*\{\n"
    for match in re.finditer(head + r"(.*?)^\}", source, re.M | re.S):
        operation = re.search(r"wire::cuda::(\w+)_request&", match.group(2))
        yield (
            operation.group(1) if match.group(1) == "handle" and operation else match.group(1)
        ), match.group(3)


def charging(sources):
    """Operations whose handlers charge."""
    found = set()
    for source in sources:
        texts = dict(functions(source))
        helpers = {name for name, text in texts.items() if CHARGES.search(text)}
        for name, text in texts.items():
            if name in helpers or any(re.search(rf"\b{helper}\(", text) for helper in helpers):
                found.add(name)
    return found


def charged(uses, operations):
    for name, (use, needed) in sorted(uses.items()):
        for operation in needed:
            if use == "charged" and operation not in operations:
                yield f"{name}: the handler of {operation} does not charge the slice"


# Machine code lies in the reserve for code, and the nodes that a launched graph allocates with are
# refused when they are made.
PASSED_TO_NCCL = re.compile(r"cu(Module|Library|KernelGetFunction|GraphLaunch)")


def passed_to_nccl(uses, source):
    """The operator's NCCL gets the driver's functions, except those in the lists of `source`. None
    that takes memory may be left to it."""
    ours = set(re.findall(r"\bX\((cu\w+)\)", source))
    for name, (use, _) in sorted(uses.items()):
        if use not in ("charged", "host", "context") or PASSED_TO_NCCL.match(name):
            continue
        if name not in ours:
            yield f"{name} takes memory: charge or refuse it in worker/nccl/driver/calls.cc"
