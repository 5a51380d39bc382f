#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns api/ into sources. Usage: main.py OUTPUT_DIR [--list | --update-registry | --show CALL]. Writes a file only when its text
changed, so builds stay small. --show prints everything generated for one call."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import description  # noqa: E402
import emit_abi  # noqa: E402
import emit_client  # noqa: E402
import emit_coverage  # noqa: E402
import emit_kinds  # noqa: E402
import emit_nvml  # noqa: E402
import emit_print  # noqa: E402
import emit_resolve  # noqa: E402
import emit_wire  # noqa: E402
import emit_worker  # noqa: E402
import load  # noqa: E402
import registry  # noqa: E402
import spec as spec_reader  # noqa: E402


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def record_digests(room):
    """A digest of each record's declaration: images of them travel, so their layout is part of the wire."""
    text = (room / "types.txt").read_text()
    found = re.findall(r"^((?:struct|union) (\w+) \{.*?^\};)", text, re.M | re.S)
    return {name: registry.digest(body) for body, name in found}


def outputs_of(room, update):
    signatures = load.load_signatures(room)
    constants = load.load_constants(room)
    api = description.Api(room)
    spec = spec_reader.Spec(api, signatures)
    emit_client.arguments_match(spec)
    graphics = (room / "graphics_names.txt").read_text().split()
    types = (room / "types.txt").read_text()
    digest = registry.assign(room / "registry", spec.ops, record_digests(room), update)
    nvml = emit_nvml.Room(room.parent / "nvml")
    return spec, {
        "api/nvml_abi.gen.h": lambda: emit_nvml.abi(nvml),
        "api/nvml_entry.gen.cc": lambda: emit_nvml.entry(nvml),
        "api/cuda_abi.gen.h": lambda: emit_abi.emit(room, signatures, constants),
        "api/cuda_results.gen.inc": lambda: emit_abi.results(room),
        "api/cuda_kinds.gen.h": lambda: emit_kinds.emit(api),
        "api/cuda_messages.gen.h": lambda: emit_wire.emit(spec.ops, digest),
        "api/cuda_bodies.gen.h": lambda: emit_client.bodies(spec),
        "api/cuda_entries.gen.h": lambda: emit_client.entry_numbers(spec),
        "api/cuda_entry.gen.cc": lambda: emit_client.entries(spec, graphics),
        "api/cuda_forward.gen.cc": lambda: emit_client.forward(spec),
        "api/cuda_handlers.gen.h": lambda: emit_worker.declarations(spec),
        "api/cuda_dispatch.gen.cc": lambda: emit_worker.dispatch(spec),
        "api/cuda_print.gen.h": lambda: emit_print.value_header(types),
        "api/cuda_print.gen.cc": lambda: emit_print.values(types),
        "api/cuda_observe.gen.h": lambda: emit_print.observe_header(spec),
        "api/cuda_observe.gen.cc": lambda: emit_print.observe(spec),
        "api/cuda_call_text.gen.cc": lambda: emit_print.call_text(spec),
        "api/coverage.gen.h": lambda: emit_coverage.emit(spec),
        "api/resolve.gen.inc": lambda: emit_resolve.emit(room),
    }


def show(outputs, name):
    for path, make in outputs.items():
        for block in re.findall(rf"^[^\n]*\b{name}\w*\b[^\n]*\n(?:[^\n]+\n)*", make(), re.M):
            print(f"// {path}\n{block}")


def main():
    out = pathlib.Path(sys.argv[1])
    room = load.room_of(__file__)
    _, outputs = outputs_of(room, "--update-registry" in sys.argv)
    if "--list" in sys.argv:
        print("\n".join(str(out / name) for name in outputs))
    elif "--show" in sys.argv:
        show(outputs, sys.argv[sys.argv.index("--show") + 1])
    else:
        for name, make in outputs.items():
            write(out / name, make())


if __name__ == "__main__":
    main()
