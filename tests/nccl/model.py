# SPDX-License-Identifier: Apache-2.0
"""What every NCCL operation must answer, from a model that shares nothing with softnccl: numbers
are Python's own fractions, and types are written here once more. `cases` makes a table for
nccl_check: for each case what each rank gives, and what each rank must find.

Every result is exact in its type, in whatever order an implementation adds up. So the table holds
for NCCL on GPUs as well as for the double."""

import fractions
import random
import struct

INTEGERS = {
    "int8": ("b", 8),
    "uint8": ("B", 8),
    "int32": ("i", 32),
    "uint32": ("I", 32),
    "int64": ("q", 64),
    "uint64": ("Q", 64),
}
# exponent bits, mantissa bits, bytes
FLOATS = {
    "float16": (5, 10, 2),
    "float32": (8, 23, 4),
    "float64": (11, 52, 8),
    "bfloat16": (8, 7, 2),
    "float8e4m3": (4, 3, 1),
    "float8e5m2": (5, 2, 1),
}
# In the order of ncclDataType_t.
TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
TYPES += ["bfloat16", "float8e4m3", "float8e5m2"]
# In the order of ncclRedOp_t; a scaled sum has an operator of its own.
OPERATORS = ["sum", "prod", "max", "min", "avg", "scaled"]
REDUCING = ["AllReduce", "Reduce", "ReduceScatter"]
MOVING = ["Broadcast", "Bcast", "AllGather", "AlltoAll", "Gather", "Scatter", "SendRecv"]
ROOTED = ["Reduce", "Broadcast", "Bcast", "Gather", "Scatter"]


def encode(kind, value):
    """The bytes of one number. An integer wraps; a fraction must fit exactly."""
    if kind in INTEGERS:
        code, bits = INTEGERS[kind]
        value = int(value) & ((1 << bits) - 1)
        if code.islower() and value >> (bits - 1):
            value -= 1 << bits
        return struct.pack("<" + code, value)
    exponent_bits, mantissa_bits, size = FLOATS[kind]
    value = fractions.Fraction(value)
    bias = (1 << (exponent_bits - 1)) - 1
    if value == 0:
        return bytes(size)
    sign, value = (1, -value) if value < 0 else (0, value)
    exponent = 0
    while value >= 2:
        value, exponent = value / 2, exponent + 1
    while value < 1 and exponent > 1 - bias:
        value, exponent = value * 2, exponent - 1
    mantissa = value * (1 << mantissa_bits)
    largest = bias + (kind == "float8e4m3")  # has no infinity
    if mantissa.denominator != 1 or exponent > largest:
        raise ValueError(f"{value} * 2**{exponent} is no {kind}")
    bits = int(mantissa) - (1 << mantissa_bits)
    if value < 1:
        bits, exponent = int(mantissa), -bias
    bits += (exponent + bias) << mantissa_bits
    return (bits | sign << (exponent_bits + mantissa_bits)).to_bytes(size, "little")


def packed(kind, values):
    return b"".join(encode(kind, value) for value in values)


def is_signed(kind):
    return kind in FLOATS or INTEGERS[kind][0].islower()


def number(source, kind, operator, ranks):
    """One element of one rank, such that every result is exact."""
    sign = source.choice((1, -1)) if is_signed(kind) else 1
    if operator == "prod":
        return sign * source.choice((1, 2))
    if operator == "avg":
        return ranks * source.choice((0, 1, 2) if kind in FLOATS else (0, 1, 2, 5))
    if operator in ("max", "min"):
        return sign * source.randrange(8)
    if kind in INTEGERS:  # whatever fits: sums wrap around
        bits = INTEGERS[kind][1]
        value = source.getrandbits(bits)
        return value - (1 << (bits - 1)) if is_signed(kind) else value
    return sign * source.choice((0, 1, 2) if operator == "sum" else (0, 1))


def combine(operator, numbers, scalars):
    if operator == "sum":
        return sum(numbers)
    if operator == "scaled":
        return sum(number * scalar for number, scalar in zip(numbers, scalars))
    if operator == "prod":
        product = 1
        for number in numbers:
            product *= number
        return product
    if operator == "avg":
        return fractions.Fraction(sum(numbers), len(numbers))
    return max(numbers) if operator == "max" else min(numbers)


