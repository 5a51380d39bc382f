# SPDX-License-Identifier: Apache-2.0
"""NAME_messages.gen.h: one struct per op and reply, op numbers, and the digest that both ends
compare."""


def struct(name, fields, head=""):
    members = "".join(f"  {f.cpp} {f.name}{{}};\n" for f in fields)
    visits = "".join(f'    v("{f.name}", {f.name});\n' for f in fields)
    return (
        f"struct {name} {{\n{head}{members}  template <typename V>\n  void visit(V& v) {{\n"
        f"    (void)v;\n{visits}  }}\n}};\n"
    )


def request(op):
    replies = "true" if op.reply is not None else "false"
    head = (
        f"  static constexpr Op kOp = Op::{op.name};\n"
        f"  static constexpr bool kReplies = {replies};\n"
    )
    return struct(f"{op.name}_request", op.request, head)


def emit(api):
    ops = sorted(api.spec.ops.values(), key=lambda o: o.number)
    lines = [
        f"{api.note()}#pragma once\n\n",
        f'#include "api/{api.name}_abi.gen.h"\n#include "wire/message.h"\n\n',
        f"namespace tendril::wire::{api.name} {{\n\n",
        "// How an attach names this API, and what both ends must agree on to use it.\n",
        f'inline constexpr char kApiName[] = "{api.name}";\n',
        f"inline constexpr uint64_t kSchemaDigest = 0x{api.digest:016x};\n\n",
        "enum class Op : uint16_t {\n",
    ]
    lines += [f"  {op.name} = {op.number},\n" for op in ops]
    lines.append(f"}};\ninline constexpr uint16_t kOpMax = {ops[-1].number};\n\n")
    for op in ops:
        lines.append(request(op))
        if op.reply is not None:
            lines.append(struct(f"{op.name}_reply", op.reply))
    prefix = f"TENDRIL_{api.name.upper()}"
    lines.append(f"\n// X(op): every op, for tables.\n#define {prefix}_OPS(X) \\\n")
    lines += [f"  X({op.name}) \\\n" for op in ops]
    lines.append(f"\n// X(op): ops that are answered.\n#define {prefix}_REPLYING_OPS(X) \\\n")
    lines += [f"  X({op.name}) \\\n" for op in ops if op.reply is not None]
    lines.append(f"\n}}  // namespace tendril::wire::{api.name}\n")
    return "".join(lines)
