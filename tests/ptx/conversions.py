# SPDX-License-Identifier: Apache-2.0
"""cvt between all number types, with rounding, saturation, flushing and packing."""

import formats
from cases import BF16S, F16S, F32_FEW, F32S, F64S, INTEGERS, Case, cross
from floats import expected, finish
from formats import BF16, E4M3, E5M2, F16, F32, F64, MODES, TF32
from integers import clamp, cut, value, width

INTEGER_TYPES = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
# More than the arithmetic pools: the edges of every integer type, and halves between integers.
TO_INTEGER = {
    F32: F32S
    + [
        0x3F000000,
        0xBF000000,
        0x3FC00000,
        0x40200000,
        0xC0200000,
        0x42FF0000,
        0x437F8000,
        0xC3008000,
        0x477FFF80,
        0xC7000080,
        0x4F000000,
        0xCF000001,
        0x4F7FFFFF,
        0x4F800000,
        0x5EFFFFFF,
        0x5F000000,
        0xDF000000,
        0x5F7FFFFF,
        0x5F800000,
    ],
    F64: F64S
    + [
        0x3FE0000000000000,
        0xBFE0000000000000,
        0x4004000000000000,
        0x406FF00000000000,
        0x40EFFFF000000000,
        0x41DFFFFFFFC00000,
        0x41DFFFFFFFE00000,
        0xC1E0000000100000,
        0x41EFFFFFFFE00000,
        0x41EFFFFFFFF00000,
        0x43DFFFFFFFFFFFFF,
        0x43E0000000000000,
        0xC3E0000000000000,
        0x43EFFFFFFFFFFFFF,
        0x43F0000000000000,
    ],
    F16: F16S + [0x3800, 0xB800, 0x4100, 0x5BFC, 0x5C00, 0x77FF, 0xF800],
    BF16: BF16S + [0x3F00, 0xBF00, 0x4020, 0x437F, 0x4780, 0x4F00, 0xCF00],
}
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def widen(v, t):
    """The content of a register that is wider than its type: the value, extended by the type's
    sign, in 32 bits for bytes."""
    return cut(v, 32 if width(t) == 8 else width(t))


def contains(target, source):
    """There is nothing to saturate, so .sat is refused."""
    return width(target) >= width(source) + (target[0] == "s" and source[0] == "u") and not (
        target[0] == "u" and source[0] == "s"
    )


def integers():
    for source in INTEGER_TYPES:
        for target in INTEGER_TYPES:
            for sat in ("", ".sat"):
                if sat and contains(target, source):
                    continue
                ins, outs = (32 if width(t) == 8 else width(t) for t in (source, target))
                name = f"cvt{sat}.{target}.{source}"
                pool = INTEGERS[width(source)] if width(source) > 8 else INTEGERS[32] + INTEGERS[8]

                def model(a, s=source, t=target, sat=sat):
                    v = value(cut(a, width(s)), s)
                    v = clamp(v, t) if sat else value(cut(v, width(t)), t)
                    return widen(v, t)

                yield Case(name, f"{name} %d, %a;", [ins], [outs], cross(pool), model)


def to_float():
    for source in INTEGER_TYPES:
        for target in FORMATS:
            format_ = FORMATS[target]
            for mode in MODES if target != "bf16" else ("rn",):
                name = f"cvt.{mode}.{target}.{source}"
                if target == "bf16" and width(source) == 8:
                    continue
                pool = INTEGERS[width(source)] + (
                    [0xFFFFFF, 0x1000001, 0x1000003, 0x7FFFFFBF, 0xFFFFFF7F]
                    if width(source) >= 32
                    else []
                )
                yield Case(
                    name,
                    f"{name} %d, %a;",
                    [32 if width(source) == 8 else width(source)],
                    [format_.bits],
                    cross(pool),
                    lambda a, s=source, f=format_, m=mode: f.encode(formats.number(value(a, s)), m),
                )


def no_number(source, target):
    """What a NaN becomes: zero, or the top bit alone when a 64-bit type takes part (PTX ISA,
    cvt)."""
    return 1 << width(target) - 1 if source is F64 or width(target) == 64 else 0


