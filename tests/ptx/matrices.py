# SPDX-License-Identifier: Apache-2.0
"""Matrix instructions: mma with the fragment layouts of the ISA's tables, wmma end to end (its
fragments are opaque), ldmatrix, stmatrix and movmatrix. Elements are small integers and simple
fractions, so that every order and width of summing agrees."""

import random
from fractions import Fraction

import formats
from cases import Case
from formats import BF16, E4M3, E5M2, F16, F32, F64
from integers import cut

FLOATS = {"f16": F16, "bf16": BF16, "tf32": F32, "f32": F32, "f64": F64, "e4m3": E4M3, "e5m2": E5M2}
WARPS = 6


def bits_of(t):
    return {"tf32": 32, "s8": 8, "u8": 8, "s32": 32}.get(t) or FLOATS[t].bits


def encode(t, v):
    return FLOATS[t].encode(formats.number(v)) if t in FLOATS else cut(int(v), bits_of(t))


def small(dice, t):
    if t in ("s8", "s32"):
        return (
            dice.choice([-128, 127, -1, 0, 1, 5, -77]) if t == "s8" else dice.randint(-1000, 1000)
        )
    if t == "u8":
        return dice.choice([0, 1, 255, 128, 7])
    return Fraction(dice.randint(-8, 8), dice.choice([1, 2, 4]))


def matrix(dice, rows, columns, t):
    return [[small(dice, t) for _ in range(columns)] for _ in range(rows)]


def multiply(a, b, c):
    return [
        [c[i][j] + sum(a[i][k] * b[k][j] for k in range(len(b))) for j in range(len(b[0]))]
        for i in range(len(a))
    ]


def pack(values, t):
    """Elements of one lane into registers, the first lowest."""
    bits = bits_of(t)
    per = 1 if bits == 64 else 32 // bits
    return [
        sum(encode(t, v) << bits * i for i, v in enumerate(values[k : k + per]))
        for k in range(0, len(values), per)
    ]


