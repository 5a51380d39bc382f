# SPDX-License-Identifier: Apache-2.0
"""The table's building blocks: operand pools, one case (an instruction, its operands, what must
come out), and the file that tests/programs/ptx_cases.cc reads. A case is a kernel in which thread i
works on row i, so warp-wide instructions fit as well: 32 rows are a warp."""

import itertools
import re

HEADER = ".version 8.4\n.target sm_90\n.address_size 64\n"
BLOCK = 64

# Extremes first, then ordinary values. Shift counts and bit positions go beyond every width.
INTEGERS = {
    8: [0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF, 0x5A],
    16: [0, 1, 2, 7, 0x5A, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF, 0xCDEF],
    32: [
        0,
        1,
        2,
        7,
        100,
        0x7FFF,
        0x10000,
        0x7FFFFFFE,
        0x7FFFFFFF,
        0x80000000,
        0x80000001,
        0xFFFFFFFE,
        0xFFFFFFFF,
        0x89ABCDEF,
        0x00800000,
        0x12345678,
    ],
    64: [
        0,
        1,
        2,
        100,
        0x7FFFFFFF,
        0x80000000,
        0xFFFFFFFF,
        0x100000000,
        0x7FFFFFFFFFFFFFFE,
        0x7FFFFFFFFFFFFFFF,
        0x8000000000000000,
        0x8000000000000001,
        0xFFFFFFFFFFFFFFFE,
        0xFFFFFFFFFFFFFFFF,
        0x0123456789ABCDEF,
    ],
}
COUNTS = [0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200, 255, 256, 0x80000000, 0xFFFFFFFF]
F32S = [
    0,
    0x80000000,
    0x3F800000,
    0xBFC00000,
    0x40490FDB,
    0x00000001,
    0x80000001,
    0x007FFFFF,
    0x807FFFFF,
    0x00800000,
    0x80800001,
    0x7F7FFFFF,
    0xFF7FFFFF,
    0x7F800000,
    0xFF800000,
    0x7FC00000,
    0xFFC00001,
    0x7F800001,
    0x4B800001,
    0x3EAAAAAB,
    0xCF000000,
    0x3F800001,
    0x34000000,
    0x5F000000,
    0x3F7FFFFF,
    0x1E000000,
]
F32_FEW = [
    0,
    0x80000000,
    0x3F800000,
    0xBF800001,
    0x00000001,
    0x807FFFFF,
    0x00800000,
    0x7F7FFFFF,
    0xFF800000,
    0x7FC00000,
    0x7F800000,
    0x34000001,
]
F64S = [
    0,
    1 << 63,
    0x3FF0000000000000,
    0xBFF8000000000000,
    0x400921FB54442D18,
    1,
    0x800FFFFFFFFFFFFF,
    0x0010000000000000,
    0x7FEFFFFFFFFFFFFF,
    0xFFEFFFFFFFFFFFFF,
    0x7FF0000000000000,
    0xFFF0000000000000,
    0x7FF8000000000000,
    0x3FF0000000000001,
    0x3CA0000000000000,
    0x4340000000000001,
    0x3FB999999999999A,
    0xC1F0000000080000,
    0x47EFFFFFF0000001,
    0x3690000000000000,
    0x380FFFFFF0000000,
]
F64_FEW = F64S[:15:2] + [0x3FF0000000000001, 0xFFF0000000000000, 0xFFEFFFFFFFFFFFFF]
F16S = [
    0,
    0x8000,
    0x3C00,
    0xBE00,
    0x0001,
    0x83FF,
    0x0400,
    0x7BFF,
    0xFBFF,
    0x7C00,
    0xFC00,
    0x7E00,
    0xFE01,
    0x3555,
    0x4248,
    0x1400,
    0x3C01,
    0x6400,
]
BF16S = [
    0,
    0x8000,
    0x3F80,
    0xBFC0,
    0x0001,
    0x807F,
    0x0080,
    0x7F7F,
    0xFF7F,
    0x7F80,
    0xFF80,
    0x7FC0,
    0xFFC1,
    0x3EAB,
    0x4049,
    0x3300,
    0x3F81,
    0x4B00,
]

NAN = "nan"  # any NaN will do
ANY = "-"  # the ISA leaves it open


def between(low, high):
    """Accepts a float of the case's width in an interval that is given by bit patterns, both ends
    included."""
    return f"{low:x}:{high:x}"


