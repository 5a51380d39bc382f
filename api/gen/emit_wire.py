# SPDX-License-Identifier: Apache-2.0
"""NAME_messages.gen.h: a struct for each op and each reply, the op numbers, and the digest that
both ends compare."""

from description import constant_name
from spec import type_name


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


def enum_type(name, words):
    cpp = type_name(name)
    return (
        f"enum class {cpp} : uint32_t {{ {', '.join(constant_name(word) for word in words)} }};\n"
        f"constexpr uint32_t count_of({cpp}) {{ return {len(words)}; }}\n"
    )


def member(field):
    base, bracket, extent = field.cpp.partition("[")
    return f"{base} {field.name}{bracket}{extent}"


def record_type(name, fields):
    """A record travels as an image of itself, so it has no padding inside."""
    cpp = type_name(name)
    members = "".join(f"  {member(field)};\n" for field in fields)
    sizes = " + ".join(f"sizeof({field.cpp})" for field in fields)
    return (
        f"struct {cpp} {{\n  static constexpr bool kIsWireRecord = true;\n{members}}};\n"
        f"static_assert(sizeof({cpp}) == {sizes});\n"
    )


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
    lines += [enum_type(*item) for item in api.spec.enums.items()]
    lines += [record_type(*item) for item in api.spec.records.items()]
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
