# SPDX-License-Identifier: Apache-2.0
"""Warp-wide instructions (shuffles, votes, matches, reductions), special registers, atomics and
memory widths. A model of a warp gets the 32 rows of its lanes and answers for all of them."""

import random

import formats
from cases import BF16S, F16S, F32_FEW, F64_FEW, INTEGERS, Case, cross
from floats import finish
from formats import BF16, F16, F32, F64
from integers import cut, signed, value, width

FULL = 0xFFFFFFFF


def lanes(seed, *kinds):
    """256 rows of random operands; each kind is a number of bits or a list to choose from."""
    dice = random.Random(seed)
    return [
        tuple(dice.choice(k) if isinstance(k, list) else dice.getrandbits(k) for k in kinds)
        for _ in range(256)
    ]


def shuffles():
    """Lane j per lane and whether it is in range, as the ISA's pseudo-code has it."""

    def source(mode, lane, b, c):
        b, clamp, segments = b & 31, c & 31, c >> 8 & 31
        top, bottom = lane & segments | clamp & ~segments, lane & segments
        j = {
            "up": lane - b,
            "down": lane + b,
            "bfly": lane ^ b,
            "idx": bottom | b & ~segments & 31,
        }[mode]
        inside = j >= top if mode == "up" else j <= top
        return (j if inside else lane), inside

    for mode in ("up", "down", "bfly", "idx"):
        name = f"shfl.sync.{mode}.b32"
        clamps = (
            [0, 0x1C00, 0x1000, 0x1800]
            if mode == "up"
            else [0x1F, 0x1C03 | 0x1C, 0x101F, 0x181F, 0x1F, 0x7]
        )
        rows = [
            row
            for c in clamps
            for row in lanes(mode + str(c), 32, [0, 1, 2, 3, 7, 16, 31, 33], [c])
        ]

        def model(warp, mode=mode):
            out = []
            for i, (_, b, c) in enumerate(warp):
                j, inside = source(mode, i, b, c)
                out.append((warp[j][0], int(inside)))
            return out

        yield Case(
            name,
            f"{name} %d|%p1, %a, %b, %c, 0xffffffff; selp.b32 %f, 1, 0, %p1;",
            [32] * 3,
            [32, 32],
            rows,
            warp_model=model,
        )


def votes():
    rows = lanes("vote", [0, 1, 1, 1]) + [(1,)] * 32 + [(0,)] * 32
    sets = {
        "all": lambda v: int(all(v)),
        "any": lambda v: int(any(v)),
        "uni": lambda v: int(all(v) or not any(v)),
        "ballot": lambda v: sum(1 << i for i, x in enumerate(v) if x),
    }
    for name, f in sets.items():

        def model(warp, f=f):
            return [f([r[0] for r in warp])] * 32

        where, after = ("%d", "") if name == "ballot" else ("%p2", "selp.b32 %d, 1, 0, %p2;")
        t = "b32" if name == "ballot" else "pred"
        yield Case(
            f"vote.sync.{name}",
            f"setp.ne.u32 %p1, %a, 0; vote.sync.{name}.{t} {where}, %p1, 0xffffffff; {after}",
            [32],
            [32],
            rows,
            warp_model=model,
        )
    # Halves of a warp that diverged vote among themselves.
    yield Case(
        "vote.ballot.diverged",
        "setp.ne.u32 %p1, %a, 0; and.b32 %r1, %b, 1; setp.eq.u32 %p2, %r1, 1; @%p2 bra ODD;"
        " vote.sync.ballot.b32 %d, %p1, 0x55555555; bra.uni OUT; ODD: vote.sync.ballot.b32 %d, %p1,"
        " 0xaaaaaaaa; OUT:",
        [32, 32],
        [32],
        [(r[0], i % 32) for i, r in enumerate(lanes("odd", [0, 1]))],
        warp_model=lambda warp: [
            sum(1 << i for i, r in enumerate(warp) if r[0] and i % 2 == k % 2) for k in range(32)
        ],
    )
    yield Case(
        "activemask",
        "setp.lt.u32 %p1, %a, 11; @!%p1 bra OUT; activemask.b32 %d; OUT: ",
        [32],
        [32],
        [(i % 32,) for i in range(64)],
        warp_model=lambda warp: [0x7FF if i < 11 else 0 for i in range(32)],
    )


