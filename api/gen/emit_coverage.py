# SPDX-License-Identifier: Apache-2.0
"""coverage.gen.h: what `tendril coverage` prints: each exported symbol, who answers it, and why some are refused."""

from collections import Counter

from spec import strip_per_thread


def text(spec):
    rows, tally = [], Counter()
    for name in sorted(spec.signatures):
        call = spec.calls[spec.body_of(name)]
        how = {
            "local": "implemented (hand-written)",
            "call": "implemented (generated, round trip)",
            "enqueue": "implemented (generated, no reply)",
            "refuse": "refused",
        }[call.kind]
        tally[call.kind] += 1
        if spec.body_of(name) != name:
            how += f", as {spec.body_of(name)}" + (
                " per thread" if strip_per_thread(name) != name else ""
            )
        if call.kind == "refuse":
            how += f": {call.reason}"
        rows.append(f"{name:56} {how}")
    total = sum(tally.values())
    done = total - tally["refuse"]
    rows.append("")
    rows.append(
        f"{total} exported names: {done} implemented ({100 * done / total:.1f} %), {tally['refuse']} loudly refused; "
        f"{tally['local']} hand-written, {tally['call']} round trips and {tally['enqueue']} enqueues generated."
    )
    return "\n".join(rows) + "\n"


def emit(spec):
    lines = text(spec).splitlines()
    body = "\n".join(f'    "{line}\\n"' for line in lines)
    return (
        "// Generated from api/cuda/*.spec by api/gen; do not edit.\n#pragma once\n\nnamespace tendril::api {\n"
        f"inline constexpr const char kCoverageText[] =\n{body};\n}}  // namespace tendril::api\n"
    )
