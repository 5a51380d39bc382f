# SPDX-License-Identifier: Apache-2.0
"""Writes files.gen.cc: the page's files, plain and compressed, as arrays. Called by the build with
the folder of the page, the chart library's file (or nothing, if it is not installed) and the
output."""

import gzip
import hashlib
import pathlib
import sys

TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
CHARTS = "/charts/dygraph"


def array(name, data):
    """As a string literal in lines: much faster to compile than a list of numbers."""
    lines = []
    for at in range(0, len(data), 64):
        lines.append('    "' + "".join(f"\\{byte:03o}" for byte in data[at : at + 64]) + '"')
    text = "\n".join(lines) or '    ""'
    return f"const char {name}[] =\n{text};\n"


def collect(folder, charts):
    files = []
    for path in sorted(folder.iterdir()):
        if path.suffix in TYPES:
            name = "/" if path.name == "index.html" else "/" + path.name
            files.append((name, TYPES[path.suffix], path.read_bytes()))
    if charts:
        library = pathlib.Path(charts)
        files.append((CHARTS + ".js", TYPES[".js"], library.read_bytes()))
        style = library.with_suffix(".css")
        files.append((CHARTS + ".css", TYPES[".css"], style.read_bytes()))
    return files


def main(folder, output, charts=""):
    out = ["// Written by dashboard/embed.py.", '#include "dashboard/files.h"', ""]
    out += ["namespace tendril::dashboard {", "namespace {", ""]
    rows = []
    for number, (name, kind, data) in enumerate(collect(pathlib.Path(folder), charts)):
        packed = gzip.compress(data, 9, mtime=0)
        tag = hashlib.sha256(data).hexdigest()[:16]
        out += [array(f"kPlain{number}", data), array(f"kPacked{number}", packed)]
        rows.append(
            f'    {{"{name}", "{kind}", "\\"{tag}\\"",\n'
            f"     std::string_view(kPlain{number}, {len(data)}),\n"
            f"     std::string_view(kPacked{number}, {len(packed)})}},"
        )
    out += ["const File kFiles[] = {", *rows, "};", "", "}  // namespace", ""]
    out += [
        "const File* find_file(std::string_view path) {",
        "  for (const File& file : kFiles) {",
        "    if (path == file.path) return &file;",
        "  }",
        "  return nullptr;",
        "}",
        "",
        f'bool has_charts() {{ return find_file("{CHARTS}.js") != nullptr; }}',
        "",
        "}  // namespace tendril::dashboard",
        "",
    ]
    pathlib.Path(output).write_text("\n".join(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
