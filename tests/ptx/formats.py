# SPDX-License-Identifier: Apache-2.0
"""Binary floating point formats in exact rational arithmetic: decode, encode with any rounding
direction, flush, saturate. The model behind every expected value of the table. It shares nothing
with the engine: no float arithmetic of the host decides a bit here."""

from fractions import Fraction

NEAREST, ZERO, DOWN, UP, AWAY = "rn", "rz", "rm", "rp", "rna"
MODES = (NEAREST, ZERO, DOWN, UP)


class Value:
    """A float without its format: NaN, an infinity or an exact rational. `negative` also signs
    zeros and infinities."""

    __slots__ = ("kind", "negative", "q")

    def __init__(self, kind, negative=False, q=Fraction(0)):
        self.kind, self.negative, self.q = kind, negative, q

    @property
    def nan(self):
        return self.kind == "nan"

    @property
    def infinite(self):
        return self.kind == "inf"

    @property
    def finite(self):
        return self.kind == "num"

    @property
    def zero(self):
        return self.kind == "num" and self.q == 0

    def order(self):
        """A key by which all values except NaN compare numerically. Both zeros are equal."""
        if self.infinite:
            return (-1 if self.negative else 1, Fraction(0))
        return (0, self.q)

    def __neg__(self):
        return Value(self.kind, not self.negative, -self.q)

    def __abs__(self):
        return Value(self.kind, False, abs(self.q))


NAN = Value("nan")


def number(q, negative_zero=False):
    q = Fraction(q)
    return Value("num", q < 0 or (q == 0 and negative_zero), q)


def infinity(negative=False):
    return Value("inf", negative)


def power(e):
    return Fraction(1 << e) if e >= 0 else Fraction(1, 1 << -e)


def round_integer(q, mode):
    """The integer next to the rational q in the given direction."""
    low = q.numerator // q.denominator
    rest = q - low
    if not rest:
        return low
    if mode == NEAREST:
        return low + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low & 1))
    if mode == AWAY:
        return low + (rest >= Fraction(1, 2) if q > 0 else rest > Fraction(1, 2))
    if mode == ZERO:
        return low + (q < 0)
    return low + (mode == UP)


class Format:
    """`nan` is the pattern of results. `infinities` False is the e4m3 family, which has a NaN and
    no infinity."""

    def __init__(self, name, exponent_bits, mantissa_bits, nan, infinities=True):
        self.name, self.exponent_bits, self.mantissa_bits, self.canonical = (
            name,
            exponent_bits,
            mantissa_bits,
            nan,
        )
        self.infinities = infinities
        self.bits = 1 + exponent_bits + mantissa_bits
        self.bias = (1 << exponent_bits - 1) - 1
        self.top = (1 << exponent_bits) - 1
        self.sign = 1 << self.bits - 1
        self.mask = (1 << mantissa_bits) - 1
        self.largest = (
            (self.top << mantissa_bits) - 1
            if infinities
            else (self.top << mantissa_bits | self.mask) - 1
        )

    def decode(self, b):
        e, m, negative = b >> self.mantissa_bits & self.top, b & self.mask, bool(b & self.sign)
        if self.infinities and e == self.top:
            return NAN if m else infinity(negative)
        if not self.infinities and e == self.top and m == self.mask:
            return NAN
        q = m * power(1 - self.bias - self.mantissa_bits)
        if e:
            q = (m | 1 << self.mantissa_bits) * power(e - self.bias - self.mantissa_bits)
        return Value("num", negative, -q if negative else q)

    def encode(self, v, mode=NEAREST, finite=False):
        """Bits of v rounded; `finite` keeps overflow at the largest number, as .satfinite does."""
        if v.nan:
            return self.canonical
        sign = self.sign if v.negative else 0
        limit = self.top << self.mantissa_bits if self.infinities else self.canonical
        if v.infinite:
            return sign | (self.largest if finite else limit)
        if v.q == 0:
            return sign
        magnitude = abs(v.q)
        e = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        if magnitude < power(e):
            e -= 1
        e = max(e, 1 - self.bias)
        scaled = magnitude / power(e - self.mantissa_bits)
        if mode in (DOWN, UP):
            mode = UP if (mode == UP) != v.negative else ZERO
        n = round_integer(scaled, mode)
        out = n + (e + self.bias - 1 << self.mantissa_bits)
        if out > self.largest:
            out = self.largest if finite or mode == ZERO else limit
        return sign | out

    def subnormal(self, b):
        return not b >> self.mantissa_bits & self.top and bool(b & self.mask)

    def flush(self, b):
        return b & self.sign if self.subnormal(b) else b

    def is_nan(self, b):
        return self.decode(b).nan

    def one(self):
        return self.bias << self.mantissa_bits


