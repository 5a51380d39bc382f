# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic, logic, shifts, bit fields, extended precision, dot products and comparisons.
Python's integers have no width, so every model computes the true result and cuts it to the width at
the end."""

from cases import COUNTS, INTEGERS, Case, by_predicate, cross

TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")


def width(t):
    return int(t[1:])


def signed(v, bits):
    return v - (1 << bits) if v >> bits - 1 & 1 else v


def value(v, t):
    return signed(v, width(t)) if t[0] == "s" else v


def cut(v, bits):
    return v & (1 << bits) - 1


def clamp(v, t):
    bits = width(t)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if t[0] == "s" else (0, (1 << bits) - 1)
    return max(low, min(high, v))


def quotient(a, b, bits):
    """Towards zero. By zero: all ones, as measured on hardware."""
    return (1 << bits) - 1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a, b):
    """By zero: all ones, as measured on hardware."""
    return -1 if b == 0 else a - b * quotient(a, b, 64)


def few(bits, n=9):
    pool = INTEGERS[bits]
    return pool[:2] + pool[-(n - 2) :]


def simple(name, t, sources, f, out=None, pools=None):
    """An instruction with all operands of type t; f works on true values."""
    bits = width(t)
    out = out or bits
    pools = pools or ([INTEGERS[bits]] * sources if sources < 3 else [few(bits)] * 3)
    registers = ", ".join(["%a", "%b", "%c"][:sources])
    return Case(
        name,
        f"{name} %d, {registers};",
        [bits] * sources,
        [out],
        cross(*pools),
        lambda *v: cut(f(*(value(x, t) for x in v)), out),
    )


def arithmetic():
    for t in TYPES:
        bits = width(t)
        yield simple(f"add.{t}", t, 2, lambda a, b: a + b)
        yield simple(f"sub.{t}", t, 2, lambda a, b: a - b)
        yield simple(f"mul.lo.{t}", t, 2, lambda a, b: a * b)
        yield simple(f"mul.hi.{t}", t, 2, lambda a, b, n=bits: a * b >> n)
        yield simple(f"mad.lo.{t}", t, 3, lambda a, b, c: a * b + c)
        yield simple(f"mad.hi.{t}", t, 3, lambda a, b, c, n=bits: (a * b >> n) + c)
        yield simple(f"div.{t}", t, 2, lambda a, b, n=bits: quotient(a, b, n))
        yield simple(f"rem.{t}", t, 2, remainder)
        yield simple(f"min.{t}", t, 2, min)
        yield simple(f"max.{t}", t, 2, max)
        yield simple(f"sad.{t}", t, 3, lambda a, b, c: c + abs(a - b))
        if t[0] == "s":
            yield simple(f"abs.{t}", t, 1, abs)
            yield simple(f"neg.{t}", t, 1, lambda a: -a)
        if bits < 64:
            yield simple(f"mul.wide.{t}", t, 2, lambda a, b: a * b, out=2 * bits)
            yield Case(
                f"mad.wide.{t}",
                f"mad.wide.{t} %d, %a, %b, %c;",
                [bits, bits, 2 * bits],
                [2 * bits],
                cross(few(bits), few(bits), few(2 * bits)),
                lambda a, b, c, t=t, n=bits: cut(value(a, t) * value(b, t) + c, 2 * n),
            )
    yield simple("add.sat.s32", "s32", 2, lambda a, b: clamp(a + b, "s32"))
    yield simple("sub.sat.s32", "s32", 2, lambda a, b: clamp(a - b, "s32"))
    yield simple("mad.hi.sat.s32", "s32", 3, lambda a, b, c: clamp((a * b >> 32) + c, "s32"))
    yield simple("min.relu.s32", "s32", 2, lambda a, b: max(0, min(a, b)))
    yield simple("max.relu.s32", "s32", 2, lambda a, b: max(0, max(a, b)))
    yield from twenty_four()
    yield from packed()


def twenty_four():
    low24 = {"u32": lambda v: v & 0xFFFFFF, "s32": lambda v: signed(v & 0xFFFFFF, 24)}
    for t, f in low24.items():
        yield simple(f"mul24.lo.{t}", t, 2, lambda a, b, f=f: f(a) * f(b))
        yield simple(f"mul24.hi.{t}", t, 2, lambda a, b, f=f: f(a) * f(b) >> 16)
        yield simple(f"mad24.lo.{t}", t, 3, lambda a, b, c, f=f: f(a) * f(b) + c)
        yield simple(f"mad24.hi.{t}", t, 3, lambda a, b, c, f=f: (f(a) * f(b) >> 16) + c)
    f = low24["s32"]
    yield simple(
        "mad24.hi.sat.s32", "s32", 3, lambda a, b, c: clamp((f(a) * f(b) >> 16) + c, "s32")
    )


def packed():
    """Two 16-bit numbers in a register."""
    pool = [0, 0x00010001, 0x7FFF8000, 0x80007FFF, 0xFFFF0001, 0x0001FFFF, 0x12345678, 0xFFFEFFFF]

    def halves(f, t):
        return (
            lambda a, b: cut(f(value(a & 0xFFFF, t), value(b & 0xFFFF, t)), 16)
            | cut(f(value(a >> 16, t), value(b >> 16, t)), 16) << 16
        )

    for t in ("u16", "s16"):
        for name, f in (("add", lambda a, b: a + b), ("min", min), ("max", max)):
            yield Case(
                f"{name}.{t}x2",
                f"{name}.{t}x2 %d, %a, %b;",
                [32, 32],
                [32],
                cross(pool, pool),
                halves(f, t),
            )
    for name, f in (("min", min), ("max", max)):
        yield Case(
            f"{name}.relu.s16x2",
            f"{name}.relu.s16x2 %d, %a, %b;",
            [32, 32],
            [32],
            cross(pool, pool),
            halves(lambda a, b, f=f: max(0, f(a, b)), "s16"),
        )


def logic():
    for bits in (16, 32, 64):
        b, u, s = f"b{bits}", f"u{bits}", f"s{bits}"
        yield simple(f"and.{b}", u, 2, lambda x, y: x & y)
        yield simple(f"or.{b}", u, 2, lambda x, y: x | y)
        yield simple(f"xor.{b}", u, 2, lambda x, y: x ^ y)
        yield simple(f"not.{b}", u, 1, lambda x: ~x)
        yield simple(f"cnot.{b}", u, 1, lambda x: int(x == 0))
        for name, t, f in (
            (f"shl.{b}", u, lambda x, n: x << min(n, 64)),
            (f"shr.{b}", u, lambda x, n: x >> min(n, 64)),
            (f"shr.{u}", u, lambda x, n: x >> min(n, 64)),
            (f"shr.{s}", s, lambda x, n: x >> min(n, 64)),
        ):
            yield Case(
                name,
                f"{name} %d, %a, %b;",
                [bits, 32],
                [bits],
                cross(INTEGERS[bits], COUNTS),
                lambda a, n, t=t, f=f, w=bits: cut(f(value(a, t), n), w),
            )
    words = few(32)
    for table in (0x00, 0x2D, 0x80, 0x96, 0xCA, 0xE8, 0xFE, 0xFF):
        yield Case(
            f"lop3.{table:02x}",
            f"lop3.b32 %d, %a, %b, %c, {table};",
            [32] * 3,
            [32],
            cross(words, words, words),
            lambda a, b, c, k=table: sum(
                (k >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i
                for i in range(32)
            ),
        )
    yield from funnel()
    yield from permutes()


def funnel():
    for mode in ("wrap", "clamp"):

        def amount(n, mode=mode):
            return n & 31 if mode == "wrap" else min(n, 32)

        yield Case(
            f"shf.l.{mode}",
            f"shf.l.{mode}.b32 %d, %a, %b, %c;",
            [32] * 3,
            [32],
            cross(few(32), few(32), COUNTS),
            lambda a, b, n, f=amount: cut((b << 32 | a) << f(n) >> 32, 32),
        )
        yield Case(
            f"shf.r.{mode}",
            f"shf.r.{mode}.b32 %d, %a, %b, %c;",
            [32] * 3,
            [32],
            cross(few(32), few(32), COUNTS),
            lambda a, b, n, f=amount: cut((b << 32 | a) >> f(n), 32),
        )


def select_bytes(a, b, selectors, signs=False):
    source, out = (b << 32 | a).to_bytes(8, "little"), 0
    for i, s in enumerate(selectors):
        byte = source[s & 7]
        if signs and s & 8:
            byte = 0xFF if byte & 0x80 else 0
        out |= byte << 8 * i
    return out


def permutes():
    a, b = [0x70C507D6, 0x0180FF7F, 0], [0x6FBD4B5C, 0x8F01FE80]
    selections = [
        0x3210,
        0x7654,
        0x0123,
        0xFEDC,
        0xBA98,
        0x8421,
        0x7531,
        0xFFFF5555,
        0x9C3F,
        0x0000,
        0x12345678,
    ]
    yield Case(
        "prmt.b32",
        "prmt.b32 %d, %a, %b, %c;",
        [32] * 3,
        [32],
        cross(a, b, selections),
        lambda x, y, c: select_bytes(x, y, [c >> 4 * i & 15 for i in range(4)], True),
    )
    modes = {  # the ISA's tables, by the two low bits of c
        "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
        "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
        "rc8": [[0] * 4, [1] * 4, [2] * 4, [3] * 4],
        "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
        "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
        "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
    }
    for mode, table in modes.items():
        yield Case(
            f"prmt.b32.{mode}",
            f"prmt.b32.{mode} %d, %a, %b, %c;",
            [32] * 3,
            [32],
            cross(a, b, [0, 1, 2, 3, 4, 7, 0xFFFFFFFE]),
            lambda x, y, c, table=table: select_bytes(x, y, table[c & 3]),
        )


def field(v, bits):
    """Position and length of a bit field: the low byte; for 64-bit fields all 32 bits (seen on
    hardware)."""
    return v & 0xFF if bits == 32 else v


def extract(a, position, length, t):
    """bfe, bit by bit as the ISA's text has it."""
    bits = width(t)
    top, position, length = bits - 1, field(position, bits), field(length, bits)
    sign = 0 if t[0] == "u" or length == 0 else a >> min(position + length - 1, top) & 1
    return sum(
        (a >> position + i & 1 if i < length and position + i <= top else sign) << i
        for i in range(bits)
    )


