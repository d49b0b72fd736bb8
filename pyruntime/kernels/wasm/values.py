"""Types, values and variables while WGSL is compiled to WebAssembly.

A vector of four floats, or of four truth values, is one v128 ("wide"). Other vectors, arrays and structs are their
parts, each a scalar: integers are mostly addresses, which are needed one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyruntime.kernels.wasm.code import const_f32, const_i32, const_v128, get, lane, memory, op

__all__ = [
    "BOOL",
    "F32",
    "FLOAT",
    "I32",
    "INT",
    "SCALARS",
    "U32",
    "Array",
    "Code",
    "Composite",
    "Const",
    "Lane",
    "Local",
    "Memory",
    "Parts",
    "Place",
    "Scalar",
    "Struct",
    "Type",
    "Unsupported",
    "Value",
    "Vector",
    "code_of",
    "consecutive",
    "decoded",
    "element_of",
    "fit",
    "is_const",
    "is_wide",
    "layout",
    "mask_code",
    "offsets",
    "parts_of",
    "raw",
    "scalar_type",
    "stable",
    "stride",
    "zero",
]


class Unsupported(ValueError):
    """The WGSL has something that has no WebAssembly here, such as a barrier between invocations."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """'f32', 'i32', 'u32', 'bool', and the abstract 'int' and 'float' of literals."""

    name: str


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector of 2 to 4 components."""

    size: int
    element: Scalar


@dataclass(frozen=True, slots=True)
class Array:
    """An array; `count` is 0 where it is as long as its buffer."""

    element: Type
    count: int


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct with its members in order."""

    name: str
    members: tuple[tuple[str, Type], ...]

    def index(self, name: str) -> int:
        """The number of a member."""
        return [known for known, _ in self.members].index(name)


Type: TypeAlias = Scalar | Vector | Array | Struct

F32, I32, U32, BOOL, INT, FLOAT = map(Scalar, ("f32", "i32", "u32", "bool", "int", "float"))
SCALARS = {scalar.name: scalar for scalar in (F32, I32, U32, BOOL)}


def is_wide(kind: Type) -> bool:
    """Whether values of this type are one v128."""
    return isinstance(kind, Vector) and kind.size == 4 and kind.element in (F32, BOOL)


def scalar_type(kind: Type) -> Scalar:
    """The type of a scalar, or of a vector's components.

    Raises:
        Unsupported: it is another type.
    """
    if isinstance(kind, Scalar):
        return kind
    if isinstance(kind, Vector):
        return kind.element
    raise Unsupported(f"an operator on {kind}")


def element_of(kind: Type) -> Type:
    """The type of an array's or a vector's elements."""
    if isinstance(kind, Array | Vector):
        return kind.element
    raise Unsupported(f"an index into {kind}")


def parts_of(kind: Type) -> list[Type]:
    """The types of what a vector, array or struct is composed of."""
    if isinstance(kind, Vector):
        return [kind.element] * kind.size
    if isinstance(kind, Array):
        return [kind.element] * kind.count
    return [t for _, t in kind.members] if isinstance(kind, Struct) else []


def layout(kind: Type) -> tuple[int, int]:
    """Bytes and alignment in memory. Source: WGSL specification, 14.4.1."""
    if isinstance(kind, Scalar):
        return 4, 4
    if isinstance(kind, Vector):
        return 4 * kind.size, 8 if kind.size == 2 else 16
    if isinstance(kind, Array):
        return kind.count * stride(kind), layout(kind.element)[1]
    most = max(layout(member)[1] for _, member in kind.members)
    end = offsets(kind)[-1] + layout(kind.members[-1][1])[0]
    return -(-end // most) * most, most


def stride(kind: Array | Vector) -> int:
    """Bytes from an element to the next."""
    size, align = layout(kind.element)
    return -(-size // align) * align


def offsets(kind: Type) -> list[int]:
    """Where the parts of a value are in memory."""
    if isinstance(kind, Array | Vector):
        count = kind.count if isinstance(kind, Array) else kind.size
        return [k * stride(kind) for k in range(count)]
    made, at = [], 0
    for member in parts_of(kind):
        size, align = layout(member)
        at = -(-at // align) * align
        made.append(at)
        at += size
    return made


@dataclass(frozen=True, slots=True)
class Const:
    """A scalar that is known now."""

    type: Scalar
    value: int | float


@dataclass(frozen=True, slots=True)
class Code:
    """Instructions that leave a scalar or a wide vector on the stack.

    Attributes:
        stable: it reads variables that are assigned once, so it may be repeated, and later.
        load: address and offset, where it is one load of four bytes.
        plus: an integer and what is added to it, where it is such a sum.
    """

    type: Type
    code: bytes
    stable: bool = False
    load: tuple[bytes, int] | None = None
    plus: tuple[Code, int] | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """A vector, array or struct, part by part."""

    type: Type
    parts: tuple[Value, ...]


Value: TypeAlias = Const | Code | Parts


@dataclass(frozen=True, slots=True)
class Local:
    """A variable of the function: a scalar or a wide vector."""

    type: Type
    number: int


@dataclass(frozen=True, slots=True)
class Composite:
    """Variables of the function, one for each part; `name` is that of the WGSL variable."""

    type: Type
    parts: tuple[Place, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory at `address` plus `offset`, in bytes; parameters are in `fixed`, which is known now."""

    type: Type
    address: Const | Code
    offset: int
    fixed: bytes | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """A component of a vector in variables."""

    type: Type
    base: Local | Composite
    lane: Const | Code