def from_float():
    for source, format_ in FORMATS.items():
        for target in INTEGER_TYPES:
            for suffix, mode in (("rni", "rn"), ("rzi", "rz"), ("rmi", "rm"), ("rpi", "rp")):
                for ftz in ("", ".ftz") if source == "f32" else ("",):
                    for sat in ("", ".sat"):
                        if sat and (mode != "rz" or ftz or source == "bf16"):
                            continue
                        name = f"cvt.{suffix}{ftz}{sat}.{target}.{source}"

                        def model(a, f=format_, t=target, m=mode, z=ftz):
                            v = f.decode(f.flush(a) if z else a)
                            if v.nan:
                                return widen(value(no_number(f, t), t), t)
                            if v.infinite:
                                return widen(clamp(-(1 << 80) if v.negative else 1 << 80, t), t)
                            return widen(clamp(formats.round_integer(v.q, m), t), t)

                        if width(target) == 8 and source != "f32":
                            continue
                        yield Case(
                            name,
                            f"{name} %d, %a;",
                            [format_.bits],
                            [32 if width(target) == 8 else width(target)],
                            cross(TO_INTEGER[format_]),
                            model,
                        )


def kept_or_quiet(nan, a, b):
    """NaNs as measured on hardware: those of bf16 are shifted into place; of f64 only the fact that
    it is a NaN is kept."""
    return nan << 16 if a is BF16 else (b.top << 1 | 1) << b.mantissa_bits - 1


def between_floats():
    for source, a in FORMATS.items():
        for target, b in FORMATS.items():
            pool = TO_INTEGER[a]
            if source == target:
                if source != "bf16":
                    yield from whole_numbers(source, a)
                continue
            if {source, target} & {"bf16"} and not {source, target} & {"f32"}:
                continue
            narrow = b.bits < a.bits
            modes = MODES if narrow else ("",)
            if target == "bf16" or (target == "f16" and source == "f32"):
                modes = ("rn", "rz")
            for mode in modes:
                for ftz in (
                    ("", ".ftz")
                    if "f32" in (source, target)
                    and "bf16" not in (source, target)
                    and mode in ("", "rn")
                    else ("",)
                ):
                    for sat in (
                        ("", ".sat")
                        if "bf16" not in (source, target) and mode in ("", "rn")
                        else ("",)
                    ):
                        name = f"cvt{'.' + mode if mode else ''}{ftz}{sat}.{target}.{source}"

                        def model(x, a=a, b=b, m=mode or "rn", z=ftz, s=sat):
                            v = a.decode(a.flush(x) if z and a is F32 and b is not F16 else x)
                            if v.nan and not s and (a is BF16 or a is F64 and b is not BF16):
                                return kept_or_quiet(x, a, b)
                            return expected(finish(v, b, m, bool(z) and b is F32, bool(s)), b)

                        yield Case(
                            name,
                            f"{name} %d, %a;",
                            [a.bits],
                            [b.bits],
                            cross(pool),
                            model,
                            float_bits=b.bits,
                        )


def whole_numbers(t, format_):
    """Rounding to an integer that stays a float."""
    for suffix, mode in (("rni", "rn"), ("rzi", "rz"), ("rmi", "rm"), ("rpi", "rp")):
        for extra in ("", ".sat") + ((".ftz",) if t == "f32" else ()):
            name = f"cvt.{suffix}{extra}.{t}.{t}"

            def model(a, f=format_, m=mode, extra=extra):
                v = f.decode(f.flush(a) if extra == ".ftz" else a)
                if v.finite:
                    v = formats.number(formats.round_integer(v.q, m), v.negative)
                return expected(finish(v, f, sat=extra == ".sat"), f)

            yield Case(
                name,
                f"{name} %d, %a;",
                [format_.bits],
                [format_.bits],
                cross(TO_INTEGER[format_]),
                model,
                float_bits=format_.bits,
            )


def to_half(a, format_, mode, relu, finite):
    v = F32.decode(a)
    if relu and not v.nan and v.negative:
        v = formats.number(0)
    return format_.encode(v, mode, finite)


