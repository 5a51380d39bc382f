# SPDX-License-Identifier: Apache-2.0
"""Reads the .spec files of one API: who answers each entry point, and what travels. It makes Call
and Op objects and checks them. docs: api/README.md."""

import dataclasses
import re

from load import Param, Signature

FIELD_TYPES = {
    "u32": "uint32_t",
    "u64": "uint64_t",
    "i32": "int32_t",
    "f32": "float",
    "bytes": "Bytes",
    "u32[]": "Array<uint32_t>",
    "u64[]": "Array<uint64_t>",
    "i32[]": "Array<int32_t>",
}
RECORD_TYPES = {name: FIELD_TYPES[name] for name in ("u32", "u64", "i32", "f32")}
# The types of C scalars on the wire. Other scalars are enums, 32-bit integers or in api.ini.
SCALARS = {
    "size_t": "uint64_t",
    "unsigned long long": "uint64_t",
    "long long": "int64_t",
    "int": "int32_t",
    "float": "float",
}
WITH_MESSAGE = ("call", "enqueue")  # the generator writes body, message and usually the handler


class SpecError(Exception):
    pass


def type_name(name):
    """The C++ type for a name: launch_shape -> LaunchShape."""
    return "".join(word.capitalize() for word in name.split("_"))


@dataclasses.dataclass
class Field:
    name: str
    cpp: str  # C++ type in the message


@dataclasses.dataclass
class Argument:
    param: Param
    # in, out, out?, inout, new, new?, use, destroy, known, image, image?, string, translated. Only
    # for printing (`local` lines): text (a buffer that the call fills with a string), address
    # (nothing is said about what it points to).
    direction: str
    count: str = ""  # expression over other arguments, for arrays
    kind: str = None  # enumerator of api.ini's kinds, if it is a handle or points to handles
    method: str = None  # of Forward and Scope, for the direction `translated`

    @property
    def pointee(self):
        return pointee_of(self.param.ctype)


def pointee_of(ctype):
    """The type that an argument is about: CUevent for `CUevent` and for `const CUevent *`."""
    return ctype.replace("const ", "").replace("*", "", 1).strip()


@dataclasses.dataclass
class Call:
    signature: Signature
    kind: str  # local, call, enqueue, or a word of api.ini's [answers]
    reason: str = ""
    arguments: list = dataclasses.field(default_factory=list)
    needs_context: bool = True
    by_hand: bool = False  # the worker's handler; the generator writes the rest
    checked: bool = False  # the client looks at the arguments first, by hand
    source: str = ""


@dataclasses.dataclass
class Op:
    name: str
    request: list
    reply: object  # list of Field; None: nobody waits
    call: object = None  # the Call it was derived from, or None
    number: int = 0

    @property
    def layout(self):
        def side(fields):
            return ",".join(f"{f.name}:{f.cpp}" for f in fields)

        tail = "" if self.reply is None else "->" + side(self.reply)
        return f"{self.name}({side(self.request)}){tail}"


