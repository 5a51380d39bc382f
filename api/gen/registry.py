# SPDX-License-Identifier: Apache-2.0
"""api/cuda/registry: opcodes.txt (append-only numbers) and schema.lock (a digest of each op's layout). `main.py --update-registry`
appends what is new; the build fails while the files do not match the spec, so every wire change shows as a small diff.
"""

import hashlib


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_opcodes(room):
    path = room / "opcodes.txt"
    if not path.exists():
        return {}
    pairs = (
        line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")
    )
    return {name: int(number) for number, name in pairs}


def lock_text(ops, record_sizes):
    lines = ["# op layout-digest; a changed line is a wire change"]
    lines += [
        f"{op.name} {digest(op.layout)}" for op in sorted(ops.values(), key=lambda o: o.number)
    ]
    lines += [f"record {name} {text}" for name, text in sorted(record_sizes.items())]
    return "\n".join(lines) + "\n"


def assign(room, ops, record_sizes, update):
    numbers = read_opcodes(room)
    fresh = [name for name in ops if name not in numbers]
    following = max(numbers.values(), default=0) + 1
    if fresh and not update:
        raise SystemExit(
            f"api/cuda/registry/opcodes.txt lacks {', '.join(fresh[:5])}: run api/gen/main.py OUT --update-registry"
        )
    with_head = ["# number name; append-only: a number is never reused, a name never renumbered"]
    for name in fresh:
        numbers[name] = following
        following += 1
    for name, op in ops.items():
        op.number = numbers[name]
    text = lock_text(ops, record_sizes)
    if update:
        room.mkdir(parents=True, exist_ok=True)
        lines = with_head + [
            f"{number} {name}" for name, number in sorted(numbers.items(), key=lambda i: i[1])
        ]
        (room / "opcodes.txt").write_text("\n".join(lines) + "\n")
        (room / "schema.lock").write_text(text)
    elif not (room / "schema.lock").exists() or (room / "schema.lock").read_text() != text:
        raise SystemExit(
            "api/cuda/registry/schema.lock is stale: run api/gen/main.py OUT --update-registry and review the diff"
        )
    return int(digest(text), 16)