def matches():
    for n in (32, 64):
        rows = lanes(f"match{n}", [0, 1, 2, (1 << n) - 1])
        same = [(5,)] * 32
        yield Case(
            f"match.any.sync.b{n}",
            f"match.any.sync.b{n} %d, %a, 0xffffffff;",
            [n],
            [32],
            rows + same,
            warp_model=lambda w: [
                sum(1 << j for j in range(32) if w[j] == w[i]) for i in range(32)
            ],
        )
        yield Case(
            f"match.all.sync.b{n}",
            f"match.all.sync.b{n} %d|%p1, %a, 0xffffffff; selp.b32 %f, 1, 0, %p1;",
            [n],
            [32, 32],
            rows + same,
            warp_model=lambda w: [(FULL, 1) if len(set(w)) == 1 else (0, 0)] * 32,
        )


def reductions():
    rows = lanes("redux", 32) + lanes("few", INTEGERS[32])
    folds = {"add": sum, "min": min, "max": max}
    for name, f in folds.items():
        for t in ("u32", "s32"):
            yield Case(
                f"redux.sync.{name}.{t}",
                f"redux.sync.{name}.{t} %d, %a, 0xffffffff;",
                [32],
                [32],
                rows,
                warp_model=lambda w, f=f, t=t: [cut(f([value(r[0], t) for r in w]), 32)] * 32,
            )

    def fold(f):
        def model(w):
            v = w[0][0]
            for r in w[1:]:
                v = f(v, r[0])
            return [v] * 32

        return model

    for name, f in (
        ("and", lambda x, y: x & y),
        ("or", lambda x, y: x | y),
        ("xor", lambda x, y: x ^ y),
    ):
        yield Case(
            f"redux.sync.{name}.b32",
            f"redux.sync.{name}.b32 %d, %a, 0xffffffff;",
            [32],
            [32],
            rows,
            warp_model=fold(f),
        )
    counts = {"popc": lambda v: sum(v), "and": lambda v: int(all(v)), "or": lambda v: int(any(v))}
    for name, f in counts.items():
        where, after = ("%d", "") if name == "popc" else ("%p2", "selp.b32 %d, 1, 0, %p2;")
        t = "u32" if name == "popc" else "pred"
        yield Case(
            f"barrier.red.{name}",
            f"setp.ne.u32 %p1, %a, 0; barrier.cta.red.{name}.{t} {where}, 0, %p1; {after}",
            [32],
            [32],
            rows[:224] + [(0,)] * 32 + [(1,)] * 64,
            warp_model=lambda w, f=f: [f([r[0] != 0 for r in w])] * 32,
            block=32,
        )


def specials():
    rows = [(i % 32,) for i in range(64)]
    for name, f in (
        ("laneid", lambda i: i),
        ("lanemask_eq", lambda i: 1 << i),
        ("lanemask_le", lambda i: (2 << i) - 1),
        ("lanemask_lt", lambda i: (1 << i) - 1),
        ("lanemask_ge", lambda i: cut(-(1 << i), 32)),
        ("lanemask_gt", lambda i: cut(-(2 << i), 32)),
        ("nwarpid", lambda i: 2),
    ):
        yield Case(
            name,
            (
                f"mov.u32 %d, %{name};"
                if name != "nwarpid"
                else "mov.u32 %d, %ntid.x; shr.u32 %d, %d, 5;"
            ),
            [32],
            [32],
            rows,
            warp_model=lambda w, f=f: [f(i) for i in range(32)],
        )
    declare = ".shared .align 8 .b8 box[8]; .local .align 8 .b8 mine[8];"
    text = (
        "cvta.shared.u64 %q2, box; isspacep.shared %p1, %q2; isspacep.global %p2, %q2; selp.b32 %d,"
        " 1, 0, %p1; selp.b32 %f, 1, 0, %p2; mov.u64 %q3, mine; cvta.local.u64 %q3, %q3;"
        " isspacep.local %p1, %q3; isspacep.global %p2, %q0; selp.b32 %g, 1, 0, %p1; selp.b32 %h,"
        " 1, 0, %p2; st.local.b32 [mine], %a; st.shared.b32 [box], %a;"
    )
    yield Case(
        "isspacep",
        text,
        [32],
        [32] * 4,
        rows,
        warp_model=lambda w: [(1, 0, 1, 1)] * 32,
        declare=declare,
    )
    yield Case(
        "mov.unpack.sink",
        "mov.b64 {%d, _}, %a; mov.b64 {_, %f}, %a;",
        [64],
        [32, 32],
        cross(INTEGERS[64]),
        lambda a: (cut(a, 32), a >> 32),
    )
    yield Case(
        "mov.pack.b16",
        "{ .reg .b16 x<4>; mov.b64 {x0, x1, x2, x3}, %a; mov.b64 %d, {x3, x0, x2, x1}; }",
        [64],
        [64],
        cross(INTEGERS[64]),
        lambda a: a >> 48 | (a & 0xFFFF) << 16 | a & 0xFFFF00000000 | (a >> 16 & 0xFFFF) << 48,
    )


