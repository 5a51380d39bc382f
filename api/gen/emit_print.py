# SPDX-License-Identifier: Apache-2.0
"""Calls as text. NAME_print.gen.h/.cc: the names of enumerators, and records field by field, for
api/core/print.h. NAME_observe.gen.h/.cc: prints each call for the client's trace, and counts it for
TENDRIL_STATS. NAME_call_text.gen.cc: prints each operation for the worker's trace."""

import re

from spec import type_name

FIELD = re.compile(r"^  (?:alignas\(\d+\) )?[\w ]+?\**\s*\**(\w+)(?:\[\d+\])?;$", re.M)
NESTED = re.compile(r"^  (?:struct|union) \{\n.*?^  \}(?: (\w+))?;", re.M | re.S)
UNSPOKEN = re.compile(r"^_|^reserved|^pad")  # fields without a meaning


def enums(text):
    """(name, [(enumerator, number)]) with the first name of each number."""
    for name, body in re.findall(r"^enum (\w+) \{(.*?)^\};", text, re.M | re.S):
        pairs = {}
        for enumerator, number in re.findall(r"(\w+) = (-?\d+),", body):
            pairs.setdefault(int(number) & 0xFFFFFFFF, enumerator)
        yield name, pairs


def records(text):
    """(kind, name, fields, nested). nested: the fields whose type has no name."""
    for kind, name, body in re.findall(r"^(struct|union) (\w+) \{\n(.*?)^\};", text, re.M | re.S):
        plain = NESTED.sub(lambda m: f"  nested {m.group(1)};" if m.group(1) else "", body)
        nested = re.findall(r"^  nested (\w+);", plain, re.M)
        yield kind, name, [f for f in FIELD.findall(plain) if not UNSPOKEN.match(f)], nested


def value_header(api):
    out = [
        f"{api.note('types.txt')}#pragma once\n\n",
        f'#include "api/core/print.h"\n#include "api/{api.name}_abi.gen.h"\n\n',
        "namespace tendril::api {\n\n",
    ]
    for name, _ in enums(api.types):
        out.append(f"template <>\nstruct Enumerators<{name}> {{\n")
        out.append("  static const char* name_of(uint32_t number);\n};\n")
    for _, name, _, _ in records(api.types):
        out.append(f"template <>\nstruct Record<{name}> {{\n")
        out.append(f"  static void print(Text& t, const {name}& v);\n}};\n")
    return "".join(out) + "\n}  // namespace tendril::api\n"


def enum_names(name, pairs):
    cases = "".join(f'    case {number}u: return "{word}";\n' for number, word in pairs.items())
    return (
        f"\nconst char* Enumerators<{name}>::name_of(uint32_t number) {{\n"
        f"  switch (number) {{\n{cases}  }}\n  return nullptr;\n}}\n"
    )


def record_text(kind, name, fields, nested):
    if kind == "union":
        body = '  (void)v;\n  t.raw("{...}");\n'
    else:
        lines = [f'  print_field(t, "{f}", v.{f});\n' for f in fields if f not in nested]
        lines += [f'  print_nested(t, "{f}", &v.{f}, sizeof v.{f});\n' for f in nested]
        body = '  t.open("{");\n' + ("".join(lines) or "  (void)v;\n") + '  t.close("}");\n'
    return f"\nvoid Record<{name}>::print(Text& t, const {name}& v) {{\n{body}}}\n"


def values(api):
    out = [f'{api.note("types.txt")}#include "api/{api.name}_print.gen.h"\n\n']
    out.append("namespace tendril::api {\n")
    out += [enum_names(name, pairs) for name, pairs in enums(api.types)]
    out += [record_text(*record) for record in records(api.types)]
    out.append("\n}  // namespace tendril::api\n")
    return "".join(out)


def traced(a):
    """The line that prints one argument in the client: what the call reads (`in`), or what it has
    written if it succeeded (`out`)."""
    name, ctype = a.param.name, a.param.ctype
    count = f", static_cast<uint64_t>({a.count})" if a.count else ""
    if "*" not in ctype:
        flags = name.lower().endswith("flags") and ctype.startswith(("unsigned", "cuuint"))
        return f'    tendril_trace.{"flags" if flags else "value"}("{name}", {name});\n'
    if a.direction == "string":
        return f'    tendril_trace.string("{name}", {name});\n'
    if a.direction == "text":
        return f'    tendril_trace.text("{name}", {name});\n'
    if a.direction == "address" or "void *" in ctype and "**" not in ctype:
        return f'    tendril_trace.value("{name}", {name});\n'
    if a.direction.rstrip("?") in ("in", "image", "inout"):
        return f'    tendril_trace.in("{name}", {name}{count});\n'
    return f'    tendril_trace.out("{name}", {name}{count});\n'


def observed_signature(call):
    arguments = f", {call.signature.arguments}" if call.signature.arguments else ""
    return f"{call.signature.result} {call.signature.name}(uint16_t tendril_entry{arguments})"


