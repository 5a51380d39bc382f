# SPDX-License-Identifier: Apache-2.0
"""Floating point arithmetic, comparison and selection: f32, f64, f16, bf16 and the packed forms.
Exact operations are expected to the bit, approximations within the error that the PTX ISA
states."""

import math
from fractions import Fraction

import formats
from cases import (
    ANY,
    BF16S,
    F16S,
    F32_FEW,
    F32S,
    F64_FEW,
    F64S,
    NAN,
    Case,
    between,
    by_predicate,
    cross,
)
from formats import BF16, F16, F32, F64, FLOAT_RELATIONS, MODES

POOLS = {
    "f32": (F32, F32S, F32_FEW),
    "f64": (F64, F64S, F64_FEW),
    "f16": (F16, F16S, F16S[::2] + [0x3C01, 0x7C00]),
    "bf16": (BF16, BF16S, BF16S[::2] + [0x3F81, 0x7F80]),
}


def finish(v, format_, mode=formats.NEAREST, ftz=False, sat=False, relu=False):
    """Bits of a result: rounded, flushed, saturated or cut below zero."""
    if relu and v.finite and v.q < 0 or relu and v.infinite and v.negative:
        v = formats.number(0)
    if sat:
        if v.nan or v.negative:
            return 0
        if v.infinite or v.q > 1:
            return format_.one()
    if relu and v.zero:
        v = formats.number(0)
    bits = format_.encode(v, mode)
    return format_.flush(bits) if ftz else bits


def expected(bits, format_):
    """f64 does not say which NaN. The other types have one."""
    return NAN if format_ is F64 and F64.is_nan(bits) else bits


def operation(
    name, t, sources, f, ftz=False, sat=False, relu=False, mode=formats.NEAREST, pool=None
):
    """A correctly rounded instruction: f takes exact values and gives the exact result."""
    format_, all_values, few = POOLS[t]
    pool = pool or (all_values if sources < 3 else few)
    registers = ", ".join(["%a", "%b", "%c"][:sources])

    def model(*operands):
        values = [format_.decode(format_.flush(o) if ftz else o) for o in operands]
        v = f(*values)
        if ftz and format_ is F32 and v.finite and abs(v.q) < formats.power(1 - F32.bias):
            v = formats.number(0, v.negative)  # before it is rounded, as measured on hardware
        return expected(finish(v, format_, mode, ftz, sat, relu), format_)

    return Case(
        name,
        f"{name} %d, {registers};",
        [format_.bits] * sources,
        [format_.bits],
        cross(*[pool] * sources),
        model,
        float_bits=format_.bits,
    )


def fused(mode):
    return lambda a, b, c: formats.add(formats.multiply(a, b), c, mode)


def arithmetic():
    one = formats.number(1)
    for t in ("f32", "f64"):
        for mode in MODES:
            for ftz in ((False, True) if t == "f32" else (False,)):
                for sat in ((False, True) if t == "f32" else (False,)):
                    s = f".{mode}{'.ftz' if ftz else ''}{'.sat' if sat else ''}.{t}"
                    flags = {"ftz": ftz, "sat": sat, "mode": mode}
                    yield operation(
                        f"add{s}", t, 2, lambda a, b, m=mode: formats.add(a, b, m), **flags
                    )
                    yield operation(
                        f"sub{s}", t, 2, lambda a, b, m=mode: formats.add(a, -b, m), **flags
                    )
                    yield operation(f"mul{s}", t, 2, formats.multiply, **flags)
                    yield operation(f"fma{s}", t, 3, fused(mode), **flags)
                    if not sat:
                        yield operation(f"div{s}", t, 2, formats.divide, **flags)
                        yield operation(f"rcp{s}", t, 1, lambda a: formats.divide(one, a), **flags)
                        yield root(f"sqrt{s}", t, mode, ftz)
        yield operation(f"mad.rn.{t}", t, 3, fused("rn"))
        yield operation(f"add.{t}", t, 2, formats.add)
        yield operation(f"mul.{t}", t, 2, formats.multiply)


