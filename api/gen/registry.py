# SPDX-License-Identifier: Apache-2.0
"""api/NAME/registry: opcodes.txt (append-only numbers) and schema.lock (a digest of the layout of
each operation and record, and the kinds of handles). `main.py --update-registry` appends what is
new. The build fails if the files do not match the description. So every change of the wire is
visible as a small diff."""

import hashlib

HEAD = "# number name; append-only: a number is never reused, a name never renumbered"
HINT = "run api/gen/main.py OUT --api {} --update-registry"


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_opcodes(path):
    if not path.exists():
        return {}
    pairs = (
        line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")
    )
    return {name: int(number) for number, name in pairs}


def lock_text(api):
    """The text of schema.lock. Records travel as images, so it has their declarations too."""
    ops = sorted(api.spec.ops.values(), key=lambda op: op.number)
    lines = ["# op layout-digest; a changed line is a wire change"]
    lines += [f"{op.name} {digest(op.layout)}" for op in ops]
    lines += [f"record {name} {digest(text)}" for name, text in sorted(api.records().items())]
    lines += [f"enum {name} {digest(' '.join(words))}" for name, words in api.spec.enums.items()]
    lines += [
        f"record {name} {digest(','.join(f'{f.name}:{f.cpp}' for f in fields))}"
        for name, fields in api.spec.records.items()
    ]
    lines += [f"kind {number} {kind.name}" for number, kind in enumerate(api.kinds, 1)]
    return "\n".join(lines) + "\n"


def assign(api, update):
    """Numbers the operations of an API; returns the digest that both ends compare."""
    room, ops = api.room / "registry", api.spec.ops
    opcodes, lock = room / "opcodes.txt", room / "schema.lock"
    numbers = read_opcodes(opcodes)
    fresh = [name for name in ops if name not in numbers]
    following = max(numbers.values(), default=0) + 1
    if fresh and not update:
        raise SystemExit(f"{opcodes} lacks {', '.join(fresh[:5])}: {HINT.format(api.name)}")
    for name in fresh:
        numbers[name] = following
        following += 1
    for name, op in ops.items():
        op.number = numbers[name]
    text = lock_text(api)
    if update:
        room.mkdir(parents=True, exist_ok=True)
        ordered = sorted(numbers.items(), key=lambda item: item[1])
        lines = [HEAD] + [f"{number} {name}" for name, number in ordered]
        opcodes.write_text("\n".join(lines) + "\n")
        lock.write_text(text)
    elif not lock.exists() or lock.read_text() != text:
        raise SystemExit(f"{lock} is stale: {HINT.format(api.name)} and review the diff")
    return int(digest(text), 16)