def observed(api, call):
    s = call.signature
    return (
        f"{observed_signature(call)} {{\n"
        f"  const uint64_t tendril_begun = stats_begin();\n"
        f"  const {s.result} tendril_result = {api.name}::{s.name}({s.names});\n"
        "  stats_count(tendril_entry, tendril_begun, static_cast<int>(tendril_result));\n"
        "  if (trace_on()) {\n"
        "    Trace tendril_trace(kEntries[tendril_entry].name, tendril_result);\n"
        + "".join(traced(a) for a in call.arguments)
        + "  }\n  return tendril_result;\n}\n"
    )


def observe_header(api):
    room = f"tendril::client::{api.name}::observed"
    out = [
        f'{api.note()}#pragma once\n\n#include "api/{api.name}_abi.gen.h"\n\n',
        "// The bodies, counted and traced: TENDRIL_STATS, TENDRIL_TRACE.\n",
        f"namespace {room} {{\n",
    ]
    out += [f"{observed_signature(call)};\n" for call in api.spec.bodies()]
    out.append(f"}}  // namespace {room}\n")
    return "".join(out)


def observe(api):
    room = f"tendril::client::{api.name}::observed"
    out = [
        f'{api.note()}#include "api/{api.name}_observe.gen.h"\n\n',
        api.includes("client", "observe_headers"),
        f"\nnamespace {room} {{\n\n",
    ]
    out += [observed(api, call) + "\n" for call in api.spec.bodies()]
    out.append(f"}}  // namespace {room}\n")
    return "".join(out)


def told(field, a):
    """The line that prints one field of a request. `a`: the argument in the field; None for fields
    of `op` lines."""
    name = field.name
    if a is None:
        return f'  tell(t, "{name}", m.{name});\n'
    if a.kind and (a.count or a.direction in ("use", "destroy", "new", "translated")):
        return f'  tell_id(t, "{name}", m.{name});\n'
    if a.direction == "in" and not a.count:
        return f'  tell(t, "{name}", static_cast<{a.param.ctype}>(m.{name}));\n'
    return f'  tell(t, "{name}", m.{name});\n'


TELL_REQUEST = """
template <typename Request>
void tell_request(api::Text& t, const uint8_t* body, uint64_t bytes) {
  Request m;
  if (wire::read_message(m, body, bytes)) {
    tell_fields(t, m);
  } else {
    t.raw("malformed");
  }
}

}  // namespace

void tell_call(api::Text& t, uint16_t opcode, const uint8_t* body, uint64_t bytes) {
  t.open(op_name(opcode));
  t.open("(");
"""


def message_types(api):
    """The functions that print the enums and records of messages, for the worker's trace."""
    out = ["namespace tendril::api {\n"]
    for name, words in api.spec.enums.items():
        cpp = f"wire::{api.name}::{type_name(name)}"
        names = ", ".join(f'"{word}"' for word in words)
        out.append(
            f"template <>\nstruct Enumerators<{cpp}> {{\n"
            "  static const char* name_of(uint32_t number) {\n"
            f"    static constexpr const char* kNames[] = {{{names}}};\n"
            f"    return number < {len(words)} ? kNames[number] : nullptr;\n  }}\n}};\n"
        )
    for name, fields in api.spec.records.items():
        cpp = f"wire::{api.name}::{type_name(name)}"
        lines = "".join(f'    print_field(t, "{f.name}", v.{f.name});\n' for f in fields)
        out.append(
            f"template <>\nstruct Record<{cpp}> {{\n"
            f"  static void print(Text& t, const {cpp}& v) {{\n"
            f'    t.open("{{");\n{lines}    t.close("}}");\n  }}\n}};\n'
        )
    return "".join(out) + "}  // namespace tendril::api\n\n"


def call_text(api):
    wire = f"wire::{api.name}"
    out = [
        f"{api.note()}{api.includes('worker', 'call_text_headers')}\n{message_types(api)}",
        f"namespace tendril::worker::{api.name} {{\nnamespace {{\n",
    ]
    for op in api.spec.ops.values():
        arguments = {a.param.name: a for a in op.call.arguments} if op.call else {}
        lines = "".join(told(f, arguments.get(f.name)) for f in op.request)
        out.append(f"\nvoid tell_fields(api::Text& t, const {wire}::{op.name}_request& m) {{\n")
        out.append(f"{lines or '  (void)t, (void)m;' + chr(10)}}}\n")
    out.append(TELL_REQUEST)
    out.append(f"  switch (static_cast<{wire}::Op>(opcode)) {{\n")
    for op in api.spec.ops.values():
        out.append(f"    case {wire}::Op::{op.name}:\n")
        out.append(f"      tell_request<{wire}::{op.name}_request>(t, body, bytes);\n")
        out.append("      break;\n")
    out.append(f'  }}\n  t.close(")");\n}}\n\n}}  // namespace tendril::worker::{api.name}\n')
    return "".join(out)