def wrap_increment(old, b):
    return 0 if old >= b else old + 1


def wrap_decrement(old, b):
    return b if old == 0 or old > b else old - 1


def atomics():
    """Every row has its own cell: the old value comes back, and the new one is read afterwards."""

    def atom(name, t, f, bits, pool=None, values=1):
        pool = pool or INTEGERS[bits]
        registers = ", ".join(["%b", "%c"][:values])
        return Case(
            f"atom.{name}.{t}",
            f"st.global.b{bits} [%q0], %a; atom.global.{name}.{t} %f, [%q0], {registers};"
            f" ld.global.b{bits} %d, [%q0];",
            [bits] * (1 + values),
            [bits] * 2,
            (
                cross(pool, pool)
                if values == 1
                else [(a, b, c) for a, b, c in cross(pool[:6], pool[:6], pool[3:6])]
            ),
            lambda *v: (cut(f(*v), bits), v[0]),
            float_bits=bits,
        )

    for t in ("u32", "s32", "u64", "s64"):
        bits = width(t)
        if t != "s64":
            yield atom("add", t, lambda a, b: a + b, bits)
        yield atom("min", t, lambda a, b, t=t: min(value(a, t), value(b, t)), bits)
        yield atom("max", t, lambda a, b, t=t: max(value(a, t), value(b, t)), bits)
    yield atom("inc", "u32", wrap_increment, 32)
    yield atom("dec", "u32", wrap_decrement, 32)
    for bits in (32, 64):
        b = f"b{bits}"
        yield atom("and", b, lambda x, y: x & y, bits)
        yield atom("or", b, lambda x, y: x | y, bits)
        yield atom("xor", b, lambda x, y: x ^ y, bits)
        yield atom("exch", b, lambda x, y: y, bits)
        yield atom("cas", b, lambda x, y, z: z if x == y else x, bits, values=2)
    yield atom("cas", "b16", lambda x, y, z: z if x == y else x, 16, values=2)
    yield from float_atomics()
    # Whole warps on one cell: what comes back depends on the order, the sum does not.
    shared = ".shared .align 4 .b32 cell;"
    yield Case(
        "atom.shared.add.u32.warp",
        "st.shared.u32 [cell], 0; barrier.sync 0; atom.shared.add.u32 %r1, [cell], %a;"
        " barrier.sync 0; ld.shared.u32 %d, [cell];",
        [32],
        [32],
        lanes("sum", 32),
        block=32,
        declare=shared,
        warp_model=lambda w: [cut(sum(r[0] for r in w), 32)] * 32,
    )
    yield Case(
        "red.shared.max.s32.warp",
        "st.shared.u32 [cell], 0x80000000; barrier.sync 0; red.shared.max.s32 [cell], %a;"
        " barrier.sync 0; ld.shared.u32 %d, [cell];",
        [32],
        [32],
        lanes("max", 32),
        block=32,
        declare=shared,
        warp_model=lambda w: [cut(max(signed(r[0], 32) for r in w), 32)] * 32,
    )


