# SPDX-License-Identifier: Apache-2.0
"""The client's side: NAME_bodies.gen.h (declarations of every body) and NAME_forward.gen.cc (the
bodies of `call` and `enqueue` lines)."""

from spec import WITH_MESSAGE


def bodies(api):
    lines = [
        f'{api.note()}#pragma once\n\n#include "api/{api.name}_abi.gen.h"\n\n',
        f"namespace tendril::client::{api.name} {{\n",
    ]
    for call in api.spec.bodies():
        signature = call.signature
        lines.append(f"{signature.result} {signature.name}({signature.arguments});\n")
    checked = [call.signature for call in api.spec.bodies() if call.checked]
    if checked:
        lines.append("\n// What `checked` lines look at before they send anything.\n")
        lines.append("namespace checks {\n")
        lines += [f"{api.result} {s.name}({s.arguments});\n" for s in checked]
        lines.append("}  // namespace checks\n")
    lines.append(f"}}  // namespace tendril::client::{api.name}\n")
    return "".join(lines)


def encode_argument(a, lines):
    """Adds the lines that put one argument into the message. The generated code collects failures,
    and answers them before it sends anything."""
    name, pointee, kind = a.param.name, a.pointee, a.kind
    if a.direction == "translated":
        lines.append(f"  m.{name} = f.{a.method}({name});")
    elif a.direction in ("use", "destroy"):
        lines.append(f"  m.{name} = f.handle(Kind::{kind}, {name});")
    elif a.direction == "new":
        lines.append(f"  if (f.pointer({name})) m.{name} = f.mint(Kind::{kind});")
    elif a.direction == "new?":
        lines.append(f"  if ({name} != nullptr) m.{name} = f.mint(Kind::{kind});")
    elif a.direction == "string":
        lines.append(f"  if (f.pointer({name})) m.{name} = wire::bytes_of({name});")
    elif a.direction in ("in", "in?") and a.count:
        check = f"{name} != nullptr" if a.direction == "in?" else f"f.array({name}, {a.count})"
        if kind:
            lines.append(f"  if ({check}) m.{name} = f.handles(Kind::{kind}, {name}, {a.count});")
        elif pointee == "void":
            lines.append(
                f"  if ({check}) m.{name} = {{static_cast<const uint8_t*>({name}), {a.count}}};"
            )
        else:
            lines.append(f"  if ({check}) m.{name} = f.images({name}, {a.count});")
    elif a.direction == "in":
        lines.append(f"  m.{name} = static_cast<decltype(m.{name})>({name});")
    elif a.direction in ("image", "inout"):
        lines.append(f"  if (f.pointer({name})) m.{name} = {{f.localize(*{name})}};")
    elif a.direction == "image?":
        lines.append(f"  if ({name} != nullptr) m.{name} = {{true, f.localize(*{name})}};")
    elif a.direction in ("out", "known"):
        lines.append(f"  f.pointer({name});")


def decode_argument(a, lines):
    name, pointee, kind = a.param.name, a.pointee, a.kind
    guard = f"if ({name} != nullptr) " if a.direction.endswith("?") else ""
    if a.direction in ("out", "out?") and a.count:
        lines.append(f"    {guard}f.copy_out({name}, {a.count}, r.{name});")
    elif a.direction in ("out", "out?", "inout"):
        lines.append(f"    {guard}*{name} = f.globalize(r.{name}.value);")
    elif a.direction == "known" and a.count:
        lines.append(f"    f.known_array(Kind::{kind}, {name}, {a.count}, r.{name});")
    elif a.direction == "known":
        lines.append(f"    *{name} = f.known<{pointee}>(Kind::{kind}, r.{name});")
    elif a.direction in ("new", "new?"):
        lines.append(f"    {guard}*{name} = f.adopt<{pointee}>(Kind::{kind}, m.{name});")
    elif a.direction == "destroy":
        lines.append(f"    f.drop(Kind::{kind}, {name});")


def forward_body(api, call):
    s = call.signature
    needs_context = "true" if call.needs_context else "false"
    lines = [
        f"{s.result} {s.name}({s.arguments}) {{",
        f"  wire::{api.name}::{s.name}_request m;",
        f"  Forward f({needs_context});",
    ]
    # New objects come last, because the other arguments say to whom they will belong.
    for a in sorted(call.arguments, key=lambda a: a.direction in ("new", "new?")):
        if a.direction in ("new", "new?") and call.checked:
            lines.append(f"  if (f.ok()) f.check(checks::{s.name}({s.names}));")
        encode_argument(a, lines)
    lines.append("  if (!f.ok()) return f.error();")
    after = []
    for a in call.arguments:
        decode_argument(a, after)
    if call.kind == "call":
        lines.append(f"  wire::{api.name}::{s.name}_reply r;")
        lines.append(f"  const {api.result} result = f.call(m, r);")
    else:
        lines.append(f"  const {api.result} result = f.enqueue(m);")
    if after:
        lines.append(f"  if (result == {api.success}) {{")
        lines += after
        lines.append("  }")
    lines += ["  return result;", "}", ""]
    return "\n".join(lines)


def forward(api):
    out = [
        f"{api.note()}{api.includes('client', 'forward_headers')}\n",
        f"namespace tendril::client::{api.name} {{\n\n",
    ]
    out += [
        forward_body(api, call) + "\n" for call in api.spec.bodies() if call.kind in WITH_MESSAGE
    ]
    out.append(f"}}  // namespace tendril::client::{api.name}\n")
    return "".join(out)
