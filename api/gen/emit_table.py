# SPDX-License-Identifier: Apache-2.0
"""NAME_table.gen.h: the entry points in the order in which a loader's table of functions has them.
The order is in the file that `[api] table` names."""


def emit(api):
    names = (api.room / api.setting("api", "table")).read_text().split()
    lines = [
        f"{api.note('*.txt')}#pragma once\n\n",
        "// X(symbol): every slot of the loader's table, in its order.\n",
        f"#define TENDRIL_{api.name.upper()}_TABLE(X) \\\n",
    ]
    lines += [f"  X({name}) \\\n" for name in names]
    return "".join(lines) + "\n"
