# SPDX-License-Identifier: Apache-2.0
"""Video instructions: scalar forms on selected bytes and halves, SIMD forms on two halves or four
bytes (PTX ISA, video instructions; where the text and an H200 disagree, as the H200 does, which
each place says).
"""

import itertools

from cases import Case, cross
from integers import RELATIONS, cut, signed, value

WORDS = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x8001FF7F, 0x12345678, 0x7F80FE01]
THIRD = [0, 0x12345678, 0xFFFFFFF0]
ARITHMETIC = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
}


def below(name, v, c, t):
    """Whether the first result v is less than c, as hardware compares them. Sums and differences
    have 32 bits by then, the others are exact. Where the second operation has no sign, a negative
    first result is greater than all.
    """
    if name in ("vadd", "vsub"):
        v = value(cut(v, 32), "s32")
    if t == "u32" and v < 0:
        return False
    return v < value(c, t)


SECOND = {
    "add": lambda name, v, c, t: v + c,
    "min": lambda name, v, c, t: v if below(name, v, c, t) else c,
    "max": lambda name, v, c, t: c if below(name, v, c, t) else v,
}


def bits_of(selector):
    return {"": 32, "b": 8, "h": 16}[selector[:1]]


def part(v, selector, t):
    n = bits_of(selector)
    v = v >> n * int(selector[1:] or 0) & (1 << n) - 1
    return signed(v, n) if t[0] == "s" else v


def limited_part(v, bits, t):
    """.sat into a byte or a half: any value outside becomes the greatest, negative ones too."""
    top = (1 << bits - (t[0] == "s")) - 1
    return v if 0 <= v <= top else top


def limited_word(v, t):
    """.sat into 32 bits: an unsigned result does not become negative, but one that is too large
    loses its carry."""
    return max(v, 0) if t == "u32" else limited(v, 32, t)


def limited(v, bits, t):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if t[0] == "s" else (0, (1 << bits) - 1)
    return max(low, min(high, v))


def dotted(s):
    return "." + s if s else ""


def scalar():
    selections = [("", ""), ("b3", "h1"), ("h0", "b1")]
    for (name, f), (d, a, b), sat, (sa, sb) in itertools.product(
        ARITHMETIC.items(),
        (("s32", "s32", "s32"), ("u32", "s32", "u32"), ("s32", "u32", "u32")),
        ("", ".sat"),
        selections,
    ):
        stem = f"{name}.{d}.{a}.{b}{sat}"

        def simple(x, y, f=f, d=d, a=a, b=b, sat=sat, sa=sa, sb=sb):
            v = f(part(x, sa, a), part(y, sb, b))
            return limited_word(v, d) if sat else v

        def placed(x, y, z, place, f=f, d=d, a=a, b=b, sat=sat, sa=sa, sb=sb):
            """h1 takes the upper half of the 32-bit result, as measured on hardware; b2 the lowest
            byte."""
            n = bits_of(place)
            k = n * int(place[1:])
            v = f(part(x, sa, a), part(y, sb, b))
            v = limited_part(v, n, d) if sat else v
            return z & ~((1 << n) - 1 << k) | cut(v >> 16 if place == "h1" else v, n) << k

        yield Case(
            f"{stem}{sa}{sb}",
            f"{stem} %d, %a{dotted(sa)}, %b{dotted(sb)};",
            [32] * 3,
            [32],
            cross(WORDS, WORDS, [0]),
            lambda x, y, z, g=simple: cut(g(x, y), 32),
        )
        if sa == "":
            for second, combine in SECOND.items():
                yield Case(
                    f"{stem}.{second}",
                    f"{stem}.{second} %d, %a, %b, %c;",
                    [32] * 3,
                    [32],
                    cross(WORDS, WORDS, THIRD),
                    lambda x, y, z, g=simple, h=combine, s=name, t=d: cut(h(s, g(x, y), z, t), 32),
                )
        for place in ("b2", "h1"):
            yield Case(
                f"{stem}.into.{place}{sa}{sb}",
                f"{stem} %d.{place}, %a{dotted(sa)}, %b{dotted(sb)}, %c;",
                [32] * 3,
                [32],
                cross(WORDS, WORDS, THIRD[1:]),
                lambda x, y, z, g=placed, p=place: g(x, y, z, p),
            )
    yield from shifts()
    yield from scalar_sets()
    yield from multiply_add()


def shifts():
    counts = [0, 1, 31, 32, 33, 255, 0xFFFFFFFF]
    for name, mode, a in itertools.product(("vshl", "vshr"), ("clamp", "wrap"), ("u32", "s32")):
        stem = f"{name}.{a}.{a}.u32.{mode}"

        def model(x, y, z, name=name, mode=mode, a=a):
            n = y & 31 if mode == "wrap" else min(y, 32)
            return cut(value(x, a) << n if name == "vshl" else value(x, a) >> n, 32)

        yield Case(stem, f"{stem} %d, %a, %b;", [32] * 3, [32], cross(WORDS, counts, [0]), model)
        yield Case(
            f"{stem}.add",
            f"{stem}.add %d, %a, %b, %c;",
            [32] * 3,
            [32],
            cross(WORDS, counts, THIRD),
            lambda x, y, z, m=model: cut(m(x, y, z) + z, 32),
        )


