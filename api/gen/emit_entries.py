# SPDX-License-Identifier: Apache-2.0
"""NAME_entries.gen.h: who answers each exported symbol, as a table of names, addresses and answers.
NAME_entry.gen.cc: that table, and the exported symbols themselves."""

from description import constant_name


def header(api):
    names = sorted(api.signatures)
    words = ["local", *api.answers]
    if "client" in api.outputs:
        words[1:1] = ["call", "enqueue"]
    indexes = "".join(f"  kEntry_{name},\n" for name in names)
    answers = ", ".join(constant_name(word) for word in words)
    return f"""{api.note()}#pragma once

#include <cstddef>
#include <cstdint>

namespace tendril::client::{api.name} {{

enum EntryIndex : uint16_t {{
{indexes}}};
inline constexpr size_t kEntryCount = {len(names)};

// The word of the .spec line that describes an entry point.
enum class Answer : uint8_t {{ {answers} }};

struct EntryInfo {{
  const char* name;
  void* address;
  Answer answer;
}};
extern const EntryInfo kEntries[kEntryCount];  // sorted by name

// Names of the vendor's library without a public signature.
inline constexpr size_t kUnlistedEntryCount = {len(api.unlisted)};
extern const EntryInfo kUnlistedEntries[kUnlistedEntryCount + 1];

}}  // namespace tendril::client::{api.name}
"""


def answer_call(api, call, index):
    """The call that answers an entry point without a body, from the text in api.ini."""
    first = call.signature.params[0] if call.signature.params else None
    about = api.setting("client", "about", "")
    text = api.answers[call.kind].format(
        index=index,
        name=f'"{call.signature.name}"',
        reason=f'"{call.reason}"',
        about=f", {first.name}" if first is not None and first.ctype == about else "",
        error_out=error_argument(api, call.signature),
    )
    return f"tendril::client::{api.name}::{text}"


def error_argument(api, signature):
    """The argument through which an entry point that returns a handle says what went wrong."""
    name = api.setting("client", "error_argument", "")
    return name if any(p.name == name for p in signature.params) else "nullptr"


def converted(signature, body):
    """The arguments of an alias, as its body takes them."""
    if [p.ctype for p in signature.params] == [p.ctype for p in body.params]:
        return signature.names
    return ", ".join(
        f"(tendril_cast<{theirs.ctype}>({mine.name}))" if mine.ctype != theirs.ctype else mine.name
        for mine, theirs in zip(signature.params, body.params)
    )


def body_lines(api, name, signature, call, index):
    room = f"tendril::client::{api.name}"
    lines = []
    per_thread = api.setting("client", "per_thread_prologue", "")
    if per_thread and api.without_per_thread(name) != name:
        lines.append(f"  {per_thread}")
    names, body = converted(signature, call.signature), call.signature.name
    if "observe" in api.outputs:
        watched = f"{index}, {names}" if names else index
        lines.append(f"  if ({room}::observing()) return {room}::observed::{body}({watched});")
    lines.append(f"  return {room}::{body}({names});")
    return lines


def entry(api, name):
    signature, index = api.signatures[name], f"kEntry_{name}"
    call = api.spec.calls[api.spec.body_of(name)]
    macro, prologue = api.setting("client", "entry_macro"), api.setting("client", "prologue", "")
    lines = [f"{macro} {signature.result} {name}({signature.arguments}) {{"]
    if prologue:
        lines.append(f"  {prologue}")
    if api.spec.has_body(call):
        lines += body_lines(api, name, signature, call, index)
    else:
        lines.append(f"  return {answer_call(api, call, index)};")
    return "\n".join(lines + ["}"]) + "\n"


def unlisted_entry(api, name):
    template = api.answers[api.setting("unlisted", "answer")]
    reason = f'"{api.setting("unlisted", "reason")} ({name})"'
    call = template.format(
        index="kEntryCount", name=f'"{name}"', reason=reason, about="", error_out="nullptr"
    )
    macro = api.setting("client", "entry_macro")
    return f"{macro} {api.result} {name}() {{\n  return tendril::client::{api.name}::{call};\n}}\n"


def table_row(name, word):
    return f'    {{"{name}", reinterpret_cast<void*>(&::{name}), Answer::{constant_name(word)}}},\n'


def entries(api):
    names = sorted(api.signatures)
    kinds = {name: api.spec.calls[api.spec.body_of(name)].kind for name in names}
    # If bodies are the exported functions themselves, `local` ones are written by hand.
    by_hand = "local" if api.setting("client", "bodies", "called") == "exported" else None
    out = [api.note(), api.includes("client", "entry_headers"), '\nextern "C" {\n']
    out += [entry(api, name) for name in names if kinds[name] != by_hand]
    out += [unlisted_entry(api, name) for name in api.unlisted]
    out.append(f'}}  // extern "C"\n\nnamespace tendril::client::{api.name} {{\n\n')
    out.append("const EntryInfo kEntries[kEntryCount] = {\n")
    out += [table_row(name, kinds[name]) for name in names]
    out.append("};\n\nconst EntryInfo kUnlistedEntries[kUnlistedEntryCount + 1] = {\n")
    if api.unlisted:
        word = api.setting("unlisted", "answer")
        out += [table_row(name, word) for name in api.unlisted]
    out.append(f"    {{}},\n}};\n\n}}  // namespace tendril::client::{api.name}\n")
    return "".join(out)
