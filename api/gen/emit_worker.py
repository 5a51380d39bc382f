# SPDX-License-Identifier: Apache-2.0
"""The worker's side: cuda_dispatch.gen.cc. For each op a decoder with its bounds checks; `call` and `enqueue` lines get their whole
handler, `op` lines call a hand-written one, `handle(Executor&, const Request&, Answer<Reply>&)`."""

import re

NOTE = "// Generated from api/cuda/*.spec by api/gen; do not edit.\n"


def declarations(spec):
    out = [
        NOTE,
        '#pragma once\n\n#include "api/cuda_messages.gen.h"\n\nnamespace tendril::worker::cuda {\n',
        "class Executor;\n\n// Hand-written handlers of `op` lines. They return the driver's result.\n",
    ]
    for op in spec.ops.values():
        if op.call is None:
            reply = "" if op.reply is None else f", wire::cuda::{op.name}_reply& r"
            out.append(
                f"CUresult handle(Executor& w, const wire::cuda::{op.name}_request& m{reply});\n"
            )
    out.append("}  // namespace tendril::worker::cuda\n")
    return "".join(out)


def argument_lines(a, before, after):
    """Returns the expression to pass to the driver; adds declarations to `before` and result handling to `after`."""
    name, ctype, pointee, kind = a.param.name, a.param.ctype, a.pointee, a.kind
    if a.direction == "stream":
        return f"s.stream(m.{name})"
    if a.direction == "use":
        return f"s.get<{ctype}>(Kind::{kind}, m.{name})"
    if a.direction == "destroy":
        after.append(f"    s.unbind(Kind::{kind}, m.{name});")
        return f"s.get<{ctype}>(Kind::{kind}, m.{name})"
    if a.direction == "new":
        before.append(f"  {pointee} {name}{{}};")
        after.append(f"    s.bind(Kind::{kind}, m.{name}, {name});")
        return f"&{name}"
    if a.direction == "device":
        return f"s.device(m.{name})"
    if a.direction == "string":
        return f"s.text(m.{name})"
    if a.direction in ("in", "in?") and a.count:
        if re.fullmatch(
            r"[A-Za-z]\w*", a.count
        ):  # the driver reads as many as the count says, whatever the client sent
            before.append(
                f"  s.length(m.{name}.count, m.{a.count}, {'true' if a.direction == 'in?' else 'false'});"
            )
        if kind:
            return f"s.handles<{pointee}>(Kind::{kind}, m.{name})"
        cast = f"const_cast<{ctype}>" if not ctype.startswith("const") else f"static_cast<{ctype}>"
        if pointee == "void":
            return f"static_cast<const void*>(m.{name}.data)"
        return f"{cast}(s.resolve_all(m.{name}))"
    if a.direction == "in":
        return f"static_cast<{ctype}>(m.{name})"
    if a.direction == "image":
        before.append(f"  {pointee} {name} = s.resolve(m.{name}.value);")
        return f"&{name}"
    if a.direction == "image?":
        before.append(f"  {pointee} {name} = s.resolve(m.{name}.value);")
        return f"m.{name}.present ? &{name} : nullptr"
    if a.direction == "inout":
        before.append(f"  {pointee} {name} = s.resolve(m.{name}.value);")
        after.append(f"    r.{name}.value = s.present({name});")
        return f"&{name}"
    if a.direction in ("out", "out?") and a.count:
        before.append(f"  {pointee}* {name} = s.scratch<{pointee}>(m.{a.count});")
        after.append(f"    r.{name} = {{{name}, m.{a.count}}};")
        return name
    if a.direction in ("out", "out?"):
        before.append(f"  {pointee} {name}{{}};")
        after.append(f"    r.{name}.value = s.present({name});")
        return f"&{name}"
    if a.direction == "known" and a.count:
        before.append(f"  {pointee}* {name} = s.scratch<{pointee}>(m.{a.count});")
        after.append(f"    r.{name} = s.ids(Kind::{kind}, {name}, m.{a.count});")
        return name
    if a.direction == "known":
        before.append(f"  {pointee} {name}{{}};")
        after.append(f"    r.{name} = s.id(Kind::{kind}, {name});")
        return f"&{name}"
    raise SystemExit(f"worker: direction {a.direction}")


def generated_handler(op):
    before, after = [], []
    arguments = [argument_lines(a, before, after) for a in op.call.arguments]
    reply = "" if op.reply is None else f", wire::cuda::{op.name}_reply& r"
    lines = [
        f"static CUresult handle(Executor& w, const wire::cuda::{op.name}_request& m{reply}) {{",
        "  (void)m;",
        "  Scope s(w);",
    ]
    if op.reply is not None:
        lines.append("  (void)r;")
    lines += before
    values = [f"a{i}" for i in range(len(arguments))]
    lines += [f"  auto {v} = {e};" for v, e in zip(values, arguments)]
    lines.append("  if (!s.ok()) return s.error();")
    lines.append(f"  if (w.driver().{op.name} == nullptr) return CUDA_ERROR_NOT_SUPPORTED;")
    lines.append(f"  const CUresult result = w.driver().{op.name}({', '.join(values)});")
    if after:
        lines.append("  if (result == CUDA_SUCCESS) {")
        lines += after
        lines.append("  }")
    lines += ["  return result;", "}", ""]
    return "\n".join(lines)


def dispatch(spec):
    out = [
        NOTE,
        '#include "worker/cuda/executor/dispatch.h"\n\n#include "api/cuda_handlers.gen.h"\n',
        '#include "worker/cuda/executor/executor.h"\n',
        '#include "worker/cuda/executor/scope.h"\n\nnamespace tendril::worker::cuda {\n\n',
    ]
    out += [generated_handler(op) + "\n" for op in spec.ops.values() if op.call is not None]
    out.append(
        "bool dispatch(Executor& w, const session::Call& call) {\n"
        "  switch (static_cast<wire::cuda::Op>(call.opcode)) {\n"
    )
    for op in sorted(spec.ops.values(), key=lambda o: o.number):
        out.append(
            f"    case wire::cuda::Op::{op.name}: {{\n      wire::cuda::{op.name}_request m;\n"
            f"      if (!wire::read_message(m, call.body, call.bytes)) return false;\n"
        )
        if op.reply is None:
            out.append("      w.finish(call, handle(w, m));\n")
        else:
            out.append(
                f"      wire::cuda::{op.name}_reply r;\n      const CUresult result = handle(w, m, r);\n"
                "      w.answer(call, result, r);\n"
            )
        out.append("      return true;\n    }\n")
    out.append("  }\n  return false;\n}\n\n")
    out.append(
        "const char* op_name(uint16_t opcode) {\n  switch (static_cast<wire::cuda::Op>(opcode)) {\n"
    )
    out += [f'    case wire::cuda::Op::{name}: return "{name}";\n' for name in spec.ops]
    out.append('  }\n  return "unknown";\n}\n\n}  // namespace tendril::worker::cuda\n')
    return "".join(out)