def root(name, t, mode, ftz):
    format_, pool, _ = POOLS[t]

    def model(a):
        bits = formats.square_root(format_.decode(format_.flush(a) if ftz else a), format_, mode)
        return expected(format_.flush(bits) if ftz else bits, format_)

    return Case(
        name,
        f"{name} %d, %a;",
        [format_.bits],
        [format_.bits],
        cross(pool),
        model,
        float_bits=format_.bits,
    )


def signs():
    """abs, neg and copysign work on the sign bit. What they make of a NaN is left open, except for
    copysign."""
    for t in ("f32", "f64", "f16", "bf16"):
        format_, pool, _ = POOLS[t]
        for ftz in ((False, True) if t in ("f32", "f16") else (False,)):
            s = f"{'.ftz' if ftz else ''}.{t}"

            def unary(f, format_=format_, ftz=ftz):
                return lambda a: NAN if format_.is_nan(a) else f(format_.flush(a) if ftz else a)

            yield Case(
                f"abs{s}",
                f"abs{s} %d, %a;",
                [format_.bits],
                [format_.bits],
                cross(pool),
                unary(lambda a, k=format_.sign: a & ~k),
                float_bits=format_.bits,
            )
            yield Case(
                f"neg{s}",
                f"neg{s} %d, %a;",
                [format_.bits],
                [format_.bits],
                cross(pool),
                unary(lambda a, k=format_.sign: a ^ k),
                float_bits=format_.bits,
            )
    for t in ("f32", "f64"):
        format_, pool, _ = POOLS[t]
        yield Case(
            f"copysign.{t}",
            f"copysign.{t} %d, %a, %b;",
            [format_.bits] * 2,
            [format_.bits],
            cross(pool, pool),
            lambda a, b, k=format_.sign: b & ~k | a & k,
        )


def extremes():
    """min and max with .ftz, .NaN and .xorsign.abs."""
    for t in ("f32", "f64", "f16", "bf16"):
        format_, pool, _ = POOLS[t]
        half = t in ("f16", "bf16")
        for name in ("min", "max"):
            for ftz in ((False, True) if t in ("f32", "f16") else (False,)):
                for nan in ((False, True) if t != "f64" else (False,)):
                    for xorsign in ((False, True) if t != "f64" else (False,)):
                        flags = (".ftz", ftz), (".NaN", nan), (".xorsign.abs", xorsign)
                        s = name + "".join(flag for flag, on in flags if on) + "." + t

                        def model(
                            a, b, format_=format_, ftz=ftz, nan=nan, xorsign=xorsign, name=name
                        ):
                            x, y = ((format_.flush(v) if ftz else v) for v in (a, b))
                            vx, vy = format_.decode(x), format_.decode(y)
                            if xorsign:
                                r = formats.least(abs(vx), abs(vy), nan, name == "max")
                                if not r.nan:
                                    r = -r if (x ^ y) & format_.sign else r
                            else:
                                r = formats.least(vx, vy, nan, name == "max")
                            return expected(format_.encode(r), format_)

                        yield Case(
                            s,
                            f"{s} %d, %a, %b;",
                            [format_.bits] * 2,
                            [format_.bits],
                            cross(pool, pool if not half else pool),
                            model,
                            float_bits=format_.bits,
                        )


def copies():
    """The assembler turns the minimum of a register and itself into a copy, in which a NaN keeps
    its bits."""
    yield Case(
        "min.f32.itself", "min.f32 %d, %a, %a;", [32], [32], cross(F32S), lambda a: a, float_bits=32
    )


