# SPDX-License-Identifier: Apache-2.0
"""cuda_messages.gen.h: one struct per op and reply, op numbers, and the digest both ends compare."""

HEAD = """// Generated from api/cuda/*.spec by api/gen; do not edit.
#pragma once

#include "api/cuda_abi.gen.h"
#include "wire/message.h"

namespace tendril::wire::cuda {
"""


def struct(name, fields):
    members = "".join(f"  {f.cpp} {f.name}{{}};\n" for f in fields)
    visits = "".join(f'    v("{f.name}", {f.name});\n' for f in fields)
    return (
        f"struct {name} {{\n{members}  template <typename V>\n  void visit(V& v) {{\n"
        f"    (void)v;\n{visits}  }}\n}};\n"
    )


def emit(ops, digest):
    lines = [
        HEAD,
        f"\ninline constexpr uint64_t kSchemaDigest = 0x{digest:016x};\n\nenum class Op : uint16_t {{\n",
    ]
    ordered = sorted(ops.values(), key=lambda o: o.number)
    lines += [f"  {op.name} = {op.number},\n" for op in ordered]
    lines.append(f"}};\ninline constexpr uint16_t kOpMax = {ordered[-1].number};\n\n")
    for op in ordered:
        lines.append(
            struct(f"{op.name}_request", op.request).replace(
                "{\n",
                f"{{\n  static constexpr Op kOp = Op::{op.name};\n  static constexpr bool kReplies = "
                f"{'true' if op.reply is not None else 'false'};\n",
                1,
            )
        )
        if op.reply is not None:
            lines.append(struct(f"{op.name}_reply", op.reply))
    lines.append("\n// X(op): every op, for tables.\n#define TENDRIL_CUDA_OPS(X) \\\n")
    lines += [f"  X({op.name}) \\\n" for op in ordered]
    lines.append("\n// X(op): ops that are answered.\n#define TENDRIL_CUDA_REPLYING_OPS(X) \\\n")
    lines += [f"  X({op.name}) \\\n" for op in ordered if op.reply is not None]
    lines.append("\n}  // namespace tendril::wire::cuda\n")
    return "".join(lines)
