#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a moving picture (SVG) of a page's console lines with what they wrote, as they were run by
transcript.py's script. Without motion (paper, or a reader's wish) it shows the end.

    packaging/readme/recording.py PAGE OUTPUT >picture.svg
"""

import html
import pathlib
import sys

import transcript

LINE_PX, CHARACTER_PX, EDGE_PX = 14, 7.2, 12
COLUMNS = 104
WAIT_S = {"$": 1.2, "": 0.04}  # before a command appears, and before a line of its output


def lines_of(page, output):
    """(prompt or "", text) of each line. What apt wrote is left out: it says nothing of Tendril."""
    said = transcript.outputs(output)
    for number, command, _ in transcript.commands(page):
        if command.startswith("apt-get"):
            continue
        yield "$", command
        for line in said[str(number)].splitlines():
            yield "", line


def picture(lines):
    height = 2 * EDGE_PX + LINE_PX * len(lines)
    width = 2 * EDGE_PX + CHARACTER_PX * COLUMNS
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img" '
        'aria-label="The quick start: a server, and a program that draws the Mandelbrot set">',
        "<style>text{font:12px monospace;fill:#ddd;white-space:pre}.c{fill:#8cf}"
        "@media (prefers-reduced-motion:no-preference){text{opacity:0;animation:a .01s forwards}}"
        "@keyframes a{to{opacity:1}}</style>",
        f'<rect width="{width:g}" height="{height}" rx="6" fill="#1b1e24"/>',
    ]
    at_s = 0.0
    for row, (prompt, text) in enumerate(lines):
        at_s += WAIT_S[prompt]
        shown = html.escape((prompt + " " if prompt else "") + text)
        parts.append(
            f'<text xml:space="preserve" x="{EDGE_PX}" y="{EDGE_PX + LINE_PX * (row + 1) - 3}" '
            f'{"class=" + chr(34) + "c" + chr(34) + " " if prompt else ""}'
            f'style="animation-delay:{at_s:.2f}s">{shown}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    page, output = (pathlib.Path(name).read_text(encoding="utf-8") for name in sys.argv[1:])
    sys.stdout.write(picture(list(lines_of(page, output))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
