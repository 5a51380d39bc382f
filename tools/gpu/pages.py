# SPDX-License-Identifier: Apache-2.0
"""Writes what was measured into a page of docs/, between two marks. Called by share_tables.py and
speed_tables.py."""

END = "<!-- end of what was measured -->"


def begin(script):
    return f"<!-- measured: written by tools/gpu/{script} -->"


def write(page, script, text):
    """Everything else on the page stays."""
    held = page.read_text()
    before, mark, rest = held.partition(begin(script))
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{page.name} has no marks for {script}")
    page.write_text(f"{before}{mark}\n\n{text}\n\n{END}{after}")
