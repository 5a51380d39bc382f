#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of whole programs in docs/performance.md from the speed.json that run_all
left.

    tools/gpu/speed_tables.py [--print] SPEED.json...

What a later file has replaces what an earlier one has, so that a part can be measured again.
Only the part between the page's two marks is written.
"""

import argparse
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs/performance.md"
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import meters  # noqa: E402
import pages  # noqa: E402

TITLES = {
    "resnet50-train-b64": "ResNet-50 training, batch 64",
    "gpt2-train-8x512": "GPT-2 training, 8 x 512",
    "gpt2-generate-32": "GPT-2 generating 32 tokens",
    "gpt2-compiled-8x128": "GPT-2 forward, torch.compile, 8 x 128",
    "resnet50-replay-b8": "ResNet-50 inference as a CUDA graph, batch 8",
    "jax-transformer-train-8x512": "JAX training loop, a transformer, 8 x 512",
}
BUSY = 0.9  # of native's time; below that, native waits for its processor
REMOTE = ("tcp", "shm")


def source(run):
    gpu, driver = (run["gpu"].split(",") + [""])[:2]
    return f"{run['date'][:10]}, {gpu.strip()}, driver {driver.strip()}, commit {run['commit']}"


def merged(files):
    """(facts, where each came from)."""
    facts, sources = {}, []
    for run in files:
        seen = run["speed"]
        for part, value in seen.items():
            facts[part] = {**facts.get(part, {}), **value} if isinstance(value, dict) else value
        if source(run) not in sources:
            sources.append(source(run))
    return facts, "; ".join(sources)


def milliseconds(figures):
    digits = 2 if figures["ms"] < 100 else 0
    return (
        f"{figures['ms']:.{digits}f} ms ({figures['q1']:.{digits}f} to {figures['q3']:.{digits}f})"
    )


def ratio(native, figures):
    middle, least, most = meters.ratio(native, figures)
    bold = "**" if middle < 0.98 else ""
    return f"{bold}{middle:.3f}{bold} ({least:.2f} to {most:.2f})"


def own_spread(native):
    spread = meters.own_spread(native)
    return f"{spread[0]:.2f} to {spread[1]:.2f}" if spread else ""


def model_table(models):
    lines = [
        (
            "| | native | native / native | GPU at work | TCP | native / TCP | shared memory |"
            " native / shm | round trips, TCP; shm |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, held in models.items():
        sides = held["sides"]
        native = sides.get("native")
        if native is None:
            continue
        work = ""
        if "busy_ms" in held:
            part = held["busy_ms"] / native["ms"]
            work = f"{held['busy_ms']:.2f} ms" + (f", {100 * part:.0f} %" if part < BUSY else "")
        cells = [TITLES.get(name, name), milliseconds(native), own_spread(native), work]
        for side in REMOTE:
            figures = sides.get(side)
            cells += (
                [milliseconds(figures), ratio(native, figures)] if figures else ["no figure", ""]
            )
        cells.append(
            "; ".join(f"{sides[side]['trips']:.1f}" if side in sides else "-" for side in REMOTE)
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def row(title, values, reach):
    cells = [title, *(values.get(side, "") for side in ("native", *REMOTE)), reach]
    return "| " + " | ".join(cells) + " |"


def start_table(facts):
    lines = ["| | native | TCP | shared memory | reach |", "|---|---|---|---|---|"]
    return lines + [*first_rows(facts), *torch_rows(facts), *idle_rows(facts)]


def first_rows(facts):
    first = {
        side: f"{statistics.median(times):.0f} ms ({times[0]:.0f} to {times[-1]:.0f})"
        for side, times in facts.get("first_result_ms", {}).items()
        if times
    }
    if first:
        yield row("exec to the first result of a small program, a worker waiting", first, "0.1 s")
        yield row("the same, no worker waiting", {"tcp": first.get("cold", "")}, "-")


def torch_rows(facts):
    torch = {
        side: turns["second"]
        for side, turns in facts.get("torch_start", {}).items()
        if "second" in turns
    }
    if torch:
        yield row(
            "PyTorch's second start: `import torch` and `torch.zeros(1)`",
            {side: f"{seen['zeros']:.2f} s" for side, seen in torch.items()},
            "-",
        )
        yield row(
            "of it after the import",
            {
                side: f"{(seen['zeros'] - seen['imported']) * 1e3:.0f} ms"
                for side, seen in torch.items()
            },
            "-",
        )
        yield row(
            "code that it uploads, a product included",
            {side: f"{seen['code']:,} bytes" for side, seen in torch.items() if side != "native"},
            "0",
        )
        yield row(
            "memory of the program then, resident; its own",
            {
                side: f"{seen['memory']['VmRSS']:.0f}; {seen['memory']['RssAnon']:.0f} MB"
                for side, seen in torch.items()
            },
            "-",
        )


def idle_rows(facts):
    cpu = facts.get("launch_cpu_us", {})
    if cpu:
        yield row(
            "processor time of a launch: the program's; the server's",
            {
                side: (
                    f"{used['program']:.2f} us"
                    + (f"; {used['server']:.2f} us" if side != "native" else "")
                )
                for side, used in cpu.items()
            },
            "-",
        )
    idle = facts.get("idle", {})
    if idle:
        yield row(
            "processor time of a PyTorch program that does nothing; of its server",
            {
                side: (
                    f"{100 * seen['cpu']:.2f} %"
                    + (f"; {100 * seen['served']:.2f} %" if side != "native" else "")
                )
                for side, seen in idle.items()
            },
            "-",
        )


def tables(files):
    facts, sources = merged(files)
    head = [
        f"Measured with `run_all --only speed`: {sources}.",
        "Medians and quartiles of blocks of steps. The sides take turns on the same",
        "processors. A ratio is the median (least to most) of single turns against native's",
        "turns before and after them. Native's own turns against each other show how much the",
        'host varies. A per cent figure under "GPU at work" means that the GPU is idle for',
        "the rest of native's step: native waits for its processor, so a program that runs",
        "ahead is faster. Bold: below 0.98.",
        "",
    ]
    return "\n".join(head + model_table(facts.get("models", {})) + [""] + start_table(facts))


def main():
    parser = argparse.ArgumentParser(prog="speed_tables.py")
    parser.add_argument("--print", action="store_true", help="print instead of writing")
    parser.add_argument("results", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    text = tables([json.loads(path.read_text())["run"] for path in args.results])
    print(text) if args.print else pages.write(PAGE, "speed_tables.py", text)


if __name__ == "__main__":
    main()