def insert(a, b, position, length, bits):
    position, length = field(position, bits), field(length, bits)
    for i in range(min(length, bits)):
        if position + i < bits:
            b = b & ~(1 << position + i) | (a >> i & 1) << position + i
    return b


def leading(v, t):
    """Position of the most significant bit that is not a sign, or all ones."""
    v = value(v, t)
    v = ~v if v < 0 else v
    return v.bit_length() - 1 if v else 0xFFFFFFFF


def nth_set(mask, base, offset):
    base &= 31
    offset = signed(offset, 32)
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    places = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [i for i in places if mask >> i & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF


def bits():
    for n in (32, 64):
        yield from bits_of(n)
    yield from masks()


def bits_of(n):
    yield Case(
        f"popc.b{n}",
        f"popc.b{n} %d, %a;",
        [n],
        [32],
        cross(INTEGERS[n]),
        lambda a: bin(a).count("1"),
    )
    yield Case(
        f"clz.b{n}",
        f"clz.b{n} %d, %a;",
        [n],
        [32],
        cross(INTEGERS[n]),
        lambda a, n=n: n - a.bit_length(),
    )
    yield Case(
        f"brev.b{n}",
        f"brev.b{n} %d, %a;",
        [n],
        [n],
        cross(INTEGERS[n]),
        lambda a, n=n: int(f"{a:0{n}b}"[::-1], 2),
    )
    for t in (f"u{n}", f"s{n}"):
        yield Case(
            f"bfind.{t}",
            f"bfind.{t} %d, %a;",
            [n],
            [32],
            cross(INTEGERS[n]),
            lambda a, t=t: leading(a, t),
        )
        yield Case(
            f"bfind.shiftamt.{t}",
            f"bfind.shiftamt.{t} %d, %a;",
            [n],
            [32],
            cross(INTEGERS[n]),
            lambda a, t=t, n=n: (
                cut(n - 1 - leading(a, t), 32) if leading(a, t) < n else 0xFFFFFFFF
            ),
        )
        yield Case(
            f"bfe.{t}",
            f"bfe.{t} %d, %a, %b, %c;",
            [n, 32, 32],
            [n],
            cross(few(n), COUNTS, COUNTS),
            lambda a, b, c, t=t: extract(a, b, c, t),
        )
    yield Case(
        f"bfi.b{n}",
        f"bfi.b{n} %d, %a, %b, %c, %e;",
        [n, n, 32, 32],
        [n],
        cross(few(n, 4), few(n, 4), COUNTS[::2], COUNTS),
        lambda a, b, c, d, n=n: insert(a, b, c, d, n),
    )


def masks():
    yield Case(
        "fns.b32",
        "fns.b32 %d, %a, %b, %c;",
        [32] * 3,
        [32],
        cross(
            [0, 1, 0x80000001, 0xAAAAAAAA, 0xFFFFFFFF, 0x00F00F00],
            [0, 1, 5, 16, 31],
            [0, 1, 2, 5, 32, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFF0],
        ),
        nth_set,
    )
    for mode in ("clamp", "wrap"):

        def mask(a, b, mode=mode):
            a, b = (a & 31, b & 31) if mode == "wrap" else (min(a, 32), min(b, 32))
            return cut((1 << b) - 1 << a, 32)

        yield Case(
            f"bmsk.{mode}.b32",
            f"bmsk.{mode}.b32 %d, %a, %b;",
            [32, 32],
            [32],
            cross(COUNTS, COUNTS),
            mask,
        )
        for t in ("u32", "s32"):

            def cut_at(a, b, t=t, mode=mode):
                n = b & 31 if mode == "wrap" else min(b, 32)
                return 0 if n == 0 else cut(signed(cut(a, n), n) if t == "s32" else cut(a, n), 32)

            yield Case(
                f"szext.{mode}.{t}",
                f"szext.{mode}.{t} %d, %a, %b;",
                [32, 32],
                [32],
                cross(INTEGERS[32], COUNTS),
                cut_at,
            )


def extended():
    """Chains through the carry flag: two words make one number of twice the width."""
    for n in (32, 64):
        pool = few(n, 7)
        t, rows = f"u{n}", cross(pool, pool, pool[:5], pool[:5])

        def pair(f, n=n):
            return lambda al, ah, bl, bh: (
                cut(f(ah << n | al, bh << n | bl), n),
                cut(f(ah << n | al, bh << n | bl) >> n, n),
                cut(f(ah << n | al, bh << n | bl) >> 2 * n, n),
            )

        yield Case(
            f"add.cc.{t}",
            f"add.cc.{t} %d, %a, %c; addc.cc.{t} %f, %b, %e; addc.{t} %g, 0, 0;",
            [n] * 4,
            [n] * 3,
            rows,
            pair(lambda x, y: x + y),
        )
        yield Case(
            f"sub.cc.{t}",
            f"sub.cc.{t} %d, %a, %c; subc.cc.{t} %f, %b, %e; subc.{t} %g, 0, 0;",
            [n] * 4,
            [n] * 3,
            rows,
            pair(lambda x, y: x - y),
        )
        # The flag is the carry of a + ~b + 1. addc after sub.cc sees 1 when nothing was borrowed;
        # subc after add.cc takes a carry for no borrow.
        yield Case(
            f"sub.cc.addc.{t}",
            f"sub.cc.{t} %d, %a, %c; addc.{t} %f, %b, %e;",
            [n] * 4,
            [n] * 2,
            rows,
            lambda a, b, c, d, n=n: (cut(a - c, n), cut(b + d + (a >= c), n)),
        )
        yield Case(
            f"add.cc.subc.{t}",
            f"add.cc.{t} %d, %a, %c; subc.{t} %f, %b, %e;",
            [n] * 4,
            [n] * 2,
            rows,
            lambda a, b, c, d, n=n: (cut(a + c, n), cut(b - d - 1 + (a + c >> n), n)),
        )
        for s in (f"u{n}", f"s{n}"):
            yield Case(
                f"mad.cc.{s}",
                f"mad.lo.cc.{s} %d, %a, %b, %c; madc.hi.{s} %f, %a, %b, %e;",
                [n] * 4,
                [n] * 2,
                rows,
                lambda a, b, c, d, s=s, n=n: (
                    cut(v := value(a, s) * value(b, s) + (d << n | c), n),
                    cut(v >> n, n),
                ),
            )
            yield Case(
                f"madc.lo.{s}",
                f"add.cc.{s} %f, %a, %b; madc.lo.cc.{s} %d, %a, %b, %c; madc.hi.cc.{s} %f, %a, %b,"
                f" %e; addc.{s} %g, 0, 0;",
                [n] * 4,
                [n] * 3,
                rows,
                lambda a, b, c, d, s=s, n=n: chain(a, b, c, d, s, n),
            )


def chain(a, b, c, d, s, n):
    """add.cc leaves a carry. madc.lo.cc consumes it and leaves another. madc.hi.cc and addc
    follow."""
    product = value(a, s) * value(b, s)
    carry = a + b >> n
    low = cut(product, n) + c + carry
    high = cut(product >> n, n) + d + (low >> n)
    return cut(low, n), cut(high, n), high >> n


def dots():
    pool = [0, 0x01010101, 0x7F80FF01, 0x80808080, 0xFFFFFFFF, 0x8E2DA590, 0xEDEAEE14]
    sums = [0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]

    def parts(v, bits, kind, n):
        return [value(v >> bits * i & (1 << bits) - 1, f"{kind}{bits}") for i in range(n)]

    for x in "us":
        for y in "us":
            yield Case(
                f"dp4a.{x}32.{y}32",
                f"dp4a.{x}32.{y}32 %d, %a, %b, %c;",
                [32] * 3,
                [32],
                cross(pool, pool, sums),
                lambda a, b, c, x=x, y=y: cut(
                    c + sum(p * q for p, q in zip(parts(a, 8, x, 4), parts(b, 8, y, 4))), 32
                ),
            )
            for half in (0, 1):
                name = f"dp2a.{('lo', 'hi')[half]}.{x}32.{y}32"
                yield Case(
                    name,
                    f"{name} %d, %a, %b, %c;",
                    [32] * 3,
                    [32],
                    cross(pool, pool, sums),
                    lambda a, b, c, x=x, y=y, h=half: cut(
                        c
                        + sum(
                            p * q
                            for p, q in zip(
                                parts(a, 16, x, 2), parts(b, 8, y, 4)[2 * h : 2 * h + 2]
                            )
                        ),
                        32,
                    ),
                )


RELATIONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
COMBINE = {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "xor": lambda x, y: x != y}


def comparisons():
    for t in TYPES:
        bits_ = width(t)
        for name, f in RELATIONS.items():
            yield Case(
                f"setp.{name}.{t}",
                by_predicate(f"setp.{name}.{t} %p1, %a, %b;"),
                [bits_] * 2,
                [32],
                cross(INTEGERS[bits_], INTEGERS[bits_]),
                lambda a, b, f=f, t=t: int(f(value(a, t), value(b, t))),
            )
        if t[0] == "u":
            for name, same in UNSIGNED.items():
                yield Case(
                    f"setp.{name}.{t}",
                    by_predicate(f"setp.{name}.{t} %p1, %a, %b;"),
                    [bits_] * 2,
                    [32],
                    cross(INTEGERS[bits_], INTEGERS[bits_]),
                    lambda a, b, f=RELATIONS[same]: int(f(a, b)),
                )
        yield Case(
            f"set.le.u32.{t}",
            f"set.le.u32.{t} %d, %a, %b;",
            [bits_] * 2,
            [32],
            cross(INTEGERS[bits_], INTEGERS[bits_]),
            lambda a, b, t=t: 0xFFFFFFFF if value(a, t) <= value(b, t) else 0,
        )
        yield Case(
            f"set.ne.f32.{t}",
            f"set.ne.f32.{t} %d, %a, %b;",
            [bits_] * 2,
            [32],
            cross(INTEGERS[bits_], INTEGERS[bits_]),
            lambda a, b: 0x3F800000 if a != b else 0,
        )
        yield Case(
            f"slct.{t}.s32",
            f"slct.{t}.s32 %d, %a, %b, %c;",
            [bits_, bits_, 32],
            [bits_],
            cross(few(bits_, 4), few(bits_, 4), INTEGERS[32]),
            lambda a, b, c: b if c >> 31 else a,
        )
        yield Case(
            f"selp.{t}",
            f"setp.lt.s32 %p1, %c, 0; selp.{t} %d, %a, %b, %p1;",
            [bits_, bits_, 32],
            [bits_],
            cross(few(bits_, 4), few(bits_, 4), INTEGERS[32]),
            lambda a, b, c: a if c >> 31 else b,
        )
    yield from combined()


def combined():
    """With a third predicate."""
    for name, f in COMBINE.items():
        for negated in ("", "!"):

            def both(a, b, c, f=f, negated=negated):
                third = (c == 1) != bool(negated)
                return int(f(a < b, third)), int(f(not a < b, third))

            yield Case(
                f"setp.lt.{name}.u32.{'not' if negated else 'plain'}",
                f"setp.eq.u32 %p0, %c, 1; setp.lt.{name}.u32 %p1|%p2, %a, %b, {negated}%p0;"
                " selp.b32 %d, 1, 0, %p1; selp.b32 %f, 1, 0, %p2;",
                [32] * 3,
                [32, 32],
                cross([0, 1, 5], [0, 1, 5], [0, 1]),
                both,
            )
            yield Case(
                f"set.gt.{name}.u32.s32.{'not' if negated else 'plain'}",
                f"setp.eq.u32 %p0, %c, 1; set.gt.{name}.u32.s32 %d, %a, %b, {negated}%p0;",
                [32] * 3,
                [32],
                cross([0, 1, 0xFFFFFFFF], [0, 1, 0xFFFFFFFF], [0, 1]),
                lambda a, b, c, f=f, negated=negated: (
                    0xFFFFFFFF if f(signed(a, 32) > signed(b, 32), (c == 1) != bool(negated)) else 0
                ),
            )


def families():
    return [
        ("integer_arithmetic", list(arithmetic())),
        ("logic", list(logic())),
        ("bit_fields", list(bits())),
        ("extended_precision", list(extended())),
        ("dot_products", list(dots())),
        ("integer_comparisons", list(comparisons())),
    ]