class Case:
    """`text` uses %d (and %f, %g, %h) for results and %a %b %c %e for operands, or %i0... and
    %o0... for more. rows: tuples of operands. model(row) -> one expected value or a tuple of
    them. warp_model(list of 32 rows) -> list of them. An image (images.py) goes with the case
    and is %image in the text."""

    def __init__(
        self,
        name,
        text,
        ins,
        outs,
        rows,
        model=None,
        warp_model=None,
        declare="",
        float_bits=0,
        block=BLOCK,
        image=None,
    ):
        self.name, self.text, self.ins, self.outs = re.sub(r"\W+", "_", name), text, ins, outs
        self.rows, self.declare, self.float_bits, self.block = (
            list(rows),
            declare,
            float_bits,
            block,
        )
        self.image = image
        if warp_model:
            self.rows += [self.rows[-1]] * (-len(self.rows) % 32)
            self.expected = [
                e for i in range(0, len(self.rows), 32) for e in warp_model(self.rows[i : i + 32])
            ]
        else:
            self.expected = [model(*row) for row in self.rows] if model else []
        self.expected = [e if isinstance(e, tuple) else (e,) for e in self.expected]

    def kernel(self):
        body = self.text
        for name, register in zip("abce", ("%i0", "%i1", "%i2", "%i3")):
            body = re.sub(rf"%{name}\b", register, body)
        for name, register in zip("dfgh", ("%o0", "%o1", "%o2", "%o3")):
            body = re.sub(rf"%{name}\b", register, body)
        lines = [
            (
                f".visible .entry {self.name}"
                "(.param .u64 out, .param .u64 in, .param .u32 n, .param .u64 image) {"
            ),
            ".reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %q<4>;",
        ]
        lines += [f".reg .b{w} %i{k};" for k, w in enumerate(self.ins)]
        lines += [f".reg .b{w} %o{k};" for k, w in enumerate(self.outs)]
        lines += [
            self.declare,
            "ld.param.u64 %q0, [out]; ld.param.u64 %q1, [in]; ld.param.u32 %r0, [n];",
            (
                "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1,"
                " %r1, %r2, %r3;"
            ),
            "setp.ge.u32 %p0, %r1, %r0; @%p0 bra DONE;",
            (
                f"mad.wide.u32 %q1, %r1, {8 * len(self.ins)}, %q1; mad.wide.u32 %q0, %r1,"
                f" {8 * len(self.outs)}, %q0;"
            ),
        ]
        lines += [f"ld.global.b{w} %i{k}, [%q1+{8 * k}];" for k, w in enumerate(self.ins)]
        lines += [f"mov.b{w} %o{k}, 0;" for k, w in enumerate(self.outs)]
        if self.image:
            lines += [".reg .b64 %image; ld.param.u64 %image, [image];"]
        lines += [body]
        lines += [f"st.global.b{w} [%q0+{8 * k}], %o{k};" for k, w in enumerate(self.outs)]
        return "\n".join(line for line in lines if line) + "\nDONE: ret;\n}\n"


def cross(*pools):
    return list(itertools.product(*pools))


def by_predicate(text):
    """A body that turns the predicate %p1, set by `text`, into 0 or 1 in %d."""
    return f"{text} selp.b32 %d, 1, 0, %p1;"


def write(out, families):
    """families: (name, cases). Returns (cases, rows)."""
    cases = rows = 0
    for family, members in families:
        seen = set()
        out.write(f"module {family}\n{HEADER}")
        for case in members:
            while case.name in seen:
                case.name += "_"
            seen.add(case.name)
            out.write(case.kernel())
        out.write("end\n")
        for case in members:
            if case.image:
                out.write(case.image.line())
            out.write(
                f"case {case.name} {len(case.ins)} {len(case.outs)} {case.block} {case.float_bits}"
                f" {len(case.rows)} {' '.join(str(w) for w in case.outs)}\n"
            )
            for i, row in enumerate(case.rows):
                expected = case.expected[i] if case.expected else ()
                out.write(
                    " ".join(f"{v:x}" for v in row)
                    + " = "
                    + " ".join(e if isinstance(e, str) else f"{e:x}" for e in expected)
                    + "\n"
                )
            cases, rows = cases + 1, rows + len(case.rows)
    return cases, rows
