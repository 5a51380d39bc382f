# SPDX-License-Identifier: Apache-2.0
"""NAME_coverage.gen.h: what `tendril coverage` prints. For each exported symbol it says who
answers, and, if there is no body, why."""

from collections import Counter

HOW = {
    "local": "implemented (hand-written)",
    "call": "implemented (generated, round trip)",
    "enqueue": "implemented (generated, no reply)",
    "refuse": "refused",
}


def row(api, name):
    call = api.spec.calls[api.spec.body_of(name)]
    how = HOW.get(call.kind, call.kind)
    if api.spec.body_of(name) != name:
        twin = " per thread" if api.without_per_thread(name) != name else ""
        how += f", as {api.spec.body_of(name)}{twin}"
    if not api.spec.has_body(call) and call.reason:
        how += f": {call.reason}"
    return f"{name:56} {how}", call


def text(api):
    rows = [row(api, name) for name in sorted(api.signatures)]
    tally = Counter(call.kind for _, call in rows)
    total = len(rows)
    done = sum(api.spec.has_body(call) for _, call in rows)
    last = (
        f"{total} exported names: {done} implemented ({100 * done / total:.1f} %), "
        f"{total - done} loudly refused; {tally['local']} hand-written, {tally['call']} round "
        f"trips and {tally['enqueue']} enqueues generated."
    )
    return "\n".join([line for line, _ in rows] + ["", last]) + "\n"


def emit(api):
    body = "\n".join(f'    "{line}\\n"' for line in text(api).splitlines())
    return (
        f"{api.note()}#pragma once\n\nnamespace tendril::api::{api.name} {{\n"
        f"inline constexpr const char kCoverageText[] =\n{body};\n"
        f"}}  // namespace tendril::api::{api.name}\n"
    )
