# SPDX-License-Identifier: Apache-2.0
"""Rules about the version: CMakeLists.txt is its one source, CHANGELOG.md has a section for it, and
tags are `v` and a version."""

import re

NUMBER = r"\d+\.\d+\.\d+"


def version(cmake):
    """The version in the text of CMakeLists.txt, None without one."""
    match = re.search(rf"^project\(tendril VERSION ({NUMBER})\b", cmake, re.M)
    return match.group(1) if match else None


def changelog(source, wanted):
    """The first section of CHANGELOG.md is the one of this version."""
    match = re.search(r"^## (\S+?),?(?:\s.*)?$", source, re.M)
    found = match.group(1) if match else "none"
    if found == wanted:
        return []
    return [f"CHANGELOG.md: the first section is of {found}; CMakeLists.txt says {wanted}"]


def tags(names, here, wanted):
    """names: all tags; here: those of this commit. A tag names the version of its commit."""
    problems = [
        f"the tag '{name}' is not 'v' and a version"
        for name in names
        if not re.fullmatch(f"v{NUMBER}", name)
    ]
    problems += [
        f"this commit has the tag '{name}'; CMakeLists.txt says {wanted}"
        for name in here
        if re.fullmatch(f"v{NUMBER}", name) and name != f"v{wanted}"
    ]
    return problems