Place: TypeAlias = Local | Composite | Memory | Lane


def _rounded(value: float) -> float:
    """Return the float32 nearest to `value`; infinity beyond the range."""
    try:
        made: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return made


def fit(kind: Scalar, value: float) -> Const:
    """Return a constant of this type; integers are taken modulo 2^32."""
    if kind == F32:
        return Const(kind, _rounded(value))
    if kind == FLOAT:
        return Const(kind, float(value))
    if kind == BOOL:
        return Const(kind, int(bool(value)))
    if kind == INT:
        return Const(kind, int(value))
    number = int(value) & 0xFFFFFFFF
    return Const(kind, number - (1 << 32) if kind == I32 and number >> 31 else number)


def raw(value: Const) -> bytes:
    """The four bytes of a constant."""
    if value.type in (F32, FLOAT):
        return struct.pack("<f", _rounded(value.value))
    return struct.pack("<I", int(value.value) & 0xFFFFFFFF)


def decoded(kind: Scalar, data: bytes) -> Const:
    """The constant with these four bytes."""
    return Const(kind, struct.unpack({F32: "<f", I32: "<i"}.get(kind, "<I"), data)[0])


def zero(kind: Type) -> Value:
    """The value of a variable without an initial one."""
    if isinstance(kind, Scalar):
        return Const(kind, 0)
    return Parts(kind, tuple(zero(part) for part in parts_of(kind)))


def is_const(value: Value) -> bool:
    """Whether all of a value is known now."""
    return isinstance(value, Const) or (isinstance(value, Parts) and all(map(is_const, value.parts)))


def stable(kind: Type, number: int) -> Code:
    """The value of a variable of the function that is assigned once."""
    return Code(kind, get(number), stable=True)


def code_of(value: Value) -> bytes:
    """Instructions for a scalar or a wide vector."""
    if isinstance(value, Code):
        return value.code
    if isinstance(value, Const):
        return const_f32(raw(value)) if value.type in (F32, FLOAT) else const_i32(int(value.value))
    lanes = value.parts
    if scalar_type(value.type) == BOOL:
        return _masks(lanes)
    if all(isinstance(part, Const) for part in lanes):
        return const_v128(b"".join(raw(part) for part in lanes if isinstance(part, Const)))
    if all(part == lanes[0] for part in lanes):
        first = lanes[0]
        if isinstance(first, Code) and first.load:
            return first.load[0] + memory("v128.load32_splat", first.load[1])
        return code_of(first) + op("f32x4.splat")
    return consecutive(lanes) or _gathered(lanes, 3)


def consecutive(lanes: Sequence[Value]) -> bytes:
    """One load, where the lanes are elements i, i + 1, i + 2 and i + 3 of an array; else nothing."""
    loads = [part.load if isinstance(part, Code) else None for part in lanes]
    if loads[0] is None:
        return b""
    address, offset = loads[0]
    start = address + const_i32(offset) + op("i32.add")
    expected = [[(a, at + 4 * k) for k in range(1, 4)] for a, at in ((address, offset), (start, 0))]
    if not any(loads[1:] == wanted for wanted in expected):
        return b""
    return address + memory("v128.load", offset)


def _masks(lanes: Sequence[Value]) -> bytes:
    made = mask_code(lanes[0]) + op("i32x4.splat")
    for k in range(1, 4):
        if lanes[k] != lanes[0]:
            made += mask_code(lanes[k]) + lane("i32x4.replace_lane", k)
    return made


def _gathered(lanes: Sequence[Value], last: int) -> bytes:
    """A vector of floats of which the lanes up to `last` are set."""
    own = lanes[last]
    load = own.load if isinstance(own, Code) else None
    if last == 0:
        return load[0] + memory("v128.load32_zero", load[1]) if load else code_of(own) + op("f32x4.splat")
    before = _gathered(lanes, last - 1)
    if load:
        return load[0] + before + memory("v128.load32_lane", load[1], last)
    return before + code_of(own) + lane("f32x4.replace_lane", last)


def mask_code(value: Value) -> bytes:
    """A truth value as 0 or -1."""
    if isinstance(value, Const):
        return const_i32(-int(bool(value.value)))
    return const_i32(0) + code_of(value) + op("i32.sub")