def float_atomics():
    def add(t, format_, pool, extra="", parts=1):
        bits = format_.bits * parts
        one = [x for x in pool if not format_.is_nan(x)]
        rows = (
            cross(one, one)
            if parts == 1
            else [(a | b << 16, b | a << 16) for a, b in cross(one, one)]
        )

        def model(a, b):
            part, out = (1 << format_.bits) - 1, 0
            for k in range(0, bits, format_.bits):
                total = formats.add(format_.decode(a >> k & part), format_.decode(b >> k & part))
                out |= finish(total, format_) << k
            return out

        # f32 in global memory flushes subnormal results on some generations. Rows that would show
        # it are left out.
        rows = [r for r in rows if t != "f32" or not any(F32.subnormal(x) for x in (*r, model(*r)))]
        rows = [r for r in rows if not (format_ is F64 and F64.is_nan(model(*r)))]
        return Case(
            f"atom.add.{t}",
            f"st.global.b{bits} [%q0], %a; atom.global.add{extra}.{t} %f, [%q0], %b;"
            f" ld.global.b{bits} %d, [%q0];",
            [bits] * 2,
            [bits] * 2,
            rows,
            lambda a, b: (model(a, b), a),
        )

    yield add("f32", F32, F32_FEW)
    yield add("f64", F64, F64_FEW)
    yield add("f16", F16, F16S, ".noftz")
    yield add("bf16", BF16, BF16S, ".noftz")
    yield add("f16x2", F16, F16S, ".noftz", 2)
    yield add("bf16x2", BF16, BF16S, ".noftz", 2)


def memory():
    """Loads and stores of every width, extended or cut as the types say, and vectors."""
    pool = INTEGERS[64]
    for t in ("u8", "s8", "u16", "s16", "u32", "s32", "b64"):
        n = width(t)
        yield Case(
            f"ld.global.{t}",
            f"st.global.b64 [%q0], %a; ld.global.{t} %d, [%q0]; ld.global.{t} %f,"
            f" [%q0+{8 - n // 8}];",
            [64],
            [64, 64],
            cross(pool),
            lambda a, t=t, n=n: (cut(value(cut(a, n), t), 64), cut(value(a >> 64 - n, t), 64)),
        )
        if n < 64:
            yield Case(
                f"st.global.{t}",
                f"st.global.b64 [%q0], %a; st.global.{t} [%q0+{n // 8}], %b; ld.global.b64 %d,"
                " [%q0];",
                [64, 32],
                [64],
                cross(pool, INTEGERS[32]),
                lambda a, b, n=n: a & ~((1 << n) - 1 << n) | cut(b, n) << n,
            )
    for space, declare, place in (
        ("shared", ".shared .align 16 .b8 box[1024];", "%r1"),
        ("local", ".local .align 16 .b8 box[16];", ""),
    ):
        index = (
            "mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 4; mov.u32 %r2, box; add.u32 %r1, %r1, %r2;"
            if place
            else "mov.u32 %r1, box;"
        )
        yield Case(
            f"v4.{space}",
            f"{index} {{ .reg .b32 x<4>; mov.b64 {{x0, x1}}, %a; mov.b64 {{x2, x3}}, %b;"
            f" st.{space}.v4.b32 [%r1], {{x3, x2, x1, x0}}; ld.{space}.v2.b64 {{%d, %f}},"
            " [%r1]; }",
            [64, 64],
            [64, 64],
            cross(pool, pool),
            lambda a, b: (b >> 32 | (b & FULL) << 32, a >> 32 | (a & FULL) << 32),
            declare=declare,
        )
    yield Case(
        "cp.async",
        "mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 4; mov.u32 %r2, box; add.u32 %r1, %r1, %r2;"
        " cp.async.ca.shared.global [%r1], [%q1], 16, %c; cp.async.commit_group;"
        " cp.async.wait_group 0; ld.shared.v2.b64 {%d, %f}, [%r1];",
        [64, 64, 32, 32],
        [64, 64],
        cross(pool[:5], pool[5:], [0, 4, 8, 16], [0]),
        lambda a, b, n, _: (a if n >= 8 else cut(a, 8 * n), b if n == 16 else 0),
        declare=".shared .align 16 .b8 box[1024];",
    )


