# SPDX-License-Identifier: Apache-2.0
"""Calls as text. cuda_print.gen.h/.cc: names of enumerators and records field by field, for api/core/print.h. cuda_observe.gen.h/.cc: each
call as the client's trace prints it and TENDRIL_STATS counts it. cuda_call_text.gen.cc: each operation as the worker's trace prints it.
"""

import re

NOTE = "// Generated from api/cuda by api/gen; do not edit.\n"
FIELD = re.compile(r"^  (?:alignas\(\d+\) )?[\w ]+?\**\s*\**(\w+)(?:\[\d+\])?;$", re.M)
NESTED = re.compile(r"^  (?:struct|union) \{\n.*?^  \}(?: (\w+))?;", re.M | re.S)
UNSPOKEN = re.compile(r"^_|^reserved|^pad")  # names of fields that mean nothing


def enums(text):
    """(name, [(enumerator, number)]) with the first name of each number."""
    for name, body in re.findall(r"^enum (\w+) \{(.*?)^\};", text, re.M | re.S):
        pairs = {}
        for enumerator, number in re.findall(r"(\w+) = (-?\d+),", body):
            pairs.setdefault(int(number) & 0xFFFFFFFF, enumerator)
        yield name, pairs


def records(text):
    """(kind, name, [fields], [those of them that are structures or unions without a type of their own])."""
    for kind, name, body in re.findall(r"^(struct|union) (\w+) \{\n(.*?)^\};", text, re.M | re.S):
        plain = NESTED.sub(lambda m: f"  nested {m.group(1)};" if m.group(1) else "", body)
        nested = re.findall(r"^  nested (\w+);", plain, re.M)
        yield kind, name, [f for f in FIELD.findall(plain) if not UNSPOKEN.match(f)], nested


def value_header(text):
    out = [
        NOTE
        + "// Included by api/core/print.h, inside its namespace. name_of: null for a number without a name.\n"
    ]
    out += [f"const char* name_of(const {name}*, uint32_t number);\n" for name, _ in enums(text)]
    out += [f"void print_record(Text& t, const {name}& v);\n" for _, name, _, _ in records(text)]
    return "".join(out)


def values(text):
    out = [NOTE + '#include "api/core/print.h"\n\nnamespace tendril::api {\n']
    for name, pairs in enums(text):
        cases = "".join(
            f'    case {number}u: return "{enumerator}";\n' for number, enumerator in pairs.items()
        )
        out.append(
            f"\nconst char* name_of(const {name}*, uint32_t number) {{\n  switch (number) {{\n{cases}  }}\n"
            "  return nullptr;\n}\n"
        )
    for kind, name, fields, nested in records(text):
        if kind == "union":
            body = '  (void)v;\n  t.raw("{...}");\n'
        else:
            lines = [f'  print_field(t, "{f}", v.{f});\n' for f in fields if f not in nested]
            lines += [f'  print_nested(t, "{f}", &v.{f}, sizeof v.{f});\n' for f in nested]
            body = '  t.open("{");\n' + ("".join(lines) or "  (void)v;\n") + '  t.close("}");\n'
        out.append(f"\nvoid print_record(Text& t, const {name}& v) {{\n{body}}}\n")
    out.append("\n}  // namespace tendril::api\n")
    return "".join(out)


def traced(a):
    """The line that prints one argument in the client: what the call reads (`in`) or, when it succeeded, has written (`out`)."""
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


def observed(call):
    s = call.signature
    arguments = f", {s.arguments}" if s.arguments else ""
    return (
        f"{s.result} {s.name}(uint16_t tendril_entry{arguments}) {{\n"
        f"  const uint64_t tendril_begun = stats_begin();\n"
        f"  const {s.result} tendril_result = cuda::{s.name}({s.names});\n"
        "  stats_count(tendril_entry, tendril_begun, static_cast<int>(tendril_result));\n"
        "  if (trace_on()) {\n    Trace tendril_trace(kEntries[tendril_entry].name, tendril_result);\n"
        + "".join(traced(a) for a in call.arguments)
        + "  }\n  return tendril_result;\n}\n"
    )


def observe_header(spec):
    out = [
        NOTE + '#pragma once\n\n#include "api/cuda_abi.gen.h"\n\n'
        "// The bodies, counted and traced: TENDRIL_STATS, TENDRIL_TRACE.\n"
        "namespace tendril::client::cuda::observed {\n"
    ]
    for name, call in sorted(spec.calls.items()):
        if call.kind != "refuse":
            arguments = f", {call.signature.arguments}" if call.signature.arguments else ""
            out.append(f"{call.signature.result} {name}(uint16_t tendril_entry{arguments});\n")
    out.append("}  // namespace tendril::client::cuda::observed\n")
    return "".join(out)


def observe(spec):
    out = [
        NOTE + '#include "api/cuda_observe.gen.h"\n\n#include "client/cuda/entry.h"\n'
        '#include "client/cuda/observe/trace.h"\n\nnamespace tendril::client::cuda::observed {\n\n'
    ]
    out += [observed(c) + "\n" for _, c in sorted(spec.calls.items()) if c.kind != "refuse"]
    out.append("}  // namespace tendril::client::cuda::observed\n")
    return "".join(out)


def told(field, a):
    """The line that prints one field of a request; `a` is the argument that it carries, None for fields of `op` lines."""
    name = field.name
    if a is None:
        return f'  tell(t, "{name}", m.{name});\n'
    if a.direction in ("use", "destroy", "stream", "new") or a.count and a.kind:
        return f'  tell_id(t, "{name}", m.{name});\n'
    if a.direction == "in" and not a.count:
        return f'  tell(t, "{name}", static_cast<{a.param.ctype}>(m.{name}));\n'
    return f'  tell(t, "{name}", m.{name});\n'


def call_text(spec):
    out = [
        NOTE
        + '#include "worker/cuda/executor/call_text.h"\n\n'
        + 'namespace tendril::worker::cuda {\nnamespace {\n'
    ]
    for op in spec.ops.values():
        arguments = {a.param.name: a for a in op.call.arguments} if op.call else {}
        lines = "".join(told(f, arguments.get(f.name)) for f in op.request)
        out.append(
            f"\nvoid tell_fields(api::Text& t, const wire::cuda::{op.name}_request& m) {{\n"
            f"{lines or '  (void)t, (void)m;' + chr(10)}}}\n"
        )
    out.append(
        "\ntemplate <typename Request>\nvoid tell_request(api::Text& t, const uint8_t* body, uint64_t bytes) {\n"
        "  Request m;\n  if (wire::read_message(m, body, bytes)) {\n    tell_fields(t, m);\n  } else {\n"
        '    t.raw("malformed");\n  }\n}\n\n}  // namespace\n\n'
        "void tell_call(api::Text& t, uint16_t opcode, const uint8_t* body, uint64_t bytes) {\n"
        '  t.open(op_name(opcode));\n  t.open("(");\n'
        "  switch (static_cast<wire::cuda::Op>(opcode)) {\n"
    )
    for op in spec.ops.values():
        out.append(
            f"    case wire::cuda::Op::{op.name}:\n"
            f"      tell_request<wire::cuda::{op.name}_request>(t, body, bytes);\n      break;\n"
        )
    out.append('  }\n  t.close(")");\n}\n\n}  // namespace tendril::worker::cuda\n')
    return "".join(out)
