"""A WGSL module, read once: what it declares, mentions, binds, and which functions others may give another body.

This is no compiler. It knows comments, names, braces and what stands outside of them, which is enough for the WGSL of
templates, generated kernels and custom operators; whether a shader is right, the browser says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from sys import intern

from pyruntime.kernels.wgsl.expressions import layout_of, listed, value_of
from pyruntime.kernels.wgsl.params import Fields

__all__ = ["BARRIERS", "CUSTOM", "Entry", "Function", "Module", "Resource"]

BARRIERS = ("workgroupBarrier", "storageBarrier")
"""Functions that wait for the other invocations of a workgroup."""

CUSTOM = "// custom kernel"
"""Ends the WGSL that users have written: nothing is known of its indices."""

_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.S)
_NAME = re.compile(r"[A-Za-z_]\w*+")
_INDEXED = re.compile(r"\[\s*(\w*+)(?<!\d)(?!\.)")
"""Of the text backwards, where what is looked for begins with a bracket: three times as fast."""
_POINTED = re.compile(r"[(,=]\s*&\s*([A-Za-z_]\w*)")
_ADDRESSED = re.compile(r"&\s*([A-Za-z_]\w*)\s*\[")
_ACCESSORS = ("load", "store", "half")
_ACCESSOR = re.compile(r"((?:load|store|half)\d*)_(\w+)")
_RESOURCE = re.compile(
    r"@group\(\s*(\d+)u?\s*\)\s*@binding\(\s*(\d+)u?\s*\)\s*var\s*<\s*(\w+)\s*(?:,\s*(\w+)\s*)?>\s*(\w+)\s*:\s*([^;]+);"
)
_ENABLE = re.compile(r"^[ \t]*enable\s+([\w\s,]+);[ \t]*\n?", re.M)
_SUBGROUP = re.compile(r"subgroup(?<!\wsubgroup)[A-Z]\w*\(")
_ENTRY = re.compile(r"@compute\b[^{};]*?\bfn\s+(\w+)")
_SIZE = re.compile(r"@workgroup_size\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_PARENTHESIS = re.compile(r"[()]")
_ATTRIBUTE = re.compile(r"@\w+(?:\s*\([^()]*\))?")
_OUTSIDE, _WITHIN = re.compile(r"[{};]"), re.compile(r"[{}]")
_DECLARED = re.compile(
    r"\s*(?:@\w+(?:\s*\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*)*"
    r"(fn|struct|const|alias|override|var)\b\s*(?:<\s*(\w+)[^>]*>)?\s*(\w+)"
)


@dataclass(frozen=True, slots=True)
class Function:
    """A function: its `result` is '' where it has none, its `body` is what the braces hold, all of it is at `span`."""

    name: str
    parameters: Fields
    result: str
    body: str
    span: tuple[int, int]

    @property
    def signature(self) -> str:
        """What precedes the body, with single spaces: 'fn f(x: f32, n: u32) -> f32'."""
        given = ", ".join(f"{name}: {kind}" for name, kind in self.parameters)
        return f"fn {self.name}({given}){f' -> {self.result}' if self.result else ''}"

    @property
    def is_hook(self) -> bool:
        """True where it gives back its first argument and does nothing else: others may give it a body."""
        return bool(self.parameters) and self.body.split() == ["return", f"{self.parameters[0][0]};"]


@dataclass(frozen=True, slots=True)
class Resource:
    """A binding: `space` is 'storage' or 'uniform', `access` 'read', 'read_write' or empty."""

    group: int
    binding: int
    space: str
    access: str
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The compute entry point; `size`: invocations in x, y, z as the text says it, numbers or names of constants."""

    name: str
    size: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Declaration:
    kind: str
    space: str
    name: str
    start: int
    """Where the keyword or the first attribute is."""
    brace: int
    """Where its brace opens, -1 where it has none."""
    end: int

    def moved(self, by: int) -> _Declaration:
        return _Declaration(
            self.kind, self.space, self.name, self.start + by, self.brace + by if self.brace >= 0 else -1, self.end + by
        )