def halves():
    for t in ("f16", "bf16"):
        format_, pool, few = POOLS[t]
        for ftz in ((False, True) if t == "f16" else (False,)):
            for sat in ((False, True) if t == "f16" else (False,)):
                s = f".rn{'.ftz' if ftz else ''}{'.sat' if sat else ''}.{t}"
                yield operation(f"add{s}", t, 2, formats.add, ftz, sat)
                yield operation(f"sub{s}", t, 2, lambda a, b: formats.add(a, -b), ftz, sat)
                yield operation(f"mul{s}", t, 2, formats.multiply, ftz, sat)
                yield operation(f"fma{s}", t, 3, fused("rn"), ftz, sat)
            yield operation(
                f"fma.rn{'.ftz' if ftz else ''}.relu.{t}", t, 3, fused("rn"), ftz, relu=True
            )
        pairs = cross(pool, pool)
        packed = [(a | b << 16, b | a << 16) for a, b in pairs] + [
            (a | a << 16, b | b << 16) for a, b in pairs
        ]

        def both(f, format_=format_):
            return lambda *v: f(*(x & 0xFFFF for x in v)) | f(*(x >> 16 for x in v)) << 16

        def exact(f, format_=format_, **flags):
            return lambda *v: finish(f(*(format_.decode(x) for x in v)), format_, **flags)

        for name, f in (
            ("add.rn", formats.add),
            ("sub.rn", lambda a, b: formats.add(a, -b)),
            ("mul.rn", formats.multiply),
            ("min", formats.least),
            ("max", lambda a, b: formats.least(a, b, larger=True)),
            ("min.NaN", lambda a, b: formats.least(a, b, True)),
        ):
            yield Case(
                f"{name}.{t}x2", f"{name}.{t}x2 %d, %a, %b;", [32, 32], [32], packed, both(exact(f))
            )
        triples = [
            (a | b << 16, b | c << 16, c | a << 16) for a, b, c in cross(few[:6], few[3:], few)
        ]
        yield Case(
            f"fma.rn.{t}x2",
            f"fma.rn.{t}x2 %d, %a, %b, %c;",
            [32] * 3,
            [32],
            triples,
            both(exact(fused("rn"))),
        )
        yield Case(
            f"fma.rn.relu.{t}x2",
            f"fma.rn.relu.{t}x2 %d, %a, %b, %c;",
            [32] * 3,
            [32],
            triples,
            both(exact(fused("rn"), relu=True)),
        )
        numbers = [x for x in pool if not format_.is_nan(x)]
        two = [(a | b << 16,) for a, b in cross(numbers, numbers)]
        yield Case(f"neg.{t}x2", f"neg.{t}x2 %d, %a;", [32], [32], two, lambda a: a ^ 0x80008000)
        yield Case(f"abs.{t}x2", f"abs.{t}x2 %d, %a;", [32], [32], two, lambda a: a & 0x7FFF7FFF)


def comparisons():
    for t in ("f32", "f64", "f16", "bf16"):
        format_, pool, _ = POOLS[t]
        n = format_.bits
        for ftz in ((False, True) if t == "f32" else (False,)):
            for relation in FLOAT_RELATIONS:
                name = f"setp.{relation}{'.ftz' if ftz else ''}.{t}"

                def model(a, b, r=relation, format_=format_, ftz=ftz):
                    x, y = (format_.decode(format_.flush(v) if ftz else v) for v in (a, b))
                    return int(formats.compare(r, x, y))

                yield Case(
                    name,
                    by_predicate(f"{name} %p1, %a, %b;"),
                    [n, n],
                    [32],
                    cross(pool, pool),
                    model,
                )
        for relation in ("lt", "neu"):
            for d, true in (("u32", 0xFFFFFFFF), ("f32", 0x3F800000)):
                yield (
                    Case(
                        f"set.{relation}.{d}.{t}",
                        f"set.{relation}.{d}.{t} %d, %a, %b;",
                        [n, n],
                        [32],
                        cross(pool, pool),
                        lambda a, b, r=relation, f=format_, true=true: (
                            true if formats.compare(r, f.decode(a), f.decode(b)) else 0
                        ),
                    )
                    if t in ("f32", "f64") or d == "u32"
                    else same_half(relation, t, pool, format_)
                )
    for t in ("f16", "bf16"):
        format_, pool, _ = POOLS[t]
        rows = [(a | b << 16, b | a << 16) for a, b in cross(pool, pool)]
        yield Case(
            f"set.le.{t}x2",
            f"set.le.{t}x2.{t}x2 %d, %a, %b;",
            [32, 32],
            [32],
            rows,
            lambda a, b, f=format_: sum(
                (
                    f.one()
                    if formats.compare("le", f.decode(a >> k & 0xFFFF), f.decode(b >> k & 0xFFFF))
                    else 0
                )
                << k
                for k in (0, 16)
            ),
        )
        yield Case(
            f"setp.ge.{t}x2",
            f"setp.ge.{t}x2 %p1|%p2, %a, %b; selp.b32 %d, 1, 0, %p1; selp.b32 %f, 1, 0, %p2;",
            [32, 32],
            [32, 32],
            rows,
            lambda a, b, f=format_: tuple(
                int(formats.compare("ge", f.decode(a >> k & 0xFFFF), f.decode(b >> k & 0xFFFF)))
                for k in (0, 16)
            ),
        )
    yield from classes()