def scalar_sets():
    for name, f in RELATIONS.items():
        for t in ("u32", "s32"):
            stem = f"vset.{t}.{t}.{name}"
            yield Case(
                stem,
                f"{stem} %d, %a.h0, %b.h0;",
                [32] * 2,
                [32],
                cross(WORDS, WORDS),
                lambda x, y, f=f, t=t: int(f(part(x, "h0", t), part(y, "h0", t))),
            )
    yield Case(
        "vset.add",
        "vset.u32.u32.lt.add %d, %a, %b, %c;",
        [32] * 3,
        [32],
        cross(WORDS, WORDS, THIRD),
        lambda x, y, z: cut(z + (x < y), 32),
    )


def multiply_add():
    for (a, b), sat, scale in itertools.product(
        (("u32", "u32"), ("s32", "s32"), ("s32", "u32")), ("", ".sat"), ("", ".shr7", ".shr15")
    ):
        d = "u32" if (a, b) == ("u32", "u32") else "s32"
        stem = f"vmad.{d}.{a}.{b}{sat}{scale}"

        def model(x, y, z, d=d, sat=sat, scale=scale, extra=0):
            """All operands have signs, whatever the types say, as measured on hardware. .sat into
            u32 turns a negative number into zero; after a shift, which moves no signs in, into
            the greatest."""
            v = value(x, "s32") * value(y, "s32") + value(z, "s32") + extra >> int(scale[4:] or 0)
            if sat and v < 0 and d == "u32":
                return 0xFFFFFFFF if scale else 0
            return cut(limited(v, 32, d) if sat else v, 32)

        yield Case(
            stem, f"{stem} %d, %a, %b, %c;", [32] * 3, [32], cross(WORDS, WORDS, THIRD), model
        )
        if (a, b) == ("u32", "u32"):
            yield Case(
                f"{stem}.po",
                f"vmad.{d}.{a}.{b}.po{sat}{scale} %d, %a, %b, %c;",
                [32] * 3,
                [32],
                cross(WORDS, WORDS, THIRD),
                lambda x, y, z, m=model: m(x, y, z, extra=1),
            )


def lane(x, y, index, parts, t):
    n = 32 // parts
    v = (y << 32 | x) >> n * index & (1 << n) - 1
    return signed(v, n) if t[0] == "s" else v


def average(a, b):
    return a + b + 1 >> 1 if a + b >= 0 else a + b >> 1


def simd():
    operations = dict(ARITHMETIC, vavrg=average)
    for parts, (name, f) in itertools.product((2, 4), operations.items()):
        letter, n = ("h", 16) if parts == 2 else ("b", 8)
        other = "h21" if parts == 2 else "b6240"
        for d, a, sat in (
            ("s32", "s32", ""),
            ("u32", "u32", ".sat"),
            ("s32", "u32", ".sat"),
            ("u32", "s32", ""),
        ):
            stem = f"{name}{parts}.{d}.{a}.{a}{sat}"

            def results(x, y, first, f=f, d=d, a=a, sat=sat, parts=parts, n=n):
                out = []
                for i in range(parts):
                    v = f(lane(x, y, first[i], parts, a), lane(x, y, parts + i, parts, a))
                    out.append(limited(v, n, d) if sat else v)
                return out

            def merged(x, y, z, first, mask, g=results, n=n):
                for i, v in enumerate(g(x, y, first)):
                    if i in mask:
                        z = z & ~((1 << n) - 1 << n * i) | cut(v, n) << n * i
                return z

            plain, swapped = list(range(parts)), [int(c) for c in reversed(other[1:])]
            yield Case(
                stem,
                f"{stem} %d, %a, %b, %c;",
                [32] * 3,
                [32],
                cross(WORDS, WORDS, [0]),
                lambda x, y, z, g=merged, p=plain: g(x, y, z, p, p),
            )
            yield Case(
                f"{stem}.{other}",
                f"{stem} %d.{letter}1, %a.{other}, %b, %c;",
                [32] * 3,
                [32],
                cross(WORDS, WORDS, THIRD),
                lambda x, y, z, g=merged, s=swapped: g(x, y, z, s, [1]),
            )
            if sat:
                continue
            yield Case(
                f"{stem}.add",
                f"{stem}.add %d, %a, %b, %c;",
                [32] * 3,
                [32],
                cross(WORDS, WORDS, THIRD),
                lambda x, y, z, g=results, p=plain: cut(
                    z + sum(g(x, y, p)), 32
                ),  # not cut to lanes before
            )
        for relation in ("lt", "ne"):
            stem = f"vset{parts}.s32.s32.{relation}"
            yield Case(
                stem,
                f"{stem} %d, %a, %b, %c;",
                [32] * 3,
                [32],
                cross(WORDS, WORDS, [0]),
                lambda x, y, z, r=RELATIONS[relation], p=parts, n=n: sum(
                    int(r(lane(x, y, i, p, "s32"), lane(x, y, p + i, p, "s32"))) << n * i
                    for i in range(p)
                ),
            )


def families():
    return [("video_scalar", list(scalar())), ("video_simd", list(simd()))]
