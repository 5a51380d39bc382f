# SPDX-License-Identifier: Apache-2.0
"""Textures and surfaces, from the appendix "Texture Fetching" of the CUDA programming guide. By its
address mode an image is a function of all integers. A linear filter weighs with eight bits of
fraction. The guide does not say how a weight is rounded, so any value between both ways is
right. These are as measured on hardware: the weights of corners, which are products, have eight
bits too; filters of normalised integers; borders in their formats; integer coordinates outside."""

import itertools
import random
from fractions import Fraction
from math import floor

import formats
from cases import ANY, Case, between, cross
from formats import F16, F32

WRAP, CLAMP, MIRROR, BORDER = range(4)
TEXELS = {
    "u8": (1, 8),
    "u16": (2, 16),
    "u32": (3, 32),
    "s8": (8, 8),
    "s16": (9, 16),
    "s32": (10, 32),
}
TEXELS |= {"f16": (16, 16), "f32": (32, 32)}  # CUarray_format, bits
AXES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2, "cube": 2, "linear": 1, "pitch": 2}
ONE_HALF = Fraction(1, 2)


class Image:
    """Texels are bit patterns by (z, y, x, channel); z is a slice, a layer or a face."""

    def __init__(
        self,
        shape,
        texel,
        channels,
        size,
        edge=CLAMP,
        linear=False,
        normalized=False,
        raw=False,
        surface=False,
    ):
        self.shape, self.texel, self.channels, self.size = shape, texel, channels, size
        self.edge, self.linear, self.normalized, self.raw, self.surface = (
            edge,
            linear,
            normalized,
            raw,
            surface,
        )
        self.border = [Fraction(1, 4), Fraction(3), Fraction(-2), Fraction(1, 2)]
        if self.unsigned_norm():
            self.border[1:] = [Fraction(1), Fraction(0), Fraction(3, 4)]
        dice = random.Random(f"{shape} {texel} {channels} {size}")
        width, height, depth = (max(n, 1) for n in size)
        places = itertools.product(range(depth), range(height), range(width), range(channels))
        self.data = {place: self.draw(dice) for place in places}

    def draw(self, dice):
        if self.texel == "f32":
            return F32.encode(formats.number(Fraction(dice.randrange(-64, 64), 4)))
        if self.texel == "f16":
            return F16.encode(formats.number(Fraction(dice.randrange(-64, 64), 4)))
        return dice.getrandbits(self.bits)

    @property
    def bits(self):
        return TEXELS[self.texel][1]

    def line(self):
        """What ptx_cases reads."""
        flags = (1 if self.raw else 0) | (2 if self.normalized else 0)
        border = " ".join(f"{F32.encode(formats.number(b)):x}" for b in self.border)
        values = b"".join(
            v.to_bytes(self.bits // 8, "little") for _, v in sorted(self.data.items())
        )
        what = "surface" if self.surface else "texture"
        size = " ".join(map(str, self.size))
        return (
            f"image {what} {self.shape} {TEXELS[self.texel][0]} {self.channels} {size} {flags}"
            f" {int(self.linear)} {self.edge} {border} {values.hex()}\n"
        )

    def is_number(self):
        return self.texel[0] == "f" or (self.bits < 32 and not self.raw)

    def unsigned_norm(self):
        return self.is_number() and self.texel[0] == "u"

    def beyond(self, c):
        """The border's channel, as a texel would hold it."""
        if not self.unsigned_norm():
            return self.border[c]
        top = (1 << self.bits) - 1
        return Fraction(formats.round_integer(self.border[c] * top, formats.NEAREST), top)

    def channel(self, place, c):
        """A number, or an integer's bits widened to 32."""
        v = self.data[place + (c,)]
        if self.texel in ("f16", "f32"):
            return (F16 if self.texel == "f16" else F32).decode(v).q
        signed = v - (1 << self.bits) if self.texel[0] == "s" and v >> self.bits - 1 else v
        if not self.is_number():
            return signed & 0xFFFFFFFF
        top = (1 << self.bits - (self.texel[0] == "s")) - 1
        return max(Fraction(signed, top), Fraction(-1))

    def address(self, i, n):
        """The texel that stands for position i of an axis with n, or None for the border."""
        if 0 <= i < n:
            return i
        edge = CLAMP if self.edge in (WRAP, MIRROR) and not self.normalized else self.edge
        if self.shape == "cube":
            edge = CLAMP
        if self.shape == "linear" or edge == BORDER:
            return None
        if edge == CLAMP:
            return 0 if i < 0 else n - 1
        u = Fraction(2 * i + 1, 2 * n)  # the middle of the texel
        whole = floor(u)
        u = u - whole if edge == WRAP or whole % 2 == 0 else 1 - (u - whole)
        return floor(u * n)

    def at(self, x, y, z, c):
        width, height = max(self.size[0], 1), max(self.size[1], 1)
        place = (z, self.address(y, height), self.address(x, width))
        if self.shape == "3d":
            place = (self.address(z, self.size[2]),) + place[1:]
        if None in place:
            return Fraction(0) if self.shape == "linear" else self.beyond(c)
        return self.channel(place, c)

    def positions(self, coordinates):
        """Coordinates in texels."""
        sizes = [max(n, 1) for n in self.size]
        return [Fraction(v) * (n if self.normalized else 1) for v, n in zip(coordinates, sizes)]

    def sample(self, coordinates, layer=0):
        """Four expected patterns."""
        axes = AXES[self.shape]
        positions = self.positions(coordinates)[:axes]
        out = []
        for c in range(4):
            if c >= self.channels:
                out.append(ANY)
            elif self.linear and self.is_number():
                out.append(around(self.filtered(positions, layer, c)))
            else:
                x, y, z = ([floor(p) for p in positions] + [0, 0])[:3]
                v = self.at(x, y, z if self.shape == "3d" else layer, c)
                out.append(around([v]) if self.is_number() else int(v))
        return tuple(out)

    def fetch(self, *at):
        """Four expected patterns at integer coordinates. Outside there is nothing, whatever the
        address mode."""
        inside = all(0 <= i < max(n, 1) for i, n in zip(at, self.size))
        return (
            self.sample(at) if inside else tuple(0 if c < self.channels else ANY for c in range(4))
        )

    def filtered(self, positions, layer, c):
        """Every value that some rounding of the weights gives at the extremes. An image of one axis
        is filtered as a row of a flat one, at y = 0: half of the result comes from over the
        edge."""
        ways = []
        positions = positions + [Fraction(0)] * (self.shape == "1d")
        for p in positions:
            p -= ONE_HALF
            ways.append([(floor(p), w) for w in both_ways((p - floor(p)) * 256)])
        values = []
        for way in itertools.product(*ways):
            for corners in shared([((), 256)], list(way)):
                total = Fraction(0)
                for at, weight in corners:
                    if weight:
                        x, y, z = (list(at) + [0, 0])[:3]
                        total += Fraction(weight, 256) * self.at(
                            x, y, z if self.shape == "3d" else layer, c
                        )
                values.extend(self.whole(total))
        return values

    def whole(self, total):
        """A filter turns unsigned normalised integers into whole 65535ths. Which way a half goes is
        not known."""
        if not self.unsigned_norm():
            return [total]
        exact = total * 65535
        return {
            Fraction(formats.round_integer(exact, mode), 65535)
            for mode in (formats.NEAREST, formats.AWAY)
        }


def both_ways(exact):
    return {floor(exact), -floor(-exact)}


def shared(corners, axes):
    """Every way to divide the weights of `corners` (place, 256ths) between both sides of each axis
    in whole 256ths."""
    if not axes:
        return [corners]
    (low, weight), *rest = axes
    ways = [[]]
    for at, whole in corners:
        parts = both_ways(Fraction(whole * weight, 256))
        ways = [
            way + [(at + (low,), whole - part), (at + (low + 1,), part)]
            for way in ways
            for part in parts
        ]
    return [end for way in ways for end in shared(way, rest)]


def around(values):
    """Accepts what lies between the values, and a small error of the filter's arithmetic."""
    low, high = min(values), max(values)
    slack = (
        max(abs(low), abs(high)) / (1 << 20)
        if len(values) > 1 or low.denominator & low.denominator - 1
        else 0
    )
    slack = max(slack, Fraction(1, 1 << 20)) if slack else 0
    low, high = (F32.encode(formats.number(v)) for v in (low - slack, high + slack))
    return low if low == high else between(low, high)


def floats(values):
    return [F32.encode(formats.number(Fraction(v))) for v in values]


def back(patterns):
    return [F32.decode(p).q for p in patterns]


def texture(name, image, geometry, coordinates, rows, model, ctype="f32"):
    """`coordinates` is the operand's text with %a, %b ..."""
    dtype = "f32" if image.is_number() else "s32" if image.texel[0] == "s" else "u32"
    return Case(
        name,
        f"tex.{geometry}.v4.{dtype}.{ctype} {{%d, %f, %g, %h}}, [%image, {{{coordinates}}}];",
        [32] * len(rows[0]),
        [32] * 4,
        rows,
        model,
        float_bits=32,
        image=image,
    )


# In texels of an image five wide: the middle of a texel, its edge, between two, and outside.
PLACES = ["1/2", "0", "1/4", "3/4", "1", "5/2", "15/4", "9/2", "19/4", "5"]
PLACES += ["-1/4", "-3/2", "23/4", "29/2", "-9", "1000000", "1/3"]


def point_formats():
    for texel in TEXELS:
        for channels in (1, 2, 4):
            for raw in (False, True):
                if raw and (texel[0] == "f" or texel in ("u32", "s32")):
                    continue
                image = Image("2d", texel, channels, (5, 3, 0), raw=raw)
                rows = cross(floats([0, "5/2", "19/4"]), floats(["1/4", "2"]))
                name = f"tex_2d_{texel}x{channels}{'_raw' if raw else ''}"
                yield texture(
                    name, image, "2d", "%a, %b", rows, lambda x, y, i=image: i.sample(back((x, y)))
                )


def edges():
    for edge, normalized, linear in itertools.product(range(4), (False, True), (False, True)):
        name = (
            ("wrap", "clamp", "mirror", "border")[edge]
            + normalized * "_normalized"
            + linear * "_linear"
        )
        # Eight texels, so that a coordinate from 0 to 1 is exact.
        width = 8 if normalized else 5
        places = floats(
            Fraction(p) / (8 if normalized else 1) for p in PLACES if p != "1/3" or not normalized
        )
        one = Image("1d", "f32", 1, (width, 0, 0), edge, linear, normalized)
        yield texture(
            f"tex_1d_{name}",
            one,
            "1d",
            "%a",
            [(p,) for p in places],
            lambda x, i=one: i.sample(back((x,))),
        )
        two = Image("2d", "u8", 4, (width, 4, 0), edge, linear, normalized)
        some = floats(
            Fraction(p) / (4 if normalized else 1) for p in ("1/2", "0", "9/4", "-1", "17/4")
        )
        yield texture(
            f"tex_2d_{name}",
            two,
            "2d",
            "%a, %b",
            cross(places, some),
            lambda x, y, i=two: i.sample(back((x, y))),
        )
        three = Image("3d", "f16", 2, (width, 4, 2), edge, linear, normalized)
        depth = floats(Fraction(p) / (2 if normalized else 1) for p in ("1/2", "5/4", "-1/2", "2"))
        yield texture(
            f"tex_3d_{name}",
            three,
            "3d",
            "%a, %b, %c, %c",
            cross(places[:10], some[:3], depth),
            lambda x, y, z, i=three: i.sample(back((x, y, z))),
        )


def layers():
    for linear in (False, True):
        how = "_linear" if linear else ""
        image = Image("a1d", "f32", 2, (5, 0, 3), linear=linear)
        rows = cross([0, 1, 2, 7], floats(PLACES[:8]))
        yield texture(
            f"tex_a1d{how}",
            image,
            "a1d",
            "%a, %b",
            rows,
            lambda n, x, i=image: i.sample(back((x,)), min(n, 2)),
        )
        image = Image("a2d", "u16", 1, (5, 4, 2), linear=linear)
        rows = cross([0, 1, 5], floats(PLACES[:8]), floats(["1/2", "9/4"]))
        yield texture(
            f"tex_a2d{how}",
            image,
            "a2d",
            "%a, %b, %c, %c",
            rows,
            lambda n, x, y, i=image: i.sample(back((x, y)), min(n, 1)),
        )


# Directions whose quotients are exact, and the face and place that the guide's table gives them.
CUBE = {
    (2, 1, "1/2"): (0, "3/8", "1/4"),
    (-2, 1, "1/2"): (1, "5/8", "1/4"),
    (1, 2, "1/2"): (2, "3/4", "5/8"),
    (1, -2, "1/2"): (3, "3/4", "3/8"),
    (1, "1/2", 2): (4, "3/4", "3/8"),
    (1, "1/2", -2): (5, "1/4", "3/8"),
    ("-1/2", "3/2", 2): (4, "3/8", "1/8"),
}


def cubes():
    image = Image("cube", "f32", 1, (4, 4, 6), normalized=True)

    def look(*direction):
        for given, (face, u, v) in CUBE.items():
            if back(direction) == [Fraction(g) for g in given]:
                return image.sample((Fraction(u), Fraction(v)), face)
        raise AssertionError

    yield texture(
        "tex_cube", image, "cube", "%a, %b, %c, %c", [tuple(floats(d)) for d in CUBE], look
    )


def fetches():
    """Integer coordinates, and memory instead of arrays."""

    inside = [0, 1, 4, 3]
    for shape, geometry, size, text in (
        ("linear", "1d", (40, 0, 0), "%a"),
        ("pitch", "2d", (5, 4, 0), "%a, %b"),
    ):
        image = Image(shape, "f32", 1, size)
        rows = (
            [(v,) for v in inside + [39, 40, 1000]] if shape == "linear" else cross(inside, [0, 3])
        )
        yield texture(f"tex_{shape}", image, geometry, text, rows, image.fetch, ctype="s32")
    image = Image("2d", "s16", 2, (5, 4, 0), raw=True)
    yield texture(
        "tex_2d_integer",
        image,
        "2d",
        "%a, %b",
        cross(inside + [9], [0, 3]),
        image.fetch,
        ctype="s32",
    )
    image = Image("pitch", "f32", 1, (5, 4, 0), linear=True)
    rows = cross(floats(PLACES[:10]), floats(["1/2", "5/4"]))
    yield texture(
        "tex_pitch_linear",
        image,
        "2d",
        "%a, %b",
        rows,
        lambda x, y, i=image: i.sample(back((x, y))),
    )


def gathers():
    image = Image("2d", "f32", 4, (5, 4, 0))
    for c, letter in enumerate("rgba"):

        def model(x, y, c=c):
            left, top = (floor(v - ONE_HALF) for v in back((x, y)))
            corners = ((left, top + 1), (left + 1, top + 1), (left + 1, top), (left, top))
            return tuple(around([image.at(i, j, 0, c)]) for i, j in corners)

        yield Case(
            f"tld4_{letter}",
            f"tld4.{letter}.2d.v4.f32.f32 {{%d, %f, %g, %h}}, [%image, {{%a, %b}}];",
            [32, 32],
            [32] * 4,
            cross(floats(["1", "5/4", "3", "19/4"]), floats(["1", "7/4", "15/4"])),
            model,
            float_bits=32,
            image=image,
        )


def surface_word(image, x, y, z, size, beyond):
    """The value of `size` bytes at byte x of a row."""
    places = itertools.product(range(image.size[0]), range(image.channels))
    row = b"".join(image.data[z, y, i, c].to_bytes(image.bits // 8, "little") for i, c in places)
    if not 0 <= x < len(row):
        if beyond == "zero":
            return 0
        x = 0 if x < 0 else len(row) - size
    return int.from_bytes(row[x : x + size], "little")


def signed(v):
    return v - (1 << 32) if v >> 31 else v


def surfaces():
    shapes = (
        ("1d", (8, 0, 0), "{%a}"),
        ("2d", (8, 3, 0), "{%a, %b}"),
        ("3d", (8, 3, 2), "{%a, %b, %c, %c}"),
    )
    shapes += (("a2d", (8, 3, 2), "{%c, %a, %b, %b}"), ("a1d", (8, 0, 3), "{%c, %a}"))
    for (shape, size, text), bits, beyond in itertools.product(
        shapes, (8, 16, 32, 64), ("clamp", "zero")
    ):
        image = Image(shape, "u16", 4, size, surface=True)
        columns = [v & 0xFFFFFFFF for v in (0, bits // 8, 64 - bits // 8, 64, 640, -(bits // 8))]
        rows = cross(columns, range(max(size[1], 1)), range(max(size[2], 1)))

        def model(x, y, z, i=image, n=bits // 8, b=beyond):
            return surface_word(i, signed(x), y, z, n, b)

        wide = max(bits, 16)
        yield Case(
            f"suld_{shape}_b{bits}_{beyond}",
            f"suld.b.{shape}.b{bits}.{beyond} %d, [%image, {text}];",
            [32] * 3,
            [wide],
            rows,
            model,
            image=image,
        )
    yield from surface_stores()


def surface_stores():
    """Each thread writes its own place and reads it back. A place outside keeps nothing."""
    image = Image("2d", "u32", 4, (16, 4, 0), surface=True)
    rows = [
        (16 * x, y, 0x9E3779B9 * (x + 16 * y) & 0xFFFFFFFF) for y in range(4) for x in range(16)
    ]
    rows += [(256 + 16 * x, 0, 7) for x in range(4)]
    for n in (1, 2, 4):
        registers = ["%c", "%a", "%c", "%a"][:n]
        read = ["%d", "%f", "%g", "%h"][:n]
        vector = "" if n == 1 else f".v{n}"

        def model(x, y, v, n=n):
            return ((v, x, v, x) if x < 256 else (0, 0, 0, 0))[:n]

        yield Case(
            f"sust_2d_v{n}",
            f"sust.b.2d{vector}.b32.zero [%image, {{%a, %b}}], {{{', '.join(registers)}}};"
            f" suld.b.2d{vector}.b32.zero {{{', '.join(read)}}}, [%image, {{%a, %b}}];",
            [32] * 3,
            [32] * n,
            rows,
            model,
            image=image,
        )


def queries():
    image = Image("3d", "f32", 1, (5, 4, 3))
    for query, value in (("width", 5), ("height", 4), ("depth", 3)):
        yield Case(
            f"txq_{query}",
            f"txq.{query}.b32 %d, [%image];",
            [32],
            [32],
            [(0,)],
            lambda a, v=value: v,
            image=image,
        )


def families():
    parts = (point_formats, edges, layers, cubes, fetches, gathers, surfaces, queries)
    yield "images", [case for part in parts for case in part()]