F16 = Format("f16", 5, 10, 0x7FFF)
BF16 = Format("bf16", 8, 7, 0x7FFF)
F32 = Format("f32", 8, 23, 0x7FFFFFFF)
F64 = Format("f64", 11, 52, 0x7FF8000000000000)
TF32 = Format("tf32", 8, 10, 0x3FFFF)
E4M3 = Format("e4m3", 4, 3, 0x7F, infinities=False)
E5M2 = Format("e5m2", 5, 2, 0x7F)


def add(a, b, mode=NEAREST):
    """The exact sum; an exact zero from unequal signs is -0 only when rounding down."""
    if a.nan or b.nan or (a.infinite and b.infinite and a.negative != b.negative):
        return NAN
    if a.infinite or b.infinite:
        return infinity(a.negative if a.infinite else b.negative)
    q = a.q + b.q
    if q == 0:
        same = a.negative == b.negative and a.zero and b.zero
        return number(0, a.negative if same else mode == DOWN)
    return number(q)


def multiply(a, b):
    negative = a.negative != b.negative
    if a.nan or b.nan or (a.infinite and b.zero) or (b.infinite and a.zero):
        return NAN
    if a.infinite or b.infinite:
        return infinity(negative)
    return number(a.q * b.q, negative)


def divide(a, b):
    negative = a.negative != b.negative
    if a.nan or b.nan or (a.infinite and b.infinite) or (a.zero and b.zero):
        return NAN
    if a.infinite or b.zero:
        return infinity(negative)
    if b.infinite:
        return number(0, negative)
    return number(a.q / b.q, negative)


def square_root(a, format_, mode):
    """Bits of the rounded root. Integers far below the last place bracket the root, which decides
    every rounding."""
    if a.nan or (a.negative and not a.zero):
        return format_.canonical
    if a.infinite or a.zero:
        return format_.encode(a)
    shift = 2 * (format_.mantissa_bits + format_.bias + 80)
    n = (a.q.numerator << shift) // a.q.denominator
    root = isqrt(n)
    exact = root * root == n and (a.q.numerator << shift) % a.q.denominator == 0
    q = Fraction(root, 1 << shift // 2)
    return format_.encode(number(q if exact else q + Fraction(1, 1 << shift // 2 + 1)), mode)


def isqrt(n):
    if n == 0:
        return 0
    x = 1 << (n.bit_length() + 1) // 2
    while True:
        y = (x + n // x) // 2
        if y >= x:
            return x
        x = y


def least(a, b, nan_wins=False, larger=False):
    """min (or max) of two values: numbers win over NaN unless .NaN; -0 is below +0."""
    if a.nan or b.nan:
        return NAN if nan_wins or (a.nan and b.nan) else b if a.nan else a
    ka, kb = (a.order(), not a.negative), (b.order(), not b.negative)
    return (a if ka >= kb else b) if larger else (a if ka <= kb else b)


def compare(relation, a, b):
    """One of the fourteen float relations."""
    if relation in ("num", "nan"):
        return (a.nan or b.nan) == (relation == "nan")
    if a.nan or b.nan:
        return relation.endswith("u") and relation != "u"
    x, y = a.order(), b.order()
    name = relation[:2]
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[name]


FLOAT_RELATIONS = (
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "equ",
    "neu",
    "ltu",
    "leu",
    "gtu",
    "geu",
    "num",
    "nan",
)
