# SPDX-License-Identifier: Apache-2.0
"""Reads api/NAME/api.ini: what the generator must know of an API beside its types and its entry points. Knows no vendor."""

import configparser
import dataclasses

KIND_TRAITS = ("returned", "ends-unnamed")


class ApiError(Exception):
    pass


@dataclasses.dataclass
class Kind:
    name: str  # "green_context"
    ctype: str
    returned: bool
    ends_unnamed: bool

    @property
    def enumerator(self):
        return constant_name(self.name)


def constant_name(name):
    """green_context as C++ names a constant: kGreenContext."""
    return "k" + "".join(word.capitalize() for word in name.split("_"))


class Api:
    def __init__(self, room):
        self.room = room
        self.name = room.name
        self.ini = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",))
        self.ini.optionxform = str  # C types have capital letters
        self.ini.read(room / "api.ini")
        self.kinds = [self.read_kind(*item) for item in self.section("kinds").items()]
        self.reserved_ids = {
            constant_name(name): int(number) for name, number in self.section("reserved-ids").items()
        }
        self.kind_of = {kind.ctype: kind.enumerator for kind in self.kinds}

    def section(self, name):
        return self.ini[name] if self.ini.has_section(name) else {}

    def read_kind(self, name, text):
        ctype, *traits = text.split()
        for trait in traits:
            if trait not in KIND_TRAITS:
                raise ApiError(f"api/{self.name}/api.ini: kind {name}: no trait '{trait}'")
        return Kind(name, ctype, "returned" in traits, "ends-unnamed" in traits)
