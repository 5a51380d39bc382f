#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes random PTX programs for tests/programs/ptx_cases.cc, which prints one checksum for
each. The same file must print the same lines on the software GPU in order, on the software
GPU shuffled, and on a real GPU.

    fuzz.py SEED COUNT FILE

Results cannot depend on the order of blocks, warps or lanes. Threads write only their own
cells and meet at barriers that all of them reach. They touch shared cells of others only by
commutative atomics, which are read behind a barrier. Every instruction has one exact answer
(no approximations). Warp instructions run where the whole warp is together.
"""

import random
import sys

from cases import F32S, INTEGERS, Case, write

WORDS = 6  # 32-bit registers w0...
LONGS = 4  # 64-bit registers l0...
FLOATS = 4  # f32 registers f0...
ROWS = 128
BLOCK = 64
DEPTH = 3


class Program:
    def __init__(self, dice):
        self.dice, self.labels, self.lines = dice, 0, []

    def word(self):
        d = self.dice
        return f"w{d.randrange(WORDS)}" if d.random() < 0.85 else str(d.choice(INTEGERS[32]))

    def long(self):
        d = self.dice
        return f"l{d.randrange(LONGS)}" if d.random() < 0.85 else str(d.choice(INTEGERS[64]))

    def float(self):
        d = self.dice
        return f"f{d.randrange(FLOATS)}" if d.random() < 0.85 else f"0f{d.choice(F32S):08X}"

    def emit(self, text):
        self.lines.append(text)

    def integer(self):
        d, w = self.dice, self.word
        to = f"w{d.randrange(WORDS)}"
        two = [
            "add.u32",
            "sub.s32",
            "mul.lo.u32",
            "mul.hi.s32",
            "mul.hi.u32",
            "and.b32",
            "or.b32",
            "xor.b32",
            "min.s32",
            "max.u32",
            "shl.b32",
            "shr.u32",
            "shr.s32",
            "div.u32",
            "rem.s32",
            "mul24.lo.u32",
            "add.sat.s32",
        ]
        three = [
            "mad.lo.s32",
            "mad.hi.u32",
            "sad.s32",
            "prmt.b32",
            "shf.l.wrap.b32",
            "shf.r.clamp.b32",
            "dp4a.s32.u32",
        ]
        one = [
            "not.b32",
            "neg.s32",
            "abs.s32",
            "popc.b32",
            "clz.b32",
            "brev.b32",
            "bfind.u32",
            "cnot.b32",
        ]
        kind = d.randrange(6)
        if kind == 5:
            self.emit(
                f"bfe.{d.choice(['u32', 's32'])} {to}, {w()}, {d.randrange(40)},"
                f" {self.word_register()};"
            )
        elif kind == 0:
            self.emit(f"{d.choice(one)} {to}, {w()};")
        elif kind <= 2:
            self.emit(f"{d.choice(two)} {to}, {w()}, {w()};")
        elif kind == 3:
            self.emit(f"{d.choice(three)} {to}, {w()}, {w()}, {w()};")
        else:
            self.emit(f"lop3.b32 {to}, {w()}, {w()}, {w()}, {d.randrange(256)};")

    def wide(self):
        d, v = self.dice, self.long
        to = f"l{d.randrange(LONGS)}"
        self.emit(
            d.choice(
                [
                    f"add.u64 {to}, {v()}, {v()};",
                    f"mul.lo.s64 {to}, {v()}, {v()};",
                    f"mul.hi.u64 {to}, {v()}, {v()};",
                    f"mul.wide.s32 {to}, {self.word()}, {self.word()};",
                    f"mad.wide.u32 {to}, {self.word()}, {self.word()}, {v()};",
                    f"shr.s64 {to}, {v()}, {self.word()};",
                    f"xor.b64 {to}, {v()}, {v()};",
                    f"cvt.s64.s32 {to}, w{d.randrange(WORDS)};",
                    f"cvt.u32.u64 w{d.randrange(WORDS)}, l{d.randrange(LONGS)};",
                    f"max.s64 {to}, {v()}, {v()};",
                    (
                        f"add.cc.u32 w0, {self.word()}, {self.word()}; addc.u32 w1, {self.word()},"
                        f" {self.word()};"
                    ),
                ]
            )
        )

    def floating(self):
        d, v = self.dice, self.float
        to = f"f{d.randrange(FLOATS)}"
        mode, ftz = d.choice(["rn", "rz", "rm", "rp"]), d.choice(["", ".ftz"])
        self.emit(
            d.choice(
                [
                    f"add.{mode}{ftz}.f32 {to}, {v()}, {v()};",
                    f"mul.{mode}{ftz}.f32 {to}, {v()}, {v()};",
                    f"fma.{mode}{ftz}.f32 {to}, {v()}, {v()}, {v()};",
                    f"min{ftz}.f32 {to}, {v()}, {v()};",
                    f"max.NaN.f32 {to}, {v()}, {v()};",
                    f"div.rn.f32 {to}, {v()}, {v()};",
                    f"sqrt.rn.f32 {to}, {v()};",
                    f"cvt.rn.f32.s32 {to}, w{d.randrange(WORDS)};",
                    f"cvt.rzi.s32.f32 w{d.randrange(WORDS)}, f{d.randrange(FLOATS)};",
                    f"mov.b32 w{d.randrange(WORDS)}, f{d.randrange(FLOATS)};",
                    f"mov.b32 {to}, w{d.randrange(WORDS)};",
                    f"add.sat.f32 {to}, {v()}, {v()};",
                ]
            )
        )

    def predicate(self):
        d = self.dice
        p = f"%p{d.randrange(1, 4)}"
        compare = d.choice(["eq", "ne", "lt", "le", "gt", "ge"])
        self.emit(
            f"setp.{compare}.{d.choice(['u32', 's32'])} {p}, {self.word()}, {self.word()};"
            if d.random() < 0.7
            else f"setp.{compare}u.f32 {p}, {self.float()}, {self.float()};"
        )
        return p

    def select(self):
        p = self.predicate()
        self.emit(f"selp.b32 w{self.dice.randrange(WORDS)}, {self.word()}, {self.word()}, {p};")

    def straight(self, count):
        for _ in range(count):
            self.dice.choice([self.integer, self.integer, self.wide, self.floating, self.select])()

    def branch(self, depth):
        label = self.labels = self.labels + 1
        p = self.predicate()
        self.emit(f"@{p} bra ELSE{label};")
        self.region(depth - 1)
        self.emit(f"bra JOIN{label};\nELSE{label}:")
        self.region(depth - 1)
        self.emit(f"JOIN{label}:")

    def loop(self, depth):
        """As many rounds as the thread's own number, so that lanes leave at different times."""
        label = self.labels = self.labels + 1
        counter = f"c{label}"
        self.emit(
            f"{{ .reg .u32 {counter}; and.b32 {counter}, w{self.dice.randrange(WORDS)},"
            f" 7;\nLOOP{label}:"
        )
        self.region(depth - 1)
        self.emit(
            f"sub.u32 {counter}, {counter}, 1; setp.ge.s32 %p0, {counter}, 0; @%p0 bra"
            f" LOOP{label}; }}"
        )

    def region(self, depth):
        self.straight(self.dice.randrange(1, 7))
        if depth > 0 and self.dice.random() < 0.6:
            self.dice.choice([self.branch, self.loop])(depth)
            self.straight(self.dice.randrange(3))

    def together(self):
        """Where the whole block is at one place: warp exchange, barriers, atomics on shared
        cells."""
        d = self.dice
        to, mine = f"w{d.randrange(WORDS)}", f"w{d.randrange(WORDS)}"
        kind = d.randrange(7)
        everybody = "0xffffffff"
        if kind == 0:
            self.emit(
                f"shfl.sync.{d.choice(['up', 'down', 'bfly', 'idx'])}.b32 {to}, {mine},"
                f" {d.randrange(32)}, {d.choice([0, 0x1f, 0x101f, 0x1c1f])}, {everybody};"
            )
        elif kind == 1:
            self.emit(f"vote.sync.ballot.b32 {to}, {self.predicate()}, {everybody};")
        elif kind == 2:
            self.emit(
                f"redux.sync.{d.choice(['add', 'min', 'max'])}.s32 {to}, {mine}, {everybody};"
            )
        elif kind == 3:
            self.emit(f"match.any.sync.b32 {to}, {mine}, {everybody};")
        else:
            operation = d.choice(["add.u32", "min.s32", "max.u32", "xor.b32", "or.b32"])
            self.emit(
                f"barrier.sync 0; and.b32 %r2, {mine}, 15; shl.b32 %r2, %r2, 2; mov.u32 %r3, cells;"
                " add.u32 %r2, %r2, %r3;"
            )
            self.emit(f"{self.guard()}red.shared.{operation} [%r2], {self.word_register()};")
            self.emit(f"barrier.sync 0; ld.shared.u32 {to}, [%r3+{4 * d.randrange(16)}];")

    def word_register(self):
        return f"w{self.dice.randrange(WORDS)}"

    def guard(self):
        return f"@{self.predicate()} " if self.dice.random() < 0.5 else ""

    def text(self):
        self.emit(
            "mov.b64 {w0, w1}, %a; mov.b64 {w2, w3}, %b; xor.b32 w4, w0, w3; mov.u32 w5, %tid.x;"
            " add.u32 w5, w5, w1;"
        )
        self.emit("mov.u64 l0, %a; mov.u64 l1, %b; xor.b64 l2, l0, l1; not.b64 l3, l0;")
        self.emit("cvt.rn.f32.s32 f0, w0; mov.b32 f1, w1; mov.b32 f2, w2; mov.f32 f3, 0f3F800000;")
        self.emit("setp.eq.u32 %p1, w0, 1; setp.eq.u32 %p2, w0, 2; setp.eq.u32 %p3, w0, 3;")
        for _ in range(self.dice.randrange(2, 6)):
            self.region(DEPTH)
            self.together()
        self.emit(
            "xor.b32 w0, w0, w3; xor.b32 w1, w1, w4; add.u32 w2, w2, w5; mov.b64 %d, {w0, w1};"
        )
        self.emit(
            "add.u64 l0, l0, l1; xor.b64 l2, l2, l3; add.u64 %f, l0, l2; mov.b32 w3, f0; mov.b32"
            " w4, f1;"
        )
        self.emit("xor.b32 w3, w3, w4; mov.b64 %g, {w2, w3}; mov.b64 %h, {f2, f3};")
        return "\n".join(self.lines)