def narrow():
    """The forms for machine learning: relu, satfinite, pairs, tf32 and eight-bit floats."""
    pool = F32S + [
        0x477FF000,
        0x477FEFFF,
        0xC7800000,
        0x33000000,
        0x33000001,
        0x387FE000,
        0x43E00000,
        0x43E80000,
        0x3B000000,
        0x3C7FFFFF,
        0x47600000,
        0x47700000,
    ]
    few = F32_FEW + [0x47800000, 0xC1200000, 0x3ED00000]
    for t, format_ in (("f16", F16), ("bf16", BF16)):
        for mode in ("rn", "rz"):
            for relu in ("", ".relu"):
                for finite in ("", ".satfinite"):
                    f = lambda a, k=format_, m=mode, r=relu, s=finite: to_half(
                        a, k, m, bool(r), bool(s)
                    )  # noqa: E731
                    if relu or finite:
                        name = f"cvt.{mode}{relu}{finite}.{t}.f32"
                        yield Case(name, f"{name} %d, %a;", [32], [16], cross(pool), f)
                    name = f"cvt.{mode}{relu}{finite}.{t}x2.f32"
                    yield Case(
                        name,
                        f"{name} %d, %a, %b;",
                        [32, 32],
                        [32],
                        cross(few, few),
                        lambda a, b, f=f: f(a) << 16 | f(b),
                    )
    for mode in ("rn", "rz", "rna"):
        for relu in ("", ".relu") if mode != "rna" else ("",):
            name = f"cvt.{mode}{relu}.tf32.f32"
            yield Case(
                name,
                f"{name} %d, %a;",
                [32],
                [32],
                cross([x for x in pool if not F32.is_nan(x)]),
                lambda a, m=mode, r=relu: to_half(a, TF32, m, bool(r), False) << 13,
            )
    yield from bytes_()
    yield from packs()


def bytes_():
    few = F32_FEW + [
        0x43E00000,
        0x43E80001,
        0x3ED00000,
        0x3B000000,
        0x3A800000,
        0x47600000,
        0x47700001,
        0x37800000,
        0x37000000,
        0xC1200000,
    ]
    for t, format_ in (("e4m3", E4M3), ("e5m2", E5M2)):
        for relu in ("", ".relu"):

            def eight(v, f=format_, r=relu):
                if r and not v.nan and v.negative:
                    v = formats.number(0)
                return f.encode(v, "rn", True)

            name = f"cvt.rn.satfinite{relu}.{t}x2.f32"
            yield Case(
                name,
                f"{name} %d, %a, %b;",
                [32, 32],
                [16],
                cross(few, few),
                lambda a, b, g=eight: g(F32.decode(a)) << 8 | g(F32.decode(b)),
            )
            name = f"cvt.rn.satfinite{relu}.{t}x2.f16x2"
            yield Case(
                name,
                f"{name} %d, %a;",
                [32],
                [16],
                [(a << 16 | b,) for a, b in cross(F16S, F16S[::3])],
                lambda a, g=eight: g(F16.decode(a >> 16)) << 8 | g(F16.decode(a & 0xFFFF)),
            )
            name = f"cvt.rn{relu}.f16x2.{t}x2"

            def wide(a, f=format_, r=relu):
                v = f.decode(a)
                return F16.encode(formats.number(0) if r and not v.nan and v.negative else v)

            yield Case(
                name,
                f"{name} %d, %a;",
                [16],
                [32],
                [(a << 8 | 255 - a,) for a in range(256)],
                lambda a, g=wide: g(a >> 8) << 16 | g(a & 255),
            )


def packs():
    pool = INTEGERS[32]
    for target in ("u16", "s16", "u8", "s8"):
        bits = width(target)
        if bits == 16:
            yield Case(
                f"cvt.pack.sat.{target}.s32",
                f"cvt.pack.sat.{target}.s32 %d, %a, %b;",
                [32, 32],
                [32],
                cross(pool, pool),
                lambda a, b, t=target: cut(clamp(value(a, "s32"), t), 16) << 16
                | cut(clamp(value(b, "s32"), t), 16),
            )
    for target in ("u8", "s8", "u4", "s4", "u2", "s2"):
        bits = width(target)
        name = f"cvt.pack.sat.{target}.s32.b32"
        yield Case(
            name,
            f"{name} %d, %a, %b, %c;",
            [32] * 3,
            [32],
            cross(pool, pool, [0, 0x12345678, 0xFFFFFFFF]),
            lambda a, b, c, t=target, n=bits: cut(
                c << 2 * n
                | cut(clamp(value(a, "s32"), t), n) << n
                | cut(clamp(value(b, "s32"), t), n),
                32,
            ),
        )


def families():
    return [
        ("integer_conversions", list(integers())),
        ("int_to_float", list(to_float())),
        ("float_to_int", list(from_float())),
        ("float_to_float", list(between_floats())),
        ("narrow_floats", list(narrow())),
    ]