def reduced(given, operator, scalars):
    return [combine(operator, numbers, scalars) for numbers in zip(*given)]


def lengths(function, rank, root, ranks, count):
    """How many elements a rank gives, and how many it finds."""
    gives, finds = count, count
    if function in ("ReduceScatter", "AlltoAll") or (function == "Scatter" and rank == root):
        gives = count * ranks
    if function in ("AllGather", "AlltoAll") or (function == "Gather" and rank == root):
        finds = count * ranks
    if function in ("Broadcast", "Bcast", "Scatter") and rank != root:
        gives = 0
    if function in ("Reduce", "Gather") and rank != root:
        finds = 0
    return gives, finds


def answer(function, given, root, count, operator, scalars):
    """What each rank finds: a list of numbers for each."""
    ranks = len(given)
    everybody = range(ranks)

    def part(rank, which):
        return given[rank][which * count : (which + 1) * count]

    if function == "AllReduce":
        return [reduced(given, operator, scalars)] * ranks
    if function == "Reduce":
        whole = reduced(given, operator, scalars)
        return [whole if rank == root else [] for rank in everybody]
    if function == "ReduceScatter":
        whole = reduced(given, operator, scalars)
        return [whole[rank * count : (rank + 1) * count] for rank in everybody]
    if function in ("Broadcast", "Bcast"):
        return [given[root]] * ranks
    if function == "AllGather":
        return [sum(given, [])] * ranks
    if function == "Gather":
        return [sum(given, []) if rank == root else [] for rank in everybody]
    if function == "Scatter":
        return [part(root, rank) for rank in everybody]
    if function == "AlltoAll":
        return [sum((part(other, rank) for other in everybody), []) for rank in everybody]
    return [given[(rank - 1) % ranks] for rank in everybody]  # SendRecv: around the ring


def make(function, kind, operator, ranks, root, in_place, source, count=None):
    """One case as lines of the table."""
    if count is None:
        count = source.choice((1, 3, 5, 8))
    scalars = [1] * ranks
    if operator == "scaled":
        scalars = [source.choice((1, 2)) for _ in range(ranks)]
    given = []
    for rank in range(ranks):
        gives, _ = lengths(function, rank, root, ranks, count)
        given.append([number(source, kind, operator, ranks) for _ in range(gives)])
    found = answer(function, given, root, count, operator, scalars)
    residence = source.choice((0, 1))
    lines = [
        f"case {function} {TYPES.index(kind)} {OPERATORS.index(operator)} {residence} {root}"
        f" {int(in_place)} {count}"
    ]
    for rank in range(ranks):
        assert len(found[rank]) == lengths(function, rank, root, ranks, count)[1]
        texts = [packed(kind, values).hex() for values in (given[rank], found[rank])]
        texts.append(encode(kind, scalars[rank]).hex())
        lines.append(" ".join(text or "-" for text in texts))
    return lines


def cases(ranks, seed=1, whole=True):
    """The table for so many ranks. `whole`: every type with every function, operator, root and in
    place and not; else one of each function."""
    source = random.Random(seed)
    lines = [f"ranks {ranks}"]
    kinds = TYPES if whole else ["float32"]
    for kind in kinds:
        for function in REDUCING:
            for operator in OPERATORS if whole else ["sum"]:
                for root in range(ranks) if function in ROOTED else [0]:
                    for in_place in (False, True):
                        lines += make(function, kind, operator, ranks, root, in_place, source)
        for function in MOVING:
            for root in range(ranks) if function in ROOTED else [0]:
                for in_place in (False, True):
                    # What moves in place does so where NCCL says it may.
                    if in_place and function in ("AlltoAll", "SendRecv"):
                        continue
                    lines += make(
                        function, kind, "max", ranks, root, in_place or function == "Bcast", source
                    )
    # More than one page and no multiple of anything, and nothing at all.
    for count in (1_501, 0) if whole else ():
        for function in REDUCING + MOVING:
            in_place = function == "Bcast"
            lines += make(function, "int32", "sum", ranks, 0, in_place, source, count)
    return "\n".join(lines) + "\n"
