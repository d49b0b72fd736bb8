"""Uniform parameters: one declaration gives the WGSL struct and the packed bytes.

Layout rules: WGSL specification, section 14.4 (memory layout), uniform address space.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from pyruntime.ir import Unsupported
from pyruntime.ir.symbolic.dims import Dim, hint, is_dim

__all__ = ["Fields", "Params", "Patch", "Values", "declare", "extended", "fields_of", "nbytes", "pack"]

Fields = tuple[tuple[str, str], ...]
"""(name, WGSL type) in order. Types: u32, i32, f32, vec4 of these, array<vec4<...>, N>."""

Values = Mapping[str, float | int | Sequence[float]]
"""Values of fields by their names."""

_TYPE = re.compile(
    r"^(?:array<\s*vec4<(?P<a>u32|i32|f32)>\s*,\s*(?P<n>\d+)u?\s*>|vec4<(?P<v>u32|i32|f32)>|(?P<s>u32|i32|f32))$"
)
_CODES = {"u32": "I", "i32": "i", "f32": "f"}
_PLAIN = frozenset({int, float, bool})
"""Types of numbers that hold for all sizes."""


Patch: TypeAlias = tuple[int, str, Dim]
"""(offset, 'u32', 'i32' or 'f32', the number that belongs there): what a run with other sizes writes."""


class Params(bytes):
    """A struct's bytes for the sizes seen, and what other sizes change in them."""

    patches: tuple[Patch, ...] = ()

    @staticmethod
    def of(data: bytes, patches: Sequence[Patch]) -> bytes:
        """Return the bytes of a struct, with patches if some fields depend on dynamic dimensions."""
        if not patches:
            return data
        made = Params(data)
        made.patches = tuple(patches)
        return made


def fields_of(values: Values, kinds: Mapping[str, str] | None = None) -> Fields:
    """Return the fields of a struct for `values`.

    Types are those of `kinds`, by name; otherwise f32 for a float, u32 for another number, and a vec4 of these for a
    sequence.
    """

    def kind(value: float | int | Sequence[float]) -> str:
        if isinstance(value, list | tuple):
            return f"vec4<{'f32' if any(isinstance(v, float) for v in value) else 'u32'}>"
        return "f32" if isinstance(value, float) else "u32"

    given = kinds or {}
    return tuple((name, given.get(name) or kind(value)) for name, value in values.items())


def declare(fields: Fields) -> str:
    """`struct Params { ... }` in WGSL."""
    return "struct Params { " + ", ".join(f"{name}: {kind}" for name, kind in fields) + " }"


@lru_cache(maxsize=512)
def _numbers(kind: str) -> tuple[str, int]:
    """What a field of this type holds and how many of them; 0 of a type that has no place here."""
    found = _TYPE.match(kind)
    if not found:
        return "", 0
    if found["s"]:
        return found["s"], 1
    return found["v"] or found["a"], 4 * int(found["n"] or 1)


def pack(fields: Fields, values: Values) -> bytes:
    """Return the struct's bytes; `Params` if values are Dims.

    u32 fields take integers modulo 2^32. Short vectors are padded with zeros.

    Raises:
        KeyError: a field without value. ValueError: a value without field, or one too long.
        Unsupported: an i32 that has more than 32 bits.
    """
    code, counts, kinds = _packing(fields)
    if len(values) != len(counts) or not all(map(counts.__contains__, values)):
        unknown = sorted(values.keys() - counts.keys())
        if unknown:
            raise ValueError(f"Params has no field {', '.join(unknown)}; it has {', '.join(counts)}")
    numbers: list[Any] = []
    for name, count in counts.items():
        value = values[name]
        if not isinstance(value, list | tuple):
            numbers.append(value)
            filled = 1
        else:
            numbers += value
            filled = len(value)
            if filled > count:
                raise ValueError(f"Params.{name} holds {count} numbers, got {filled}")
        if filled < count:
            numbers += (0,) * (count - filled)
    if _PLAIN.issuperset(map(type, numbers)):
        wrapped = [int(n) & 0xFFFFFFFF if k == "u32" else n for n, (_, k) in zip(numbers, kinds, strict=False)]
        return _packed(code, wrapped)
    patches: list[Patch] = []
    for i, (at, kind) in enumerate(kinds):
        number = numbers[i]
        if is_dim(number):
            patches.append((at, kind, number))
            number = numbers[i] = hint(number)
        if kind == "u32":
            numbers[i] = int(number) & 0xFFFFFFFF
    return Params.of(_packed(code, numbers), patches)


def _packed(code: str, numbers: Sequence[Any]) -> bytes:
    try:
        return struct.pack(code, *numbers)
    except struct.error:
        largest = max((int(n) for n in numbers if not isinstance(n, float)), key=abs, default=0)
        if -(1 << 31) <= largest < 1 << 31:
            raise
        raise Unsupported(f"a kernel's parameters have 32 bits, and one of them would be {largest}") from None


@lru_cache(maxsize=512)
def _packing(fields: Fields) -> tuple[str, dict[str, int], list[tuple[int, str]]]:
    """How a struct is packed: for `struct.pack`; numbers of each field; offset and type of each number."""
    code, size = "<", 0
    counts: dict[str, int] = {}
    kinds: list[tuple[int, str]] = []
    for name, kind in fields:
        base, count = _numbers(kind)
        if not count:
            raise ValueError(f"Params.{name}: unsupported type {kind}")
        pad = -size % (4 if count == 1 else 16)
        code += f"{pad}x{count}{_CODES[base]}"
        size += pad
        kinds += [(size + 4 * i, base) for i in range(count)]
        size += 4 * count
        counts[name] = count
    return f"{code}{-size % 16}x", counts, kinds


def nbytes(fields: Fields) -> int:
    """Bytes of a struct without padding at its end."""
    size = 0
    for _, kind in fields:
        base, count = _numbers(kind)
        if not base:
            raise ValueError(f"Params: unsupported type {kind}")
        size += -size % (4 if count == 1 else 16) + 4 * count
    return size


def extended(params: bytes, own: int, fields: Fields, values: Values) -> bytes:
    """The first `own` bytes of a packed struct with further fields after them, padded to whole vec4s."""
    added = pack(fields, values)
    kept = [p for p in getattr(params, "patches", ()) if p[0] < own]
    moved = [(own + at, kind, dim) for at, kind, dim in getattr(added, "patches", ())]
    data = params[:own] + added
    return Params.of(data + bytes(-len(data) % 16), [*kept, *moved])
