# SPDX-License-Identifier: Apache-2.0
"""One API as the generator knows it: the facts of its folder (signatures, types, constants), its
api.ini and its .spec files. It knows no vendor: api.ini has all that differs between APIs."""

import configparser
import dataclasses
import re

import load
import registry
import spec

KIND_TRAITS = ("returned", "ends-unnamed")
NO_ANSWER_WORDS = ("local", "call", "enqueue", "op", "alias", "record", "enum")


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
    """The C++ constant for a name: green_context -> kGreenContext."""
    return "k" + "".join(word.capitalize() for word in name.split("_"))


class Api:
    def __init__(self, room):
        self.room = room
        self.name = room.name
        if not (room / "api.ini").exists():
            raise ApiError(f"{room}/api.ini: no such file; --api takes a name in api/ or a folder")
        self.ini = configparser.ConfigParser(
            delimiters=("=",), comment_prefixes=("#",), interpolation=None
        )
        self.ini.optionxform = str  # C types have capital letters
        self.ini.read(room / "api.ini")
        self.read_settings()
        self.read_facts()
        self.spec = spec.Spec(self)
        self.digest = None  # of every message's layout; set by `number_operations`

    def read_settings(self):
        self.title = self.setting("api", "title")
        self.outputs = self.setting("api", "outputs").split()
        self.result = self.setting("api", "result")
        self.success = self.setting("api", "success", "")
        self.unsupported = self.setting("api", "unsupported", "")
        self.per_thread_suffixes = self.setting("api", "per_thread_suffixes", "").split()
        self.kinds = [self.read_kind(*item) for item in self.section("kinds").items()]
        self.kind_of = {kind.ctype: kind.enumerator for kind in self.kinds}
        self.reserved_ids = {
            constant_name(name): int(number)
            for name, number in self.section("reserved-ids").items()
        }
        self.translated = {
            ctype: tuple(text.split()) for ctype, text in self.section("translated").items()
        }
        self.scalars = dict(self.section("scalars"))
        self.answers = dict(self.section("answers"))
        for word in self.answers:
            if word in NO_ANSWER_WORDS:
                raise ApiError(f"{self.room}/api.ini: [answers] must not redefine '{word}'")
        self.default_answer = next(iter(self.answers), None)

    def read_facts(self):
        self.signatures = load.load_signatures(self.room)
        self.constants = load.load_constants(self.room)
        self.types = (self.room / "types.txt").read_text()
        names = self.setting("unlisted", "file", "")
        self.unlisted = (self.room / names).read_text().split() if names else []

    def section(self, name):
        return self.ini[name] if self.ini.has_section(name) else {}

    def setting(self, section, name, default=None):
        value = self.section(section).get(name, default)
        if value is None:
            raise ApiError(f"{self.room}/api.ini: [{section}] lacks {name}")
        return value

    def includes(self, section, name):
        """The headers of a setting as include lines: the file's own header, then the others."""
        headers = self.setting(section, name).split()
        return "".join(f'#include "{header}"\n' for header in headers)

    def read_kind(self, name, text):
        ctype, *traits = text.split()
        for trait in traits:
            if trait not in KIND_TRAITS:
                raise ApiError(f"{self.room}/api.ini: kind {name}: no trait '{trait}'")
        return Kind(name, ctype, "returned" in traits, "ends-unnamed" in traits)

    def without_per_thread(self, name):
        for suffix in self.per_thread_suffixes:
            if name.endswith(suffix):
                return name[: -len(suffix)]
        return name

    def note(self, source="*.spec"):
        return f"// Generated from api/{self.name}/{source} by api/gen; do not edit.\n"

    def records(self):
        """The declaration of each structure and union, by name."""
        found = re.findall(r"^((?:struct|union) (\w+) \{.*?^\};)", self.types, re.M | re.S)
        return {name: body for body, name in found}

    def number_operations(self, update):
        """Gives each operation its permanent number. An API without operations needs nothing."""
        if self.spec.ops:
            self.digest = registry.assign(self, update)
