# SPDX-License-Identifier: Apache-2.0
"""The worker's side: NAME_dispatch.gen.cc. For each op it has a decoder with bounds checks.
`call` and `enqueue` lines also get a handler, except those that say by-hand. These and `op` lines
call a handler by hand, which NAME_handlers.gen.h declares."""

import re


def signature_of(api, op):
    reply = "" if op.reply is None else f", wire::{api.name}::{op.name}_reply& r"
    return f"{api.result} handle(Executor& w, const wire::{api.name}::{op.name}_request& m{reply})"


def declarations(api):
    by_hand = [op for op in api.spec.ops.values() if op.call is None or op.call.by_hand]
    lines = [
        f'{api.note()}#pragma once\n\n#include "api/{api.name}_messages.gen.h"\n\n',
        f"namespace tendril::worker::{api.name} {{\n",
        "class Executor;\n\n",
        "// Hand-written handlers. They return the driver's result.\n",
    ]
    lines += [f"{signature_of(api, op)};\n" for op in by_hand]
    lines.append(f"}}  // namespace tendril::worker::{api.name}\n")
    return "".join(lines)


def argument_lines(a, before, after):
    """Returns the expression that the driver gets. Adds declarations to `before` and the handling
    of results to `after`."""
    name, ctype, pointee, kind = a.param.name, a.param.ctype, a.pointee, a.kind
    if a.direction == "translated":
        return f"s.{a.method}(m.{name})"
    if a.direction == "use":
        return f"s.get<{ctype}>(Kind::{kind}, m.{name})"
    if a.direction == "destroy":
        after.append(f"    s.unbind(Kind::{kind}, m.{name});")
        return f"s.get<{ctype}>(Kind::{kind}, m.{name})"
    if a.direction == "new":
        before.append(f"  {pointee} {name}{{}};")
        before.append(f"  s.reserve(Kind::{kind}, m.{name});")
        after.append(f"    s.bind(Kind::{kind}, m.{name}, {name});")
        return f"&{name}"
    if a.direction == "new?":
        before.append(f"  {pointee} {name}{{}};")
        before.append(f"  if (m.{name} != 0) s.reserve(Kind::{kind}, m.{name});")
        after.append(f"    if (m.{name} != 0) s.bind(Kind::{kind}, m.{name}, {name});")
        return f"m.{name} != 0 ? &{name} : nullptr"
    if a.direction == "string":
        return f"s.text(m.{name})"
    if a.direction in ("in", "in?") and a.count:
        if re.fullmatch(r"[A-Za-z]\w*", a.count):
            # The driver reads as many as the count says, so the client must have sent them.
            optional = "true" if a.direction == "in?" else "false"
            before.append(f"  s.length(m.{name}.count, m.{a.count}, {optional});")
        elif a.count.isdigit():
            optional = "true" if a.direction == "in?" else "false"
            before.append(f"  s.length(m.{name}.count, {a.count}, {optional});")
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


def generated_handler(api, op):
    before, after = [], []
    arguments = [argument_lines(a, before, after) for a in op.call.arguments]
    lines = [f"static {signature_of(api, op)} {{", "  (void)m;", "  Scope s(w);"]
    if op.reply is not None:
        lines.append("  (void)r;")
    lines += before
    values = [f"a{i}" for i in range(len(arguments))]
    lines += [f"  auto {v} = {e};" for v, e in zip(values, arguments)]
    lines.append("  if (!s.ok()) return s.error();")
    lines.append(f"  if (w.driver().{op.name} == nullptr) return {api.unsupported};")
    lines.append(f"  const {api.result} result = w.driver().{op.name}({', '.join(values)});")
    if after:
        lines += [f"  if (result == {api.success}) {{", *after, "  }"]
    lines += ["  return result;", "}", ""]
    return "\n".join(lines)


def dispatch_case(api, op):
    wire = f"wire::{api.name}"
    lines = [
        f"    case {wire}::Op::{op.name}: {{",
        f"      {wire}::{op.name}_request m;",
        "      if (!wire::read_message(m, call.body, call.bytes)) return false;",
    ]
    if op.reply is None:
        lines.append("      w.finish(call, handle(w, m));")
    else:
        lines += [
            f"      {wire}::{op.name}_reply r;",
            f"      const {api.result} result = handle(w, m, r);",
            "      w.answer(call, result, r);",
        ]
    return "\n".join(lines + ["      return true;", "    }"]) + "\n"


def dispatch(api):
    ops = sorted(api.spec.ops.values(), key=lambda o: o.number)
    op_type = f"wire::{api.name}::Op"
    out = [
        f"{api.note()}{api.includes('worker', 'dispatch_headers')}\n",
        f"namespace tendril::worker::{api.name} {{\n\n",
    ]
    generated = [op for op in api.spec.ops.values() if op.call and not op.call.by_hand]
    out += [generated_handler(api, op) + "\n" for op in generated]
    out.append("bool dispatch(Executor& w, const session::Call& call) {\n")
    out.append(f"  switch (static_cast<{op_type}>(call.opcode)) {{\n")
    out += [dispatch_case(api, op) for op in ops]
    out.append("  }\n  return false;\n}\n\n")
    out.append("const char* op_name(uint16_t opcode) {\n")
    out.append(f"  switch (static_cast<{op_type}>(opcode)) {{\n")
    out += [f'    case {op_type}::{op.name}: return "{op.name}";\n' for op in ops]
    out.append(f'  }}\n  return "unknown";\n}}\n\n}}  // namespace tendril::worker::{api.name}\n')
    return "".join(out)