def same_half(relation, t, pool, format_):
    return Case(
        f"set.{relation}.{t}.{t}",
        f"set.{relation}.{t}.{t} %d, %a, %b;",
        [16, 16],
        [16],
        cross(pool, pool),
        lambda a, b: (
            format_.one() if formats.compare(relation, format_.decode(a), format_.decode(b)) else 0
        ),
    )


def classes():
    tests = {
        "finite": lambda v, s: v.finite,
        "infinite": lambda v, s: v.infinite,
        "number": lambda v, s: not v.nan,
        "notanumber": lambda v, s: v.nan,
        "normal": lambda v, s: v.finite and not s,
        "subnormal": lambda v, s: s,
    }
    for t in ("f32", "f64"):
        format_, pool, _ = POOLS[t]
        for name, f in tests.items():
            yield Case(
                f"testp.{name}.{t}",
                by_predicate(f"testp.{name}.{t} %p1, %a;"),
                [format_.bits],
                [32],
                cross(pool),
                lambda a, f=f, k=format_: int(f(k.decode(a), k.subnormal(a))),
            )
    for ftz in (False, True):
        name = f"slct{'.ftz' if ftz else ''}.u32.f32"
        yield Case(
            name,
            f"{name} %d, %a, %b, %c;",
            [32] * 3,
            [32],
            cross([1, 7], [2, 9], F32S),
            lambda a, b, c, z=ftz: (
                a
                if formats.compare("ge", F32.decode(F32.flush(c) if z else c), formats.number(0))
                else b
            ),
        )


def near(v, format_, relative=None, ulps=None, absolute=None, flush=False):
    """The interval the ISA allows around an exactly known value."""
    if v.nan:
        return NAN
    if not v.finite:
        return format_.encode(v)
    if v.zero:
        return format_.encode(v)
    if ulps is not None:
        bits = format_.encode(abs(v))
        low, high = max(bits - ulps, 0), bits + ulps
        if high > format_.largest:
            high = format_.encode(formats.infinity())
    else:
        error = absolute if absolute is not None else abs(v.q) * relative
        ends = [formats.number(v.q - error), formats.number(v.q + error)]
        if ends[0].q < 0 < ends[1].q:
            return between(
                format_.encode(ends[0], formats.DOWN), format_.encode(ends[1], formats.UP)
            )
        ends = sorted(format_.encode(abs(e), m) for e, m in zip(ends, (formats.DOWN, formats.UP)))
        if v.negative:
            ends = [
                format_.encode(abs(formats.number(v.q + error)), formats.DOWN),
                format_.encode(abs(formats.number(v.q - error)), formats.UP),
            ]
        low, high = ends
    if flush and low < 1 << format_.mantissa_bits:
        low = 0
    sign = format_.sign if v.negative else 0
    return between(*((high | sign, low | sign) if sign else (low, high)))


def real(f, a):
    """A double good to 2^-50, as an exact value."""
    r = f(float(a.q))
    return (
        formats.infinity(r < 0)
        if math.isinf(r)
        else formats.number(Fraction(r), math.copysign(1, r) < 0)
    )