def mbarriers():
    """One mbarrier per thread, then one for a warp. States are opaque, so waits and counts are
    compared."""
    own = "mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 4; mov.u32 %r2, box; add.u32 %r1, %r1, %r2;"
    declare = ".shared .align 16 .b8 box[1024]; .reg .b64 %s<2>;"
    ask = " mbarrier.test_wait.shared.b64 %p1, [%r1], %s0; selp.b32 %d, 1, 0, %p1;"
    ask += " mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 0; selp.b32 %f, 1, 0, %p2;"
    ask += " mbarrier.pending_count.b64 %g, %s0;"
    rows = [(n, k) for n in (1, 2, 3, 32, 0xFFFFF) for k in (1, 2, 3, 31, 0xFFFFF) if k <= n]
    for name, arrive in (("arrive", "arrive"), ("arrive_release", "arrive.release.cta")):
        yield Case(
            f"mbarrier.{name}",
            f"{own} mbarrier.init.shared.b64 [%r1], %a; mbarrier.{arrive}.shared.b64 %s0,"
            " [%r1], %b;" + ask,
            [32, 32],
            [32, 32, 32],
            rows,
            lambda n, k: (int(n == k), int(n == k), n),
            declare=declare,
        )
    yield Case(
        "mbarrier.arrive_drop",
        f"{own} mbarrier.init.shared.b64 [%r1], %a; mbarrier.arrive_drop.shared.b64 %s1, [%r1];"
        " sub.u32 %r2, %a, 1; @!%p0 mbarrier.arrive.shared.b64 %s1, [%r1], %r2;"
        " mbarrier.arrive.shared.b64 %s0, [%r1];" + ask,
        [32],
        [32, 32, 32],
        [(n,) for n in (2, 3, 7)],
        lambda n: (int(n == 2), 1 if n > 2 else 0, n - 1),
        declare=declare,
    )
    yield Case(
        "mbarrier.expect_tx",
        f"{own} mbarrier.init.shared.b64 [%r1], 1; mbarrier.arrive.expect_tx.shared.b64 %s0, [%r1],"
        " 64; mbarrier.complete_tx.shared.b64 [%r1], %a;" + ask,
        [32],
        [32, 32, 32],
        [(0,), (16,), (48,), (64,)],
        lambda n: (int(n == 64), int(n == 64), 1),
        declare=declare,
    )
    yield Case(
        "mbarrier.bulk",
        "mov.u32 %r1, %tid.x; mul.lo.u32 %r1, %r1, 48; mov.u32 %r2, box; add.u32 %r1, %r1, %r2;"
        " add.u32 %r2, %r1, 16; mbarrier.init.shared::cta.b64 [%r1], 1;"
        " mbarrier.arrive.expect_tx.shared::cta.b64 %s0, [%r1], 32;"
        " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%q1], 32,"
        " [%r1]; WAIT: mbarrier.try_wait.shared::cta.b64 %p1, [%r1], %s0; @!%p1 bra WAIT;"
        " ld.shared.v2.b64 {%d, %f}, [%r2]; ld.shared.v2.b64 {%g, %h}, [%r2+16];",
        [64] * 4,
        [64] * 4,
        [tuple(0x0123456789ABCDEF * (i + k) & (1 << 64) - 1 for k in range(4)) for i in range(40)],
        lambda *words: words,
        declare=".shared .align 16 .b8 box[3072]; .reg .b64 %s<2>;",
    )
    yield Case(
        "mbarrier.warp",
        "mov.u32 %r1, box; mov.u32 %r2, %laneid; setp.eq.u32 %p1, %r2, 0; @%p1"
        " mbarrier.init.shared.b64 [%r1], 32; bar.warp.sync -1; mov.u32 %r3, words; shl.b32 %d,"
        " %r2, 2; add.u32 %r3, %r3, %d; st.shared.b32 [%r3], %a; mbarrier.arrive.shared.b64 %s0,"
        " [%r1]; WAIT: mbarrier.try_wait.shared.b64 %p2, [%r1], %s0; @!%p2 bra WAIT; mov.u32 %r3,"
        " words; xor.b32 %d, %r2, 31; shl.b32 %d, %d, 2; add.u32 %r3, %r3, %d; ld.shared.b32 %d,"
        " [%r3];",
        [32],
        [32],
        [(i * 77 + 5,) for i in range(64)],
        warp_model=lambda rows: [rows[31 - i][0] for i in range(32)],
        declare=".shared .align 8 .b64 box; .shared .align 4 .b32 words[32]; .reg .b64 %s<2>;",
        block=32,
    )


def families():
    return [
        ("mbarriers", list(mbarriers())),
        ("warp_exchange", [*shuffles(), *votes(), *matches(), *reductions()]),
        ("special_registers", list(specials())),
        ("atomics", list(atomics())),
        ("memory", list(memory())),
    ]
