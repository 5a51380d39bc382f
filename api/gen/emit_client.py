# SPDX-License-Identifier: Apache-2.0
"""The client's side: cuda_bodies.gen.h (declarations of every body), cuda_forward.gen.cc (bodies of `call` and `enqueue` lines),
cuda_entry.gen.cc (the exported symbols), cuda_entries.gen.h (table of names and addresses)."""

import re

from spec import strip_per_thread

NOTE = "// Generated from api/cuda/*.spec by api/gen; do not edit.\n"


def bodies(spec):
    out = [
        NOTE,
        '#pragma once\n\n#include "api/cuda_abi.gen.h"\n\nnamespace tendril::client::cuda {\n',
    ]
    for name, call in sorted(spec.calls.items()):
        if call.kind != "refuse":
            out.append(f"{call.signature.result} {name}({call.signature.arguments});\n")
    out.append("}  // namespace tendril::client::cuda\n")
    return "".join(out)


def encode_argument(a, lines):
    """Lines that put one argument into `m`. Failures are collected in `f` and answered before anything is sent."""
    name, pointee, kind = a.param.name, a.pointee, a.kind
    if a.direction == "stream":
        lines.append(f"  m.{name} = f.stream({name});")
    elif a.direction in ("use", "destroy"):
        lines.append(f"  m.{name} = f.handle(Kind::{kind}, {name});")
    elif a.direction == "new":
        lines.append(f"  if (f.pointer({name})) m.{name} = f.mint(Kind::{kind});")
    elif a.direction == "device":
        lines.append(f"  m.{name} = f.device({name});")
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
    elif a.direction == "new":
        lines.append(f"    *{name} = f.adopt<{pointee}>(Kind::{kind}, m.{name});")
    elif a.direction == "destroy":
        lines.append(f"    f.drop(Kind::{kind}, {name});")


def forward_body(call):
    s = call.signature
    lines = [
        f"{s.result} {s.name}({s.arguments}) {{",
        f"  wire::cuda::{s.name}_request m;",
        f"  Forward f({'true' if call.needs_context else 'false'});",
    ]
    # New objects last: the other arguments say whose they will be.
    for a in sorted(call.arguments, key=lambda a: a.direction == "new"):
        encode_argument(a, lines)
    lines.append("  if (!f.ok()) return f.error();")
    after = []
    for a in call.arguments:
        decode_argument(a, after)
    if call.kind == "call":
        lines.append(f"  wire::cuda::{s.name}_reply r;")
        lines.append("  const CUresult result = f.call(m, r);")
    else:
        lines.append("  const CUresult result = f.enqueue(m);")
    if after:
        lines.append("  if (result == CUDA_SUCCESS) {")
        lines += after
        lines.append("  }")
    lines += ["  return result;", "}", ""]
    return "\n".join(lines)


def forward(spec):
    out = [
        NOTE,
        '#include "client/cuda/bodies.h"\n#include "client/cuda/forward.h"\n\nnamespace tendril::client::cuda {\n\n',
    ]
    out += [
        forward_body(c) + "\n"
        for _, c in sorted(spec.calls.items())
        if c.kind in ("call", "enqueue")
    ]
    out.append("}  // namespace tendril::client::cuda\n")
    return "".join(out)


def entry(spec, name, signature):
    body = spec.body_of(name)
    call = spec.calls[body]
    index = f"kEntry_{name}"
    lines = [
        f"TENDRIL_ENTRY {signature.result} {name}({signature.arguments}) {{",
        "  TENDRIL_MOVABLE_PROLOGUE;",
    ]
    if call.kind == "refuse":
        lines.append(f'  return tendril::client::cuda::refused({index}, "{call.reason}");')
    else:
        if strip_per_thread(name) != name:
            lines.append("  tendril::client::cuda::PerThreadDefault tendril_per_thread;")
        names = signature.names
        mine = [p.ctype for p in signature.params]
        theirs = [p.ctype for p in call.signature.params]
        if mine != theirs:
            names = ", ".join(
                f"(tendril_cast<{t}>({p.name}))" if p.ctype != t else p.name
                for p, t in zip(signature.params, theirs)
            )
        watched = f"{index}, {names}" if names else index
        lines.append(
            f"  if (tendril::client::cuda::observing()) return tendril::client::cuda::observed::{body}({watched});"
        )
        lines.append(f"  return tendril::client::cuda::{body}({names});")
    lines.append("}")
    return "\n".join(lines) + "\n"


def entries(spec, graphics):
    """`graphics`: names a real driver has beside the toolkit's list; they exist and refuse."""
    names = sorted(spec.signatures)
    out = [NOTE, '#include "client/cuda/entry.h"\n\nextern "C" {\n']
    out += [entry(spec, n, spec.signatures[n]) for n in names]
    out += [
        f"TENDRIL_ENTRY CUresult {n}() {{\n"
        f'  return tendril::client::cuda::refused(kEntryCount, "graphics interoperability needs a "\n'
        f'      "GPU in this machine ({n})");\n}}\n'
        for n in graphics
    ]
    out.append('}  // extern "C"\n\nnamespace tendril::client::cuda {\n')
    out.append(f"const size_t kGraphicsEntryCount = {len(graphics)};\n")
    out.append(f"const EntryInfo kGraphicsEntries[{len(graphics)}] = {{\n")
    out += [f'    {{"{n}", reinterpret_cast<void*>(&::{n})}},\n' for n in graphics]
    out.append("};\n")
    out.append("const EntryInfo kEntries[kEntryCount] = {\n")
    out += [f'    {{"{n}", reinterpret_cast<void*>(&::{n})}},\n' for n in names]
    out.append("};\n}  // namespace tendril::client::cuda\n")
    return "".join(out)


def entry_numbers(spec):
    names = sorted(spec.signatures)
    out = [
        NOTE,
        "#pragma once\n\n#include <cstdint>\n\nnamespace tendril::client::cuda {\nenum EntryIndex : uint16_t {\n",
    ]
    out += [f"  kEntry_{n},\n" for n in names]
    out.append("  kEntryCount,\n};\n}  // namespace tendril::client::cuda\n")
    return "".join(out)


def arguments_match(spec):
    """Aliases must have arguments that convert one by one."""
    for name, target in spec.aliases.items():
        mine, theirs = spec.signatures[name].params, spec.signatures[target].params
        if len(mine) != len(theirs):
            raise SystemExit(f"alias {name} -> {target}: different number of arguments")
        for a, b in zip(mine, theirs):
            if re.sub(r"\W", "", a.ctype) != re.sub(r"\W", "", b.ctype) and ("*" in a.ctype) != (
                "*" in b.ctype
            ):
                raise SystemExit(f"alias {name} -> {target}: {a.ctype} against {b.ctype}")