APPROXIMATE = [
    0x3F800000,
    0x3F000000,
    0x40000000,
    0x3EAAAAAB,
    0x3FC90FDB,
    0x40490FDB,
    0xBF800000,
    0xC0490FDB,
    0x3DCCCCCD,
    0x42280000,
    0xC2280000,
    0x00800000,
    0x7F7FFFFF,
    0x00000001,
    0x807FFFFF,
    0,
    0x80000000,
    0x7F800000,
    0xFF800000,
    0x7FC00000,
    0x3F7FFFFF,
    0x3F800001,
    0x3F4CCCCD,
    0x42FE0000,
    0xC2FC0000,
    0xC3160000,
    0x43000000,
    0x39000000,
    0x2B800000,
    0x5F000000,
]


def approximations():
    zero, one = formats.number(0), formats.number(1)

    def unary(name, f, ftz):
        text = f"{name}{'.ftz' if ftz else ''}.f32"

        def model(a):
            return f(F32.decode(F32.flush(a) if ftz else a), ftz)

        return Case(text, f"{text} %d, %a;", [32], [32], cross(APPROXIMATE), model, float_bits=32)

    rough = Fraction(1, 1 << 22)
    for ftz in (False, True):
        yield unary(
            "rcp.approx", lambda a, z: near(formats.divide(one, a), F32, ulps=1, flush=z), ftz
        )
        yield unary(
            "sqrt.approx",
            lambda a, z: near(F32.decode(formats.square_root(a, F32, "rn")), F32, ulps=2, flush=z),
            ftz,
        )
        yield unary(
            "rsqrt.approx", lambda a, z: near(reciprocal_root(a), F32, ulps=2, flush=z), ftz
        )
        yield unary("ex2.approx", lambda a, z: exponential(a, z), ftz)
        yield unary("lg2.approx", lambda a, z: logarithm(a, rough), ftz)
        yield unary("sin.approx", lambda a, z: circular(math.sin, a, zero), ftz)
        yield unary("cos.approx", lambda a, z: circular(math.cos, a, one), ftz)
    yield Case(
        "tanh.approx.f32",
        "tanh.approx.f32 %d, %a;",
        [32],
        [32],
        cross(APPROXIMATE),
        lambda a: hyperbolic(F32.decode(a)),
        float_bits=32,
    )
    for name in ("div.approx", "div.full"):
        for ftz in (False, True):
            text = f"{name}{'.ftz' if ftz else ''}.f32"
            yield Case(
                text,
                f"{text} %d, %a, %b;",
                [32, 32],
                [32],
                cross(F32_FEW, F32_FEW),
                lambda a, b, z=ftz, n=name: (
                    reciprocal_product if n == "div.approx" else rough_quotient
                )(a, b, z),
                float_bits=32,
            )
    yield from double_approximations()


def reciprocal_root(a):
    if a.nan or a.negative and not a.zero:
        return formats.NAN
    if a.zero or a.infinite:
        return formats.divide(formats.number(1), a)
    return real(lambda x: 1 / math.sqrt(x), a)


def exponential(a, ftz):
    if a.nan:
        return NAN
    if a.infinite:
        return 0 if a.negative else F32.encode(a)
    return near(
        (
            formats.number(Fraction(2) ** int(a.q))
            if a.q.denominator == 1 and abs(a.q) < 1000
            else (
                formats.infinity()
                if a.q > 200
                else formats.number(0) if a.q < -200 else real(lambda x: 2.0**x, a)
            )
        ),
        F32,
        ulps=2,
        flush=ftz,
    )


def logarithm(a, error):
    if a.nan or a.negative and not a.zero:
        return NAN
    if a.zero or a.infinite:
        return F32.encode(formats.infinity(a.zero))
    v = real(math.log2, a)
    if v.zero:
        return between(0x80000000, 0)
    return near(v, F32, absolute=max(error, abs(v.q) * error))


def circular(f, a, at_zero):
    """The ISA states it for [-2 pi, 2 pi] only."""
    if a.nan or a.infinite:
        return NAN
    if a.zero:
        return F32.encode(formats.number(at_zero.q, a.negative))
    if abs(a.q) > 6:
        return ANY
    return near(real(f, a), F32, absolute=Fraction(1, 1448155))  # 2^-20.5, rounded up a little