def a_cells(lane, m, k, per):
    """Rows and columns of a lane's elements of A. Groups of four lanes share a row. Registers
    alternate between the upper and lower eight rows, then move right (PTX ISA, matrix fragments
    for mma.m16n8k*)."""
    group, place = lane // 4, lane % 4
    for r in range(m * k // 32 // per):
        row = group + (8 * (r % 2) if m == 16 else 0)
        column = place * per + 4 * per * (r // 2 if m == 16 else r)
        for i in range(per):
            yield row, column + i


def b_cells(lane, k, per):
    for r in range(k * 8 // 32 // per):
        for i in range(per):
            yield lane % 4 * per + 4 * per * r + i, lane // 4


def c_cells(lane, m):
    for i in range(m * 8 // 32):
        yield lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2


MMA = [
    ("m16n8k8", "f16", "f16", "f16"),
    ("m16n8k8", "f32", "f16", "f16"),
    ("m16n8k16", "f16", "f16", "f16"),
    ("m16n8k16", "f32", "f16", "f16"),
    ("m16n8k8", "f32", "bf16", "bf16"),
    ("m16n8k16", "f32", "bf16", "bf16"),
    ("m16n8k4", "f32", "tf32", "tf32"),
    ("m16n8k8", "f32", "tf32", "tf32"),
    ("m8n8k4", "f64", "f64", "f64"),
    ("m16n8k4", "f64", "f64", "f64"),
    ("m16n8k8", "f64", "f64", "f64"),
    ("m16n8k16", "f64", "f64", "f64"),
    ("m8n8k16", "s32", "s8", "s8"),
    ("m8n8k16", "s32", "u8", "s8"),
    ("m16n8k16", "s32", "s8", "u8"),
    ("m16n8k16", "s32", "u8", "u8"),
    ("m16n8k32", "s32", "s8", "s8"),
    ("m16n8k32", "s32", "u8", "s8"),
    ("m16n8k32", "f32", "e4m3", "e4m3"),
    ("m16n8k32", "f32", "e5m2", "e4m3"),
]


def shape_of(name):
    m, rest = name[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def names(kind, first, count):
    return "{" + ", ".join(f"%{kind}{first + i}" for i in range(count)) + "}"


def mma():
    for shape, d, a, b in MMA:
        m, n, k = shape_of(shape)
        dice = random.Random(shape + d + a + b)
        per_a, per_b = (1 if bits_of(t) == 64 else 32 // bits_of(t) for t in (a, b))
        rows, expected = [], []
        for _ in range(WARPS):
            ma, mb, mc = matrix(dice, m, k, a), matrix(dice, k, n, b), matrix(dice, m, n, d)
            md = multiply(ma, mb, mc)
            for lane in range(32):
                ra = pack([ma[i][j] for i, j in a_cells(lane, m, k, per_a)], a)
                rb = pack([mb[i][j] for i, j in b_cells(lane, k, per_b)], b)
                rc = pack([mc[i][j] for i, j in c_cells(lane, m)], d)
                rows.append((*ra, *rb, *rc))
                expected.append(tuple(pack([md[i][j] for i, j in c_cells(lane, m)], d)))
        wa, wb, wd = (64 if t == "f64" else 32 for t in (a, b, d))
        na, nb, nd = len(ra), len(rb), len(rc)
        text = (
            f"mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{d} {names('o', 0, nd)},"
            f" {names('i', 0, na)}, {names('i', na, nb)}, {names('i', na + nb, nd)};"
        )
        case = Case(
            f"mma.{shape}.{d}.{a}.{b}", text, [wa] * na + [wb] * nb + [wd] * nd, [wd] * nd, rows
        )
        case.expected = expected
        yield case


WMMA = [
    ("m16n16k16", "f32", "f16"),
    ("m16n16k16", "f16", "f16"),
    ("m32n8k16", "f32", "f16"),
    ("m8n32k16", "f32", "f16"),
    ("m16n16k16", "f32", "bf16"),
    ("m8n32k16", "f32", "bf16"),
    ("m16n16k8", "f32", "tf32"),
    ("m16n16k16", "s32", "s8"),
    ("m32n8k16", "s32", "u8"),
    ("m8n8k4", "f64", "f64"),
]
# Registers of a fragment, from the ISA's table.
A_REGISTERS = {
    "f16": {"m16n16k16": (8, 8), "m32n8k16": (8, 8), "m8n32k16": (8, 8)},
    "bf16": {"m16n16k16": (4, 4), "m8n32k16": (2, 8)},
    "tf32": {"m16n16k8": (4, 4)},
    "s8": {"m16n16k16": (2, 2)},
    "u8": {"m32n8k16": (4, 1)},
    "f64": {"m8n8k4": (1, 1)},
}
D_REGISTERS = {"f32": 8, "f16": 4, "s32": 8, "f64": 2}


def words(values, t):
    """A matrix in memory order as 64-bit words, four lanes' worth at a time."""
    bits = bits_of(t)
    per = 64 // bits
    return [
        sum(encode(t, v) << bits * i for i, v in enumerate(values[k : k + per]))
        for k in range(0, len(values), per)
    ]


def flat(m, by_column, stride=None):
    lines = [list(line) for line in (zip(*m) if by_column else m)]
    return [v for line in lines for v in line + [0] * ((stride or len(line)) - len(line))]


def fill(array, values, first):
    """PTX that spreads 64-bit operands over an array: lane i holds words i, i + 32, ..."""
    return "".join(
        f"mov.u32 %r2, {array}; mad.lo.u32 %r2, %r3, 8, %r2; st.shared.b64 [%r2+{256 * k}],"
        f" %i{first + k}; "
        for k in range(values)
    )


def wmma():
    for shape, d, a in WMMA:
        for layout_a, layout_b in (
            (("row", "col"),) if a in ("tf32", "f64") else (("row", "col"), ("col", "row"))
        ):
            yield wmma_case(shape, d, a, layout_a, layout_b)


def wmma_text(shape, d, a, layout_a, layout_b, counts):
    """Operands to shared memory, from there into fragments, multiplied, stored by columns and read
    back."""
    m, n, k = shape_of(shape)
    na, nb = A_REGISTERS[a][shape]
    nd, wide = D_REGISTERS[d], "b64" if d == "f64" else "b32"
    register = "b64" if a == "f64" else "b32"
    operands = ", ".join(
        group(name, size) for name, size in (("d", nd), ("a", na), ("b", nb), ("c", nd))
    )
    parts = [
        fill("ma", counts[0], 0),
        fill("mb", counts[1], counts[0]),
        fill("mc", counts[2], counts[0] + counts[1]),
    ]
    parts += [
        "bar.warp.sync 0xffffffff; ",
        f"{{ .reg .{register} a<{na}>, b<{nb}>; .reg .{wide} c<{nd}>, d<{nd}>; ",
        load("a", layout_a, shape, a, na, "ma", m if layout_a == "col" else k),
        load("b", layout_b, shape, a, nb, "mb", k if layout_b == "col" else n),
        load("c", "row", shape, d, nd, "mc", n),
        f"wmma.mma.sync.aligned.{layout_a}.{layout_b}.{shape}{kinds(d, a)} {operands}; ",
        (
            f"mov.u32 %r2, mc; wmma.store.d.sync.aligned.col.{shape}.shared.{d} [%r2],"
            f" {group('d', nd)}, {m}; }} "
        ),
        "bar.warp.sync 0xffffffff; ",
    ]
    for i in range(counts[2]):
        parts.append(
            f"mov.u32 %r2, mc; mad.lo.u32 %r2, %r3, 8, %r2; ld.shared.b64 %o{i}, [%r2+{256 * i}]; "
        )
    return "".join(parts)


def wmma_case(shape, d, a, layout_a, layout_b):
    m, n, k = shape_of(shape)
    dice = random.Random(shape + d + a + layout_a)
    rows, expected = [], []
    for _ in range(WARPS):
        ma, mb, mc = matrix(dice, m, k, a), matrix(dice, k, n, a), matrix(dice, m, n, d)
        stored = [
            words(flat(ma, layout_a == "col"), a),
            words(flat(mb, layout_b == "col"), a),
            words(flat(mc, False), d),
        ]
        result = words(flat(multiply(ma, mb, mc), True), d)  # stored by columns
        counts = [max(1, (len(w) + 31) // 32) for w in stored]
        for lane in range(32):
            rows.append(
                tuple(
                    v
                    for w, c in zip(stored, counts)
                    for i in range(c)
                    for v in [w[lane + 32 * i] if lane + 32 * i < len(w) else 0]
                )
            )
            expected.append(
                tuple(
                    result[lane + 32 * i] if lane + 32 * i < len(result) else 0
                    for i in range(counts[2])
                )
            )
    text = wmma_text(shape, d, a, layout_a, layout_b, counts)
    declare = " ".join(
        f".shared .align 32 .b8 {name}[{256 * c}];" for name, c in zip(("ma", "mb", "mc"), counts)
    )
    case = Case(
        f"wmma.{shape}.{d}.{a}.{layout_a}.{layout_b}",
        "mov.u32 %r3, %laneid; " + text,
        [64] * sum(counts),
        [64] * counts[2],
        rows,
        declare=declare,
        block=32,
    )
    case.expected = expected
    return case


def group(name, count):
    return "{" + ", ".join(f"{name}{i}" for i in range(count)) + "}"


def load(role, layout, shape, t, count, array, stride):
    name = f"wmma.load.{role}.sync.aligned.{layout}.{shape}.shared.{t}"
    return f"mov.u32 %r2, {array}; {name} {group(role, count)}, [%r2], {stride}; "


def kinds(d, a):
    return f".{d}.{d}" if a == "f16" else f"{'.rn' if a == 'f64' else ''}.{d}.{a}.{a}.{d}"


def tiles():
    """Eight by eight halves between registers and shared memory."""
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            dice = random.Random(f"{count}{trans}")
            blocks = [
                [[[dice.getrandbits(16) for _ in range(8)] for _ in range(8)] for _ in range(count)]
                for _ in range(WARPS)
            ]

            def halves(tile, lane, trans=trans):
                cell = (lambda r, c: tile[c][r]) if trans else (lambda r, c: tile[r][c])
                return cell(lane // 4, lane % 4 * 2) | cell(lane // 4, lane % 4 * 2 + 1) << 16

            def row_words(tiles_, lane):
                """Lane i keeps row i % 8 of tile i / 8 as two words. Lanes without a row keep
                zeros."""
                if lane // 8 >= count:
                    return 0, 0
                line = tiles_[lane // 8][lane % 8]
                return (
                    sum(v << 16 * i for i, v in enumerate(line[:4])),
                    sum(v << 16 * i for i, v in enumerate(line[4:])),
                )

            memory = [row_words(b, lane) for b in blocks for lane in range(32)]
            registers = [tuple(halves(t, lane) for t in b) for b in blocks for lane in range(32)]
            place = "mov.u32 %r2, %laneid; mad.lo.u32 %r2, %r2, 16, %r3;"
            declare = ".shared .align 16 .b8 box[512];"
            load_case = Case(
                f"ldmatrix.x{count}{trans}",
                f"mov.u32 %r3, box; {place} st.shared.v2.b64 [%r2], {{%a, %b}};"
                f" bar.warp.sync 0xffffffff; ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
                f" {names('o', 0, count)}, [%r2];",
                [64, 64],
                [32] * count,
                memory,
                declare=declare,
                block=32,
            )
            load_case.expected = registers
            yield load_case
            store_case = Case(
                f"stmatrix.x{count}{trans}",
                f"mov.u32 %r3, box; {place} mov.b64 %d, 0; st.shared.v2.b64 [%r2], {{%d, %d}};"
                f" bar.warp.sync 0xffffffff; stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
                f" [%r2], {names('i', 0, count)};"
                " bar.warp.sync 0xffffffff; ld.shared.v2.b64 {%d, %f}, [%r2];",
                [32] * count,
                [64, 64],
                registers,
                declare=declare,
                block=32,
            )
            store_case.expected = memory
            yield store_case
    yield transposed_in_registers()


def transposed_in_registers():
    dice = random.Random("move")
    blocks = [[[dice.getrandbits(16) for _ in range(8)] for _ in range(8)] for _ in range(WARPS)]
    case = Case(
        "movmatrix",
        "movmatrix.sync.aligned.m8n8.trans.b16 %d, %a;",
        [32],
        [32],
        [
            (t[i // 4][i % 4 * 2] | t[i // 4][i % 4 * 2 + 1] << 16,)
            for t in blocks
            for i in range(32)
        ],
    )
    case.expected = [
        (t[i % 4 * 2][i // 4] | t[i % 4 * 2 + 1][i // 4] << 16,) for t in blocks for i in range(32)
    ]
    return case


def families():
    return [("mma", list(mma())), ("wmma", list(wmma())), ("matrix_tiles", list(tiles()))]