class Spec:
    def __init__(self, api):
        self.api = api
        self.signatures = api.signatures
        self.calls, self.ops, self.aliases, self.refused_types = {}, {}, {}, {}
        self.enums, self.records = {}, {}  # of messages: {name: [words]}, {name: [Field]}
        lines = list(self.lines())
        for wanted in ("enum", "record", "call"):  # types first: any file may use them
            for path, number, text in lines:
                word = text.split(None, 1)[0]
                if wanted == (word if word in ("enum", "record") else "call"):
                    self.read_checked(path, number, text)
        self.complete()
        self.arguments_match()

    def lines(self):
        for path in sorted(self.api.room.glob("*.spec")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                text = line.split("#", 1)[0].strip()
                if text:
                    yield path, number, text

    def read_checked(self, path, number, text):
        try:
            self.read(text, path.stem)
        except KeyError as error:
            raise SpecError(f"{path.name}:{number}: there is no {error}") from error
        except (SpecError, ValueError) as error:
            raise SpecError(f"{path.name}:{number}: {error}") from error

    def read(self, text, source):
        head, _, reason = text.partition(" : ")
        word, rest = head.split(None, 1)
        if word == "op":
            self.read_op(rest)
        elif word == "enum":
            name, *words = rest.split()
            self.enums[name] = words
        elif word == "record":
            name, *fields = rest.split()
            self.records[name] = [self.field(text, RECORD_TYPES) for text in fields]
        elif word == "alias":
            name, target = rest.split()
            self.aliases[name] = target
        elif word == "refuse-type":
            self.refused_types[rest.strip()] = reason
        elif word == "local" or word in WITH_MESSAGE or word in self.api.answers:
            self.read_call(word, rest.split(), reason, source)
        else:
            raise SpecError(f"unknown word '{word}'")

    def read_op(self, rest):
        name, _, body = rest.partition(" ")
        body = " " + body + " "
        request, arrow, reply = body.partition(" -> ") if " -> " in body else (body, "", "")
        if name in self.ops:
            raise SpecError(f"op {name} twice")

        def fields(text):
            return [self.field(item, FIELD_TYPES) for item in text.split()]

        self.ops[name] = Op(name, fields(request), fields(reply) if arrow else None)

    def field(self, text, types):
        """Reads `name:type`. The type is one of `types`, or the name of an enum or a record."""
        name, _, kind = text.partition(":")
        if types is FIELD_TYPES and (kind in self.enums or kind in self.records):
            return Field(name, type_name(kind))
        array = re.fullmatch(r"(\w+)(\[\d+\])", kind)  # of a record only
        if array and types is RECORD_TYPES:
            return Field(name, types[array.group(1)] + array.group(2))
        return Field(name, types[kind])

    def read_call(self, kind, words, reason, source):
        signature = self.signatures[words[0]]
        if signature.name in self.calls:
            raise SpecError(f"{signature.name} twice")
        call = Call(signature, kind, reason, source=source)
        stated = {}
        for word in words[1:]:
            if word == "noctx":
                call.needs_context = False
            elif word == "by-hand":
                call.by_hand = True
            elif word == "checked":
                call.checked = True
            else:
                name, _, direction = word.partition("=")
                stated[name] = direction
        if kind in WITH_MESSAGE:
            call.arguments = [self.argument(p, stated.pop(p.name, None)) for p in signature.params]
            self.ops[signature.name] = self.derive_op(call)
        elif kind == "local":
            call.arguments = [
                self.printed_argument(p, stated.pop(p.name, None)) for p in signature.params
            ]
        if stated:
            raise SpecError(f"{signature.name} has no argument {', '.join(stated)}")
        self.calls[signature.name] = call

    def argument(self, param, stated):
        argument = self.directed(param, stated)
        argument.kind = self.api.kind_of.get(argument.pointee)
        return argument

    def directed(self, param, stated):
        match = re.fullmatch(r"([a-z]+\??)(?:\[(.*)\])?", stated or "")
        if match:
            return Argument(param, match.group(1), match.group(2) or "")
        if stated:
            raise SpecError(f"bad direction '{stated}'")
        if param.ctype in self.api.translated:
            return Argument(param, "translated", method=self.api.translated[param.ctype][0])
        if param.ctype in self.api.kind_of:
            return Argument(param, "use")
        if "*" not in param.ctype:
            return Argument(param, "in")
        if param.ctype == "const char *":
            return Argument(param, "string")
        raise SpecError(f"state a direction for {param.ctype}{param.name}")

    def printed_argument(self, param, stated):
        """An argument of a `local` line. Its direction says what may be printed. A pointer
        without a direction is printed as a number."""
        if stated is None and "*" in param.ctype and param.ctype != "const char *":
            return Argument(param, "address")
        return self.argument(param, stated)

    def scalar(self, ctype):
        """Message type of a scalar. Every scalar travels at its width in the ABI."""
        if ctype in self.api.scalars:
            return FIELD_TYPES[self.api.scalars[ctype]]
        return SCALARS.get(ctype, "uint32_t")

    def derive_op(self, call):
        request, reply = [], []
        for a in call.arguments:
            ctype = a.param.ctype.replace("const ", "")
            pointee = a.pointee
            if a.direction in ("use", "destroy", "new", "new?"):
                request.append(Field(a.param.name, "uint64_t"))
            elif a.direction == "known":
                reply.append(Field(a.param.name, "Array<uint64_t>" if a.count else "uint64_t"))
            elif a.direction == "translated":
                field_type = self.api.translated[a.param.ctype][1]
                request.append(Field(a.param.name, FIELD_TYPES[field_type]))
            elif a.direction == "string":
                request.append(Field(a.param.name, "Bytes"))
            elif a.direction in ("in", "in?") and a.count:
                plain = "uint8_t" if pointee == "void" else pointee
                element = "uint64_t" if a.kind else plain
                request.append(Field(a.param.name, f"Array<{element}>"))
            elif a.direction == "in":
                request.append(Field(a.param.name, self.scalar(ctype)))
            elif a.direction == "image":
                request.append(Field(a.param.name, f"Image<{pointee}>"))
            elif a.direction == "image?":
                request.append(Field(a.param.name, f"Optional<{pointee}>"))
            elif a.direction in ("out", "out?") and a.count:
                reply.append(Field(a.param.name, f"Array<{pointee}>"))
            elif a.direction in ("out", "out?"):
                reply.append(Field(a.param.name, f"Image<{pointee}>"))
            elif a.direction == "inout":
                request.append(Field(a.param.name, f"Image<{pointee}>"))
                reply.append(Field(a.param.name, f"Image<{pointee}>"))
            else:
                raise SpecError(f"{call.signature.name}: direction {a.direction} of {a.param.name}")
        return Op(call.signature.name, request, reply if call.kind == "call" else None, call)

    def complete(self):
        """Gives every exported symbol a Call: a described one, an alias, a per-thread twin, or the
        answer for names that no line describes."""
        for name, target in self.aliases.items():
            if name not in self.signatures or target not in self.calls:
                raise SpecError(f"alias {name} -> {target}: no such symbol")
        for name, signature in self.signatures.items():
            base = self.api.without_per_thread(name)
            if base != name or name in self.calls or name in self.aliases:
                continue
            types = " ".join(p.ctype for p in signature.params)
            reason = next(
                (r for t, r in self.refused_types.items() if re.search(rf"\b{t}\b", types)),
                "not described yet",
            )
            self.calls[name] = Call(signature, self.api.default_answer, reason, source="refused")

    def arguments_match(self):
        """Checks that the arguments of aliases convert one by one."""
        for name, target in self.aliases.items():
            mine, theirs = self.signatures[name].params, self.signatures[target].params
            if len(mine) != len(theirs):
                raise SpecError(f"alias {name} -> {target}: different number of arguments")
            for a, b in zip(mine, theirs):
                same = re.sub(r"\W", "", a.ctype) == re.sub(r"\W", "", b.ctype)
                if not same and ("*" in a.ctype) != ("*" in b.ctype):
                    raise SpecError(f"alias {name} -> {target}: {a.ctype} against {b.ctype}")

    def body_of(self, symbol):
        """The symbol whose body serves `symbol`."""
        base = self.api.without_per_thread(symbol)
        return self.aliases.get(base, base)

    def has_body(self, call):
        return call.kind == "local" or call.kind in WITH_MESSAGE

    def bodies(self):
        return [call for _, call in sorted(self.calls.items()) if self.has_body(call)]