class Module:
    """WGSL text and what is in it. `Module.of` reads a text once; all parts are found when they are first asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(text: str) -> Module:
        """Parse WGSL source."""
        return Module(text)

    @cached_property
    def code(self) -> str:
        """The text with blanks in the place of comments."""
        return (
            _COMMENT.sub(lambda found: " " * len(found[0]), self.text)
            if "//" in self.text or "/*" in self.text
            else self.text
        )

    @cached_property
    def names(self) -> Mapping[str, None]:
        """Every name that occurs, of whatever kind, in order of appearance."""
        return dict.fromkeys(map(intern, dict.fromkeys(_NAME.findall(self.code))))

    @cached_property
    def accessors(self) -> Mapping[str, frozenset[str]]:
        """By tensor the accessors it is used with: `load_x(i)` and `store4_x(...)` make {'x': {'load', 'store4'}}."""
        found: dict[str, set[str]] = {}
        for name in self.names:
            if name.startswith(_ACCESSORS) and (match := _ACCESSOR.fullmatch(name)) is not None:
                found.setdefault(match[2], set()).add(match[1])
        return {tensor: frozenset(kinds) for tensor, kinds in found.items()}

    @cached_property
    def indexed(self) -> frozenset[str]:
        """Variables that are indexed as arrays, or pointed to."""
        indexed = (name[::-1] for name in set(_INDEXED.findall(self.code[::-1])) if name)
        return frozenset((*indexed, *_POINTED.findall(self.code)))

    @cached_property
    def addressed(self) -> frozenset[str]:
        """Arrays of which an element's address is taken, as atomic functions need it."""
        return frozenset(_ADDRESSED.findall(self.code))

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        """What it binds, as declared in the text; a kernel's body has none yet."""
        return tuple(
            Resource(int(group), int(number), space, access, name, " ".join(kind.split()))
            for group, number, space, access, name, kind in _RESOURCE.findall(self.code)
        )

    @cached_property
    def extensions(self) -> tuple[str, ...]:
        """What a shader of this text must enable: what the text says, and what the functions it calls need."""
        lists = _ENABLE.findall(self.code) if "enable" in self.code else ()
        said = (name.strip() for names in lists for name in names.split(","))
        implied = ("subgroups",) if _SUBGROUP.search(self.code) else ()
        return tuple(dict.fromkeys((*filter(None, said), *implied)))

    def without_directives(self) -> Module:
        """The module without its `enable` directives, which precede everything else in a shader."""
        if "enable" not in self.code:
            return self
        made, last = "", 0
        for found in _ENABLE.finditer(self.code):
            made, last = made + self.text[last : found.start()], found.end()
        return Module.of((made + self.text[last:]).lstrip("\n")) if last else self

    @cached_property
    def entry(self) -> Entry | None:
        """The entry point; None where it is no whole shader."""
        found = _ENTRY.search(self.code)
        if found is None:
            return None
        size = _SIZE.search(found[0])
        return Entry(found[1], tuple(part.strip() for part in size[1].split(",") if part.strip()) if size else ())

    @cached_property
    def _declarations(self) -> tuple[_Declaration, ...]:
        made, code, start = list[_Declaration](), self.code, 0
        while (mark := _OUTSIDE.search(code, start)) is not None:
            brace, end = -1, mark.end()
            if mark[0] == "{":
                brace, end = mark.start(), _end_of(code, mark.end(), _WITHIN, "{")
            if not end:
                break
            found = _DECLARED.match(code, start, end)
            if found is not None:
                blank = len(found[0]) - len(found[0].lstrip())
                made.append(_Declaration(found[1], found[2] or "", found[3], start + blank, brace, end))
            start = end
        return tuple(made)

    @cached_property
    def declared(self) -> Mapping[str, str]:
        """Text of functions, structs, constants, aliases and variables of the module, by name."""
        return {d.name: self.text[d.start : d.end] for d in self._declarations}

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """The functions by name."""
        return {d.name: self._function(d) for d in self._declarations if d.kind == "fn"}

    def _function(self, declared: _Declaration) -> Function:
        head = self.code[declared.start : declared.brace]
        start = declared.start + re.search(r"\bfn\b", head).start()  # type: ignore[union-attr]
        opened = head.index("(", start - declared.start)
        closed = _end_of(head, opened + 1, _PARENTHESIS, "(") - 1
        if closed < 0:
            raise ValueError(f"a parenthesis is not closed: {head[opened:]}")
        result = " ".join(head[closed + 1 :].replace("->", " ").split())
        body = self.code[declared.brace + 1 : declared.end - 1]
        return Function(declared.name, _members(head[opened + 1 : closed]), result, body, (start, declared.end))

    @cached_property
    def hooks(self) -> Mapping[str, Function]:
        """The functions that others may give a body."""
        return {name: function for name, function in self.functions.items() if function.is_hook}

    @cached_property
    def structs(self) -> Mapping[str, Fields]:
        """Members of the structs by name."""
        return {
            d.name: _members(self.code[d.brace + 1 : d.end].rstrip(" \n;}"))
            for d in self._declarations
            if d.kind == "struct"
        }

    @property
    def params(self) -> Fields:
        """The members of `struct Params`; empty where there is none."""
        return self.structs.get("Params", ())

    @property
    def has_params(self) -> bool:
        """True where it declares `struct Params`."""
        return "Params" in self.structs

    @cached_property
    def workgroup(self) -> Fields:
        """Variables in workgroup memory: names and types."""
        return tuple(
            _members(self.code[d.start : d.end - 1].partition(">")[2])[0]
            for d in self._declarations
            if d.kind == "var" and d.space == "workgroup"
        )

    @cached_property
    def _constants(self) -> Mapping[str, str]:
        """The expressions of the module's constants; what the pipeline may override is none."""
        texts = (self.code[d.start : d.end - 1].partition("=") for d in self._declarations if d.kind == "const")
        return {_NAME.findall(head)[1]: value.strip() for head, _, value in texts}

    @cached_property
    def workgroup_size(self) -> tuple[int, ...]:
        """Invocations of a workgroup in x, y, z; zeros where the text says them in a way that is not read here."""
        try:
            given = [value_of(part, self._constants) for part in self.entry.size] if self.entry else [0]
        except ValueError:
            return 0, 0, 0
        return *given, *(1,) * (3 - len(given))

    @property
    def invocations(self) -> int:
        """Invocations of a workgroup; 0 where they cannot be read."""
        return math.prod(self.workgroup_size)

    @cached_property
    def workgroup_bytes(self) -> int:
        """Bytes of workgroup memory, as `maxComputeWorkgroupStorageSize` counts them; 0 where they cannot be read."""
        named: dict[str, str | Sequence[str]] = {n: [kind for _, kind in f] for n, f in self.structs.items()}
        aliases = (self.code[d.start : d.end - 1].partition("=") for d in self._declarations if d.kind == "alias")
        named |= {_NAME.findall(head)[1]: " ".join(kind.split()) for head, _, kind in aliases}
        try:
            sizes = [layout_of(kind, self._constants, named)[0] for _, kind in self.workgroup]
        except ValueError:
            return 0
        return sum(-(-size // 16) * 16 for size in sizes)

    def with_function(self, name: str, text: str) -> Module:
        """The module with `text` in the place of function `name`.

        Raises:
            KeyError: there is none.
        """
        start, end = self.functions[name].span
        return self._changed(start, end, text)

    def _changed(self, start: int, end: int, text: str) -> Module:
        """The module with `text` in the place of a declaration; what is known of the others is not looked for again."""
        made = Module.of(self.text[:start] + text + self.text[end:])
        known, new = made.__dict__, Module.of(text)
        if "_declarations" not in known and any((d.start, d.end) == (start, end) for d in self._declarations):
            known["code"] = self.code[:start] + new.code + self.code[end:]
            gone = Module.of(self.text[start:end]).names.keys() - new.names.keys()
            if not gone:
                known["names"] = dict.fromkeys((*self.names, *new.names))
            shift = len(text) - (end - start)
            known["_declarations"] = (
                *(d for d in self._declarations if d.end <= start),
                *(d.moved(start) for d in new._declarations),
                *(d.moved(shift) for d in self._declarations if d.start >= end),
            )
        return made

    def with_fields(self, fields: Fields) -> Module:
        """The module with further members at the end of `struct Params`.

        Raises:
            ValueError: there is no such struct.
        """
        found = next((d for d in self._declarations if (d.kind, d.name) == ("struct", "Params")), None)
        if found is None:
            raise ValueError("there is no struct Params to be extended")
        end = self.code.rindex("}", found.brace, found.end)
        last = len(self.code[:end].rstrip())
        comma = "" if self.code[last - 1] in "{," else ","
        added = "".join(f"\n  {name}: {kind}," for name, kind in fields)
        comment = self.text[last:end].rstrip()
        text = f"{self.text[found.start : last]}{comma}{comment}{added}\n{self.text[end : found.end]}"
        return self._changed(found.start, found.end, text)

    def renamed(self, old: str, new: str) -> Module:
        """The module with name `old` replaced, wherever it occurs but in comments and as a member's name."""
        if old not in self.names:
            return self
        made, last = [], 0
        for found in re.finditer(rf"(?<![\w.]){re.escape(old)}\b", self.code):
            made += [self.text[last : found.start()], new]
            last = found.end()
        return Module.of("".join(made) + self.text[last:])


def _end_of(text: str, start: int, signs: re.Pattern[str], bracket: str) -> int:
    """The end of the sign that closes the one opened just before `start`; 0 where none does."""
    depth = 1
    for sign in signs.finditer(text, start):
        depth += 1 if sign[0] == bracket else -1
        if depth == 0:
            return sign.end()
    return 0


def _members(text: str) -> Fields:
    """`name: type` in a list, commas in angle brackets and parentheses aside; attributes are left out."""
    bare = _ATTRIBUTE.sub("", text) if "@" in text else text
    named = (part.partition(":") for part in listed(bare))
    return tuple((name.strip(), " ".join(kind.split())) for name, colon, kind in named if colon)
