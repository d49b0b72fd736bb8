"""Bytecode that depends on its source alone.

What `marshal` writes of a code object depends on the process that compiled it: a string is marked as interned if an
equal one was interned before, an object as referenced (FLAG_REF) if there is another reference to it. So the same
source gives other bytes after other imports. `canonical` writes the same objects again: strings are interned if they
could be names, as the compiler does; equal objects are one, marked where they occur again; sets are in the order of
their bytes.

Source: Python/marshal.c of CPython, version 4 of the format.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

__all__ = ["canonical"]

HEADER = 16  # of a .pyc: magic number, flags, hash or date and size of the source
FLAG_REF = 0x80
NAME = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
SINGLETONS = frozenset(b"NTFS.")
# Of a code object, as CPython writes it from 3.11 to 3.13: numbers before these objects, and objects after a number.
NUMBERS_BEFORE, OBJECTS, OBJECTS_AFTER = 5, 8, 2

Node = tuple[int, bytes, tuple[int, ...]]
"""Kind, bytes of its own, and the places of its parts among the nodes."""


def canonical(compiled: bytes) -> bytes:
    """A .pyc with the same header and the same objects.

    Raises:
        ValueError: it is not in the format.
    """
    reader = _Reader(compiled[HEADER:])
    root = reader.read()
    if reader.at != len(reader.data):
        raise ValueError(f"{len(reader.data) - reader.at} bytes after the bytecode's end")
    return compiled[:HEADER] + _Writer(reader.nodes, root).data


@dataclass
class _Reader:
    """Objects as nodes, equal ones once."""

    data: bytes
    at: int = 0
    nodes: list[Node] = field(default_factory=list)
    known: dict[Node, int] = field(default_factory=dict)
    refs: list[int] = field(default_factory=list)

    def take(self, count: int) -> bytes:
        self.at += count
        if count < 0 or self.at > len(self.data):
            raise ValueError("the bytecode ends too early")
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        return int(struct.unpack("<i", self.take(4))[0])

    def place(self, kind: str, content: bytes, parts: tuple[int, ...] = ()) -> int:
        node = (ord(kind), content, parts)
        if node not in self.known:
            self.known[node] = len(self.nodes)
            self.nodes.append(node)
        return self.known[node]

    def read(self) -> int:
        """The place of the next object."""
        (tag,) = self.take(1)
        kind, flagged = chr(tag & ~FLAG_REF), tag & FLAG_REF
        if kind == "r":
            return self.refs[self.number()]
        own = len(self.refs)
        if flagged:
            self.refs.append(-1)  # numbered before its parts
        made = self.made(kind)
        if flagged:
            self.refs[own] = made
        return made

    def made(self, kind: str) -> int:
        if ord(kind) in SINGLETONS:
            return self.place(kind, b"")
        if kind in "zZ":
            return self.text("a", self.take(self.take(1)[0]))
        if kind in "aAutls":
            size = self.number()
            if kind == "l":
                return self.place(kind, struct.pack("<i", size) + self.take(2 * abs(size)))
            content = self.take(size)
            return self.place(kind, content) if kind == "s" else self.text("a" if kind in "aA" else "u", content)
        if kind in "igy":
            return self.place(kind, self.take({"i": 4, "g": 8, "y": 16}[kind]))
        if kind in ")(<>":
            count = self.take(1)[0] if kind == ")" else self.number()
            parts = tuple(self.read() for _ in range(count))
            return self.place("(", b"", parts) if kind in ")(" else self.place(kind, b"", self.sorted(parts))
        if kind == "c":
            numbers = self.take(4 * NUMBERS_BEFORE)
            parts = tuple(self.read() for _ in range(OBJECTS))
            numbers += self.take(4)
            return self.place(kind, numbers, (*parts, *(self.read() for _ in range(OBJECTS_AFTER))))
        raise ValueError(f"bytecode of an unknown kind, {kind!r}")

    def text(self, kind: str, content: bytes) -> int:
        """ASCII ('a') or UTF-8 ('u'); the kinds of interned text are 'A' and 't'."""
        return self.place("A" if kind == "a" and NAME.issuperset(content) else kind, content)

    def sorted(self, parts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(parts, key=lambda part: _Writer(self.nodes, part).data))


class _Writer:
    """The bytes of a node; of those that come several times the first is marked, the others refer to it."""

    def __init__(self, nodes: list[Node], root: int) -> None:
        self.nodes = nodes
        self.counts: dict[int, int] = {}
        self.refs: dict[int, int] = {}
        self.count(root)
        self.parts: list[bytes] = []
        self.write(root)
        self.data = b"".join(self.parts)

    def count(self, place: int) -> None:
        self.counts[place] = self.counts.get(place, 0) + 1
        if self.counts[place] == 1:
            for part in self.nodes[place][2]:
                self.count(part)

    def write(self, place: int) -> None:
        if place in self.refs:
            self.parts.append(b"r" + struct.pack("<i", self.refs[place]))
            return
        tag, content, parts = self.nodes[place]
        kind, flag = chr(tag), 0
        if self.counts[place] > 1 and tag not in SINGLETONS and kind != "i":  # a number is as short as a reference
            flag = FLAG_REF
            self.refs[place] = len(self.refs)
        if kind in "aA" and len(content) < 256:
            tag, head = ord("z" if kind == "a" else "Z"), bytes([len(content)])
        elif kind in "aAus":
            head = struct.pack("<i", len(content))
        elif kind == "(" and len(parts) < 256:
            tag, head = ord(")"), bytes([len(parts)])
        else:
            head = struct.pack("<i", len(parts)) if kind in "(<>" else b""
        self.parts += [bytes([tag | flag]), head]
        if kind != "c":
            self.parts.append(content)
            for part in parts:
                self.write(part)
            return
        self.parts.append(content[: 4 * NUMBERS_BEFORE])
        for part in parts[:OBJECTS]:
            self.write(part)
        self.parts.append(content[4 * NUMBERS_BEFORE :])
        for part in parts[OBJECTS:]:
            self.write(part)