def hyperbolic(a):
    if a.nan:
        return NAN
    if a.infinite:
        return F32.encode(formats.number(-1 if a.negative else 1))
    if a.zero:
        return F32.encode(a)
    return near(real(math.tanh, a), F32, relative=Fraction(1, 1 << 10))


def rough_quotient(a, b, ftz):
    """div.full: 2 ulp if the divisor is neither tiny nor beyond 2^126. Those the ISA leaves
    open."""
    x, y = (F32.decode(F32.flush(v) if ftz else v) for v in (a, b))
    v = formats.divide(x, y)
    if y.finite and y.q and not Fraction(1, 1 << 126) <= abs(y.q) <= 1 << 126:
        return ANY
    if v.finite and x.finite and x.q and F32.subnormal(a):
        return ANY
    return near(v, F32, ulps=2, flush=True)


def reciprocal_product(a, b, ftz):
    """div.approx: as div.full, but a divisor beyond 2^126 has a reciprocal of zero."""
    x, y = (F32.decode(F32.flush(v) if ftz else v) for v in (a, b))
    if x.nan or not y.finite or abs(y.q) <= 1 << 126:
        return rough_quotient(a, b, ftz)
    return NAN if x.infinite else F32.encode(formats.number(0, x.negative != y.negative))


def double_approximations():
    """Twenty bits and no subnormal numbers."""
    ordinary = [x for x in F64S if not F64.subnormal(x)]

    def rough(v):
        if v.nan or v.infinite or v.zero:
            return NAN if v.nan else F64.encode(v)
        return near(v, F64, relative=Fraction(1, 1 << 19), flush=True)

    yield Case(
        "rcp.approx.ftz.f64",
        "rcp.approx.ftz.f64 %d, %a;",
        [64],
        [64],
        cross(ordinary),
        lambda a: rough(formats.divide(formats.number(1), F64.decode(a))),
        float_bits=64,
    )
    yield Case(
        "rsqrt.approx.ftz.f64",
        "rsqrt.approx.ftz.f64 %d, %a;",
        [64],
        [64],
        cross(ordinary),
        lambda a: rough(reciprocal_root(F64.decode(a))),
        float_bits=64,
    )
    yield Case(
        "rsqrt.approx.f64",
        "rsqrt.approx.f64 %d, %a;",
        [64],
        [64],
        cross(ordinary),
        lambda a: rough(reciprocal_root(F64.decode(a))),
        float_bits=64,
    )


def half_approximations():
    for t in ("f16", "bf16"):
        format_, pool, _ = POOLS[t]
        for name, f in (
            ("ex2.approx", lambda x: 2.0 ** max(min(x, 1000.0), -1000.0)),
            ("tanh.approx", math.tanh),
        ):
            if t == "bf16" and name == "ex2.approx":
                name = "ex2.approx.ftz"

            def model(a, f=f, name=name, format_=format_):
                v = format_.decode(a)
                if v.nan:
                    return NAN
                if v.infinite:
                    tanh = formats.number(-1 if v.negative else 1)
                    return format_.encode(
                        tanh if "tanh" in name else formats.number(0) if v.negative else v
                    )
                error = Fraction(1, 1 << (9 if format_ is F16 else 7))
                if "tanh" in name and v.zero:
                    return a
                return near(real(f, v), format_, relative=error, flush=format_ is BF16)

            yield Case(
                f"{name}.{t}",
                f"{name}.{t} %d, %a;",
                [16],
                [16],
                cross(pool),
                model,
                float_bits=16 if t == "f16" else 17,
            )


def families():
    return [
        ("float_arithmetic", list(arithmetic())),
        ("float_signs", list(signs())),
        ("float_extremes", list(extremes()) + list(copies())),
        ("half_arithmetic", list(halves())),
        ("float_comparisons", list(comparisons())),
        ("approximations", list(approximations()) + list(half_approximations())),
    ]