def case(seed, number):
    dice = random.Random(f"{seed}/{number}")
    rows = [
        tuple(
            dice.choice(INTEGERS[64]) if dice.random() < 0.3 else dice.getrandbits(64)
            for _ in range(2)
        )
        for _ in range(ROWS)
    ]
    declare = (
        f".reg .b32 w<{WORDS}>; .reg .b64 l<{LONGS}>; .reg .f32 f<{FLOATS}>; .shared .align 4 .b8"
        " cells[64];\nmov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; mov.u32 %r2, cells;"
        " mad.lo.u32 %r2, %r1, 4, %r2; @%p1 st.shared.u32 [%r2], %r1; barrier.sync 0;"
    )
    return Case(
        f"fuzz_{seed}_{number}",
        Program(dice).text(),
        [64, 64],
        [64] * 4,
        rows,
        declare=declare,
        block=BLOCK,
    )


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: fuzz.py SEED COUNT FILE")
    seed, count = sys.argv[1], int(sys.argv[2])
    with open(sys.argv[3], "w", encoding="ascii") as out:
        write(
            out,
            [
                (f"fuzz_{seed}_{k}", [case(seed, n) for n in range(k, min(k + 20, count))])
                for k in range(0, count, 20)
            ],
        )


if __name__ == "__main__":
    main()
