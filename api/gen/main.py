#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the description of one API into sources.

    main.py OUTPUT_DIR --api NAME [--list | --update-registry | --show CALL]

NAME is a folder in api/, or the path of a folder elsewhere. A file is written only when its text
changed, so builds stay small. --list prints the paths of all outputs, --show everything generated
for one call."""

import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import description  # noqa: E402
import emit_abi  # noqa: E402
import emit_client  # noqa: E402
import emit_coverage  # noqa: E402
import emit_entries  # noqa: E402
import emit_kinds  # noqa: E402
import emit_print  # noqa: E402
import emit_resolve  # noqa: E402
import emit_table  # noqa: E402
import emit_wire  # noqa: E402
import emit_worker  # noqa: E402
import spec  # noqa: E402

# The outputs that an api.ini may name: {end of the file's name: function of the Api}.
OUTPUTS = {
    "abi": {"_abi.gen.h": emit_abi.emit},
    "results": {"_results.gen.inc": emit_abi.results},
    "kinds": {"_kinds.gen.h": emit_kinds.emit},
    "messages": {"_messages.gen.h": emit_wire.emit},
    "client": {"_bodies.gen.h": emit_client.bodies, "_forward.gen.cc": emit_client.forward},
    "entries": {"_entries.gen.h": emit_entries.header, "_entry.gen.cc": emit_entries.entries},
    "observe": {
        "_observe.gen.h": emit_print.observe_header,
        "_observe.gen.cc": emit_print.observe,
    },
    "worker": {
        "_handlers.gen.h": emit_worker.declarations,
        "_dispatch.gen.cc": emit_worker.dispatch,
    },
    "print": {"_print.gen.h": emit_print.value_header, "_print.gen.cc": emit_print.values},
    "call_text": {"_call_text.gen.cc": emit_print.call_text},
    "coverage": {"_coverage.gen.h": emit_coverage.emit},
    "table": {"_table.gen.h": emit_table.emit},
    "resolve": {"_resolve.gen.inc": emit_resolve.emit},
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def outputs_of(api):
    """{path below OUTPUT_DIR: function of the Api}."""
    found = {}
    for output in api.outputs:
        if output not in OUTPUTS:
            raise SystemExit(f"{api.room}/api.ini: [api] outputs: no '{output}'")
        for end, make in OUTPUTS[output].items():
            found[f"api/{api.name}{end}"] = make
    return found


def show(api, name):
    for path, make in outputs_of(api).items():
        for block in re.findall(rf"^[^\n]*\b{name}\w*\b[^\n]*\n(?:[^\n]+\n)*", make(api), re.M):
            print(f"// {path}\n{block}")


def room_of(name):
    """The folder of an API."""
    here = pathlib.Path(__file__).resolve().parents[1] / name
    return here if "/" not in name and here.is_dir() else pathlib.Path(name).resolve()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("output_dir", type=pathlib.Path)
    parser.add_argument("--api", required=True)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--update-registry", action="store_true")
    parser.add_argument("--show", metavar="CALL")
    options = parser.parse_args()
    try:
        api = description.Api(room_of(options.api))
    except (description.ApiError, spec.SpecError) as error:
        raise SystemExit(str(error)) from error
    outputs = outputs_of(api)
    if options.list:
        print("\n".join(str(options.output_dir / path) for path in outputs))
        return
    api.number_operations(options.update_registry)
    if options.show:
        show(api, options.show)
        return
    for path, make in outputs.items():
        write(options.output_dir / path, make(api))


if __name__ == "__main__":
    main()
