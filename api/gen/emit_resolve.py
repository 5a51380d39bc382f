# SPDX-License-Identifier: Apache-2.0
"""NAME_resolve.gen.inc: the answers of cuGetProcAddress for (name, version, flags), from a table
that was measured with a real driver."""


def rows_of(path):
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            base, flag, answers = line.split(",", 2)
            yield base, int(flag), [part.split("=", 1) for part in answers.split()]


def emit(api):
    rows, steps = [], []
    for base, flag, answers in sorted(rows_of(api.room / "procaddress.csv")):
        rows.append(f'    {{"{base}", {flag}, {len(steps)}, {len(answers)}}},\n')
        for version, answer in answers:
            if answer.startswith("0:"):
                steps.append(f"    {{{version}, nullptr, {answer[2:]}, 0}},\n")
            elif answer.startswith("r"):
                steps.append(f"    {{{version}, nullptr, 0, {answer[1:]}}},\n")
            else:
                steps.append(f'    {{{version}, "{answer}", 0, 0}},\n')
    return (
        f"{api.note('procaddress.csv')}"
        f"static constexpr ResolveStep kResolveSteps[] = {{\n{''.join(steps)}}};\n"
        f"static constexpr ResolveRow kResolveRows[] = {{\n{''.join(rows)}}};\n"
    )
